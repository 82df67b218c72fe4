"""Members of share groups in a simulated cluster: heartbeats, and a share session with each leader.

A member sends one request at a time to a leader, over a connection of its own, as the clients of
Apache Kafka do. It acknowledges what it has, in a fetch or alone: it accepts, releases and rejects
records, asks for more time, or does nothing until the lock has ended. Offsets without a record are
gaps. It may acknowledge what it has no more, or what another member has, close its session, or lose
its connection, of which the broker learns later. A request that is not answered ends the connection
for the member; it may still be served, but not once the broker knows of that end. At times a
request arrives twice. Some members fetch what others of their group have been assigned, too, which
brokers do not mind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.share.images import SharePartition
from kbroker.errors import ErrorCode
from kbroker.metadata.image import NO_LEADER, OFFSETS_TOPIC
from kbroker.protocol import messages
from kbroker.replica.share.states import (
    ACCEPT_TYPE,
    GAP_TYPE,
    REJECT_TYPE,
    RELEASE_TYPE,
    RENEW_TYPE,
)
from kbroker.types import ApiKey, TopicPartition
from tests.simulation.clients import Client
from tests.simulation.contents import records_in
from tests.simulation.network import CLIENTS, Answer, Lost
from tests.simulation.share_ledger import Asked, Result

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster

VERSION = 2
HEARTBEAT_VERSION = 1
JOINS, LEAVES, OPENS, CLOSES = 0, -1, 0, -1
BEAT_MS = (40, 150)
WORK_MS = (3, 40)
WAITS_MS = (0, 0, 60, 500)
FOUND_OUT_MS = (1, 1, 30, 700)  # until a broker knows of the end of a connection
SECOND_MS = (1, 30, 600)
DOUBLED, RECONNECTS, CLOSED, ALONE, ASTRAY, RENEWS = 0.03, 0.03, 0.04, 0.25, 0.15, 0.1
_KINDS = (ACCEPT_TYPE,) * 5 + (RELEASE_TYPE,) * 4 + (REJECT_TYPE,)
GREEDY = 0.8
_KEPT = 0.25  # how often nothing is said of records

_ALWAYS = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID})
_OF_HEARTBEATS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_JOINS_AGAIN = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
_OF_REQUESTS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
)
_OF_PARTITIONS = _ALWAYS | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}


class Place(NamedTuple):
    topic_id: UUID
    partition: int


@dataclass
class _Piece:
    """Records that a member has, of one place: offsets, and those of them with a record."""

    offsets: range
    there: frozenset[int]


@dataclass(eq=False)
class _Session:
    """With one leader, over one connection."""

    node_id: int
    connection: str
    epoch: int = OPENS
    at: Running | None = None  # the start of the broker that has it
    is_busy: bool = False
    is_over: bool = False
    has: dict[Place, list[_Piece]] = field(default_factory=dict)


@dataclass
class _Request:
    """Of a session; `results` by place."""

    session: _Session
    key: ApiKey
    body: bytes
    results: dict[Place, list[Result]]
    closes: bool


class ShareMember(Client):
    """See the head of this file."""

    def __init__(self, cluster: Cluster, number: int, group: str, dice: random.Random) -> None:
        super().__init__(cluster)
        self._name, self._group, self._dice = f"m{number}", group, dice
        home = partition_for(group, len(cluster.homes))
        self._home = TopicPartition(OFFSETS_TOPIC, home)
        self.is_good = False
        self._life = 0
        self._is_in = False
        self._connections = 0
        self._epoch = JOINS
        self._assigned: list[Place] = []
        self._is_greedy = False
        self._sessions: dict[int, _Session] = {}
        self._gone: list[tuple[Place, range]] = []  # what it had in earlier sessions

    @property
    def member_id(self) -> str:
        return f"{self._name}-{self._life}"

    # --- acts -------------------------------------------------------------------------------------

    def come(self) -> None:
        if self._is_in:
            return
        self._is_in = True
        self._life += 1
        self._epoch, self._assigned, self._sessions = JOINS, [], {}
        self._is_greedy = self._dice.random() < GREEDY
        self._beat(self._life)
        self._work(self._life)

    def go(self, *, politely: bool) -> None:
        if not self._is_in:
            return
        self._is_in = False
        if politely:
            self._send_beat(LEAVES, lambda result: None)
        for session in list(self._sessions.values()):
            if politely and not session.is_busy:
                self._send(self._acknowledges(session, {}, closes=True))
            else:
                self._ends(session)

    # --- heartbeats -------------------------------------------------------------------------------

    def _beat(self, life: int) -> None:
        if self._is_in and life == self._life:
            self._send_beat(self._epoch, partial(self._beaten, life))

    def _send_beat(self, epoch: int, done: Any) -> None:
        leader, _ = self._leader_of(self._home)
        if leader == NO_LEADER:
            self._cluster.clients.later(BEAT_MS[0], lambda: done(Lost.REFUSED))
            return
        request = messages.share_group_heartbeat.Request(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=[self._cluster.names[0].topic] if epoch == JOINS else None,
        )
        body = request.encode(HEARTBEAT_VERSION)

        def serve(running: Running, answer: Answer) -> None:
            running.serve(ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION, body, answer)

        cluster = self._cluster
        cluster.network.request(cluster.clients, (CLIENTS, leader), serve, done)

    def _beaten(self, life: int, result: Any) -> None:
        if life != self._life:
            return
        if not isinstance(result, Lost):
            table = messages.share_group_heartbeat
            response = table.Response.decode(result, HEARTBEAT_VERSION)
            code = ErrorCode(response.error_code)
            self._expects(code, _OF_HEARTBEATS, "a heartbeat")
            if code in _JOINS_AGAIN:
                self._epoch = JOINS
            elif code is ErrorCode.NONE:
                self._epoch = response.member_epoch
                if response.assignment is not None:
                    self._assigned = [
                        Place(topic.topic_id, index)
                        for topic in response.assignment.topic_partitions
                        if topic.topic_id is not None
                        for index in topic.partitions
                    ]
        self._cluster.clients.later(self._dice.uniform(*BEAT_MS), partial(self._beat, life))

    # --- sessions ---------------------------------------------------------------------------------

    def _work(self, life: int) -> None:
        if not self._is_in or life != self._life:
            return
        for node_id, places in self._leaders().items():
            session = self._sessions.get(node_id)
            if session is None:
                session = self._sessions[node_id] = self._opened(node_id)
            if not session.is_busy:
                self._turn(session, places)
        self._cluster.clients.later(self._dice.uniform(*WORK_MS), partial(self._work, life))

    def _leaders(self) -> dict[int, list[Place]]:
        places: dict[int, list[Place]] = {}
        wanted = self._assigned
        if self._is_greedy and not self.is_good:
            of_group = [each for each in self._cluster.share_members if each._group == self._group]
            wanted = sorted({place for each in of_group for place in each._assigned})
        for place in wanted:
            leader, _ = self._leader_of(self._cluster.names[place.partition])
            if leader != NO_LEADER:
                places.setdefault(leader, []).append(place)
        return places

    def _opened(self, node_id: int) -> _Session:
        self._connections += 1
        return _Session(node_id, f"{self.member_id}-{self._connections}")

    def _ends(self, session: _Session) -> None:
        """Its connection does, of which the broker learns later."""
        if session.is_over:
            return
        session.is_over = True
        if self._sessions.get(session.node_id) is session:
            del self._sessions[session.node_id]
        self._loses(session)
        if session.at is not None:
            delay_ms = self._dice.choice(FOUND_OUT_MS)
            self._cluster.loop.later(delay_ms, self._is_found_out, session, session.at)

    def _is_found_out(self, session: _Session, at: Running) -> None:
        if self._cluster.network.is_cut(CLIENTS, session.node_id):
            self._cluster.loop.later(FOUND_OUT_MS[-1], self._is_found_out, session, at)
        else:
            at.process.run(partial(at.connections.end, session.connection))

    def _loses(self, session: _Session) -> None:
        """What it had."""
        for place, pieces in session.has.items():
            self._gone += [(place, piece.offsets) for piece in pieces]
        session.has = {}
        del self._gone[:-8]

    # --- requests ---------------------------------------------------------------------------------

    def _turn(self, session: _Session, places: list[Place]) -> None:
        dice = self._dice
        if session.epoch == OPENS:
            self._send(self._fetch(session, places, {}))
        elif self.is_good:
            self._send(self._fetch(session, places, self._accepts(session)))
        elif dice.random() < RECONNECTS:
            self._ends(session)
        elif dice.random() < CLOSED:
            self._send(self._acknowledges(session, self._results(session), closes=True))
        elif dice.random() < ALONE:
            results = self._results(session, renews=dice.random() < RENEWS)
            if results:
                self._send(self._acknowledges(session, results))
        else:
            results = self._results(session, renews=dice.random() < RENEWS)
            self._send(self._fetch(session, places, results))

    def _accepts(self, session: _Session) -> dict[Place, list[Result]]:
        """All that it has."""
        has, session.has = session.has, {}
        return {
            place: [
                Result(at, ACCEPT_TYPE if at in piece.there else GAP_TYPE)
                for piece in sorted(pieces, key=lambda each: each.offsets.start)
                for at in piece.offsets
            ]
            for place, pieces in has.items()
            if pieces
        }

    def _results(self, session: _Session, *, renews: bool = False) -> dict[Place, list[Result]]:
        """What it says of some records, or of some that it has no more."""
        dice, results = self._dice, {}
        for place, pieces in session.has.items():
            left: list[_Piece] = []
            said: list[Result] = []
            for piece in sorted(pieces, key=lambda each: each.offsets.start):
                if dice.random() < _KEPT:
                    left.append(piece)
                    continue
                kind = RENEW_TYPE if renews else dice.choice(_KINDS)
                end = dice.choice((piece.offsets.stop, piece.offsets.stop, piece.offsets.start + 1))
                for at in range(piece.offsets.start, end):
                    is_there = at in piece.there or kind == RENEW_TYPE
                    said.append(Result(at, kind if is_there else GAP_TYPE))
                begins = piece.offsets.start if kind == RENEW_TYPE else end
                if begins < piece.offsets.stop:
                    left.append(_Piece(range(begins, piece.offsets.stop), piece.there))
            session.has[place] = left
            if said:
                results[place] = said
        if dice.random() < ASTRAY:
            others = [*self._gone, *self._of_others(session.node_id)]
            if others:
                place, offsets = dice.choice(others)
                results.setdefault(place, [Result(at, ACCEPT_TYPE) for at in offsets])
        return results

    def _of_others(self, node_id: int) -> Iterator[tuple[Place, range]]:
        """What members of its group have from the same leader."""
        for member in self._cluster.share_members:
            if member is not self and member._group == self._group:
                session = member._sessions.get(node_id)
                for place, pieces in () if session is None else session.has.items():
                    yield from ((place, each.offsets) for each in pieces)

    def _fetch(
        self, session: _Session, places: list[Place], results: dict[Place, list[Result]]
    ) -> _Request:
        table, dice = messages.share_fetch, self._dice
        named = dict.fromkeys([*places, *results])
        renews = any(each.kind == RENEW_TYPE for some in results.values() for each in some)
        topics = [
            table.FetchTopic(
                topic_id=place.topic_id,
                partitions=[
                    table.FetchPartition(
                        partition_index=place.partition,
                        acknowledgement_batches=[
                            table.AcknowledgementBatch(
                                first_offset=first, last_offset=last, acknowledge_types=kinds
                            )
                            for first, last, kinds in _batches(results.get(place, ()))
                        ],
                    )
                ],
            )
            for place in named
        ]
        wanted = dice.choice((1, 2, 5, 500))
        request = table.Request(
            group_id=self._group,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=0 if renews else dice.choice(WAITS_MS),
            min_bytes=0 if renews else dice.choice((1, 1, 1, 150)),
            max_bytes=0 if renews else dice.choice((1, 200, 100_000)),
            max_records=0 if renews else wanted,
            batch_size=dice.choice((1, 3, 500)),
            share_acquire_mode=dice.choice((0, 0, 1)),
            is_renew_ack=renews,
            topics=topics,
            forgotten_topics_data=[],
        )
        return _Request(session, ApiKey.SHARE_FETCH, request.encode(VERSION), results, False)

    def _acknowledges(
        self, session: _Session, results: dict[Place, list[Result]], *, closes: bool = False
    ) -> _Request:
        table = messages.share_acknowledge
        topics = [
            table.AcknowledgeTopic(
                topic_id=place.topic_id,
                partitions=[
                    table.AcknowledgePartition(
                        partition_index=place.partition,
                        acknowledgement_batches=[
                            table.AcknowledgementBatch(
                                first_offset=first, last_offset=last, acknowledge_types=kinds
                            )
                            for first, last, kinds in _batches(some)
                        ],
                    )
                ],
            )
            for place, some in results.items()
        ]
        renews = any(each.kind == RENEW_TYPE for some in results.values() for each in some)
        request = table.Request(
            group_id=self._group,
            member_id=self.member_id,
            share_session_epoch=CLOSES if closes else session.epoch,
            is_renew_ack=renews,
            topics=topics,
        )
        return _Request(session, ApiKey.SHARE_ACKNOWLEDGE, request.encode(VERSION), results, closes)

    def _send(self, request: _Request) -> None:
        cluster, session = self._cluster, request.session
        session.is_busy = True
        life, epoch = self._life, session.epoch
        member = self._group, self.member_id
        serve = partial(self._serve, request, member)

        def done(result: Any) -> None:
            session.is_busy = False
            if session.is_over or life != self._life:
                self._ends(session)
            elif isinstance(result, Lost):
                self._gone += [
                    (place, range(some[0].offset, some[-1].offset + 1))
                    for place, some in request.results.items()
                ]
                self._ends(session)
            else:
                self._answered(request, result)

        cluster.network.request(cluster.clients, (CLIENTS, session.node_id), serve, done)
        session.epoch = epoch + 1
        if not self.is_good and self._dice.random() < DOUBLED:
            late_ms = self._dice.choice(SECOND_MS)
            cluster.clients.later(late_ms, partial(self._send_again, session.node_id, serve))

    def _send_again(self, node_id: int, serve: Any) -> None:
        cluster = self._cluster
        cluster.network.request(cluster.clients, (CLIENTS, node_id), serve, lambda result: None)

    def _serve(
        self, request: _Request, member: tuple[str, str], running: Running, answer: Answer
    ) -> None:
        session, ledger = request.session, self._cluster.share_ledger
        if session.at is None:
            session.at = running
        if session.at is not running or not running.connections.is_open(session.connection):
            answer(Lost.UNKNOWN)  # its connection is none of this broker, or has ended
            return
        is_fetch = request.key is ApiKey.SHARE_FETCH
        table: Any = messages.share_fetch if is_fetch else messages.share_acknowledge
        by_place = request.results.items()
        results = {SharePartition(member[0], *place): some for place, some in by_place}
        asked = ledger.comes(running, member, results)

        def done(body: bytes) -> None:
            response = table.Response.decode(body, VERSION)
            self._looks_at(request, response, running, asked)
            answer(response)
            running.connections.has_answered(session.connection)

        running.connections.begins(session.connection)
        running.serve(
            request.key, VERSION, body=request.body, answer=done,
            after=lambda: ledger.is_served(running, asked), connection_id=session.connection,
        )  # fmt: skip

    def _looks_at(self, request: _Request, response: Any, running: Running, asked: Asked) -> None:
        """An answer that a broker has made."""
        ledger, group_id = self._cluster.share_ledger, asked.member[0]
        if response.error_code:
            for key in asked.results:
                ledger.acknowledges(asked, key, ErrorCode.INVALID_REQUEST)
            return
        is_fetch = request.key is ApiKey.SHARE_FETCH
        for place, data in _partitions(response):
            key = SharePartition(group_id, *place)
            code = data.acknowledge_error_code if is_fetch else data.error_code
            ledger.acknowledges(asked, key, ErrorCode(code))
            for records in data.acquired_records if is_fetch else ():
                ledger.delivers(running, asked, key, records)
                self._happens("acquired", running)
        if asked.results:
            self._happens("acknowledged", running)

    def _happens(self, point: str, running: Running) -> None:
        self._cluster.fault_points.happens(point, running.node_id)

    def _answered(self, request: _Request, response: Any) -> None:
        session, code = request.session, ErrorCode(response.error_code)
        self._expects(code, _OF_REQUESTS, "a member's request")
        if code is not ErrorCode.NONE:
            self._loses(session)
            session.epoch = OPENS
            return
        if request.closes:
            self._ends(session)
            return
        for place, data in _partitions(response):
            code, ledger = ErrorCode(data.error_code), self._cluster.share_ledger
            if code is ErrorCode.UNKNOWN_SERVER_ERROR and ledger.may_lack_states():
                continue
            self._expects(code, _OF_PARTITIONS, f"{place}")
            if request.key is not ApiKey.SHARE_FETCH:
                continue
            there = frozenset(at for at, each in records_in(data.records) if not each.is_marker)
            for each in data.acquired_records:
                offsets = range(each.first_offset, each.last_offset + 1)
                # What it has had until a lock ended may come again.
                before = session.has.get(place, ())
                left = [one for one in before if not {*one.offsets} & {*offsets}]
                session.has[place] = [*left, _Piece(offsets, there & {*offsets})]

    def _expects(self, code: ErrorCode, known: frozenset[ErrorCode], what: str) -> None:
        if code not in known:
            self._cluster.safety.fail("members know what they are answered", f"{what}: {code.name}")


def _batches(results: Any) -> Iterator[tuple[int, int, list[int]]]:
    """Runs of offsets, with a kind for each, or one for all."""
    run: list[Result] = []
    for each in results:
        if run and each.offset != run[-1].offset + 1:
            yield _batch(run)
            run = []
        run.append(each)
    if run:
        yield _batch(run)


def _batch(run: list[Result]) -> tuple[int, int, list[int]]:
    kinds = [each.kind for each in run]
    return run[0].offset, run[-1].offset, kinds[:1] if len({*kinds}) == 1 else kinds


def _partitions(response: Any) -> Iterator[tuple[Place, Any]]:
    for topic in response.responses:
        for data in topic.partitions:
            yield Place(topic.topic_id, data.partition_index), data
