"""Samples of the request path: traffic by topic, network threads, requests. For the Observer.

Pure functions from the compiled core's statistics to samples by the catalogue's keys. Counts are
given as plain totals; the Observer adds the rates to those that the catalogue has rates for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kbroker.errors import ErrorCode
from kbroker.metrics.catalogue import QUANTILES
from kbroker.metrics.model import Histogram, LabelValues, Sample, Summary
from kbroker.net._request_figures import FETCH_CONSUMER, FETCH_FOLLOWER
from kbroker.observe.garbage import histogram_of_us
from kbroker.replica._partition_figures import PartitionFigures
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker._net import SocketServer
    from kbroker.engine._hot import HotPath, _HandlerStatistics
    from kbroker.net._request_figures import ApiTimes

Totals: TypeAlias = dict[str, list[tuple[LabelValues, int]]]
Samples: TypeAlias = dict[str, list[Sample]]

# key of the catalogue -> field of PartitionFigures, and of HotPath.statistics()
TOPIC_TOTALS: Final = {
    "bytes_in": ("appended_bytes", "produce_bytes"),
    "bytes_out": ("fetched_bytes", "fetch_bytes"),
    "messages_in": ("appended_records", "produce_records"),
    "produce_requests": ("produces", "produce_partitions"),
    "fetch_requests": ("fetches", "fetch_partitions"),
    "failed_produce_requests": ("refused_produces", "produce_errors"),
    "failed_fetch_requests": ("refused_fetches", "fetch_errors"),
    "bytes_rejected": ("rejected_bytes", "rejected_bytes"),
}
_PLACES: Final = [
    (key, PartitionFigures._fields.index(field)) for key, (field, _) in TOPIC_TOTALS.items()
]
# Muted waits above 134 s count in the last bucket.
_MUTED_BUCKETS: Final = 28


class TopicTotals:
    """Sums over the partitions of each topic; partitions are added one by one."""

    def __init__(self) -> None:
        self._sums: dict[str, list[int]] = {}

    def add(self, topic: str, figures: PartitionFigures) -> None:
        sums = self._sums.get(topic)
        if sums is None:
            sums = self._sums[topic] = [0] * len(_PLACES)
        for place, (_, field) in enumerate(_PLACES):
            sums[place] += figures[field]

    def totals(self, all_topics: Mapping[str, int]) -> Totals:
        """By key: the sum over all topics ever, then each topic that has had any."""
        found: Totals = {}
        for place, (key, _) in enumerate(_PLACES):
            rows = found[key] = [(("",), all_topics[TOPIC_TOTALS[key][1]])]
            rows += [((topic,), sums[place]) for topic, sums in self._sums.items() if sums[place]]
        found["produce_message_conversions"] = [(("",), 0)]
        return found


# --- the network ------------------------------------------------------------------------------


def network(server: SocketServer) -> tuple[Samples, Totals, list[tuple[str, int]]]:
    """(samples, totals that have rates, idle ns of each network thread)."""
    figures = server.statistics()
    samples: Samples = {
        "request_queue_size": [((), figures["queued_requests"])],
        "request_queue_bytes": [((), figures["queued_bytes"])],
        "pipelined_bytes": [((), figures["pipelined_bytes"])],
        "unsent_bytes": [((), figures["unsent_bytes"])],
        "train_frames": [((), sum(p["train_frames"] for p in figures["processors"]))],
    }
    threads = [(str(number), p) for number, p in enumerate(figures["processors"])]
    for key, name in (
        ("received_bytes", "received_bytes"),
        ("sent_bytes", "sent_bytes"),
        ("connections_idle_closed", "idle_closed"),
        ("connections_unread_closed", "unread_closed"),
        ("protocol_errors", "protocol_errors"),
    ):
        samples[key] = [((number,), cast("Mapping[str, int]", p)[name]) for number, p in threads]
    waits: dict[str, list[int]] = {}
    wait_ns: dict[str, int] = {}
    waiting: dict[str, int] = {}
    still_open: dict[str, int] = {}
    connections: list[Sample] = []
    for number, p in threads:
        for listener, muted in p["listeners"].items():
            connections.append(((listener, number), muted["connections"]))
            still_open[listener] = still_open.get(listener, 0) + muted["connections"]
            waiting[listener] = waiting.get(listener, 0) + muted["waiting"]
            wait_ns[listener] = wait_ns.get(listener, 0) + muted["sum_ns"]
            counts = waits.setdefault(listener, [0] * (_MUTED_BUCKETS + 1))
            for power, count in enumerate(muted["histogram_us"]):
                counts[min(power, _MUTED_BUCKETS)] += count
    samples["connections"] = connections
    samples["channel_state"] = _channel_states(p["state_ns"] for _, p in threads)
    samples["channels_muted_waiting"] = [((name,), n) for name, n in waiting.items()]
    samples["channel_muted_wait"] = [
        ((name,), histogram_of_us(counts, wait_ns[name])) for name, counts in waits.items()
    ]
    acceptors = figures["acceptors"]
    samples["connections_opened"] = [((a["listener"],), a["accepted"]) for a in acceptors]
    samples["connections_refused"] = [((a["listener"],), a["refused"]) for a in acceptors]
    samples["connections_closed"] = [
        ((a["listener"],), max(0, a["accepted"] - still_open.get(a["listener"], 0)))
        for a in acceptors
    ]
    samples["connections_cut"] = [
        ((cause.partition(";")[0],), count) for cause, count in server.closes().items()
    ]
    samples["accept_pauses"] = [((a["listener"],), a["paused"]) for a in acceptors]
    blocked: Totals = {"acceptor_blocked": [((a["listener"],), a["blocked_ns"]) for a in acceptors]}
    return samples, blocked, [(number, p["idle_ns"]) for number, p in threads if p["serving"]]


def _channel_states(by_thread: Iterable[Mapping[tuple[str, str], int]]) -> list[Sample]:
    sums: Counter[tuple[str, str]] = Counter()
    for state_ns in by_thread:
        sums.update(state_ns)
    return [(labels, ns / 1e9) for labels, ns in sums.items()]


# --- requests ---------------------------------------------------------------------------------


# As Kafka tells them apart; `Fetch` is both.
_FETCHES: Final = {FETCH_CONSUMER: "FetchConsumer", FETCH_FOLLOWER: "FetchFollower"}


def api_name(api_key: int) -> str:
    if api_key in _FETCHES:
        return _FETCHES[api_key]
    key = ApiKey.for_key(api_key)
    return str(api_key) if key is None else key.label


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def requests(apis: Sequence[ApiTimes], parts: Sequence[str]) -> tuple[Samples, Totals]:
    """Times by API, and how many requests of each version."""
    samples: Samples = {part: [] for part in parts}
    counted: list[tuple[LabelValues, int]] = []
    for api in apis:
        name = api_name(api.api_key)
        counted += [((name, str(version)), total) for version, total in api.versions]
        for part, times in zip(parts, api.parts, strict=True):
            quantiles = tuple(zip(QUANTILES, times.quantiles_ms, strict=True))
            samples[part].append(((name,), Summary(quantiles, api.total, times.sum_ms)))
    return samples, {"requests": counted}


def errors(hot: HotPath) -> list[tuple[LabelValues, int]]:
    figures = hot.statistics()
    return [
        ((name, _error_name(code)), total)
        for name, codes in (
            ("Produce", figures["produce_codes"]),
            ("Fetch", figures["fetch_codes"]),
        )
        for code, total in sorted(codes.items())
    ]


def gil_waits(handlers: Iterable[_HandlerStatistics]) -> Histogram:
    """The handlers' histograms of waits for the GIL, together."""
    sums: list[int] = []
    total_ns = 0
    for handler in handlers:
        buckets = handler["gil_waits_us"]
        sums = [a + b for a, b in zip(sums, buckets, strict=True)] if sums else list(buckets)
        total_ns += handler["gil_wait_ns"]
    return histogram_of_us(sums or [0], total_ns)


# --- logs -------------------------------------------------------------------------------------


def partitions(
    rows: Sequence[tuple[TopicPartition, PartitionFigures]], *, every_figure: bool
) -> Samples:
    """Offsets of every partition; sizes and counts too if that is asked for."""
    labels = [(name.topic, str(name.partition)) for name, _ in rows]
    wanted = {"current_offset": "high_watermark", "oldest_offset": "log_start_offset"}
    if every_figure:
        wanted |= {
            "log_size": "size_bytes",
            "log_start_offset": "log_start_offset",
            "log_end_offset": "log_end_offset",
            "log_segments": "segments",
            "partition_messages": "appended_records",
            "partition_bytes": "appended_bytes",
        }
    samples: Samples = {}
    for key, name in wanted.items():
        place = PartitionFigures._fields.index(name)
        samples[key] = [
            (label, figures[place]) for label, (_, figures) in zip(labels, rows, strict=True)
        ]
    return samples
