"""ConsumerGroupHeartbeat answered in C, beside the Python handler: the same bytes, or Python's.

A stub is in place of the group and answers every heartbeat as before. The reason of a request is
that for which C passed it on to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kbroker.coordinator.consumer_group.beats import NEVER_MS, ShownBeat
from kbroker.coordinator.consumer_group.messages import (
    AnswerHeartbeat,
    HeartbeatAnswer,
    HeartbeatAsked,
)
from kbroker.coordinator.group._groups import GroupTable
from kbroker.coordinator.group._hot_beats import HotBeats
from kbroker.coordinator.group.states import GroupState
from kbroker.core._live_objects import live_counts
from kbroker.protocol import messages
from kbroker.protocol.messages.consumer_group_heartbeat import TopicPartitions
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker
from tests.unit.net.harness import Client, Rig, framed, header, running

KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = [0, 1]
GROUP, MEMBER, EPOCH, INTERVAL_MS = "readers", "m" * 22, 7, 5_000
CLIENT = "test"
GENERATION = 3


class Beside:
    """The compiled path on a socket with a shard of its own, and what it passes on."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.broker = FakeBroker()
        image = self.broker.controller.image
        features = image.features.changed({"group.version": 1})
        self.broker.controller.image = image.with_features(features)
        self.broker.services.consumer_groups = lambda: self  # type: ignore[assignment,return-value]
        self.table = GroupTable(rig.hot)
        self.table.set_partition_count(1)
        self.beats = HotBeats(self.table)
        rig.hot.serve_groups(self.table)
        rig.server.set_hot(KEY, 0, 1)
        self.log = rig.create("__consumer_offsets", internal=True, compacted=True).logs[0]
        self.table.open(0, self.log)
        self.table.activate(0)
        self.in_python: list[str] = []
        self.asked: list[HeartbeatAsked] = []
        rig.dispatch = self._dispatch
        self.client: Client = rig.client()
        self.publish()

    def _dispatch(self, request: Any) -> None:
        self.in_python.append(request.reason)
        twin = self.broker.send(request.api_key, request.api_version, request.body)
        if twin.answer is None:
            request.close_connection("as Python says")
        else:
            request.respond(twin.answer)

    def heartbeat(self, asked: HeartbeatAsked, answer: AnswerHeartbeat) -> None:
        """In place of the groups."""
        self.asked.append(asked)
        answer(HeartbeatAnswer(member_id=asked.member_id, epoch=EPOCH, interval_ms=INTERVAL_MS))

    def publish(self, generation: int = GENERATION) -> None:
        state = GroupState.STABLE
        self.table.publish_members(GROUP, state=state, generation=generation, members=())

    def show(self, **changes: Any) -> None:
        beat = ShownBeat(
            MEMBER, None, EPOCH, CLIENT, "127.0.0.1", GENERATION, INTERVAL_MS,
            self.beats.images, NEVER_MS,
        )  # fmt: skip
        self.beats.show(GROUP, beat._replace(**changes))

    def ask(self, version: int = 1, client_id: str | None = CLIENT, **changes: Any) -> bytes:
        """The whole answer to a heartbeat that says nothing new, but for the changes."""
        request = messages.consumer_group_heartbeat.Request(
            **{"group_id": GROUP, "member_id": MEMBER, "member_epoch": EPOCH, **changes}
        )
        self.in_python.clear()
        self.client.send(framed(header(KEY, version, 7, client_id) + request.encode(version)))
        return self.client.receive()

    def in_c(self, version: int = 1, **changes: Any) -> bool:
        before = self.rig.hot.statistics()["consumer_heartbeat_requests"]
        self.ask(version, **changes)
        answered = self.rig.hot.statistics()["consumer_heartbeat_requests"] - before
        assert self.in_python == ([] if answered else ["group"])
        return bool(answered)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    with running(tmp_path) as rig:
        made = Beside(rig)
        yield made
        made.table.close(0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("member", [MEMBER, "m", "\u00fc" * 70, "m" * 500])
def test_the_answer_is_pythons_byte_for_byte(beside: Beside, version: int, member: str) -> None:
    said = beside.ask(version, member_id=member)
    assert beside.in_python == ["group"]
    beside.show(member_id=member)
    assert beside.ask(version, member_id=member) == said
    assert beside.in_python == []


def test_the_session_begins_with_each_heartbeat(beside: Beside) -> None:
    beside.show()
    assert beside.beats.heard_ms(GROUP, MEMBER) == 0
    assert beside.in_c()
    first = beside.beats.heard_ms(GROUP, MEMBER)
    assert first > 0
    beside.table.set_clock_shift_ms(40_000)
    assert beside.in_c()
    assert beside.beats.heard_ms(GROUP, MEMBER) >= first + 40_000
    assert beside.beats.heard_ms(GROUP, "another") == beside.beats.heard_ms("others", MEMBER) == 0


NEW: dict[str, dict[str, Any]] = {
    "a join": {"member_epoch": 0, "rebalance_timeout_ms": 1, "topic_partitions": [],
               "subscribed_topic_names": []},
    "the end": {"member_epoch": -1},
    "another epoch": {"member_epoch": EPOCH - 1},
    "another member": {"member_id": "m2"},
    "another group": {"group_id": "others"},
    "a group that is not ASCII": {"group_id": "gr\u00fc\u00dfe"},
    "an instance that it is not": {"instance_id": "i"},
    "a rack": {"rack_id": "r"},
    "a timeout": {"rebalance_timeout_ms": 5_000},
    "topics": {"subscribed_topic_names": []},
    "an expression": {"subscribed_topic_regex": ""},
    "an assignor": {"server_assignor": "uniform"},
    "no partitions": {"topic_partitions": []},
    "partitions": {"topic_partitions": [TopicPartitions(topic_id=UUID(int=1), partitions=[0])]},
    "another client": {"client_id": "other"},
    "no client": {"client_id": None},
}  # fmt: skip


@pytest.mark.parametrize("new", list(NEW))
def test_heartbeats_that_say_something_new_are_for_python(beside: Beside, new: str) -> None:
    beside.show()
    assert not beside.in_c(**NEW[new])
    assert beside.beats.heard_ms(GROUP, MEMBER) == 0
    assert beside.in_c()


def test_a_client_without_an_id_is_one_with_an_empty_one(beside: Beside) -> None:
    beside.show(client_id="")
    assert beside.in_c(client_id=None)
    assert beside.in_c(client_id="")


def test_a_static_member_has_its_instance_id_or_none(beside: Beside) -> None:
    beside.show(instance_id="i")
    assert beside.in_c(instance_id="i")
    assert beside.in_c()
    assert not beside.in_c(instance_id="j")
    last_ms = beside.beats.heard_ms(GROUP, MEMBER)
    beside.show(instance_id="j")
    assert beside.beats.heard_ms(GROUP, MEMBER) == last_ms
    assert beside.in_c(instance_id="j")
    assert not beside.in_c(instance_id="i")


@pytest.mark.parametrize(
    "change",
    [
        lambda beside: beside.publish(GENERATION + 1),
        lambda beside: beside.beats.image_shown(),
        lambda beside: beside.beats.forget(GROUP, MEMBER),
        lambda beside: beside.table.remove_members(GROUP),
        lambda beside: beside.table.open(0, beside.log),
        lambda beside: beside.table.close(0),
        lambda beside: beside.show(until_ms=1),
        lambda beside: beside.show(host="127.0.0.2"),
        lambda beside: beside.show(host="::ffff:127.0.0.1"),
    ],
    ids=["group", "image", "member", "gone", "loading", "lost", "pattern", "host", "IPv6"],
)
def test_after_a_change_python_decides(beside: Beside, change: Callable[[Beside], Any]) -> None:
    beside.show()
    assert beside.in_c()
    change(beside)
    assert not beside.in_c()


def test_an_outdated_member_is_not_published(beside: Beside) -> None:
    images = beside.beats.images
    beside.beats.image_shown()  # while Python decided
    beside.show(images=images)
    assert not beside.in_c()
    beside.show(generation=GENERATION - 1)  # C has another one
    assert not beside.in_c()
    beside.beats.show("others", ShownBeat(MEMBER, None, 1, "", "127.0.0.1", 1, 1, 1, 1))
    with pytest.raises(OSError, match="illegal"):
        beside.show(host="somewhere")


def test_a_change_keeps_the_time_of_the_last_heartbeat(beside: Beside) -> None:
    """The session timer asks for it, whatever has changed since."""
    beside.show()
    beside.in_c()
    last_ms = beside.beats.heard_ms(GROUP, MEMBER)
    beside.publish(GENERATION + 1)
    assert beside.beats.heard_ms(GROUP, MEMBER) == last_ms > 0


def test_nothing_stays_of_members_that_have_gone(beside: Beside) -> None:
    members, used = live_counts()["members"], beside.table.statistics(0).bytes
    for each in range(100):
        beside.show(member_id=f"member-{each}", instance_id="i" * (each % 3) or None)
    used_bytes = beside.table.statistics(0).bytes - used
    assert live_counts()["members"] == members + 100
    assert used_bytes < 100 * 128
    for each in range(100):
        assert beside.in_c(member_id=f"member-{each}")
        beside.beats.forget(GROUP, f"member-{each}")
        assert not beside.in_c(member_id=f"member-{each}")
    assert (live_counts()["members"], beside.table.statistics(0).bytes) == (members, used)
    beside.show()
    beside.table.remove_members(GROUP)
    assert live_counts()["members"] == members
    assert beside.table.statistics(0).groups == 0


def test_bytes_that_do_not_parse_are_for_python(beside: Beside) -> None:
    """Cut anywhere; C answers none of them."""
    beside.show()
    whole = messages.consumer_group_heartbeat.Request(
        group_id=GROUP, member_id=MEMBER, member_epoch=EPOCH
    ).encode(1)
    for size in range(len(whole)):
        client = beside.rig.client()
        client.send(framed(header(KEY, 1, 7, CLIENT) + whole[:size]))
        assert client.ended()
    assert beside.beats.heard_ms(GROUP, MEMBER) == 0
