"""The pages of groups: coordinators and leaders that give no answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from kbroker.console import group_listing
from kbroker.console.message_source import Bounds
from kbroker.console.page import Page, Tone
from kbroker.console.pages import group, groups, topic
from kbroker.errors import ErrorCode, KafkaError
from kbroker.findings.pieces import PIECE
from kbroker.observe import group_log
from kbroker.observe.group_history import History
from kbroker.peer.group_descriptions import GroupDescription
from kbroker.peer.group_messages import Committed, ListedGroup, Unwritten
from kbroker.peer.groups import Listed
from kbroker.peer.messages import OffsetResult
from kbroker.types import TopicPartition
from tests.unit.console.fake_cluster import (
    FakeClient,
    asked_of,
    cluster_of,
    facts,
    notices,
    part,
    rows,
)
from tests.unit.console.fake_log import TOPIC, FakeLogs, FakePartition, records

SILENT = KafkaError(ErrorCode.NETWORK_EXCEPTION, "host-2:9092 does not answer")
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)
END = 100


class Groups:
    """In place of `Groups`: each group has committed offset 90 in all of its partitions."""

    committed: Mapping[str, Sequence[TopicPartition]] = {}

    def __init__(self, client: Any) -> None:
        pass

    def coordinator(self, name: str) -> tuple[int, None]:
        return 1, None

    def offsets(self, name: str) -> dict[TopicPartition, Committed]:
        return {where: Committed(90, -1, "", ErrorCode.NONE) for where in self.committed[name]}

    def offsets_of_all(
        self, listed: Sequence[Listed]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        return {each.group.group: self.offsets(each.group.group) for each in listed}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """Broker 2 is hung; it leads `bills`."""
    fake = FakeClient(cluster_of((1, 2), orders=[part(0)], bills=[part(0, 2, (2,))]))

    def everywhere(*_: Any, of_all: bool) -> dict[int, Any]:
        assert not of_all
        return {1: [ListedGroup(each, "", "Stable", "consumer") for each in "ba"], 2: SILENT}

    def ask_leaders(asked: Mapping[TopicPartition, Any], *_: Any, of_all: bool) -> Any:
        assert not of_all
        return {each: OffsetResult(ErrorCode.NONE, -1, END) for each in asked if each == ORDERS}

    def list_offsets(asked: Any) -> Any:
        raise SILENT

    fake.cluster.everywhere, fake.cluster.ask_leaders = everywhere, ask_leaders
    monkeypatch.setattr(fake, "list_offsets", list_offsets, raising=False)
    for module in (groups, group):
        monkeypatch.setattr(module, "Groups", Groups)
    monkeypatch.setattr(groups, "describe_listed", lambda *_: {})
    monkeypatch.setattr(group, "describe_group", lambda _, name: described(name))
    monkeypatch.setattr(Groups, "committed", {"a": [ORDERS], "b": [ORDERS, BILLS]})
    return fake


def described(name: str, kind: str = "streams") -> GroupDescription:
    """A streams group's departures are not asked for."""
    return GroupDescription(ErrorCode.NONE, None, name, kind, "Stable", "", "", 1, 1, ())


def test_groups_of_a_silent_coordinator_are_left_out_and_that_is_a_notice(
    client: FakeClient,
) -> None:
    page = groups.make(asked_of(client))
    assert [row["group"] for row in rows(page, "groups")] == ["a", "b"]
    first, *_ = notices(page, Tone.WARN)
    assert first.startswith("groups that broker 2 coordinates are left out: NETWORK_EXCEPTION")


def test_many_silent_coordinators_are_some_notices(client: FakeClient) -> None:
    client.cluster.everywhere = lambda *_, **__: dict.fromkeys(range(40), SILENT)
    page = groups.make(asked_of(client))
    assert rows(page, "groups") == []
    assert len(notices(page)) == group_listing.NOTICES_MAX + 1
    assert notices(page)[-1] == "and those of 30 more brokers"


def topic_page(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setattr(topic, "Groups", Groups)
    monkeypatch.setattr(topic, "log_bounds", lambda *_: {ORDERS: Bounds(0, END)})
    monkeypatch.setattr(client, "topic_configs", lambda name: [], raising=False)
    return topic.make(asked_of(client, path={"topic": "orders"}))


def test_a_topics_page_names_coordinators_that_give_no_answer(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.directories = {}
    page = topic_page(client, monkeypatch)
    assert [row["group"] for row in rows(page, "groups")] == ["a", "b"]
    (first,) = notices(page, Tone.WARN)
    assert first.startswith("groups that broker 2 coordinates are left out: NETWORK_EXCEPTION")


def test_a_topics_page_sorts_no_groups_that_it_does_not_list(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unsorted(str):
        __slots__ = ()

        def __lt__(self, other: object) -> bool:
            raise AssertionError("it is compared")

    names = [Unsorted(number) for number in range(topic.GROUPS_ASKED_MAX + 1)]
    listed = [ListedGroup(name, "", "Stable", "consumer") for name in names]
    client.cluster.everywhere = lambda *_, **__: {1: listed}
    page = topic_page(client, monkeypatch)
    assert notices(page)[-1] == f"which of the {len(names)} groups read it is not asked"


def test_a_page_of_many_groups_pauses_after_each_piece(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Groups, "offsets_of_all", lambda *_: {})
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1

    count = 10 * PIECE
    listed = [ListedGroup(f"g{count - n:05d}", "", "Stable", "") for n in range(count)]
    client.cluster.everywhere = lambda *_, **__: {1: listed}
    asked = asked_of(client, q="g", first="1000")
    page = groups.make(asked._replace(pause=pause))
    assert [row["group"] for row in rows(page, "groups")][::499] == ["g01001", "g01500"]
    assert pauses >= 3 * count // PIECE  # they are made, looked through and sorted


def test_a_topics_page_counts_groups_whose_offsets_are_not_known(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Groups, "offsets_of_all", lambda *_: {})
    page = topic_page(client, monkeypatch)
    assert notices(page, Tone.WARN)[-1].startswith("groups whose offsets are not known: 2")


def test_an_unknown_lag_is_a_dash_and_a_notice(client: FakeClient) -> None:
    page = groups.make(asked_of(client))
    assert [row["lag"] for row in rows(page, "groups")] == [10, None]
    assert notices(page)[-1].startswith("groups whose lag is not known: 1, as the leaders")
    page = group.make(asked_of(client, path={"group": "b"}))
    assert {row["topic"]: row["lag"] for row in rows(page, "partitions")} == {
        "bills": None, "orders": 10,
    }  # fmt: skip
    assert facts(page, "group")["lag"] is None
    assert notices(page)[0].startswith("partitions whose lag is not known: 1, as the leaders")
    page = group.make(asked_of(client, path={"group": "a"}))
    assert facts(page, "group")["lag"] == 10 and not notices(page)


# --- history --------------------------------------------------------------------------------------


def test_the_page_with_the_history_is_not_made_again_every_few_seconds(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def read_history(_: Any, name: str, **how: Any) -> History:
        asked.append(how)
        return History(name, is_whole=False)

    monkeypatch.setattr(group_log, "read_history", read_history)
    monkeypatch.setattr(group, "describe_group", lambda _, name: described(name, "classic"))
    monkeypatch.setattr(Groups, "unwritten", lambda *_: Unwritten("Stable", (), ()), raising=False)
    page = group.make(asked_of(client, path={"group": "a"}))
    assert page.refresh_s > 0 and not asked
    page = group.make(asked_of(client, path={"group": "a"}, history="1"))
    assert page.refresh_s == 0 and asked[0]["last"]
    assert notices(page) == ["the last 16 MB of the log were read"]
    assert rows(page, "rebalances") == []


@pytest.mark.parametrize("bytes_max", [0, 1, 60_000, 1 << 30])
@pytest.mark.parametrize("gap", [1, 400_000])
def test_the_last_batches_of_a_log(
    bytes_max: int, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_log, "_WINDOW_BYTES_MAX", 20_000)
    log, offset = FakePartition(), 3
    log.start = 4  # in the midst of the first batch
    for number in range(300):
        log.add(records(offset, 3, value=b"v" * 300))
        offset += 3 if number % 100 else 3 * gap
    reader: Any = FakeLogs([log])
    reader.cluster.timeout_ms = 1_000
    reader.fetch = partial(reader.fetch, partition_max_bytes=8_000)
    where = TopicPartition(TOPIC, 0)
    found, first = group_log.last_batches(
        reader, where, log.start, log.end, bytes_max, lambda: None
    )
    every = [data for _, _, data in log.batches]
    assert list(found) == every[len(every) - len(found) :]
    assert (first == log.start) == (bytes_max == 1 << 30) == (len(found) == len(every))
    assert sum(map(len, found)) <= max(bytes_max, 30_000)
    assert not bytes_max or found
    assert len(reader.fetches) < 250
