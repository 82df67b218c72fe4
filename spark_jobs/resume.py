"""Where a query begins, and whether what it needs is still there.

The ledger is the truth: a query goes on where the topic ends in its table. Spark's checkpoint is
only taken if it says the same; one that is lost, older than the table (restored from a backup), or
after a gap that was accepted is left alone, and a new one is made, numbered, beside it. Nothing is
lost or doubled by that.

    CHECKPOINTS/<topic>/<query>/<number>        query: its table and version, such as metrics-v1

Records that the table lacks must still be in the topic. It may not: retention or DeleteRecords went
past the table's end; the topic was deleted and made again (another id, whatever its offsets are);
its end is below the table's (records were lost by the brokers). Each is one line with the missing
range, exit code 4. With `accept_loss` the range is a gap in the ledger and the query goes on.

Any thread; reads and writes through `Files` and `Ledger` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from spark_jobs.errors import LostRange
from spark_jobs.files import Files, join
from spark_jobs.ledger import Ledger, LedgerDamaged, batch_key
from spark_jobs.sink import Checkpoint
from spark_jobs.source import TopicState

Say = Callable[[str], None]
Ranges = Mapping[int, tuple[int, int]]

_DIGITS: Final = 6
_NAMED_MAX: Final = 8  # ranges in a line


@dataclass(frozen=True)
class Work:
    """A topic that lands in a table by a query of this name."""

    topic: str
    table: str
    query: str


@dataclass(frozen=True)
class Plan:
    """Where the query begins: `starts` for every partition, should the checkpoint be new."""

    checkpoint: str
    topic_id: str
    starts: Mapping[int, int]


@dataclass(frozen=True)
class Loss:
    """`ranges`: [first, after the last) of the lost records; `ends`: where one could go on."""

    ranges: Ranges
    ends: Mapping[int, int]
    reason: str


def plan(
    work: Work,
    files: Files,
    ledger: Ledger,
    checkpoints: str,
    state: TopicState,
    *,
    accept_loss: bool,
    say: Say,
) -> Plan:
    """LostRange where records are gone and that is not accepted."""
    known = ledger.ends().get(work.topic)
    if known is not None:
        loss = lost(work.topic, *known, state)
        if loss is not None:
            if not accept_loss:
                raise LostRange(
                    f"{work.topic}: {loss.reason}; missing: {named(loss.ranges)};"
                    " --accept-loss records the gap and goes on"
                )
            ledger.accept_gap(work.topic, state.topic_id, loss.ranges, loss.ends, loss.reason)
            say(f"{work.topic}: accepted a gap: {loss.reason}; missing: {named(loss.ranges)}")
            known = ledger.ends()[work.topic]
    ends = dict(known[1]) if known is not None else {}
    starts = {partition: first for partition, (first, _) in state.offsets.items()} | ends
    checkpoint = _checkpoint(work, files, ledger, checkpoints, starts, ends, say)
    return Plan(checkpoint, state.topic_id, starts)


def lost(topic: str, topic_id: str, ends: Mapping[int, int], state: TopicState) -> Loss | None:
    """What the table lacks and the topic no longer has."""
    first = {partition: offsets[0] for partition, offsets in state.offsets.items()}
    last = {partition: offsets[1] for partition, offsets in state.offsets.items()}
    known = topic_id and state.topic_id
    if (known and topic_id != state.topic_id) or not ends.keys() <= first.keys():
        why = (
            "the topic was re-created, or these brokers are another cluster's, which needs tables"
            f" of its own (id {topic_id or '?'} is now {state.topic_id or '?'})"
        )
        # What the old one held beyond the table is not known: the range has no end of its own.
        return Loss({p: (end, end) for p, end in ends.items()}, first, why)
    short = {p: end for p, end in ends.items() if end > last[p]}
    gone = {p: (ends.get(p, 0), first[p]) for p in first if ends.get(p, 0) < first[p]}
    if short:
        why = "the topic ends before the table does: the brokers lost records"
        ranges = {p: (last[p], end) for p, end in short.items()} | gone
        ends_now = {**ends, **{p: last[p] for p in short}, **{p: first[p] for p in gone}}
        return Loss(ranges, ends_now, why)
    if gone:
        why = "records were deleted before they had landed (retention or DeleteRecords)"
        return Loss(gone, {**ends, **{p: first[p] for p in gone}}, why)
    return None


def named(ranges: Ranges) -> str:
    """`partition 0: offsets 5 to 9, ...`; of many, the first ones."""
    found = []
    for partition, (first, until) in sorted(ranges.items()):
        if until > first:
            found.append(f"partition {partition}: offsets {first} to {until - 1}")
        else:
            found.append(f"partition {partition}: all from offset {first} on")
    more = len(found) - _NAMED_MAX
    return ", ".join(found[:_NAMED_MAX]) + (f" and {more} partitions more" if more > 0 else "")


def _checkpoint(
    work: Work,
    files: Files,
    ledger: Ledger,
    checkpoints: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    say: Say,
) -> str:
    """The newest checkpoint of this query if it agrees with the ledger, or the next number."""
    place = join(checkpoints, work.topic, work.query)
    numbers = [
        int(entry.name)
        for entry in files.entries(place)
        if entry.is_directory and entry.name.isascii() and entry.name.isdigit()
    ]
    newest = max(numbers, default=0)
    why = "there is no checkpoint"
    if newest:
        uri = join(place, f"{newest:0{_DIGITS}d}")
        why = _disagreement(work.topic, files, ledger, uri, starts, ends)
        if not why:
            return uri
    if ends:
        where = ", ".join(f"{partition}: {end}" for partition, end in sorted(ends.items())[:8])
        say(f"{work.topic}: {why}; a new one begins where the table ends (offsets by partition:"
            f" {where}), nothing is lost or doubled")  # fmt: skip
    return join(place, f"{newest + 1:0{_DIGITS}d}")


def _disagreement(
    topic: str,
    files: Files,
    ledger: Ledger,
    uri: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> str:
    """Why the checkpoint cannot be gone on with; "" if it can."""
    checkpoint = Checkpoint(files, uri)
    try:
        planned = _newest(files, join(uri, "offsets"))
        if planned is None:
            return _untouched(topic, files, checkpoint, uri, starts)
        done = _newest(files, join(uri, "commits"))
        key = batch_key(checkpoint.query_id(), planned)
        ranges = checkpoint.ranges(planned, topic, ends)
    except (FileNotFoundError, LedgerDamaged) as error:
        return f"the checkpoint cannot be read ({error})"
    if ledger.committed(key):
        expected = {partition: until for partition, (_, until) in ranges.items()}
    elif done == planned:
        return "the checkpoint is ahead of the table"
    else:
        expected = {partition: first for partition, (first, _) in ranges.items()}
    agreed = all(ends.get(partition, at) == at for partition, at in expected.items())
    if not agreed or not ends.keys() <= expected.keys():
        return "the checkpoint is not where the table ends"
    return ""


def _untouched(
    topic: str, files: Files, checkpoint: Checkpoint, uri: str, starts: Mapping[int, int]
) -> str:
    """Of a checkpoint without a batch: it may have noted where it would begin.

    What was left of a first batch's offsets that were not written to their end (a full disk, a
    kill -9) would be refused by Spark for ever.
    """
    if files.entries(join(uri, "offsets")):
        return "the checkpoint was broken off in its first batch"
    if not files.exists(join(uri, "sources", "0", "0")):
        return ""
    initial = checkpoint.initial(topic)
    return "" if initial == dict(starts) else "the checkpoint would begin elsewhere"


def _newest(files: Files, uri: str) -> int | None:
    """The highest batch number in one of the checkpoint's logs."""
    names = [entry.name for entry in files.entries(uri)]
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)
