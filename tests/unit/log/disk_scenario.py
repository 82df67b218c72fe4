"""A broker's life with its logs in small, on a disk that fails somewhere; what must be there then.

    populate   two partitions: appends, rolls, deleted records, checkpoints
    go_on      after a stop or a crash: the same once more, a trim, and one partition is deleted
    verify     on a sound disk: what was acknowledged, in order, once; nothing deleted

Every step meets its error as the broker does: what is not acknowledged is noted as refused, and the
next step follows. A crash is a copy of the directory at that moment.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kbroker.errors import DataDirectoryError, KafkaError
from tests.support.led_log import LedLog, LedLogManager
from tests.support.own_things import open_below
from tests.support.record_batches import build_batch, parse_batches

TOPICS: Final = {"words": uuid.UUID(int=1), "gone": uuid.UUID(int=2)}
SETTINGS: Final = {
    "segment_bytes": 400, "index_interval_bytes": 0, "segment_index_bytes": 4_096,
    "file_delete_delay_ms": 0,
}  # fmt: skip
EXPECTED: Final = (OSError, KafkaError, DataDirectoryError)


@dataclass
class Witness:
    """The answers to a producer and an administrator about one partition."""

    stored: dict[int, bytes] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    start: int = 0  # acknowledged
    asked_start: int = 0  # the furthest that was tried
    deleted: bool = False


@dataclass
class Life:
    """A data directory with its witnesses. `number` makes each record unlike all others."""

    directory: Path
    witnesses: dict[str, Witness] = field(
        default_factory=lambda: {topic: Witness() for topic in TOPICS}
    )
    number: int = 0
    epoch: int = 0
    opened_before: bool = False


# --- Steps ----------------------------------------------------------------------------------------


def append(life: Life, log: LedLog, count: int) -> None:
    witness = life.witnesses[log.topic]
    for _ in range(count):
        value = b"record %06d" % life.number
        life.number += 1
        try:
            result = log.append(build_batch([value]))
        except EXPECTED:
            witness.refused.add(value)
            continue
        assert result.base_offset not in witness.stored, "an offset was given twice"
        witness.stored[result.base_offset] = value


def delete_records(life: Life, manager: LedLogManager, log: LedLog, offset: int) -> None:
    witness = life.witnesses[log.topic]
    witness.asked_start = max(witness.asked_start, offset)
    with suppress(*EXPECTED):
        log.delete_records(offset)
        if not manager.checkpointing.write_log_starts([log]):
            witness.start = max(witness.start, offset)


def background(manager: LedLogManager) -> None:
    for work in (manager.checkpoint, manager.checkpoint_recovery_points, manager.remove_deleted):
        for _ in work():
            pass


def populate(life: Life, manager: LedLogManager, logs: dict[str, LedLog]) -> None:
    for log in logs.values():
        append(life, log, 12)
    for log in logs.values():
        delete_records(life, manager, log, 5)
    background(manager)
    for log in logs.values():
        append(life, log, 3)


def go_on(life: Life, manager: LedLogManager, logs: dict[str, LedLog]) -> None:
    for log in logs.values():
        append(life, log, 4)
    if "words" in logs:
        log = logs["words"]
        delete_records(life, manager, log, log.high_watermark)
        background(manager)
        append(life, log, 6)
        with suppress(*EXPECTED):
            log.flush()
    if "gone" in logs:
        # The metadata store knows before the files do: a removal that fails is finished later.
        life.witnesses["gone"].deleted = True
        with suppress(*EXPECTED):
            manager.delete(logs["gone"])
            manager.make_names_last()
    background(manager)


# --- A process ------------------------------------------------------------------------------------


Work = Callable[[Life, LedLogManager, dict[str, LedLog]], None]


def start(life: Life) -> tuple[LedLogManager, dict[str, LedLog]]:
    """A manager that has started, and the logs that could be opened."""
    manager = LedLogManager([life.directory])
    manager.start()
    life.epoch += 1
    logs: dict[str, LedLog] = {}
    for topic, topic_id in TOPICS.items():
        with suppress(*EXPECTED):
            if life.witnesses[topic].deleted:
                manager.delete_topic_directories({topic_id: topic})
                continue
            log = manager.open(topic, 0, topic_id, SETTINGS, new=not life.opened_before)
            log.set_leadership(1, True, life.epoch, 1)
            logs[topic] = log
    return manager, logs


def copy_files(source: Path, target: Path) -> None:
    """Their bytes; the log asks for no times and no rights, which take half of a whole copy."""
    target.mkdir()
    with os.scandir(source) as found:
        for each in found:
            if each.is_dir():
                copy_files(Path(each.path), target / each.name)
            else:
                (target / each.name).write_bytes(Path(each.path).read_bytes())


def live(
    life: Life, work: Work, *, crash: bool, before_end: Callable[[], object] = lambda: None
) -> None:
    """One process from its start to its end; `before_end` is not called where it did not start."""
    try:
        manager, logs = start(life)
    except EXPECTED:
        return
    work(life, manager, logs)
    before_end()
    left = life.directory.with_name("left")
    if crash:
        copy_files(life.directory, left)
    manager.stop(as_found=crash)
    if crash:
        shutil.rmtree(life.directory)
        left.rename(life.directory)
    life.opened_before = True


# --- What must be there ---------------------------------------------------------------------------


def records_of(log: LedLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while data := log.read(offset):
        for batch in parse_batches(data):
            values = [record.value or b"" for record in batch.records]
            found += list(enumerate(values, start=batch.base_offset))
        offset = found[-1][0] + 1
    return [each for each in found if each[0] >= log.log_start_offset]


def verify(life: Life, *, refused_may_be_there: bool = False) -> None:
    """Starts on a sound disk and compares with the answers."""
    descriptors = open_below(life.directory)
    manager, logs = start(life)
    for topic, witness in life.witnesses.items():
        if witness.deleted:
            assert not (life.directory / f"{topic}-0").exists(), f"{topic} is back"
            continue
        log = logs[topic]
        assert witness.start <= log.log_start_offset <= witness.asked_start, topic
        found = records_of(log)
        assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
        expected = {o: v for o, v in witness.stored.items() if o >= log.log_start_offset}
        there = {o: v for o, v in found if o in expected or v not in witness.refused}
        assert there == expected, topic
        if not refused_may_be_there:
            assert dict(found) == expected, topic
        append(life, log, 2)
        assert max(witness.stored) == log.log_end_offset - 1
    manager.stop()
    assert open_below(life.directory) <= descriptors  # fewer where garbage of before has gone
