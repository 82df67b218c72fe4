"""A broker's logs through a seeded history, and the power goes before any of its file operations.

    python -m tests.unit.log.power_cut_model 0..1000
    python -m tests.unit.log.power_cut_model 0..1000 --moves

Three partitions: one whose every append is brought to the disk before it is acknowledged, one that
only the background syncs, and a compacted one. A history appends, rolls, flushes, deletes
records, retires and cuts, cleans, makes and deletes a topic, checkpoints, stops and starts; with
`--moves` it has two data directories, and logs move between them. At a sample of its operations the
directory is left as a power cut may leave it (`tests/support/power_cut.py`), with the promises by
then. After the next start of each:

- the start says no error, and every log opens;
- all that was promised is there: synced appends, flushes, starts that were acknowledged;
- a log holds a beginning of its appended records, each record at its offset, nothing else;
- a log that is shorter than its acknowledged end makes the start a lossy one;
- producers and leader epochs are those of the batches, indexes and files are sound;
- it can be appended to, and what it is then is there after one more start.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import uuid
from copy import deepcopy
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest

from kbroker.clock import ManualClock
from kbroker.log.looking.verify import verify
from kbroker.log.opening.placement import topic_id_of
from kbroker.log.upkeep._truncate import place_of
from kbroker.log.upkeep.cleaner import CleanerSettings, LogCleaner
from kbroker.log.upkeep.log_move import MOVED_FILE
from kbroker.protocol.record_batch import RecordBatch, decode_batches
from kbroker.testing.file_faults import FileFaults
from kbroker.types import TopicPartition
from tests.support import memory
from tests.support.led_log import LedLog, LedLogManager
from tests.support.power_cut import KINDS, Disk
from tests.support.record_batches import Record, build_batch

SYNCED, PLAIN, COMPACTED, SHORT_LIVED = "synced", "plain", "compacted", "short-lived"
BASE: Final[dict[str, Any]] = {
    "segment_bytes": 1_500, "index_interval_bytes": 200, "segment_index_bytes": 4_096,
    "file_delete_delay_ms": 0,
}  # fmt: skip
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    SYNCED: {**BASE, "flush_messages": 1},
    PLAIN: BASE,
    COMPACTED: {**BASE, "compacted": True},
    SHORT_LIVED: BASE,
}
PRODUCERS: Final = (-1, 5, 6)
CUTS_PER_HISTORY: Final = 16


@dataclass
class Topic:
    """What was done to a partition, and what is promised of it."""

    id: uuid.UUID
    # (offset, record) of the log as it was at one time or another: a cut begins another version.
    versions: list[dict[int, Record]] = field(default_factory=lambda: [{}])
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, first offset), all
    kept_to: int = 0  # below, what was appended is on the disk by promise
    acknowledged: int = 0  # an end offset
    start: int = 0  # acknowledged
    asked_start: int = 0  # the furthest that it was moved
    is_there: bool = True  # False: its deletion, or its making, is not over
    was_there: bool = True  # by promise

    @property
    def records(self) -> dict[int, Record]:
        return self.versions[-1]


@dataclass
class Moment:
    """One power cut: where it left the directory, and what was promised by then."""

    directory: Path
    kind: str
    operation: int
    topics: dict[str, Topic]
    deleted: set[uuid.UUID]


def data_directories(directory: Path, *, moves: bool) -> list[Path]:
    return [directory / "first", directory / "second"] if moves else [directory]


class History:
    """A directory and its witness. `cut_at`: before which operations the power goes."""

    def __init__(
        self,
        seed: int,
        place: Path,
        deaf: str = "",
        *,
        moves: bool = False,
        cuts: int = 0,
        within: int = 0,
    ) -> None:
        """`cuts` of its first `within` operations find the power gone; `deaf`: a pattern of names
        whose syncs the disk ignores: a planted fault."""
        self.moves = moves
        self.deaf = deaf
        self.dice = random.Random(seed)
        self.cut_dice = random.Random(-seed - 1)
        self.place = place
        self.directory = place / "data"
        for path in data_directories(self.directory, moves=moves):
            path.mkdir(parents=True)
        self.clock = ManualClock()
        self.topics = {name: Topic(self.new_id()) for name in (SYNCED, PLAIN, COMPACTED)}
        self.deleted: set[uuid.UUID] = set()  # by promise: no directory has their log
        self.sequences: dict[tuple[str, int], int] = {}
        self.moments: list[Moment] = []
        self.cut_at = frozenset(self.cut_dice.sample(range(within), min(cuts, within)))
        self.operations = 0
        self.number = 0
        self.epoch = 0
        self.logs: dict[str, LedLog] = {}
        # Without a cut the disk is not asked, and to look takes most of a history's time.
        self.disk = Disk(self.directory) if self.cut_at else None

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.dice.getrandbits(128))

    # --- The power --------------------------------------------------------------------------------

    def before(self, operation: str, path: str) -> None:
        number, self.operations = self.operations, self.operations + 1
        if self.disk is None:
            return
        if number in self.cut_at:
            kind = self.cut_dice.choice(KINDS)
            target = self.place / f"cut-{len(self.moments)}"
            self.disk.leave(kind, target, self.cut_dice)
            self.moments.append(
                Moment(target, kind, number, deepcopy(self.topics), {*self.deleted})
            )
        deaf = self.deaf and operation == "sync" and fnmatch(Path(path).name, self.deaf)
        self.disk.before("asked to sync" if deaf else operation, path)

    def run(self, steps: int) -> None:
        doings = [
            (self.append, 12), (self.roll, 2), (self.flush, 1), (self.background, 4),
            (self.delete_records, 1.5), (self.retire, 1), (self.cut, 1), (self.clean, 1.5),
            (self.restart, 1), (self.make_or_delete, 1.5), (self.begin_again, 0.3),
        ]  # fmt: skip
        if self.moves:
            doings.append((self.move, 3))
        calls, weights = zip(*doings, strict=True)
        with FileFaults(before=self.before):
            self.start()
            for _ in range(steps):
                self.dice.choices(calls, weights)[0]()
            self.stop()

    # --- A process --------------------------------------------------------------------------------

    def start(self) -> None:
        directories = data_directories(self.directory, moves=self.moves)
        self.manager = LedLogManager(directories, boot_id="first", clock=self.clock)
        self.manager.start()
        self.epoch += 1
        for name, topic in self.topics.items():
            if topic.is_there:
                self.open(name)
        self.manager.make_names_last()
        for topic in self.topics.values():
            topic.was_there = topic.is_there

    def open(self, name: str) -> None:
        topic = self.topics[name]
        log = self.manager.open(name, 0, topic.id, SETTINGS[name])
        self.logs[name] = log
        self.lead(name)

    def lead(self, name: str) -> None:
        log = self.logs[name]
        log.set_leadership(1, True, self.epoch, 1)
        self.topics[name].epochs.append((self.epoch, log.log_end_offset))

    def stop(self) -> None:
        self.manager.stop()
        self.logs.clear()
        for topic in self.topics.values():
            topic.kept_to = topic.acknowledged

    def restart(self) -> None:
        self.stop()
        self.start()

    # --- What is done -----------------------------------------------------------------------------

    def some_log(self) -> tuple[str, LedLog]:
        name = self.dice.choice(list(self.logs))
        return name, self.logs[name]

    def append(self) -> None:
        name, log = self.some_log()
        topic = self.topics[name]
        for _ in range(self.dice.randrange(1, 5)):
            records = []
            for _ in range(self.dice.randrange(1, 4)):
                self.number += 1
                key = b"key %d" % self.dice.randrange(6)
                value = b"value %06d " % self.number + b"." * self.dice.choice([0, 60, 300])
                records.append(Record(value, key, 1_000 + self.number))
            producer = self.dice.choice(PRODUCERS)
            sequence = self.sequences.get((name, producer), 0)
            base = log.log_end_offset
            placed = {base + at: record for at, record in enumerate(records)}
            topic.records.update(placed)
            result = log.append(
                build_batch(
                    records, codec=self.dice.choice(["none", "none", "lz4", "zstd"]),
                    producer_id=producer, producer_epoch=min(producer, 0) and -1,
                    base_sequence=-1 if producer < 0 else sequence, leader_epoch=self.epoch,
                ),
                now_ms=1_000 + self.number,
            )  # fmt: skip
            assert result.error == 0 and result.base_offset == base
            if producer >= 0:
                self.sequences[name, producer] = sequence + len(records)
            topic.acknowledged = log.log_end_offset
            if name == SYNCED:
                topic.kept_to = log.log_end_offset

    def roll(self) -> None:
        self.some_log()[1].roll()

    def flush(self) -> None:
        name, log = self.some_log()
        log.flush()
        self.topics[name].kept_to = log.log_end_offset

    def background(self) -> None:
        manager = self.manager
        works = [
            manager.checkpoint, manager.checkpoint_recovery_points, manager.remove_deleted,
        ]  # fmt: skip
        for work in self.dice.sample(works, self.dice.randrange(1, 4)):
            for _ in work():
                pass

    def move_start(self) -> tuple[Topic, LedLog]:
        name, log = self.some_log()
        topic = self.topics[name]
        offset = self.dice.randint(log.log_start_offset, log.high_watermark)
        topic.asked_start = max(topic.asked_start, offset)
        log.delete_records(offset)
        return topic, log

    def delete_records(self) -> None:
        topic, log = self.move_start()
        assert not self.manager.checkpointing.write_log_starts([log])
        topic.start = log.log_start_offset

    def retire(self) -> None:
        """As retention does: the start moves, and no answer says so."""
        self.move_start()
        for _ in self.manager.checkpoint():
            pass

    def cut(self) -> None:
        """A follower's, after an election that lost records."""
        name, log = self.some_log()
        topic = self.topics[name]
        # No election takes what was below the high watermark, and nothing else is cleaned.
        least = max(log.log_start_offset, log.cleaned_to)
        offset = self.dice.randint(least, log.log_end_offset)
        end = place_of(log.log, offset)[2]  # inside a batch, the log ends before it
        topic.versions.append({o: r for o, r in topic.records.items() if o < end})
        topic.kept_to, topic.acknowledged = min(topic.kept_to, end), min(topic.acknowledged, end)
        topic.start = min(topic.start, end)
        log.set_leadership(2, False, self.epoch + 1, 1)
        log.truncate_to(offset)
        assert log.log_end_offset == end
        self.epoch += 2
        self.lead(name)
        for producer in PRODUCERS:
            self.sequences.pop((name, producer), None)
        for entry in log.producer_entries()[1]:
            self.sequences[name, entry.producer_id] = entry.last_sequence + 1

    def begin_again(self) -> None:
        """A follower's that was away for longer than its leader keeps records."""
        log = self.logs[PLAIN]
        topic = self.topics[PLAIN]
        offset = log.log_end_offset + self.dice.randrange(1, 50)
        topic.asked_start = offset
        topic.versions.append({})
        topic.kept_to = topic.acknowledged = 0
        log.set_leadership(2, False, self.epoch + 1, 1)
        log.begin_again(offset)
        self.epoch += 2
        self.lead(PLAIN)
        for producer in PRODUCERS:
            self.sequences.pop((PLAIN, producer), None)

    def move(self) -> None:
        name, _ = self.some_log()
        ask_to_move(self.manager, name, self.dice.choice(["first", "second"]))
        self.manager.moves.mover.move_all()

    def clean(self) -> None:
        self.logs[COMPACTED].roll()
        cleaner = LogCleaner(self.manager, lambda: CleanerSettings(backoff_ms=0), self.clock)
        cleaner.clean_all()
        cleaner.stop()
        assert not cleaner.uncleanable

    def make_or_delete(self) -> None:
        topic = self.topics.get(SHORT_LIVED)
        if topic is None or not topic.is_there:
            self.number += 1
            self.topics[SHORT_LIVED] = Topic(self.new_id(), was_there=False)
            self.sequences = {k: v for k, v in self.sequences.items() if k[0] != SHORT_LIVED}
            self.open(SHORT_LIVED)
            self.manager.make_names_last()
            self.topics[SHORT_LIVED].was_there = True
        else:
            topic.is_there = False
            self.manager.delete(self.logs.pop(SHORT_LIVED))
            self.manager.make_names_last()
            topic.was_there = False
            self.deleted.add(topic.id)


# --- When the power is back -----------------------------------------------------------------------


class Complaints(logging.Handler):
    """Errors that a start has logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def ask_to_move(manager: LedLogManager, name: str, directory: str) -> None:
    """The move itself is the caller's, on this thread."""
    (path,) = [it.path for it in manager.usable if it.path.name == directory]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager.moves.mover, "_follow", lambda: None)
        manager.moves.mover.ask(TopicPartition(name, 0), str(path))


def check(moment: Moment, *, moves: bool) -> None:
    directories = data_directories(moment.directory, moves=moves)
    for mark in moment.directory.rglob(MOVED_FILE):
        if source := mark.read_text():  # as the power has left the disks, under another path here
            mark.write_text(str(moment.directory.joinpath(*Path(source).parts[-2:])))
    for path in [path for directory in directories for path in directory.iterdir()]:
        if path.is_dir() and "-delete" not in path.name:
            assert topic_id_of(path) not in moment.deleted, f"{path.name} is back"
    complaints = Complaints()
    logger = logging.getLogger("kbroker.log")
    logger.addHandler(complaints)
    try:
        expected: dict[str, list[bytes]] = {}
        for boot in ("second", "third"):
            manager = LedLogManager(directories, boot_id=boot)
            manager.start()
            for name, topic in moment.topics.items():
                if not topic.is_there:
                    manager.delete_topic_directories({topic.id: name})
                    continue
                log = manager.open(name, 0, topic.id, SETTINGS[name], new=not topic.was_there)
                check_log(manager, name, topic, log, expected)
            if boot == "second":
                manager.stop()
                complaints.lines += [
                    str(damage)
                    for name in expected
                    for path in moment.directory.rglob(f"{name}-0")
                    for damage in verify(path).damage
                ]
            else:
                manager.stop(as_found=True)
        assert not complaints.lines, complaints.lines
    finally:
        logger.removeHandler(complaints)


def check_log(
    manager: LedLogManager, name: str, topic: Topic, log: LedLog, expected: dict[str, list[bytes]]
) -> None:
    log.set_leadership(1, True, 1_000_000 + len(expected), 1)
    batches = read_all(log)
    start, end = log.log_start_offset, log.log_end_offset
    found = {r.offset: r for batch in batches for r in batch.records if r.offset >= start}
    if name in expected:  # one more start
        assert [record.value for record in found.values()] == expected.pop(name)
        return
    assert topic.start <= start <= max(topic.asked_start, topic.start)
    assert end >= topic.kept_to
    assert end >= topic.acknowledged or manager.lossy
    assert any(is_beginning(name, found, version, start, end) for version in topic.versions)
    # Below what was promised it is the newest version: a cut that was made does not come back
    # where later writes are on the disk.
    newest = {offset: record for offset, record in topic.records.items() if offset < topic.kept_to}
    below = {offset: record for offset, record in found.items() if offset < topic.kept_to}
    assert all(below[offset].value == newest[offset].value for offset in below), "an old history"
    check_producers(log, batches, start)
    check_epochs(topic, log, batches, start)
    value = b"the power is back"
    assert log.append(build_batch([Record(value, b"new key", 5_000)])).base_offset == end
    expected[name] = [record.value or b"" for record in found.values()] + [value]


def is_beginning(
    name: str, found: dict[int, Any], version: dict[int, Record], start: int, end: int
) -> bool:
    """Whether the log is this one up to some offset."""
    whole = {offset: record for offset, record in version.items() if start <= offset < end}
    same = all(
        offset in whole and (record.key, record.value) == (whole[offset].key, whole[offset].value)
        for offset, record in found.items()
    )
    if name == COMPACTED:
        last = {record.key: offset for offset, record in sorted(whole.items())}
        return same and set(last.values()) <= found.keys()
    return same and found.keys() == whole.keys() == set(range(start, end))


def check_producers(log: LedLog, batches: list[RecordBatch], start: int) -> None:
    known = {entry.producer_id: entry for entry in log.producer_entries()[1]}
    last: dict[int, int] = {}
    for batch in batches:
        if batch.producer_id >= 0:
            last[batch.producer_id] = batch.last_offset
    for producer, offset in last.items():
        assert known[producer].last_offset == offset, (producer, offset, known[producer])
    for producer, entry in known.items():
        assert entry.last_offset < log.log_end_offset
        assert producer in last or entry.last_offset < start, entry


def check_epochs(topic: Topic, log: LedLog, batches: list[RecordBatch], start: int) -> None:
    """Each batch's epoch is the one that the log has for its offset. Below a start that had moved,
    and was not promised, the file may know of none."""
    first = max(start, log.epochs.entries[0][1])
    *known, _ours = log.epochs.entries
    assert {epoch for epoch, _ in known} <= {epoch for epoch, _ in topic.epochs}, known
    assert first <= max(start, topic.asked_start) or not batches
    for batch in batches:
        if batch.last_offset >= first:
            offset = max(batch.base_offset, first)
            assert log.epochs.epoch_at(offset) == batch.leader_epoch, log.epochs.entries


def read_all(log: LedLog) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    offset = log.log_start_offset
    while data := log.read(offset, to_log_end=True):
        batches += decode_batches(data)
        offset = batches[-1].last_offset + 1
    return batches


# --- Histories ------------------------------------------------------------------------------------


def run(
    seed: int,
    *,
    steps: int = 30,
    cuts: int = CUTS_PER_HISTORY,
    deaf: str = "",
    moves: bool = False,
) -> int:
    """How many power cuts there were. `deaf`: see `History`."""
    with memory.directory() as place:
        (place / "dry").mkdir()
        dry = History(seed, place / "dry", moves=moves)
        dry.run(steps)
        shutil.rmtree(place / "dry")
        (place / "it").mkdir()
        history = History(seed, place / "it", deaf, moves=moves, cuts=cuts, within=dry.operations)
        history.run(steps)
        for moment in history.moments:
            try:
                check(moment, moves=moves)
            except BaseException as error:
                error.add_note(f"seed {seed}, {moment.kind}, before operation {moment.operation}")
                raise
        return len(history.moments)


def main() -> None:
    first, _, end = sys.argv[1].partition("..")
    logging.disable(logging.WARNING)
    moves = "--moves" in sys.argv
    cuts = sum(run(seed, moves=moves) for seed in range(int(first), int(end)))
    print(f"{int(end) - int(first)} histories, {cuts} power cuts, nothing lost")


if __name__ == "__main__":
    main()
