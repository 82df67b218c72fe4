"""The pages of brokers: what they hold, how far moves have come, and what one of them knows."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.console.asked import ROWS_MAX, Refused
from kbroker.console.page import Tone
from kbroker.console.pages import broker, brokers
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.placement_messages import ReassignedPartition
from kbroker.security.rights import Operation
from kbroker.types import TopicPartition
from tests.unit.console.fake_cluster import (
    GB,
    SAMPLES,
    FakeClient,
    FakeHere,
    asked_of,
    cluster_of,
    directory,
    facts,
    names,
    notices,
    part,
    rows,
    table_of,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def three_brokers() -> FakeClient:
    """Broker 3 is away, broker 2 silent, and b-0 goes from 3 to 2."""
    cluster = cluster_of(
        (1, 2),
        a=[part(0, 1, (1, 3), (1,)), part(1, 1, (1, 2))],
        b=[part(0, 1, (1, 2, 3), (1, 3))],
    )
    client = FakeClient(cluster)
    client.moving = {B0: ReassignedPartition((1, 2, 3), (2,), (3,))}
    client.directories = {1: [directory(sizes={A0: 100, A1: 50, B0: 1_000})]}
    return client


def test_each_broker_with_its_replicas_and_disks() -> None:
    page = brokers.make(asked_of(three_brokers()))
    one, two, three = rows(page, "brokers")
    assert (one["answers"], one["leads"], one["replicas"], one["logs_bytes"]) == (
        "yes",
        3,
        3,
        1_150,
    )
    assert one["free_bytes"] == 60 * GB
    assert (two["answers"], two["coming"], two["missing"], two["free_bytes"]) == (
        "silent",
        1,
        0,
        None,
    )
    assert (three["answers"], three["missing"], three["address"]) == ("gone", 1, None)


def test_how_far_a_move_has_come() -> None:
    client = three_brokers()
    (move,) = rows(brokers.make(asked_of(client)), "moves")
    assert (move["to"], move["from"], move["of_bytes"]) == ("2", "3", 1_000)
    assert (move["has_bytes"], move["progress"]) == (None, None)
    client.directories[2] = [directory(sizes={B0: 250})]
    (move,) = rows(brokers.make(asked_of(client)), "moves")
    assert (move["has_bytes"], move["progress"]) == (250, 0.25)
    client.directories[2] = [directory()]  # it has not begun
    (move,) = rows(brokers.make(asked_of(client)), "moves")
    assert (move["has_bytes"], move["progress"]) == (0, 0.0)


def test_moves_go_on_at_the_next_address() -> None:
    many = [TopicPartition("a", index) for index in range(ROWS_MAX + 1)]
    client = FakeClient(cluster_of((1, 2), a=[part(index) for index in range(ROWS_MAX + 1)]))
    client.moving = {each: ReassignedPartition((1, 2), (2,), (1,)) for each in many}
    table = table_of(brokers.make(asked_of(client)), "moves")
    assert (len(table.rows), table.total) == (ROWS_MAX, ROWS_MAX + 1)
    assert table.next_path == f"/ui/brokers?moves_from={ROWS_MAX}"
    (last,) = rows(brokers.make(asked_of(client, moves_from=str(ROWS_MAX))), "moves")
    assert last["partition"] == ROWS_MAX
    assert rows(brokers.make(asked_of(client, moves_from="10000000")), "moves") == []
    for wrong in ("-1", "x", "1" * 30):
        with pytest.raises(Refused):
            brokers.make(asked_of(client, moves_from=wrong))


def test_a_visitor_without_rights_sees_no_disks() -> None:
    client = three_brokers()
    client.directories = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    page = brokers.make(asked_of(client))
    assert [row["answers"] for row in rows(page, "brokers")] == [None, None, "gone"]
    assert len(notices(page, Tone.WARN)) == 1
    one = broker.make(asked_of(client, FakeHere(SAMPLES), {"broker": "1"}))
    assert "disks" not in names(one) and "replicas" not in names(one)


@pytest.mark.parametrize("text", ["9", "", "x", "-1", "1" * 40, "²", "1/2"])
def test_there_is_no_such_broker(text: str) -> None:
    with pytest.raises(Refused) as refused:
        broker.make(asked_of(three_brokers(), path={"broker": text}))
    assert refused.value.status == 404


CLIENTS: dict[str, Any] = {
    **SAMPLES,
    "connections": [(("PLAIN", "0"), 3), (("PLAIN", "1"), 4), (("TLS", "0"), 1)],
    "connections_opened": [(("PLAIN",), 20)],
    "connections_cut": [(("it was idle",), 0), (("a frame was too large",), 2)],
    "quota_byte_rate": [(("Produce", "anna", "app"), 2_000.0)],
    "quota_throttle_time": [(("Produce", "anna", "app"), 150.0), (("Fetch", "", "x"), 300.0)],
}


def test_the_broker_that_makes_the_page() -> None:
    client = three_brokers()
    client.settings = {"1": {"listeners": "PLAIN://:9092,TLS://:9093"}}
    page = broker.make(asked_of(client, FakeHere(CLIENTS), {"broker": "1"}))
    assert facts(page, "broker")["address"] == "host-1:9092"
    assert [row["value"] for row in rows(page, "listeners")] == ["PLAIN://:9092", "TLS://:9093"]
    plain, tls = rows(page, "connections")
    assert (plain["listener"], plain["open"], plain["opened"]) == ("PLAIN", 7, 20)
    assert (tls["open"], tls["opened"]) == (1, None)
    assert rows(page, "cut") == [{"cause": "a frame was too large", "count": 2}]
    first, second = rows(page, "throttled")
    assert (first["quota"], first["user"], first["delay_ms"]) == ("Fetch", None, 300.0)
    assert (second["user"], second["client_id"], second["used"]) == ("anna", "app", 2_000.0)
    assert [row["size_bytes"] for row in rows(page, "replicas")] == [1_000, 100, 50]
    assert {row["role"] for row in rows(page, "replicas")} == {"leader"}
    assert rows(page, "moves") == []


def test_the_principals_with_most_connections() -> None:
    here = FakeHere(CLIENTS)
    here.principals = [("TLS", f"User:{number}", 90 - number) for number in range(60)]
    page = broker.make(asked_of(three_brokers(), here, {"broker": "1"}))
    assert len(rows(page, "principals")) == broker.PRINCIPALS_MAX
    assert rows(page, "principals")[0] == {"principal": "User:0", "listener": "TLS", "open": 90}
    assert table_of(page, "principals").total == 60


def test_quotas_need_a_right_of_their_own() -> None:
    client = three_brokers()
    client.operations = frozenset({Operation.DESCRIBE})
    page = broker.make(asked_of(client, FakeHere(CLIENTS), {"broker": "1"}))
    assert "connections" in names(page) and "throttled" not in names(page)
    client.operations = frozenset({Operation.DESCRIBE_CONFIGS})
    page = broker.make(asked_of(client, FakeHere(None), {"broker": "1"}))
    assert not {"connections", "principals", "throttled"} & set(names(page))


def test_facts_that_only_another_broker_has_are_named() -> None:
    client = three_brokers()
    page = broker.make(asked_of(client, FakeHere(None), {"broker": "2"}))
    assert any("are known to it alone" in each for each in notices(page, Tone.QUIET))
    assert notices(page, Tone.BAD) == ["broker 2 does not answer"]
    assert len(rows(page, "moves")) == 1
    gone = broker.make(asked_of(client, FakeHere(None), {"broker": "3"}))
    assert notices(gone, Tone.BAD) == ["broker 3 is not registered: it is down"]
    assert "listeners" not in names(gone)


def test_the_largest_of_many_replicas_are_found_with_pauses() -> None:
    sizes = {TopicPartition("a", index): 7 * index % 3_000 for index in range(3_000)}
    client = FakeClient(cluster_of((1,), a=[part(0)]))
    client.directories = {1: [directory(sizes=sizes)]}
    pauses: list[None] = []

    def page(**query: str) -> list[Any]:
        request = asked_of(client, path={"broker": "1"}, **query)
        made = broker.make(request._replace(pause=lambda: pauses.append(None)))
        return [row["size_bytes"] for row in rows(made, "replicas")]

    largest = sorted(sizes.values(), reverse=True)
    assert page() == largest[:ROWS_MAX] and len(pauses) >= 15
    assert page(replicas_from="2800") == largest[2_800:]
