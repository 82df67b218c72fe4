"""Log lines: Kafka's layout as text, the same fields as JSON."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from kbroker.server.logs import configure_logging


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    yield text
    root.handlers[:], root.level = before


def test_text_has_kafkas_layout(stderr: io.StringIO) -> None:
    configure_logging("text")
    logging.getLogger("kbroker.request").warning("slow: %d ms", 7)
    pattern = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARNING slow: 7 ms \(kbroker\.request\)\n"
    assert re.fullmatch(pattern, stderr.getvalue())


def test_json_is_one_object_a_line_with_the_traceback(stderr: io.StringIO) -> None:
    configure_logging("json")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("kbroker.log").exception("cannot")
    entry = json.loads(stderr.getvalue())
    assert entry["level"] == "ERROR"
    assert entry["logger"] == "kbroker.log"
    assert entry["message"] == "cannot"
    assert "ValueError: broken" in entry["exception"]
