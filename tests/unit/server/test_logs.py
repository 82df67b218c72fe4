"""Log lines: Kafka's layout as text, the same fields as JSON."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest

from kbroker.server.logs import configure_logging


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def test_text_has_kafkas_layout(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text")
    logging.getLogger("kbroker.request").warning("slow: %d ms", 7)
    pattern = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARNING slow: 7 ms \(kbroker\.request\)\n"
    assert re.fullmatch(pattern, capsys.readouterr().err)


def test_json_is_one_object_a_line_with_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json")
    try:
        raise ValueError("broken \x9b2J")
    except ValueError:
        logging.getLogger("kbroker.log").exception("cannot")
    line = capsys.readouterr().err
    assert line.rstrip("\n").isprintable()
    entry = json.loads(line)
    assert entry["level"] == "ERROR"
    assert entry["logger"] == "kbroker.log"
    assert entry["message"] == "cannot"
    assert "ValueError: broken" in entry["exception"]


def test_no_message_makes_a_second_line_nor_a_long_one(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text")
    log = logging.getLogger("kbroker.groups")
    log.info("group %s", "x\n[2026-11-22 15:12:14,866] ERROR the disk is full (kbroker.log)\x1b[2J")
    log.info("%s", "y" * 1_000_000)
    first, second = capsys.readouterr().err.splitlines()
    assert "x\\n[2026" in first
    assert "\x1b" not in first
    assert len(second) < 5_000


@pytest.mark.parametrize("style", ["text", "json"])
def test_no_line_of_a_traceback_looks_like_an_event(
    style: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(style)
    try:
        raise ValueError("x\n[2026-11-22 15:12:14,866] ERROR forged (kbroker.log)")
    except ValueError:
        logging.getLogger("kbroker.request").exception("failed")
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith(("[", "{")) for line in lines) == 1
