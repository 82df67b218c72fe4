"""Each test begins without the log lines of the one before it, which would silence its own."""

from __future__ import annotations

import pytest

from kbroker.handlers import reply
from kbroker.handlers.log_lines import LogLines


@pytest.fixture(autouse=True)
def fresh_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "lines", LogLines(reply.logger))
