"""Indexes that become writable with the first append, where that fails half way."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.errors import KafkaError
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support.led_log import LedLogManager
from tests.support.record_batches import build_batch
from tests.unit.log.test_manager import lead

SETTINGS = {"index_interval_bytes": 1}
RECORDS = 500


def test_readers_go_on_while_appends_try_again(tmp_path: Path) -> None:
    """There is no room for the second index. The first one, which is mapped by then, stays so: who
    looks for an offset reads through that map, without the lock of those who append."""
    manager = LedLogManager([tmp_path])
    manager.start()
    log = lead(manager.open("words", 0, UUID(int=1), SETTINGS))
    for _ in range(RECORDS):
        log.append(build_batch([b"x" * 20]))
    manager.stop()
    manager = LedLogManager([tmp_path])
    manager.start()
    log = lead(manager.open("words", 0, UUID(int=1), SETTINGS))
    ends = threading.Event()
    read = [0, 0]

    def look(number: int) -> None:
        while not ends.is_set():
            log.read((read[number] * 37) % RECORDS, 1)
            read[number] += 1

    readers = [threading.Thread(target=look, args=[number]) for number in range(2)]
    with FileFaults(Fault(("map",), ".timeindex", times=FOREVER, error=errno.ENOMEM)) as faults:
        for reader in readers:
            reader.start()
        for _ in range(2_000):
            with pytest.raises(KafkaError):
                log.append(build_batch([b"y"]))
        ends.set()
        for reader in readers:
            reader.join()
    maps = [seen.path for seen in faults.seen if seen.operation == "map" and not seen.failed]
    assert len(maps) == 1 and maps[0].endswith(".index")
    assert log.append(build_batch([b"y"])).base_offset == RECORDS and all(read)
    manager.stop()


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_two_tries_that_fail_differently_leave_no_long_index(tmp_path: Path, kind: str) -> None:
    """It was made long by the first, and the second cannot even open it: a stop in order cuts it,
    or the next start would read the whole segment."""
    manager = LedLogManager([tmp_path])
    manager.start()
    log = lead(manager.open("words", 0, UUID(int=1), SETTINGS))
    for _ in range(20):
        log.append(build_batch([b"x"]))
    manager.stop()
    path = tmp_path / "words-0" / f"{0:020}.{kind}"
    size_bytes = path.stat().st_size
    manager = LedLogManager([tmp_path])
    manager.start()
    log = lead(manager.open("words", 0, UUID(int=1), SETTINGS))
    for operation, error in (("map", errno.ENOMEM), ("open", errno.EMFILE)):
        with FileFaults(Fault((operation,), f".{kind}", error=error)), pytest.raises(KafkaError):
            log.append(build_batch([b"y"]))
    manager.stop()
    assert path.stat().st_size == size_bytes
