"""`kbroker top`: what two samples add up to, and what is drawn of it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from kbroker.cli import top, top_data
from kbroker.cli.top_data import Sample, frame
from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.group_messages import ListedGroup
from kbroker.peer.groups import Listed
from kbroker.peer.messages import BrokerAddress, ClusterMetadata, PartitionMetadata, TopicMetadata
from kbroker.peer.placement_messages import ReassignedPartition
from kbroker.types import TopicPartition as At

A0, A1, B0 = At("a", 0), At("a", 1), At("b", 0)


def partition(index: int, leader: int = 1, isr: tuple[int, ...] = (1,)) -> PartitionMetadata:
    return PartitionMetadata(
        index=index, error=ErrorCode.NONE, leader=leader, leader_epoch=0, replicas=(1,), isr=isr,
        offline=(),
    )  # fmt: skip


def topic(name: str, *partitions: PartitionMetadata, internal: bool = False) -> TopicMetadata:
    return TopicMetadata(
        name=name, error=ErrorCode.NONE, topic_id=None, internal=internal, partitions=partitions
    )


TOPICS = {
    "a": topic("a", partition(0), partition(1)),
    "b": topic("b", partition(0, -1, ())),
    "__in": topic("__in", partition(0), internal=True),
}
CLUSTER = ClusterMetadata(
    cluster_id="c", controller_id=1, brokers={1: BrokerAddress(1, "h", 9, None)}, topics=TOPICS
)


def sample(at_s: int, ends: Any, sizes: Any, committed: Any) -> Sample:
    groups = [Listed(1, ListedGroup(name, "consumer", "Stable")) for name in ("g", "h")]
    return Sample(at_s * 10**9, CLUSTER, ends, sizes, groups, committed)


FIRST = sample(0, {A0: 100, A1: 50}, {A0: 1000, A1: 10}, {"g": {A0: 90}})
SECOND = sample(2, {A0: 300, A1: 50}, {A0: 5000, A1: 10, B0: 7}, {"g": {A0: 210, B0: 5}, "h": {}})


def test_a_replica_on_its_way_is_not_missing() -> None:
    moved = partition(0, isr=(1,))._replace(replicas=(2, 1))
    cluster = CLUSTER._replace(topics={"a": topic("a", moved)})
    alone = FIRST._replace(cluster=cluster)
    assert frame(None, alone)["under_replicated"] == 1
    moving = alone._replace(moving={A0: ReassignedPartition((2, 1), (2,), (1,))})
    document = frame(None, moving)
    assert (document["under_replicated"], document["reassigned"]) == (0, 1)
    assert "1 on the way to other brokers" in top.headline(document)
    # Where it is to be, and is out of sync, is another matter; so is one that is offline.
    lags = cluster.topics["a"]._replace(partitions=(moved._replace(isr=(2,)),))
    lost = moving._replace(cluster=cluster._replace(topics={"a": lags}))
    assert frame(None, lost)["under_replicated"] == 1


def nodes_of(before: Sample | None, now: Sample) -> dict[int, dict[str, Any]]:
    return {row["broker"]: row for row in frame(before, now)["nodes"]}


def test_no_broker_is_called_the_controller() -> None:
    """A client gets the id of any broker."""
    document = frame(None, FIRST)
    assert document["controller"] is None
    assert "controller" not in document["nodes"][0]


def test_several_brokers_and_when_a_replica_will_have_caught_up() -> None:
    parts = [
        partition(0, leader=1, isr=(1,))._replace(replicas=(1, 2)),
        partition(1, leader=2, isr=(1, 2))._replace(replicas=(2, 1, 3)),
    ]
    brokers = {each: BrokerAddress(each, "h", each, None) for each in (1, 2, 4)}
    cluster = CLUSTER._replace(brokers=brokers, topics={"a": topic("a", *parts)})
    first = FIRST._replace(
        cluster=cluster,
        replicas={1: {A0: 9_000, A1: 500}, 2: {A0: 1_000, A1: 500}},
    )
    found = nodes_of(None, first)
    assert {each: row["answers"] for each, row in found.items()} == {
        1: "yes", 2: "yes", 3: "gone", 4: "no",
    }  # fmt: skip
    one, two, three = found[1], found[2], found[3]
    assert (one["leaders"], one["replicas"], one["behind"]) == (1, 2, 0)
    assert (one["behind_bytes"], one["caught_up_in_s"]) == (0, 0)
    assert (two["behind"], two["behind_bytes"], two["caught_up_in_s"]) == (1, 8_000, None)
    assert (three["behind"], three["behind_bytes"], three["replicas"]) == (1, None, 1)
    second = first._replace(
        at_ns=2 * 10**9, replicas={1: {A0: 9_000, A1: 900}, 2: {A0: 5_000, A1: 900}}
    )
    two = nodes_of(first, second)[2]
    assert (two["behind_bytes"], two["copied_bytes_per_s"]) == (4_000, 2_000.0)
    assert two["caught_up_in_s"] == 2.0
    # Nothing has come: the time is unknown.
    waits = nodes_of(second, second._replace(at_ns=4 * 10**9))[2]
    assert (waits["copied_bytes_per_s"], waits["caught_up_in_s"]) == (0.0, None)
    # A partition on its way to a broker lags as well, and is missing nowhere.
    moving = {A1: ReassignedPartition((2, 1, 3, 4), (4,), ())}
    held = {**first.replicas, 4: {A1: 100}}
    coming = nodes_of(None, first._replace(moving=moving, replicas=held))[4]
    assert (coming["behind"], coming["behind_bytes"]) == (1, 400)
    lines = drawn(frame(first, second), 10)
    assert lines[1].split() == " ".join(top.NODE_TITLES).split()
    assert lines[2].split() == ["1", "1", "2", "0", "0", "B", "0", "B", "0", "s"]
    assert lines[3].split() == ["2", "1", "2", "1", "3.9", "KB", "2.0", "KB", "2", "s"]
    assert lines[4].split() == ["3", "gone", "0", "1", "1", "-", "-", "-"]
    assert lines[5].split()[:2] == ["4", "silent"]


def test_one_sample_has_no_rates() -> None:
    document = frame(None, FIRST)
    assert document["messages_per_s"] is None and document["bytes_per_s"] is None
    assert (document["brokers"], document["partitions"]) == (1, 4)
    assert (document["leaderless"], document["under_replicated"]) == (1, 1)
    assert [row["topic"] for row in document["topics"]] == ["a", "b"]
    assert [row["topic"] for row in frame(None, FIRST, internal=True)["topics"]][-1] == "b"


def test_two_samples() -> None:
    document = frame(FIRST, SECOND)
    first, second = document["topics"]
    assert first == {
        "topic": "a",
        "partitions": 2,
        "messages_per_s": 100.0,
        "bytes_per_s": 2000.0,
        "size_bytes": 5010,
        "end_offsets": 350,
    }
    assert (second["messages_per_s"], second["bytes_per_s"]) == (0.0, 3.5)
    assert (document["messages_per_s"], document["bytes_per_s"]) == (100.0, 2003.5)
    g, h = document["groups"]
    assert (g["group"], g["lag"], g["lag_max"], g["partitions"]) == ("g", 90, 90, 2)
    assert g["consumed_per_s"] == 60.0
    assert (h["lag"], h["partitions"], h["consumed_per_s"]) == (0, 0, None)
    assert frame(None, FIRST)["groups"][-1]["lag"] is None, "h was not asked"


def test_a_count_that_shrinks_has_not_grown() -> None:
    assert frame(SECOND, FIRST._replace(at_ns=5 * 10**9))["topics"][0]["messages_per_s"] == 0.0


def drawn(document: dict[str, Any], rows: int) -> list[str]:
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(top.draw(document, rows))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_drawn_live_and_plain(capsys: pytest.CaptureFixture[str]) -> None:
    document = frame(FIRST, SECOND)
    lines = drawn(document, 1)
    assert lines[0].startswith("cluster c, 1 broker, 4 partitions, 4.9 KB, 100 msg/s in, 2.0 KB/s")
    assert lines[1].split() == list(top.TOPIC_TITLES)
    assert lines[2].split() == ["a", "2", "100", "2.0", "KB", "4.9", "KB", "350"]
    assert lines[3] == "and 1 more topics"
    assert lines[5].split() == ["g", "Stable", "2", "90", "90", "60.0"]
    top.print_plain(document, 1)
    plain = [line for line in capsys.readouterr().out.splitlines() if line]
    assert [line.split() for line in plain] == [line.split() for line in lines]


def test_a_topic_s_name_is_not_markup() -> None:
    document = frame(None, FIRST)
    document["topics"][0]["topic"] = "[red]x[/red]"
    assert drawn(document, 1)[2].startswith("[red]x[/red] ")


class _Cluster:
    """Time that passes without waiting."""

    def __init__(self) -> None:
        self.clock = ManualClock()

    def sleep_ms(self, duration_ms: float) -> None:
        self.clock.advance(duration_ms)


class _Client:
    def __init__(self) -> None:
        self.cluster = _Cluster()


def test_a_broker_that_goes_away_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[Any] = iter([FIRST, KafkaError(ErrorCode.NETWORK_EXCEPTION, "gone"), SECOND])

    def take(client: Any) -> Sample:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Sample)
        return answer

    monkeypatch.setattr(top_data, "take", take)
    client: Any = _Client()
    first, lost, back = top.frames(client, top.View(2000, 5, False), 3)
    assert "error" not in first and "error" not in back
    assert lost["topics"] == first["topics"]
    assert "no answer: NETWORK_EXCEPTION (13): gone" in top.headline(lost)
    assert back["messages_per_s"] == 100.0


def test_a_broker_that_never_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(client: Any) -> Sample:
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "gone")

    monkeypatch.setattr(top_data, "take", take)
    client: Any = _Client()
    with pytest.raises(KafkaError):
        next(top.frames(client, top.View(1, 5, False), None))
