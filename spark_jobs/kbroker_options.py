"""What the data source `kbroker` is asked for, and which offsets that makes: no Spark in it.

Options and the JSON of offsets are those of Spark's Kafka source as far as OPTIONS goes. One that
is not known is refused rather than ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

EARLIEST, LATEST = -2, -1  # in the JSON of starting and ending offsets, as Kafka's source has them
TIMEOUT_MS: Final = 30_000

OPTIONS: Final = (
    "kafka.bootstrap.servers", "subscribe", "assign", "startingoffsets", "endingoffsets",
    "maxoffsetspertrigger", "includeheaders", "failondataloss", "kafka.default.api.timeout.ms",
    "kafka.request.timeout.ms", "kafka.isolation.level",
)  # fmt: skip
_PREFIX: Final = "kafka."
# As `kbroker.peer.client_properties` reads them.
SECURITY: Final = ("kafka.security.protocol", "kafka.sasl.", "kafka.ssl.")
Offsets = dict[str, dict[str, int]]  # topic -> partition as text -> offset


class Span(NamedTuple):
    """Offsets of one partition: from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int


class SourceError(Exception):
    """One line: what, why, what to do."""


class LostRecordsError(SourceError):
    """Records that were to be read are not in the log any more."""


@dataclass(frozen=True)
class Options:
    """What a reader was asked for. `topics` or, for single partitions, `assigned`."""

    bootstrap: str
    topics: tuple[str, ...]
    assigned: Mapping[str, tuple[int, ...]] | None
    starting: str | Offsets
    ending: str | Offsets
    rows_max: int
    headers: bool
    timeout_ms: int
    fail_on_loss: bool
    committed: bool  # records of transactions that were aborted, or may yet be, are not read
    # Of TLS and SASL, by the names that clients of Java have; there may be passwords.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str], *, stream: bool) -> Options:
        """Names without regard to case. SourceError names the option that does not fit."""
        named = {name.lower(): value for name, value in given.items()}
        secured = {name: named[name] for name in named if name.startswith(SECURITY)}
        if unknown := sorted(set(named) - set(OPTIONS) - set(secured)):
            raise SourceError(
                f"the data source kbroker has no option {unknown[0]}: use the Kafka connector "
                "(python -m spark_jobs.connector), or leave it out"
            )
        if stream and "endingoffsets" in named:
            raise SourceError("endingOffsets: a stream has no end")
        starting = _position(named, "startingoffsets", "latest" if stream else "earliest")
        ending = _position(named, "endingoffsets", "latest")
        if not stream and _says(starting, "latest", LATEST):
            raise SourceError("startingoffsets: a batch cannot begin at the latest offset")
        if _says(ending, "earliest", EARLIEST):
            raise SourceError("endingoffsets: a batch cannot end at the earliest offset")
        return cls(
            bootstrap=_required(named, "kafka.bootstrap.servers"),
            topics=_topics(named),
            assigned=_assigned(named["assign"]) if "assign" in named else None,
            starting=starting,
            ending=ending,
            rows_max=_count(named, "maxoffsetspertrigger") if stream else 0,
            headers=_yes(named, "includeheaders", default=False),
            timeout_ms=_count(named, "kafka.default.api.timeout.ms") or TIMEOUT_MS,
            committed=_committed(named),
            fail_on_loss=_yes(named, "failondataloss", default=True),
            properties={name.removeprefix(_PREFIX): value for name, value in secured.items()},
        )


def _required(named: Mapping[str, str], name: str) -> str:
    if not (value := named.get(name, "").strip()):
        raise SourceError(f"the data source kbroker needs the option {name}")
    return value


def _topics(named: Mapping[str, str]) -> tuple[str, ...]:
    if ("subscribe" in named) == ("assign" in named):
        raise SourceError("the data source kbroker needs one of subscribe and assign")
    if "assign" in named:
        return tuple(_assigned(named["assign"]))
    found = tuple(topic.strip() for topic in named["subscribe"].split(",") if topic.strip())
    return found or (_required({}, "subscribe"),)


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceError(f"{name}: a JSON object by topic is expected, not {text[:80]!r}")
    return found


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    """`{"orders": [0, 2]}`."""
    found = _json("assign", text)
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(type(one) is int for one in partitions):
            raise SourceError(f"assign: {topic}: a list of partitions is expected")
    return {topic: tuple(partitions) for topic, partitions in found.items()}


def _position(named: Mapping[str, str], name: str, default: str) -> str | Offsets:
    """earliest, latest, or `{"orders": {"0": 23, "1": -2}}` (-2 earliest, -1 latest)."""
    text = named.get(name, default).strip()
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    found = _json(name, text)
    for topic, partitions in found.items():
        if not isinstance(partitions, dict) or not all(
            one.isdecimal() and type(offset) is int and offset >= EARLIEST
            for one, offset in partitions.items()
        ):
            raise SourceError(f"{name}: {topic}: offsets by partition are expected")
    return found


def _says(position: str | Offsets, word: str, number: int) -> bool:
    if isinstance(position, str):
        return position == word
    return any(number in partitions.values() for partitions in position.values())


def _yes(named: Mapping[str, str], name: str, *, default: bool) -> bool:
    return named.get(name, str(default)).strip().lower() == "true"


def _committed(named: Mapping[str, str]) -> bool:
    level = named.get("kafka.isolation.level", "read_uncommitted").strip().lower()
    if level not in ("read_committed", "read_uncommitted"):
        raise SourceError(
            f"kafka.isolation.level: read_committed or read_uncommitted, not {level[:80]!r}"
        )
    return level == "read_committed"


def _count(named: Mapping[str, str], name: str) -> int:
    text = named.get(name, "0").strip()
    if not text.isdecimal():
        raise SourceError(f"{name}: a number is expected, not {text[:80]!r}")
    return int(text)


def resolved(wanted: str | Offsets, first: Offsets, last: Offsets) -> Offsets:
    """Words and -2 and -1 as offsets; a partition that is not named begins at its first."""
    if isinstance(wanted, str):
        return first if wanted == "earliest" else last
    found: Offsets = {}
    for topic, partitions in first.items():
        for partition, begin in partitions.items():
            offset = wanted.get(topic, {}).get(partition, EARLIEST)
            known = {EARLIEST: begin, LATEST: last[topic][partition]}
            found.setdefault(topic, {})[partition] = known.get(offset, offset)
    return found


def limited(start: Offsets, end: Offsets, rows_max: int) -> Offsets:
    """At most about `rows_max` records, shared by the records that wait, one at least of each."""
    waiting = {
        (topic, partition): until - start.get(topic, {}).get(partition, 0)
        for topic, partitions in end.items()
        for partition, until in partitions.items()
    }
    total = sum(max(0, count) for count in waiting.values())
    if not rows_max or total <= rows_max:
        return end
    return {
        topic: {
            partition: until - count + min(count, max(1, rows_max * count // total))
            if (count := waiting[topic, partition]) > 0
            else until
            for partition, until in partitions.items()
        }
        for topic, partitions in end.items()
    }


def shrunk(start: Offsets, last: Offsets) -> None:
    """LostRecordsError if a log ends before what was read of it already."""
    for topic, partitions in start.items():
        for partition, begin in partitions.items():
            highest = last.get(topic, {}).get(partition, 0)
            if begin > highest:
                raise LostRecordsError(
                    f"lost: {topic}-{partition} ends at {highest}, but was read up to {begin}: "
                    "the topic was made anew or lost its end"
                )


def spans(
    start: Offsets, end: Offsets, first: Offsets, last: Offsets, *, fail_on_loss: bool = True
) -> list[Span]:
    """The spans to be read of the logs.

    LostRecordsError if some of it is not there any more, or, without `fail_on_loss`, what is left:
    from the log's first offset on, and nothing of a log that ends before it was to be read from.
    """
    if fail_on_loss:
        shrunk(start, last)
        shrunk(end, last)
    found = []
    for topic, partitions in end.items():
        for partition, until in partitions.items():
            begin = start.get(topic, {}).get(partition, 0)
            lowest = min(first.get(topic, {}).get(partition, 0), until)
            if begin < lowest:
                if fail_on_loss:
                    raise LostRecordsError(
                        f"lost: {topic}-{partition} begins at {first[topic][partition]}, {begin} to"
                        f" {lowest} is gone: retention was faster"
                    )
                begin = lowest
            if begin < until:
                found.append(Span(topic, int(partition), begin, until))
    return found
