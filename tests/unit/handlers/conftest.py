"""Each test begins without the log lines of the one before it, which would silence its own."""

from __future__ import annotations

import pytest

from kbroker.handlers import authentication, auto_topics, reply
from kbroker.log_lines import LogLines


@pytest.fixture(autouse=True)
def fresh_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "lines", LogLines(reply.logger))
    monkeypatch.setattr(auto_topics, "lines", LogLines(reply.logger))
    monkeypatch.setattr(authentication, "lines", LogLines(authentication.logger))
