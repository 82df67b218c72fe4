"""Samples: growth and not totals, one record per entity, nothing for those without a change."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from kbroker.clock import ManualClock
from kbroker.metrics.model import Figures, Histogram, Meter
from kbroker.metrics.samples import columns
from kbroker.observe import metrics_sampler
from kbroker.observe.metrics_sampler import RequestTimes, Sample, Sampler
from kbroker.observe.seen_transactions import (
    NONE_SEEN,
    AbortedTransactions,
    Client,
    HeldOffset,
    OpenTransaction,
    SeenTransactions,
)
from kbroker.types import TopicPartition

INF = float("inf")


class Log(NamedTuple):
    topic: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    records: int = 0
    size: int = 0

    @property
    def log(self) -> Log:
        return self

    @property
    def directory(self) -> str:
        return f"/data/{self.topic}-{self.index}"

    def statistics(self) -> dict[str, int]:
        return {
            "appended_records": self.records,
            "appended_bytes": self.size,
            "size_bytes": self.size,
            "log_start_offset": 0,
            "log_end_offset": self.records,
            "high_watermark": self.records,
        }


class FakeSource:
    def __init__(self) -> None:
        self.logs: list[Log] = []
        self.times: list[RequestTimes] = []
        self.flushes: list[tuple[float, int]] = []
        self.measured: dict[str, Any] = {}
        self.seen = NONE_SEEN

    def figures(self) -> Figures:
        return Figures(0, self.measured)

    def partitions(self) -> list[Log]:
        return self.logs

    def request_times(self) -> list[RequestTimes]:
        return self.times

    def flush_times(self) -> list[tuple[float, int]]:
        return self.flushes

    def transactions(self) -> SeenTransactions:
        return self.seen


class Rounds:
    """A sampler over a source to be changed between rounds."""

    def __init__(self) -> None:
        self.source = FakeSource()
        self.clock = ManualClock(start_wall_ms=1_000_000)
        self.sampler = Sampler(self.source, 7, self.clock)
        self.raw: list[Sample] = []

    def next(self, seldom: bool = False, dropped: int = 0) -> dict[str, list[dict[str, Any]]]:
        """The values of one more round by metric name, without what all have in common."""
        self.clock.advance(15_000)
        self.raw = list(self.sampler.round(seldom=seldom, dropped=dropped))
        found: dict[str, list[dict[str, Any]]] = {}
        for sample in self.raw:
            value = json.loads(sample.value)
            assert set(value) <= set(columns())
            found.setdefault(value["metric_name"], []).append(value)
        return found


def picked(values: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(value[name] for name in names) for value in values]


def test_messages_of_a_partition_are_those_since_the_last_round() -> None:
    rounds = Rounds()
    rounds.source.logs = [Log("t", 0, 5, 500), Log("t", 1)]
    fields = ("topic", "partition", "message_count", "bytes_in")
    assert picked(rounds.next()["PartitionMessages"], *fields) == [("t", 0, 5, 500)]
    assert rounds.raw[0].key == b"7:t:0"
    assert rounds.next() == {}
    rounds.source.logs = [Log("t", 0, 6, 700), Log("t", 1, 1, 10)]
    assert picked(rounds.next()["PartitionMessages"], *fields) == [
        ("t", 0, 1, 200),
        ("t", 1, 1, 10),
    ]


def test_a_topic_that_was_made_again_begins_anew() -> None:
    rounds = Rounds()
    rounds.source.logs = [Log("t", 0, 5, 500)]
    rounds.next()
    rounds.source.logs = [Log("t", 0, 3, 300)]
    assert picked(rounds.next()["PartitionMessages"], "message_count", "bytes_in") == [(3, 300)]


def test_fields_that_all_records_have() -> None:
    rounds = Rounds()
    rounds.source.logs = [Log("t", 0, 1, 1), Log("t", 1, 1, 1)]
    first, second = rounds.next()["PartitionMessages"]
    assert (first["sequence"], second["sequence"]) == (0, 1)
    assert first["schema_version"] == 1
    assert first["broker_id"] == 7
    assert first["run_ms"] == 1_000_000
    assert first["event_time_ms"] == 1_015_000 == rounds.raw[0].event_time_ms
    assert first["interval_ms"] == 15_000


def test_logs_are_sampled_when_they_change_and_every_ten_minutes() -> None:
    rounds = Rounds()
    rounds.source.logs = [Log("t", 0, 5, 500)]
    sampled = [len(rounds.next(seldom=True).get("PartitionLog", [])) for _ in range(21)]
    assert sampled == [1] + [0] * 19 + [1]
    rounds.source.logs = [Log("t", 0, 6, 600)]
    (value,) = rounds.next(seldom=True)["PartitionLog"]
    assert picked([value], "directory", "size_bytes", "log_end_offset") == [("/data", 600, 6)]


def test_counts_of_the_slow_period_span_it() -> None:
    rounds = Rounds()
    for total in (10, 30, 60, 100):
        rounds.source.measured = {"cpu_seconds": [((), total)]}
        found = rounds.next(seldom=total in (30, 100))
        if total in (30, 100):
            (value,) = found["Process"]
            assert (value["cpu_s"], value["interval_ms"]) == ({30: 30, 100: 70}[total], 30_000)
        else:
            assert "Process" not in found


def test_figures_by_label_are_records_of_their_own() -> None:
    rounds = Rounds()
    rounds.source.measured = {
        "log_dir_free": [(("/a",), 1.0), (("/b",), 2)],
        "log_dir_used": [(("/a",), 3)],
    }
    values = rounds.next(seldom=True)["LogDirectory"]
    assert [(v["directory"], v["free_bytes"], v.get("log_bytes")) for v in values] == [
        ("/a", 1, 3),
        ("/b", 2, None),
    ]


def test_a_device_has_counted_before_the_broker_came() -> None:
    rounds = Rounds()
    rounds.source.measured = {"disk_read": [(("vda",), 1000)]}
    assert picked(rounds.next(seldom=True)["Disk"], "device", "read_bytes") == [("vda", 0)]
    rounds.source.measured = {"disk_read": [(("vda",), 1100), (("vdb",), 5)]}
    found = rounds.next(seldom=True)["Disk"]
    assert picked(found, "device", "read_bytes") == [("vda", 100), ("vdb", 0)]


def test_all_topics_together_are_taken_once() -> None:
    rounds = Rounds()
    rounds.source.measured = {
        "bytes_in": [(("",), Meter(10, 1.0, 1.0)), (("t",), Meter(10, 1.0, 1.0))],
        "connections": [(("L", "0"), 2), (("L", "1"), 3)],
    }
    found = rounds.next()
    assert found["BrokerTraffic"][0]["bytes_in"] == 10
    assert found["Threads"][0]["connections"] == 5
    assert rounds.next()["BrokerTraffic"][0]["bytes_in"] == 0


def test_histograms_are_growth_by_bucket() -> None:
    rounds = Rounds()
    rounds.source.times = [RequestTimes("Produce", "TotalTimeMs", [(0.5, 3), (1.0, 1)])]
    rounds.source.measured = {"gil_wait": [((), Histogram(((0.1, 2), (1.0, 2), (INF, 3)), 3, 1.0))]}
    found = rounds.next(seldom=True)
    assert picked(found["RequestTime"], "request", "part", "count") == [
        ("Produce", "TotalTimeMs", 4)
    ]
    assert found["RequestTime"][0]["buckets"] == [
        {"le": 0.5, "count": 3},
        {"le": 1.0, "count": 1},
    ]
    assert found["GilWait"][0]["waits_s"] == [
        {"le": 0.1, "count": 2},
        {"le": "Infinity", "count": 1},
    ]
    rounds.source.times = [RequestTimes("Produce", "TotalTimeMs", [(0.5, 3), (1.0, 2), (2.0, 5)])]
    found = rounds.next(seldom=True)
    assert found["RequestTime"][0]["buckets"] == [
        {"le": 1.0, "count": 1},
        {"le": 2.0, "count": 5},
    ]
    assert found["GilWait"][0]["waits_s"] == []
    assert "RequestTime" not in rounds.next()


def test_dropped_samples_are_reported() -> None:
    rounds = Rounds()
    assert rounds.next(seldom=True, dropped=4)["Sampling"][0]["dropped"] == 4
    assert rounds.next(seldom=True, dropped=4)["Sampling"][0]["dropped"] == 0


def test_flushes_are_sampled_where_there_were_any() -> None:
    rounds = Rounds()
    rounds.source.flushes = [(1.0, 3), (8.0, 1)]
    (value,) = rounds.next()["LogFlush"]
    assert picked([value], "count", "buckets") == [
        (4, [{"le": 1.0, "count": 3}, {"le": 8.0, "count": 1}])
    ]
    assert "LogFlush" not in rounds.next()
    rounds.source.flushes = [(1.0, 3), (8.0, 3)]
    assert picked(rounds.next()["LogFlush"], "count") == [(2,)]


def test_muted_sockets_by_listener() -> None:
    waits = Histogram(((0.001, 5), (INF, 7)), 7, 1.0)
    rounds = Rounds()
    rounds.source.measured = {
        "channels_muted_waiting": [(("PLAIN",), 3), (("TLS",), 0)],
        "channel_muted_wait": [(("PLAIN",), waits), (("TLS",), Histogram(((INF, 0),), 0, 0.0))],
    }
    fields = ("listener", "muted_waiting", "muted_waits_s")
    assert picked(rounds.next()["MutedSockets"], *fields) == [
        ("PLAIN", 3, [{"le": 0.001, "count": 5}, {"le": "Infinity", "count": 2}]),
        ("TLS", 0, []),
    ]
    assert picked(rounds.next()["MutedSockets"], *fields) == [("PLAIN", 3, []), ("TLS", 0, [])]


def test_lag_of_groups_until_they_have_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_sampler, "GROUP_LAGS_MAX", 2)
    rounds = Rounds()

    def lags(*found: int) -> list[tuple[Any, ...]]:
        groups = [(f"g{number}", "t") for number in range(len(found))]
        rounds.source.measured = {"group_lag_sum": list(zip(groups, found, strict=True))}
        sampled = rounds.next(seldom=True).get("GroupLag", [])
        return picked(sampled, "consumer_group", "topic", "lag")

    assert lags(0, 7) == [("g1", "t", 7)]
    assert lags(0, 7) == [("g1", "t", 7)]
    assert lags(3, 0) == [("g0", "t", 3), ("g1", "t", 0)]
    assert lags(3, 0) == [("g0", "t", 3)]
    assert lags(3, 5, 4) == [("g1", "t", 5), ("g2", "t", 4)], "those that lag most"


def test_members_beside_the_lag() -> None:
    rounds = Rounds()
    rounds.source.measured = {
        "group_lag_sum": [(("read", "t"), 5), (("left", "t"), 6), (("gone", "t"), 7)],
        "group_members": [(("read",), 2), (("left",), 0)],
    }
    sampled = rounds.next(seldom=True)["GroupLag"]
    assert sorted(picked(sampled, "consumer_group", "members")) == [
        ("gone", None), ("left", 0), ("read", 2),
    ]  # fmt: skip


CASHIER = Client("cashier", "10.1.2.3")


def test_aborted_transactions_are_those_since_the_last_round() -> None:
    rounds = Rounds()
    names = ("transactional_id", "transactions_aborted", "transactions_timed_out", "client_id")

    def aborted(*found: tuple[str, int, int, Client]) -> list[tuple[Any, ...]]:
        each = [AbortedTransactions(*one) for one in found]
        rounds.source.seen = SeenTransactions(each, [], [])
        return picked(rounds.next().get("AbortedTransactions", []), *names)

    pay, bill = ("pay", 5, 2, CASHIER), ("bill", 1, 0, Client())
    assert aborted(pay, bill) == [("pay", 5, 2, "cashier"), ("bill", 1, 0, None)]
    assert aborted(pay, bill) == []
    assert aborted(("pay", 6, 2, CASHIER), bill) == [("pay", 1, 0, "cashier")]
    assert aborted(("pay", 1, 1, CASHIER)) == [("pay", 1, 1, "cashier")], "counted from zero again"


def test_open_transactions_and_the_offsets_that_they_hold() -> None:
    rounds = Rounds()
    is_open = OpenTransaction("pay", 1_000, 4, "Ongoing", 12.5, 60_000, 3, CASHIER)
    held = HeldOffset(TopicPartition("t", 7), 1_000, 4, 52, 11.0, 8)
    rounds.source.seen = SeenTransactions([], [is_open], [held])
    found = rounds.next()
    (value,) = found["OpenTransaction"]
    assert {name: value[name] for name in list(value)[7:]} == {
        "transactional_id": "pay", "producer_id": 1_000, "producer_epoch": 4,
        "transaction_state": "Ongoing", "open_s": 12.5, "timeout_ms": 60_000,
        "transaction_partitions": 3, "client_id": "cashier", "client_host": "10.1.2.3",
    }  # fmt: skip
    (value,) = found["LastStableOffset"]
    assert {name: value[name] for name in list(value)[7:]} == {
        "topic": "t", "partition": 7, "producer_id": 1_000, "producer_epoch": 4,
        "last_stable_offset": 52, "open_s": 11.0, "waiting_records": 8,
    }  # fmt: skip
    assert rounds.raw[-1].key == b"7:t:7"


def test_share_groups_are_one_record_with_sums_of_labels() -> None:
    rounds = Rounds()
    rounds.source.measured = {
        "share_partitions_led": [((), 2)],
        "share_acknowledgements": [
            (("Accept",), Meter(90, 1.0, 1.0)), (("Release",), Meter(5, 1.0, 1.0)),
            (("Reject",), Meter(0, 0.0, 0.0)), (("Renew",), Meter(7, 1.0, 1.0)),
        ],
        "share_lock_timeouts": [((), Meter(3, 1.0, 1.0))],
        "share_archived": [(("lock ended",), 1), (("released",), 2), (("rejected",), 9)],
    }  # fmt: skip
    names = ("share_partitions", "share_accepted", "share_released", "share_locks_ended",
             "share_used_up")  # fmt: skip
    assert picked(rounds.next()["ShareGroups"], *names) == [(2, 90, 5, 3, 3)]
    assert picked(rounds.next()["ShareGroups"], *names) == [(2, 0, 0, 0, 0)]


def test_records_that_share_groups_hold_until_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_sampler, "SHARES_IN_FLIGHT_MAX", 2)
    rounds = Rounds()

    def held(*found: tuple[str, str, int]) -> list[tuple[Any, ...]]:
        series = [((group, "t", partition), count) for group, partition, count in found]
        rounds.source.measured = {"share_in_flight": series}
        sampled = rounds.next(seldom=True).get("ShareInFlight", [])
        return picked(sampled, "share_group", "topic", "share_in_flight")

    assert held(("g", "0", 4), ("g", "1", 3), ("h", "0", 0)) == [("g", "t", 7)]
    assert held(("g", "0", 0), ("h", "0", 1)) == [("h", "t", 1), ("g", "t", 0)]
    assert held() == [("h", "t", 0)], "a group that is gone has none"
    assert held() == []
    assert held(("g", "0", 1), ("h", "0", 3), ("i", "0", 2)) == [("h", "t", 3), ("i", "t", 2)]
