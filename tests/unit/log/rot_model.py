"""A broker's files with damage somewhere: a bit, a byte, a piece, a whole file; what that may cost.

    python -m tests.unit.log.rot_model 0..1000

A history of `power_cut_model` ends, in order or killed. What a sound start reads of it is the
measure. Then a copy has one file damaged, at random, and starts:

- it says no more than that one partition cannot be read, and every other one is as it was;
- small files and indexes (all but the .log) cost no record, and no look-up by time;
- a damaged .log costs records from the damaged batch on, up to the end of its segment after a
  clean stop, up to the end of the log after a crash (the cut bytes are kept aside, byte for byte);
- what is read was written: a batch that the damage is in is refused wherever its CRC is checked;
- the next start is no worse.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kbroker.errors import KafkaError
from kbroker.log.opening.data_directory import LOCK_FILE
from kbroker.protocol._wire import ProtocolError
from kbroker.protocol.record_batch import decode_batches
from tests.support import memory
from tests.support.led_log import LedLog, LedLogManager
from tests.unit.log.power_cut_model import SETTINGS, History, Topic

CASES_PER_HISTORY: Final = 24
KINDS: Final = ("bit", "byte", "zeros", "noise", "shorter", "longer", "empty", "missing")
TIMES_ASKED: Final = range(1_000, 1_120, 7)
OFFSETS_MAX: Final = 1_000  # far beyond all that a history writes

Records = dict[int, tuple[bytes | None, bytes | None]]  # key and value by offset


@dataclass
class Found:
    """What one start has of one partition."""

    start: int
    end: int
    records: Records
    times: list[object]
    unread: list[int] = field(default_factory=list)  # offsets that were refused


@dataclass(frozen=True)
class Damage:
    """What was done to which file."""

    file: Path  # below the directory
    kind: str
    at: int

    @property
    def partition(self) -> str:
        return self.file.parent.name.rpartition("-")[0]

    @property
    def suffix(self) -> str:
        return self.file.suffix


# --- A start --------------------------------------------------------------------------------------


def read_all(log: LedLog) -> Found:
    """Every offset by itself, as consumers that begin anywhere would."""
    found = Found(log.log_start_offset, log.log_end_offset, {}, [])
    offset = found.start
    while offset < min(found.end, OFFSETS_MAX):
        try:
            batch = next(iter(decode_batches(log.read(offset, 1))))
        except (KafkaError, OSError, ProtocolError, StopIteration):
            batch = None
        if batch is None or batch.last_offset < offset:
            found.unread.append(offset)
            offset += 1
            continue
        for record in batch.records:
            if record.offset >= found.start:
                found.records[record.offset] = record.key, record.value
        offset = batch.last_offset + 1
    for time_ms in TIMES_ASKED:
        try:
            found.times.append(log.offset_for_time(time_ms))
        except (KafkaError, OSError) as error:
            found.times.append(type(error))
    return found


def start(directory: Path, topics: dict[str, Topic]) -> dict[str, Found | str]:
    """What is read of every topic, or the line that says why one is not."""
    found: dict[str, Found | str] = {}
    manager = LedLogManager([directory], boot_id="first")
    manager.start()
    try:
        for name, topic in topics.items():
            if not topic.is_there:
                continue
            try:
                log = manager.open(name, 0, topic.id, SETTINGS[name], new=False)
                log.set_leadership(1, True, 1_000_000, 1)
                found[name] = read_all(log)
            except KafkaError as error:
                found[name] = str(error)
    finally:
        manager.stop(as_found=True)
    return found


# --- Damage ---------------------------------------------------------------------------------------


def damage(directory: Path, dice: random.Random) -> Damage:
    """One file, in one way."""
    files = sorted(
        path for path in directory.rglob("*") if path.is_file() and path.name != LOCK_FILE
    )
    logs = [path for path in files if path.suffix == ".log"]
    path = dice.choice(logs if dice.random() < 0.4 else files)
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0")) or len(data)
    kind = dice.choice(KINDS if data else ("longer", "missing"))
    at = dice.randrange(used) if data else 0
    if kind == "bit":
        data[at] ^= 1 << dice.randrange(8)
    elif kind == "byte":
        data[at] ^= dice.randrange(1, 256)
    elif kind in ("zeros", "noise"):
        count = min(dice.choice([4, 64, 512]), len(data) - at)
        data[at : at + count] = bytes(count) if kind == "zeros" else dice.randbytes(count)
    elif kind == "shorter":
        del data[at:]
    elif kind == "longer":
        at = len(data)
        data += dice.randbytes(dice.randrange(1, 200))
    elif kind == "empty":
        data.clear()
    if kind == "missing":
        path.unlink()
    else:
        path.write_bytes(data)
    return Damage(path.relative_to(directory), kind, at)


# --- What it may cost -----------------------------------------------------------------------------


def judge(
    done: Damage, before: dict[str, Found], after: dict[str, Found | str], topics: dict[str, Topic]
) -> str:
    """How a partition came through it, for a count; AssertionError: worse than it may."""
    for name, sound in before.items():
        if name != done.partition and done.file.parent != Path():
            assert after[name] == sound, f"{name} had no damage"
    if done.file.parent == Path():
        return judge_checkpoint(done, before, after)
    if done.partition not in before:
        return "of no log"  # it was deleted
    found, sound = after[done.partition], before[done.partition]
    if isinstance(found, str):
        assert done.suffix in (".log", ".swap"), found
        return "refused"
    other = {what for offset, what in found.records.items() if sound.records.get(offset) != what}
    # The damage may have hit the offset of a batch, which no CRC covers.
    assert done.suffix == ".log" or not other, "read, and not written there"
    assert other <= written_to(topics[done.partition]), "read, and never written"
    if found.records == sound.records and found.end == sound.end:
        assert done.suffix == ".log" or found == sound, "look-ups by time"
        return "whole"
    assert done.suffix == ".log", "records are lost"
    lost = sound.records.keys() - found.records.keys()
    assert min(lost, default=sound.end) >= int(done.file.stem)
    return "lost some"


def written_to(topic: Topic) -> set[tuple[bytes | None, bytes | None]]:
    """Key and value of all that was ever appended."""
    return {(each.key, each.value) for version in topic.versions for each in version.values()}


def judge_checkpoint(done: Damage, before: dict[str, Found], after: dict[str, Found | str]) -> str:
    for name, sound in before.items():
        found = after[name]
        is_of_starts = done.file.name == "log-start-offset-checkpoint"
        if isinstance(found, str):  # no deleted record may be read again
            assert is_of_starts and f"does not say where {name}" in found, found
        elif is_of_starts:
            assert found.records.items() <= sound.records.items() or found.start < sound.start
        else:
            assert found == sound, f"{done.file.name} costs {name} something"
    return "checkpoint"


# --- Histories ------------------------------------------------------------------------------------


def run(seed: int, cases: int = CASES_PER_HISTORY) -> Counter[str]:
    """How many cases of each outcome there were."""
    outcomes: Counter[str] = Counter()
    dice = random.Random(seed)
    with memory.directory() as place:
        history = History(seed, place)
        history.run(dice.randrange(5, 30))
        sound = place / "sound"
        shutil.copytree(history.directory, sound)
        if dice.random() < 0.5:  # killed
            (sound / ".kafka_cleanshutdown").unlink()
        before = start_copy(sound, place / "it", history.topics)
        for case in range(cases):
            copy = place / "it"
            shutil.copytree(sound, copy)
            done = damage(copy, dice)
            try:
                after = start(copy, history.topics)
                outcomes[judge(done, before, after, history.topics)] += 1
                again = start(copy, history.topics)
                assert without_times(again) == without_times(after), "another start, another log"
            except BaseException as error:
                error.add_note(f"seed {seed}, case {case}: {done}")
                raise
            shutil.rmtree(copy)
    return outcomes


def without_times(found: dict[str, Found | str]) -> dict[str, Found | str]:
    """Of a damaged batch a later start may take the timestamp for true: look-ups are refused."""
    return {
        name: it if isinstance(it, str) else replace(it, times=[]) for name, it in found.items()
    }


def start_copy(sound: Path, copy: Path, topics: dict[str, Topic]) -> dict[str, Found]:
    shutil.copytree(sound, copy)
    found = start(copy, topics)
    shutil.rmtree(copy)
    whole = {name: it for name, it in found.items() if isinstance(it, Found)}
    assert whole.keys() == found.keys()
    return whole


def main() -> None:
    first, _, end = sys.argv[1].partition("..")
    logging.disable(logging.CRITICAL)
    outcomes: Counter[str] = Counter()
    for seed in range(int(first), int(end)):
        outcomes += run(seed)
    print(f"{outcomes.total()} cases: {dict(outcomes)}")


if __name__ == "__main__":
    main()
