"""Lines of checkpoints that cannot be read, and the logs that they may have named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import KafkaError
from kbroker.log.engine.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    UNKNOWN_START,
    read_offset_lines,
)
from kbroker.log.opening.data_directory import DataDirectory
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch
from tests.unit.log.test_data_directories import with_deleted_records
from tests.unit.log.test_manager import OTHER, TOPIC, Managers, lead, managers, run

__all__ = ["managers"]

WORDS = [TopicPartition("words", index) for index in range(4)]


@pytest.fixture
def data(managers: Managers, tmp_path: Path) -> Path:
    """words-0 and words-1 begin at 3, words-2 at 0."""
    with_deleted_records(managers, 0, 1)
    manager = managers.started[-1]
    lead(manager.open("words", 2, TOPIC, {})).append(build_batch())
    manager.stop()
    assert (tmp_path / "data" / LOG_START_FILE).read_text() == "0\n2\nwords 0 3\nwords 1 3\n"
    return tmp_path / "data"


def starts(managers: Managers) -> list[int | None]:
    """Of the three logs; None for one that is not opened."""
    manager = managers.start()
    found: list[int | None] = []
    for index in range(3):
        try:
            found.append(manager.open("words", index, TOPIC, {}, new=False).log_start_offset)
        except KafkaError:
            found.append(None)
    run(manager)
    manager.stop()
    return found


@pytest.mark.parametrize(
    "line",
    ["words 1 x", "words 1 -1", "words 1", "words 1 ", "words 1 3 3", f"words 1 {2**63}"],
)
def test_a_log_whose_start_is_damaged_is_not_opened(
    managers: Managers, data: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its deleted records would be readable again. The others are what they were."""
    path = data / LOG_START_FILE
    path.write_text(f"0\n2\nwords 0 3\n{line}\n")
    for _ in range(2):  # and so it stays
        caplog.clear()
        assert starts(managers) == [3, None, 0]
        warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert any(f"{path}, line 4" in each for each in warned)
        assert any("words-1" in each and str(path) in each for each in warned)
    assert path.read_text() == "0\n2\nwords 0 3\nwords 1 -1\n"
    path.write_text("0\n2\nwords 0 3\nwords 1 2\n")  # a person knows it
    assert starts(managers) == [3, 2, 0]
    assert path.read_text() == "0\n2\nwords 0 3\nwords 1 2\n"


@pytest.mark.parametrize(
    "text",
    [
        "0\n2\nwords 0 3\n\0\0\0\0\0 1 3\n",
        "0\n2\nwords 0 3\nother 1 x\n",  # there is no such log: the name is damaged as well
        "0\n2\nwords 0 3\nwords 0 x\n",
        "0\n2\nwords 0 3\n\n",
        "0\n2\nwords 0 3\nwor",
        "x\n2\nwords 0 3\n",
        "0\nx\nwords 0 3\n",
        "0\n1\nwords 0 3\nwords 1 3",  # perhaps 31
    ],
)
def test_where_a_damaged_line_names_no_log_none_without_a_line_is_opened(
    managers: Managers, data: Path, text: str
) -> None:
    (data / LOG_START_FILE).write_text(text)
    assert starts(managers) == [3, None, None]
    assert read_offset_lines(data / LOG_START_FILE).named == set(WORDS[1:3])
    assert starts(managers) == [3, None, None]


@pytest.mark.parametrize("text", ["", "0\n", "\0" * 40, "1\n2\nwords 0 3\nwords 1 3\n"])
def test_a_file_of_starts_without_a_line_that_can_be_read(
    managers: Managers, data: Path, text: str
) -> None:
    (data / LOG_START_FILE).write_text(text)
    assert starts(managers) == [None, None, None]


def test_a_line_that_is_written_leaves_the_damage_of_others(managers: Managers, data: Path) -> None:
    (data / LOG_START_FILE).write_text("0\n2\nwords 0 3\n?\n")
    manager = managers.start()
    log = lead(manager.open("words", 0, TOPIC, {}, new=False), 1)
    log.delete_records(4)
    assert not manager.checkpointing.write_log_starts([log])
    lines = read_offset_lines(data / LOG_START_FILE)
    assert (lines.offsets, lines.named) == ({WORDS[0]: 4}, set(WORDS[1:3]))


def test_a_log_that_begins_anew_has_its_start(managers: Managers, data: Path) -> None:
    """Its topic was deleted, and another one has the name."""
    (data / LOG_START_FILE).write_text("0\n2\nwords 0 3\nwords 1 x\n")
    manager = managers.start()
    assert manager.open("words", 1, OTHER, {}).log_start_offset == 0
    manager.stop(as_found=True)  # as a crash leaves it
    manager = managers.start()
    assert manager.open("words", 1, OTHER, {}, new=False).log_start_offset == 0


def test_a_file_of_starts_that_is_not_there_names_none(managers: Managers, data: Path) -> None:
    (data / LOG_START_FILE).unlink()
    assert starts(managers) == [0, 0, 0]


@pytest.mark.parametrize("file", [RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE])
def test_other_files_lose_the_damaged_line_alone(
    tmp_path: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is found again in the log, or is less than the broker knows."""
    for index in range(4):
        (tmp_path / str(WORDS[index])).mkdir()
    (tmp_path / file).write_text("0\n4\nwords 0 7\nwords 1 x\nwords 2 8\nwords 3 9\n")
    directory = DataDirectory(tmp_path)
    directory.open()
    assert directory.kept(file) == {WORDS[0]: 7, WORDS[2]: 8, WORDS[3]: 9}
    assert f"{tmp_path / file}, line 4" in caplog.text
    directory.write_checkpoint(file, directory.kept(file))
    assert (tmp_path / file).read_text() == "0\n3\nwords 0 7\nwords 2 8\nwords 3 9\n"
    directory.close(clean=True)


def test_a_line_of_an_unknown_start_is_damage_to_other_readers(data: Path) -> None:
    (data / LOG_START_FILE).write_text(f"0\n1\nwords 1 {UNKNOWN_START}\n")
    assert read_offset_lines(data / LOG_START_FILE).named == {WORDS[1]}
