"""Log lines: Kafka's layout as text, the same fields as JSON."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.errors import ConfigError
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


@pytest.mark.parametrize(("level", "priority"), [("info", 6), ("warning", 4), ("error", 3)])
def test_priorities_for_the_journal(
    level: str, priority: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        found = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        configure_logging("text")
        try:
            raise ValueError("broken")
        except ValueError:
            getattr(logging.getLogger("kbroker.log"), level)("cannot", exc_info=True)
        lines = (tmp_path / "journal").read_text().splitlines()
    assert len(lines) > 2 and all(line.startswith(f"<{priority}>") for line in lines)


@pytest.mark.parametrize("stream", ["", "1:2", "no"])
def test_no_priorities_elsewhere(
    stream: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", stream)
    configure_logging("text")
    logging.getLogger("kbroker.log").info("line")
    assert capfd.readouterr().err.startswith("[")


class TestLogFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "kbroker.log"

    def log(self, message: str) -> None:
        logging.getLogger("kbroker.log").info(message)

    def test_lines_are_appended(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path.write_text("earlier\n")
        configure_logging("text", str(path))
        self.log("one\udcff")
        first, second = path.read_text().splitlines()
        assert first == "earlier" and "INFO one" in second
        assert capsys.readouterr().err == ""

    def test_others_cannot_read_a_new_one(self, path: Path) -> None:
        configure_logging("text", str(path))
        assert path.stat().st_mode & 0o007 == 0

    def test_a_file_that_was_renamed(self, path: Path) -> None:
        configure_logging("text", str(path))
        self.log("one")
        path.rename(path.with_suffix(".1"))
        self.log("two")
        assert "one" in path.with_suffix(".1").read_text() and "two" in path.read_text()
        assert "two" not in path.with_suffix(".1").read_text()

    def test_it_is_opened_again_before_a_line(self, path: Path) -> None:
        opened = configure_logging("text", str(path))
        assert opened is not None
        path.rename(path.with_suffix(".1"))
        assert opened.reopen() and path.read_text() == ""

    def test_without_its_directory_the_old_file_is_written_and_standard_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "logs" / "kbroker.log"
        path.parent.mkdir()
        opened = configure_logging("text", str(path))
        assert opened is not None
        path.parent.rename(tmp_path / "moved")
        assert not opened.reopen()
        self.log("one")
        assert "one" in (tmp_path / "moved/kbroker.log").read_text()
        assert "one" in capsys.readouterr().err

    def test_lines_that_it_cannot_take_go_to_standard_error(
        self, capsys: pytest.CaptureFixture[str], path: Path
    ) -> None:
        opened = configure_logging("text", str(path))
        assert opened is not None
        opened.stream.close()
        path.unlink()
        path.mkdir()  # so it cannot be opened again
        self.log("one")
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and "INFO one" in lines[0]

    @pytest.mark.parametrize("kind", ["directory", "pipe", "missing"])
    def test_a_directory_and_a_pipe_are_refused(self, path: Path, kind: str) -> None:
        if kind == "directory":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path = path / "kbroker.log"
        with pytest.raises(ConfigError, match=r"logging\.file: cannot write"):
            configure_logging("text", str(path))
