"""From figures to the records of `__kbroker_metrics`: growth since the last round, by the table.

`MetricsTopic` calls `round` on its own thread once a period; a generator, so that its caller lets
other threads run between two records. It keeps the last value by kind, entity and field. A count
that became smaller began anew (a topic that was deleted and made again), so all of it is growth.

Owner: that thread alone. Bound: what is kept is replaced every round, so it is as large as the
broker has partitions, not as it once had.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kbroker.clock import Clock
from kbroker.metrics.catalogue import BY_KEY
from kbroker.metrics.model import Figures, Histogram, Meter, Value
from kbroker.metrics.samples import (
    ABORTED_TRANSACTIONS,
    FROM_FIGURES,
    GROUP_LAG,
    GROUP_LAGS_MAX,
    LAST_STABLE_OFFSET,
    LOG_FLUSH,
    OFTEN_S,
    OPEN_MAX,
    OPEN_TRANSACTION,
    PARTITION_LOG,
    PARTITION_MESSAGES,
    REQUEST_TIME,
    SAMPLING,
    SCHEMA_VERSION,
    SELDOM_S,
    SHARE_IN_FLIGHT,
    SHARES_IN_FLIGHT_MAX,
    UNCHANGED_ROUNDS_MAX,
    Field,
    Kind,
)

if TYPE_CHECKING:
    from kbroker.observe.seen_transactions import SeenTransactions

Buckets = Sequence[tuple[float, int]]


class RequestTimes(NamedTuple):
    """Durations of one part of one kind of request since the start, not cumulative."""

    request: str
    part: str
    buckets_ms: Buckets


class Log(Protocol):
    """Whose log it is, and where."""

    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def directory(self) -> str: ...


class Replica(Protocol):
    """What a partition's replica says of itself."""

    @property
    def log(self) -> Log: ...
    def statistics(self) -> Mapping[str, int]: ...


class Source(Protocol):
    """Where figures come from; any thread may ask."""

    def figures(self) -> Figures: ...
    def partitions(self) -> Iterable[Replica]: ...
    def request_times(self) -> Iterable[RequestTimes]: ...
    def flush_times(self) -> Buckets: ...
    def transactions(self) -> SeenTransactions: ...


class Sample(NamedTuple):
    """One record to be."""

    key: bytes
    value: bytes
    event_time_ms: int


class Sampler:
    """`round` once a period, by one thread."""

    def __init__(self, source: Source, broker_id: int, clock: Clock) -> None:
        self._source = source
        self._broker_id = broker_id
        self._clock = clock
        self._run_ms = clock.wall_ms()
        self._sequence = 0
        self._dropped = 0
        self._slow_rounds = 0
        # When each period's previous round was, and what it saw.
        self._at_ms = dict.fromkeys((OFTEN_S, SELDOM_S), clock.monotonic_ms())
        self._seen: dict[tuple[str, ...], Any] = {}
        self._now_seen: dict[tuple[str, ...], Any] = {}
        self._logs_seen: dict[tuple[str, int], tuple[int, ...]] = {}
        self._lags_seen: set[tuple[str, ...]] = set()  # groups and topics that had a lag
        self._shares_seen: set[tuple[str, ...]] = set()  # share groups and topics with records

    def round(self, *, seldom: bool, dropped: int = 0) -> Iterator[Sample]:
        """The records of one round; with `seldom` those of the slow period too."""
        event_ms = self._clock.wall_ms()
        figures = self._source.figures()
        self._dropped = dropped
        self._now_seen = {}
        for period_s in (OFTEN_S, SELDOM_S) if seldom else (OFTEN_S,):
            now_ms = self._clock.monotonic_ms()
            before_ms, self._at_ms[period_s] = self._at_ms[period_s], now_ms
            for kind, entity, fields in self._records(period_s, figures):
                yield self._sample(kind, entity, fields, event_ms, now_ms - before_ms)
        if not seldom:  # the slow period's counts go on from where they were
            self._now_seen = {**self._seen, **self._now_seen}
        self._seen = self._now_seen

    # --- what there is to say ---------------------------------------------------------------------

    def _records(
        self, period_s: int, figures: Figures
    ) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
        if period_s == OFTEN_S:
            yield from self._partition_messages()
            yield from self._request_times()
            yield from self._flush_times()
            yield from self._transactions()
        else:
            self._slow_rounds += 1
            yield from self._partition_logs()
            yield from self._group_lags(figures)
            yield from self._shares_in_flight(figures)
            dropped = self._growth((SAMPLING.metric_name,), self._dropped)
            yield SAMPLING, "", {"dropped": dropped}
        for kind in FROM_FIGURES:
            if kind.period_s == period_s:
                for fields in self._from_figures(kind, figures):
                    yield kind, "", fields

    def _partition_messages(self) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
        name = PARTITION_MESSAGES.metric_name
        for replica in self._source.partitions():
            log, found = replica.log, replica.statistics()
            where = (name, log.topic, str(log.index))
            count = self._growth((*where, "records"), found["appended_records"])
            size = self._growth((*where, "bytes"), found["appended_bytes"])
            if count:
                fields = {"message_count": count, "bytes_in": size}
                yield PARTITION_MESSAGES, *_of_partition(log, fields)

    def _partition_logs(self) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
        everything = self._slow_rounds % UNCHANGED_ROUNDS_MAX == 1
        before, now = self._logs_seen, {}
        names = ("size_bytes", "log_start_offset", "log_end_offset", "high_watermark")
        for replica in self._source.partitions():
            log, found = replica.log, replica.statistics()
            values = tuple(found[name] for name in names)
            now[log.topic, log.index] = values
            if everything or before.get((log.topic, log.index)) != values:
                directory = log.directory.rpartition("/")[0]
                fields = {"directory": directory, **dict(zip(names, values, strict=True))}
                yield PARTITION_LOG, *_of_partition(log, fields)
        self._logs_seen = now

    def _request_times(self) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
        for times in self._source.request_times():
            where = (REQUEST_TIME.metric_name, times.request, times.part)
            buckets = self._bucket_growth(where, times.buckets_ms)
            if buckets:
                count = sum(bucket["count"] for bucket in buckets)
                yield REQUEST_TIME, "", {
                    "request": times.request, "part": times.part,
                    "count": count, "buckets": buckets,
                }  # fmt: skip

    def _flush_times(self) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
        buckets = self._bucket_growth((LOG_FLUSH.metric_name,), self._source.flush_times())
        if buckets:
            count = sum(bucket["count"] for bucket in buckets)
            yield LOG_FLUSH, "", {"count": count, "buckets": buckets}

    def _group_lags(self, figures: Figures) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
        lags = {labels: lag for labels, lag in figures.samples("group_lag_sum")
                if isinstance(lag, int)}  # fmt: skip
        before, self._lags_seen = self._lags_seen, {names for names, lag in lags.items() if lag}
        changed = ((lag, names) for names, lag in lags.items() if lag or names in before)
        members = {group: count for (group,), count in figures.samples("group_members")}
        for lag, (group, topic) in heapq.nlargest(GROUP_LAGS_MAX, changed):
            fields = {"consumer_group": group, "topic": topic, "lag": lag}
            yield GROUP_LAG, "", {**fields, "members": members.get(group)}

    def _shares_in_flight(self, figures: Figures) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
        counts: Counter[tuple[str, ...]] = Counter()
        for (group, topic, _), count in figures.samples("share_in_flight"):
            if isinstance(count, int):
                counts[group, topic] += count
        before, self._shares_seen = self._shares_seen, {name for name, n in counts.items() if n}
        # A share group that is gone has no series any more.
        changed = ((counts[name], name) for name in before | self._shares_seen)
        for count, (group, topic) in heapq.nlargest(SHARES_IN_FLIGHT_MAX, changed):
            fields = {"share_group": group, "topic": topic, "share_in_flight": count}
            yield SHARE_IN_FLIGHT, "", fields

    def _transactions(self) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
        found = self._source.transactions()
        aborted = []
        for each in found.aborted:
            where = (ABORTED_TRANSACTIONS.metric_name, each.transactional_id)
            count = self._growth((*where, "aborted"), each.aborted)
            timed_out = self._growth((*where, "timed out"), each.timed_out)
            if count:
                aborted.append((count, timed_out, each))
        for count, timed_out, each in heapq.nlargest(OPEN_MAX, aborted, key=lambda row: row[0]):
            yield ABORTED_TRANSACTIONS, "", {
                "transactional_id": each.transactional_id, "transactions_aborted": count,
                "transactions_timed_out": timed_out, **each.client._asdict(),
            }  # fmt: skip
        for one in found.is_open:
            yield OPEN_TRANSACTION, "", {
                "transactional_id": one.transactional_id, "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch, "transaction_state": one.state,
                "open_s": one.open_s, "timeout_ms": one.timeout_ms,
                "transaction_partitions": one.partitions, **one.client._asdict(),
            }  # fmt: skip
        for (topic, index), *rest in found.held:
            names = ("producer_id", "producer_epoch", "last_stable_offset", "open_s",
                     "waiting_records")  # fmt: skip
            named = {"topic": topic, "partition": index, **dict(zip(names, rest, strict=True))}
            yield LAST_STABLE_OFFSET, f":{topic}:{index}", named

    def _from_figures(self, kind: Kind, figures: Figures) -> Iterator[dict[str, Any]]:
        filled = [field for field in kind.fields if field.figure in figures]
        by_label: dict[str, dict[str, Any]] = {}
        for field in filled:
            for label, value in _values(field, kind.by, figures).items():
                where = (kind.metric_name, field.name, label)
                if not kind.from_zero and isinstance(value, int | float):
                    self._seen.setdefault(where, value)
                by_label.setdefault(label, {})[field.name] = self._field(field, where, value)
        for label, fields in by_label.items():
            yield {kind.by: label, **fields} if kind.by else fields

    def _field(self, field: Field, where: tuple[str, ...], value: Value) -> Any:
        if isinstance(value, Histogram):
            return self._bucket_growth(where, _not_cumulative(value.buckets))
        number = _number(field, value)
        if not math.isfinite(number):
            return None  # JSON has no infinity
        if field.growth:
            number = self._growth(where, number)
        return round(number) if field.type == "long" else number

    # --- growth -----------------------------------------------------------------------------------

    def _growth(self, where: tuple[str, ...], now: Any) -> Any:
        before = self._seen.get(where, 0)
        self._now_seen[where] = now
        return now - before if now >= before else now

    def _bucket_growth(self, where: tuple[str, ...], now: Buckets) -> list[dict[str, Any]]:
        before = self._seen.get(where, {})
        self._now_seen[where] = dict(now)
        grown = [(bound, count - before.get(bound, 0)) for bound, count in now]
        return [{"le": _json_bound(bound), "count": n} for bound, n in grown if n > 0]

    def _sample(
        self, kind: Kind, entity: str, fields: dict[str, Any], event_ms: int, interval_ms: int
    ) -> Sample:
        value = {
            "schema_version": SCHEMA_VERSION,
            "broker_id": self._broker_id,
            "run_ms": self._run_ms,
            "sequence": self._sequence,
            "event_time_ms": event_ms,
            "interval_ms": interval_ms,
            "metric_name": kind.metric_name,
            **fields,
        }
        self._sequence += 1
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return Sample(f"{self._broker_id}{entity}".encode(), text.encode(), event_ms)


def _of_partition(log: Log, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The rest of the key, and the fields with the partition's name."""
    named = {"topic": log.topic, "partition": log.index, **fields}
    return f":{log.topic}:{log.index}", named


def _values(field: Field, by: str, figures: Figures) -> dict[str, Value]:
    """By the label's value; without one, the sum over all labels, which may be there already."""
    labels = BY_KEY[field.figure].labels
    samples = figures.samples(field.figure)
    if field.of:
        these = [_number(field, value) for found, value in samples if found[0] in field.of]
        return {"": sum(these)} if samples else {}
    if by:
        at = labels.index(by)
        return {found[at]: value for found, value in samples}
    for found, value in samples:
        if not any(found):
            return {"": value}
    numbers = [value for _, value in samples if isinstance(value, int | float)]
    return {"": sum(numbers)} if samples else {}


def _number(field: Field, value: Value) -> float:
    number = value.total if isinstance(value, Meter) else value
    if not isinstance(number, int | float):
        raise TypeError(f"{field.name} is no number: {number}")
    return number


def _not_cumulative(buckets: Buckets) -> list[tuple[float, int]]:
    below = 0
    found = []
    for bound, count in buckets:
        found.append((bound, count - below))
        below = count
    return found


def _json_bound(bound: float) -> float | str:
    """JSON has no infinity; readers of either kind cast this text."""
    return "Infinity" if bound == float("inf") else bound
