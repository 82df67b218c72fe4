"""Each file operation of a cleaning fails once, and a crash ends it before any of them.

Whatever fails, and whether the process ends then or stops in order: after the next start, on a
sound disk, the last record of each key is there, nothing that was not there before, the files are
sound, and the log can be cleaned.
"""

from __future__ import annotations

import errno
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import DataDirectoryError, KafkaError
from kbroker.log.engine import file_operations
from kbroker.log.looking.verify import verify
from kbroker.log.upkeep.cleaner import CleanerSettings, LogCleaner
from kbroker.testing.file_faults import Fault, FileFaults
from tests.support import memory
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import CODECS, Record, build_batch
from tests.unit.log.test_cleaner import held

TOPIC: Final = uuid.UUID(int=4)
SETTINGS: Final[dict[str, Any]] = {
    "segment_bytes": 2_000, "compacted": True, "file_delete_delay_ms": 0,
    "index_interval_bytes": 100, "segment_index_bytes": 4_096,
}  # fmt: skip
RECORDS, KEYS = 40, 4
EXPECTED: Final = (OSError, KafkaError, DataDirectoryError)
# Of a cleaning alone, once the log is open; others are the opening's, which other tests see to.
ERRORS: Final = {"write": (errno.EIO, errno.ENOSPC), "open": (errno.EMFILE,)}


def background(manager: LedLogManager) -> None:
    for work in (manager.checkpoint, manager.remove_deleted):
        for _ in work():
            pass


def open_log(directory: Path, clock: ManualClock) -> tuple[LedLogManager, LedLog]:
    manager = LedLogManager([directory], clock=clock)
    manager.start()
    log = manager.open("words", 0, TOPIC, SETTINGS, new=not directory.exists())
    log.set_leadership(1, True, 1, 1)
    return manager, log


def clean(manager: LedLogManager, clock: ManualClock) -> None:
    cleaner = LogCleaner(manager, lambda: CleanerSettings(backoff_ms=0), clock)
    with suppress(*EXPECTED):
        cleaner.clean_all()
    with suppress(*EXPECTED):
        background(manager)
    cleaner.stop()


@pytest.fixture
def place() -> Iterator[Path]:
    with memory.directory() as made:
        yield made


@pytest.fixture
def before(place: Path) -> dict[int, bytes | None]:
    """What `place/before` has: several segments of every codec, one of which was cleaned."""
    clock = ManualClock()
    manager, log = open_log(place / "before", clock)
    for number in range(RECORDS):
        record = Record(b"value %d" % number + b"." * 90, b"key %d" % (number % KEYS))
        codec = list(CODECS)[number % len(CODECS)]
        batch = build_batch(
            [record], codec=codec, producer_id=number % 3, producer_epoch=0,
            base_sequence=number // 3,
        )  # fmt: skip
        assert log.append(batch).error == 0
        if number == RECORDS // 2:
            clean(manager, clock)
    found = dict(held(log))
    manager.stop()
    return found


def check(directory: Path, before: dict[int, bytes | None]) -> None:
    clock = ManualClock()
    manager, log = open_log(directory, clock)
    found = dict(held(log))
    assert found.items() <= before.items()
    last = {key: offset for offset, key in sorted(before.items())}
    assert {key: offset for offset, key in sorted(found.items())} == last
    assert log.log_end_offset == RECORDS
    sequences = {e.producer_id: e.last_sequence for e in log.producer_entries()[1]}
    assert sequences == {0: 13, 1: 12, 2: 12}
    assert not (damage := verify(log.path).damage), damage
    clean(manager, clock)
    clean(manager, clock)
    assert dict(held(log)) == {offset: key for key, offset in last.items()}
    manager.stop()


def attempt(directory: Path, faults: FileFaults, at: list[int], *, crash: bool) -> None:
    """One process that cleans; `at` gets how many operations there were before and after that."""
    clock = ManualClock()
    with faults:
        try:
            manager, _log = open_log(directory, clock)
        except EXPECTED:
            return
        at.append(len(faults.look()))
        clean(manager, clock)
        at.append(len(faults.look()))
    left = directory.with_name("left")
    if crash:
        shutil.copytree(directory, left)
    manager.stop(as_found=crash)
    if crash:
        shutil.rmtree(directory)
        left.rename(directory)


@pytest.mark.parametrize("crash", [True, False], ids=["killed", "stopped"])
def test_each_operation_fails_once(
    place: Path, before: dict[int, bytes | None], crash: bool
) -> None:
    shutil.copytree(place / "before", place / "it")
    at: list[int] = []
    faults = FileFaults()
    attempt(place / "it", faults, at, crash=crash)
    check(place / "it", before)
    seen = faults.seen
    assert at[1] - at[0] > 60
    for nth in range(at[0] + 1, at[1] + 1):
        operation = seen[nth - 1]
        shorts = [Fault(nth=nth, bytes_max=7)] if operation.operation in ("read", "write") else []
        errors = ERRORS.get(operation.operation, (errno.EIO,))
        for fault in (*(Fault(nth=nth, error=error) for error in errors), *shorts):
            shutil.rmtree(place / "it")
            shutil.copytree(place / "before", place / "it")
            attempt(place / "it", FileFaults(fault), [], crash=crash)
            try:
                check(place / "it", before)
            except BaseException as error:
                error.add_note(f"operation {nth} of {at}: {operation}, {fault}")
                raise


def test_a_kill_before_each_operation(place: Path, before: dict[int, bytes | None]) -> None:
    """As above, but the files are copied at that moment, and nothing follows."""
    shutil.copytree(place / "before", place / "it")
    clock = ManualClock()
    copies: list[Path] = []

    def copy(_name: str, _path: str) -> None:
        copies.append(place / f"copy-{len(copies)}")
        shutil.copytree(place / "it", copies[-1])

    manager, _log = open_log(place / "it", clock)
    file_operations.hook = copy  # type: ignore[assignment]
    try:
        clean(manager, clock)
    finally:
        file_operations.hook = None
    manager.stop()
    assert len(copies) > 30
    for directory in copies:
        try:
            check(directory, before)
        except BaseException as error:
            error.add_note(directory.name)
            raise
