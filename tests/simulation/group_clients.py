"""Groups of a simulated cluster: clients that commit offsets, and fetch the committed ones.

A group has one commit under way, and sends it again until it is acknowledged or GIVE_UP_MS are
over. Each try commits another offset, so that a record identifies its try. A client learns its
coordinator as a producer learns a leader; now and then it asks another broker, which must refuse.

A group or its offset is deleted in between, also while a commit is under way.

The rules are checked where the broker answers:

- An acknowledged commit or deletion is below the high watermark, and so is an offset that is
  returned.
- An offset that is returned is not older than the last one that was acknowledged or returned when
  the client asked. So a deletion stays, and so does a commit after it.
- A broker that does not lead the partition does not answer with success.

A new coordinator may return an older offset to a client that does not ask for stable ones.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import NO_LEADER, OFFSETS_TOPIC
from kbroker.peer.group_messages import (
    NO_OFFSET,
    MemberIdentity,
    decode_delete_groups,
    decode_offset_commit,
    decode_offset_delete,
    decode_offset_fetch,
    encode_delete_groups,
    encode_offset_commit,
    encode_offset_delete,
    encode_offset_fetch,
)
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey, TopicPartition
from tests.simulation.clients import GIVE_UP_MS, Client
from tests.simulation.contents import DELETED
from tests.simulation.network import CLIENTS, Answer, Lost

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster
    from tests.simulation.views import Partition

COMMIT_VERSION = 8
FETCH_VERSION = 7
DELETE_GROUPS_VERSION = 2
OFFSET_DELETE_VERSION = 0
TRIES_MAX = 1_000  # for one commit
# How often another broker than the coordinator is asked.
ASTRAY = 0.1


@dataclass
class Committing:
    """A commit under way."""

    number: int
    give_up_at_ms: int
    tries: int = 0


class Committer(Client):
    """A group without members."""

    def __init__(self, cluster: Cluster, group: str, dice: random.Random) -> None:
        super().__init__(cluster)
        self._dice = dice
        self._group = group
        home = partition_for(group, len(cluster.homes))
        self._home = TopicPartition(OFFSETS_TOPIC, home)
        self._read = cluster.names[0]
        self._numbers = 0
        self._floor = -1  # the last place in the log that was acknowledged or returned
        self.committing: Committing | None = None
        self._sure = False  # that the broker that was asked last for a commit is the coordinator
        self.identity = MemberIdentity()
        self.expected = EXPECTED
        self._give_up_ms = GIVE_UP_MS
        self.acknowledged = 0
        self.answered = 0

    # --- commits ----------------------------------------------------------------------------------

    def commit(self) -> None:
        if self.committing is None:
            self._numbers += 1
            give_up_at_ms = self._cluster.loop.now_ms + self._give_up_ms
            self.committing = Committing(self._numbers, give_up_at_ms)
            self._send(self.committing)

    def _send(self, committing: Committing) -> None:
        target, self._sure = self._coordinator()
        if target == NO_LEADER:
            self._failed(committing)
            return
        committing.tries += 1
        offset = committing.number * TRIES_MAX + committing.tries
        self._cluster.safety.sent.add(self._value(offset))
        self._ask_broker(
            target,
            partial(self._serve_commit, offset, self.identity),
            partial(self._committed, committing),
        )

    def _value(self, offset: int) -> bytes:
        return b"%s/%d" % (self._group.encode(), offset)

    def _serve_commit(
        self, offset: int, identity: MemberIdentity, running: Running, answer: Answer
    ) -> None:
        offsets = {self._read: offset}
        body = encode_offset_commit(COMMIT_VERSION, self._group, offsets, identity)

        def done(answered: bytes) -> None:
            error = error_of_commit(answered)
            self._is_expected(error, running)
            if error is ErrorCode.NONE:
                self._acknowledges(running, offset)
            answer(error)

        running.serve(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, body, done)

    def _acknowledges(self, running: Running, offset: int) -> None:
        safety = self._cluster.safety
        value = self._value(offset)
        self._leads(running, f"acknowledges {value!r}")
        safety.look()
        partition = safety.partition(self._home)
        place = partition.places.get(value)
        if place is None:
            safety.fail("an acknowledged commit is replicated", f"{value!r}", partition)
            return
        safety.acknowledged.setdefault(self._home, {})[value] = place
        self._raise_floor(running, place)

    def _committed(self, committing: Committing, result: ErrorCode | Lost) -> None:
        if result is ErrorCode.NONE:
            self.committing = None
            self.acknowledged += 1
        else:
            self._failed(committing)

    def _failed(self, committing: Committing) -> None:
        if self._cluster.loop.now_ms < committing.give_up_at_ms:
            self._cluster.clients.later(self._dice.uniform(20, 120), lambda: self._send(committing))
        else:
            self.committing = None

    # --- committed offsets ------------------------------------------------------------------------

    def ask(self, *, stable: bool) -> None:
        target, sure = self._coordinator()
        if target != NO_LEADER:
            floor = self._floor if stable and sure else -1
            serve = partial(self._serve_fetch, floor, stable)
            self._ask_broker(target, serve, lambda result: None)

    def _serve_fetch(self, floor: int, stable: bool, running: Running, answer: Answer) -> None:
        body = encode_offset_fetch(FETCH_VERSION, self._group, [self._read], require_stable=stable)

        def done(answered: bytes) -> None:
            try:
                found = decode_offset_fetch(Reader(answered, flexible=True), FETCH_VERSION)
                error, offset = found[self._read].error, found[self._read].offset
            except KafkaError as refused:
                error, offset = refused.code, NO_OFFSET
            self._is_expected(error, running)
            if error is ErrorCode.NONE:
                self._answers(running, offset, floor, stable=stable)
            answer(error)

        running.serve(ApiKey.OFFSET_FETCH, FETCH_VERSION, body, done)

    def _answers(self, running: Running, offset: int, floor: int, *, stable: bool) -> None:
        safety = self._cluster.safety
        self._leads(running, f"returns {offset}")
        safety.look()
        partition = safety.partition(self._home)
        place = self._deleted_at(partition)
        self.answered += stable
        if offset != NO_OFFSET:
            value = self._value(offset)
            if value not in partition.places:
                safety.fail("an offset that is returned is replicated", f"{value!r}", partition)
                return
            place = partition.places[value]
        if place < floor:
            detail = f"{offset} at {place}, older than the one at {floor}"
            safety.fail("committed offsets do not go back", detail, partition)
        if stable:
            self._raise_floor(running, place)

    # --- deletions --------------------------------------------------------------------------------

    def delete(self, *, group: bool) -> None:
        """Of the group, or of its offset."""
        target, sure = self._coordinator()
        if target != NO_LEADER:
            serve = partial(self._serve_delete, self._floor if sure else -1, group)
            self._ask_broker(target, serve, lambda result: None)

    def _serve_delete(self, floor: int, group: bool, running: Running, answer: Answer) -> None:
        def done(answered: bytes) -> None:
            error = error_of_deletion(answered, group=group)
            self._is_expected(error, running)
            # OffsetDelete answers so at once, as in Apache Kafka, though the group may be there
            # again: that proves nothing.
            absent = group and error is ErrorCode.GROUP_ID_NOT_FOUND
            if error is ErrorCode.NONE or absent:
                self._answers_that_it_is_gone(running, floor)
            answer(error)

        if group:
            body = encode_delete_groups(DELETE_GROUPS_VERSION, [self._group])
            running.serve(ApiKey.DELETE_GROUPS, DELETE_GROUPS_VERSION, body, done)
        else:
            body = encode_offset_delete(OFFSET_DELETE_VERSION, self._group, [self._read])
            running.serve(ApiKey.OFFSET_DELETE, OFFSET_DELETE_VERSION, body, done)

    def _answers_that_it_is_gone(self, running: Running, floor: int) -> None:
        safety = self._cluster.safety
        self._leads(running, "answers that it is deleted")
        safety.look()
        partition = safety.partition(self._home)
        place = self._deleted_at(partition)
        if place < floor:
            detail = f"{self._group}, last at {place}, older than the one at {floor}"
            safety.fail("an acknowledged deletion is replicated", detail, partition)
        self._raise_floor(running, place)

    def _deleted_at(self, partition: Partition) -> int:
        """The place of the last deletion, -1: there is none."""
        return partition.places.get(DELETED + self._group.encode(), -1)

    # --- the newest answer ------------------------------------------------------------------------

    def _raise_floor(self, running: Running, place: int) -> None:
        """From now on no earlier coordinator is asked, though a broker may still name one: reads
        are not fenced, in Apache Kafka neither."""
        self._floor = max(self._floor, place)
        epoch = running.states[self._home].leader_epoch
        self._epochs[self._home] = max(self._epochs.get(self._home, -1), epoch)

    # --- coordinators -----------------------------------------------------------------------------

    def _coordinator(self) -> tuple[int, bool]:
        """A broker, and whether it is the coordinator as far as the client knows."""
        if self._dice.random() < ASTRAY:
            return self._dice.choice(list(self._cluster.brokers)), False
        leader, _ = self._leader_of(self._home)
        return leader, True

    def _ask_broker(self, target: int, serve: object, done: object) -> None:
        self._cluster.network.request(
            self._cluster.clients,
            (CLIENTS, target),
            serve,
            done,  # type: ignore[arg-type]
        )

    def _leads(self, running: Running, does: str) -> None:
        # A broker with threads may lose the leadership after it has decided to answer.
        if not running.leads(self._home) and self._cluster.scheduler is None:
            detail = f"broker {running.node_id} {does}"
            self._cluster.safety.fail(
                "a former coordinator does not answer with success",
                detail,
                self._cluster.safety.partition(self._home),
            )

    def _is_expected(self, error: ErrorCode, running: Running) -> None:
        if error not in self.expected:
            detail = f"broker {running.node_id} answers {error.name}"
            self._cluster.safety.fail("a coordinator answers with a known error", detail)


EXPECTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.GROUP_ID_NOT_FOUND,
        # A broker that starts knows no topic yet.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


def error_of_commit(answered: bytes) -> ErrorCode:
    try:
        (error,) = decode_offset_commit(Reader(answered, flexible=True), COMMIT_VERSION).values()
    except KafkaError as refused:
        return refused.code
    return error


def error_of_deletion(answered: bytes, *, group: bool) -> ErrorCode:
    try:
        if group:
            reader = Reader(answered, flexible=True)
            (error,) = decode_delete_groups(reader, DELETE_GROUPS_VERSION).values()
        else:
            reader = Reader(answered, flexible=False)
            (error,) = decode_offset_delete(reader, OFFSET_DELETE_VERSION).values()
    except KafkaError as refused:
        return refused.code
    return error
