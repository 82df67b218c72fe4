"""Compressed records before our validator, our readers and Apache Kafka's classes: who takes what.

    python -m tests.fuzz.kafka_codecs --frames 1000000 --seed 1     beside a JVM: 2,000 a second
    python -m tests.fuzz.kafka_codecs --codec lz4 --frames 10000
    python -m tests.fuzz.kafka_codecs --record                      writes the frames that CI holds

A batch that the validator takes, a Java consumer reads to its end, as our readers do. The
other way round it is stricter: checksums that a Java consumer does not look at, ends of blocks that
no compressor makes, and what a broker of Apache Kafka stores although no consumer of it gets past.
Not so for zstd where the system's library is older than 1.5.6: of a thousand frames with a turned
bit it takes some three that later ones refuse, zstd-jni's among them.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.log.looking._tools import walk_records
from kbroker.protocol.record_batch import decode_batches
from kbroker.protocol.wire import ProtocolError
from tests.fuzz.packed import BASE_MS, Frame, frame
from tests.support.kafka_verdicts import KafkaVerdicts, Verdict, digest_of
from tests.support.record_batches import CODECS, Record, build_batch

RECORDED: Final = Path(__file__).with_name("kafka_codecs.txt")
# Frames that libzstd 1.5.4 and 1.5.5 take although Apache Kafka refuses them, or unpack otherwise.
RECORDED_OLD_ZSTD: Final = Path(__file__).with_name("zstd_before_1_5_6.txt")
_AT_ONCE: Final = 2_000
_RECORDED_PER_KIND: Final = 6
_RECORDED_BYTES_MAX: Final = 220
_NAMES: Final = {number: name for name, number in CODECS.items()}


class Held(NamedTuple):
    """A frame, and what each side says of it."""

    frame: Frame
    taken: bool  # by our validator
    consumed: bool  # by Apache Kafka's consumer
    digest: int  # of the bytes read


def batch_of(each: Frame) -> bytes:
    records = [Record(timestamp_ms=BASE_MS)] * each.record_count
    largest = BASE_MS + each.record_count - 1
    return build_batch(
        records, codec=_NAMES[each.codec], payload=each.payload, max_timestamp_ms=largest
    )


def is_taken(each: Frame) -> bool:
    return walk_records(each.payload, each.codec, each.record_count, BASE_MS).error == 0


def complaint(held: Held) -> str | None:
    """What is wrong with a verdict of ours, if anything."""
    if not held.taken:
        return "a compressor's frame is refused" if held.frame.whole else None
    if not held.consumed:
        return "no Java consumer gets past what is taken"
    try:
        (batch,) = decode_batches(batch_of(held.frame))
    except ProtocolError as error:
        return f"our reader does not read what is taken: {error}"
    if digest_of(batch.records) != held.digest:
        return "our reader reads something else than a Java consumer"
    return None


# --- Recorded -------------------------------------------------------------------------------------


def recorded(file: Path = RECORDED) -> Iterator[Held]:
    """With our verdict of now."""
    for line in file.read_text(encoding="ascii").splitlines():
        made_by, codec, count, whole, consumed, digest, payload = line.split(",")
        each = Frame(made_by, int(codec), int(count), bytes.fromhex(payload), whole == "whole")
        yield Held(each, is_taken(each), consumed == "consumed", int(digest, 16))


def _line(held: Held) -> str:
    each = held.frame
    whole = "whole" if each.whole else "changed"
    consumed = "consumed" if held.consumed else "refused"
    head = f"{each.made_by},{each.codec},{each.record_count},{whole},{consumed}"
    return f"{head},{held.digest:08x},{each.payload.hex()}"


# --- Beside a JVM ---------------------------------------------------------------------------------


def _held(frames: Sequence[Frame], verdicts: Sequence[Verdict]) -> Iterator[Held]:
    for each, verdict in zip(frames, verdicts, strict=True):
        yield Held(each, is_taken(each), verdict.consumed, verdict.digest)


def hold(seed: int, count: int, codecs: frozenset[str]) -> Iterator[Held]:
    dice = random.Random(seed)
    with KafkaVerdicts() as kafka:
        for begin in range(0, count, _AT_ONCE):
            frames = [frame(dice, codecs) for _ in range(min(_AT_ONCE, count - begin))]
            yield from _held(frames, kafka.ask([batch_of(each) for each in frames]))


def _record(all_held: Iterator[Held]) -> None:
    """Some of each kind: who made it, who takes it."""
    kinds: dict[tuple[str, bool, bool, bool], list[Held]] = collections.defaultdict(list)
    for held in all_held:
        kind = (held.frame.made_by, held.frame.whole, held.taken, held.consumed)
        small = len(held.frame.payload) <= _RECORDED_BYTES_MAX
        if small and len(kinds[kind]) < _RECORDED_PER_KIND and complaint(held) is None:
            kinds[kind].append(held)
    lines = [_line(held) for kind in sorted(kinds) for held in kinds[kind]]
    RECORDED.write_text("\n".join(lines) + "\n", encoding="ascii")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--codec", choices=[name for name in CODECS if name != "none"])
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args(arguments)
    codecs = frozenset([options.codec]) if options.codec else frozenset(CODECS)
    all_held = hold(options.seed, options.frames, codecs)
    if options.record:
        _record(all_held)
        return 0
    figures: collections.Counter[tuple[str, str, str]] = collections.Counter()
    wrong = 0
    for held in all_held:
        ours = "taken" if held.taken else "refused"
        figures[held.frame.made_by, ours, "read" if held.consumed else "not read"] += 1
        if (why := complaint(held)) is not None:
            wrong += 1
            print(f"{why}: {_line(held)}")
    for (made_by, ours, theirs), count in sorted(figures.items()):
        print(f"{made_by:16} ours {ours:8} Apache Kafka's consumer {theirs:9} {count}")
    print(f"{options.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
