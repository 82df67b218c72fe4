"""ShareFetch (78): a member of a share group acknowledges records, and acquires others.

The request opens a share session (epoch 0, which acquires as well), is its next one, or its last
one (-1). Acknowledgements come first, and their results are waited for; then the partitions of the
session are read in turn, each from the first record that is available. Where there is none, the
request waits in the purgatory: appends and markers, results of other members, ends of locks and
sessions and the loading of a share-partition have it look again. A request without partitions to
read, and the last one, are answered at once.

Any handler thread. Reads wait for the disk, so a wake-up is handed to a handler first.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.engine.share.amount import Amount
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.fetch_quota import FetchCharge, fetch_charge, no_charge
from kbroker.handlers.reply import failures
from kbroker.handlers.share_partitions import (
    Endpoints,
    Partitions,
    acknowledge_all,
    acknowledgements_of,
    check_count,
    check_member,
    code_of,
    known,
)
from kbroker.limits import (
    SHARE_FETCH_BYTES_MAX,
    SHARE_FETCH_WAIT_MS_MAX,
    SHARE_SESSION_REFUSAL_MS_MAX,
)
from kbroker.protocol import messages
from kbroker.purgatory.delayed_operation import DelayedOperation
from kbroker.replica.share.acquiring import Wanted
from kbroker.replica.share.sessions import CLOSES, NO_CHANGE, OPENS, Change, Place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from kbroker.engine.share.led import Fetched, LedSharePartition
    from kbroker.engine.share.service import ShareService
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.handlers.share_partitions import Codes
    from kbroker.protocol.messages.share_fetch import PartitionData, Request, Response
    from kbroker.replica.share.sessions import ShareSession

_BATCHES: Final = 0  # ShareAcquireMode
_RECORD_LIMIT: Final = 1


def handle(services: Services, call: Call[Request]) -> None:
    request, share = call.message, services.share_service()
    group_id, member_id = check_member(request.group_id, request.member_id)
    check_count(request.topics, request.forgotten_topics_data)
    asked = acknowledgements_of(request.topics)
    _check(request, any(asked.values()))
    epoch = request.share_session_epoch
    change = NO_CHANGE
    if epoch != CLOSES and (asked or request.forgotten_topics_data):
        forgotten = [
            Place(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            if topic.topic_id is not None
            for index in topic.partitions
        ]
        change = Change(known(services, asked), forgotten)
    if epoch == OPENS:
        try:
            session = share.open_session(group_id, member_id, call.request, change)
        except KafkaError as error:
            _refuse_later(share, call, error)
            return
    else:
        session = share.sessions.next(group_id, member_id, epoch, change)
    reads = epoch != CLOSES and not request.is_renew_ack
    places = share.sessions.places_of(session) if reads else []
    partitions = Partitions(services, call, group_id, dict.fromkeys([*asked, *places]))
    fetch = DelayedShareFetch(
        share, call, session, places, partitions, Endpoints(services, call),
        services.config["fetch.max.bytes"], fetch_charge(services, call),
    )  # fmt: skip
    acknowledged = {place: batches for place, batches in asked.items() if batches}
    request.topics, request.forgotten_topics_data = [], []  # it may wait long
    acknowledge_all(
        share, partitions, session.number, acknowledged, fetch.begin,
        renews=request.is_renew_ack,
    )  # fmt: skip


def _check(request: Request, acknowledges: bool) -> None:
    """KafkaError: what the request alone shows to be wrong."""
    if request.share_session_epoch == OPENS and acknowledges:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.share_acquire_mode not in (_BATCHES, _RECORD_LIMIT):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    asks = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    if request.is_renew_ack and any(asks):
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _refuse_later(share: ShareService, call: Call[Request], error: KafkaError) -> None:
    """A client that finds no room does not come again at once."""
    delay_ms = min(max(call.message.max_wait_ms, 0), SHARE_SESSION_REFUSAL_MS_MAX)
    refuse = partial(call.fail, error.code)
    if delay_ms:
        share.call_later(delay_ms, refuse)
    else:
        refuse()


class _Found(NamedTuple):
    """What a look at all partitions has brought."""

    fetched: dict[Place, Fetched]
    refused: Codes


class DelayedShareFetch(DelayedOperation):
    """One request, from the results of its acknowledgements to its answer.

    It waits for the share-partitions that its first look has met: one that ends answers it. Later
    looks are at those that have changed since its last one there.
    """

    __slots__ = (
        "_amount", "_bytes_max", "_call", "_charge", "_codes", "_endpoints", "_error", "_found",
        "_is_late", "_lock", "_looked_parked", "_met", "_partitions", "_places", "_refused",
        "_seen", "_session", "_share", "_woken",
    )  # fmt: skip

    def __init__(
        self,
        share: ShareService,
        call: Call[Request],
        session: ShareSession,
        places: list[Place],
        partitions: Partitions,
        endpoints: Endpoints,
        bytes_max: int,
        charge: FetchCharge = no_charge,
    ) -> None:
        super().__init__(min(max(call.message.max_wait_ms, 0), SHARE_FETCH_WAIT_MS_MAX))
        self._share = share
        self._call = call
        self._session = session
        # What the request alone shows to be wrong ends no wait where other partitions are read.
        self._places = [place for place in places if place not in partitions.refused]
        self._refused: Codes = {
            place: partitions.refused[place] for place in places if place in partitions.refused
        }
        self._partitions = partitions
        self._endpoints = endpoints
        self._bytes_max = min(max(call.message.max_bytes, 0), bytes_max, SHARE_FETCH_BYTES_MAX)
        self._charge = charge
        self._codes: Codes = {}
        self._lock = threading.Lock()
        self._found: _Found | None = None  # for the thread that answers
        self._error: Exception | None = None  # of a look; it is the answer
        self._is_late = self.delay_ms == 0  # it takes what there is
        self._met: dict[Place, LedSharePartition] = {}
        self._seen: dict[Place, object] = {}  # `changed` of these, before the last look
        self._woken: dict[Place, None] = {}
        self._looked_parked = False  # at all of them, since changes wake it
        # None: it takes what there is.
        wanted = min(call.message.min_bytes, self._bytes_max)
        self._amount = Amount(wanted) if wanted > 1 else None

    def met(self, place: Place) -> LedSharePartition | None:
        return self._met.get(place)

    def is_woken(self, place: Place) -> None:
        with self._lock:
            self._woken[place] = None

    def begin(self, codes: Codes) -> None:
        """The results of the acknowledgements are known."""
        self._codes = codes
        with self._call:
            if self._call.message.share_session_epoch == CLOSES:
                self._share.end_session(self._session)
            self._share.call_soon(self._wait) if codes else self._wait()

    def _wait(self) -> None:
        with self._call:
            if not self._places or self._call.message.max_records <= 0 or self._bytes_max <= 0:
                self.force_complete()
                return
            before = self._share.sessions.wait(self._session, self)
            if before is not None:
                before.force_complete()
            keys = tuple(self._partitions.key(place) for place in self._places)
            self._share.waiting.try_complete_else_watch(self, keys)

    def run(self) -> None:
        """Its time is over. The timer's thread leaves the rest to a handler."""
        try:
            self._share.call_soon(self._time_is_over)
        except Exception as error:
            failures.note("the end of a share fetch", error)
            self.force_complete()

    def _time_is_over(self) -> None:
        self._is_late = True
        if self.check() and self.purgatory is not None:
            self.purgatory.count_expired()

    def try_complete(self) -> bool:
        """On a handler. The session may end meanwhile, or a later fetch come: then what it has read
        goes back."""
        if self.completed:
            return False
        try:
            return self._try_complete()
        except Exception as error:  # this may have been the look at the end of its time
            self._error = error
            return self.force_complete()

    def _try_complete(self) -> bool:
        is_late = self._is_late
        if not self._share.sessions.receives(self._session):
            return self.force_complete()
        found = self._read(self._to_be_read(is_late))
        if not (is_late or found.fetched or found.refused):
            return False
        with self._lock:
            self._found = found
        if self.force_complete():
            return True
        self._give_back(self._take())
        return False

    def _take(self) -> _Found:
        with self._lock:
            found, self._found = self._found, None
        return _Found({}, {}) if found is None else found

    def _led(self, place: Place) -> LedSharePartition:
        """KafkaError: its client may not use it, or this broker does not lead it."""
        met = self._met.get(place)
        if met is None:
            met = self._met[place] = self._partitions.led(place, self._share)
        return met

    def _to_be_read(self, is_late: bool) -> Sequence[Place]:
        """Where there may be records now; none, where it waits for more than there are."""
        with self._lock:
            woken, self._woken = self._woken, {}
        amount = self._amount
        if is_late and amount is not None:
            return self._places
        is_parked, places = self.parked, list[Place](woken)
        if is_late or not self._looked_parked:
            places = [place for place in self._places if self._has_changed(place)]
            self._looked_parked = is_parked
        if amount is None or not places:
            return places
        try:
            return self._places if amount.is_there(self._look, places, self._places) else ()
        except Exception:
            return self._places  # the read meets it again, and answers with it

    def _has_changed(self, place: Place) -> bool:
        led = self._met.get(place)
        return led is None or led.changed is not self._seen.get(place)

    def _look(self, place: Place) -> LedSharePartition:
        """The share-partition, for a look at it as it is from now on."""
        led = self._led(place)
        self._seen[place] = led.changed
        return led

    def _read(self, places: Sequence[Place]) -> _Found:
        request, found = self._call.message, _Found({}, {})
        left, left_bytes = request.max_records, self._bytes_max
        for number, place in enumerate(places):
            share_bytes = left_bytes // (len(places) - number)
            if left <= 0 or (found.fetched and share_bytes <= 0):
                break
            wants = Wanted(left, request.batch_size, request.share_acquire_mode == _RECORD_LIMIT)
            try:
                fetched = self._look(place).fetch(self._session.number, wants, max(1, share_bytes))
            except Exception as error:  # of this partition: the others are read
                found.refused[place] = code_of(error)
                continue
            if fetched is not None:
                found.fetched[place] = fetched
                left_bytes -= len(fetched.records)
                left -= sum(each.last_offset - each.first_offset + 1 for each in fetched.acquired)
        leaves = False
        try:
            leaves = self._share.sessions.receives(self._session)
        finally:
            if not leaves:
                self._give_back(found)
                found.fetched.clear()
        return found

    def _give_back(self, found: _Found) -> None:
        """The records will not leave: others may have them, as if they had not been acquired."""
        for place, fetched in found.fetched.items():
            self._met[place].give_back(self._session.number, fetched.acquired)

    def on_complete(self) -> None:
        found, is_made = self._take(), False

        def make() -> Response:
            nonlocal is_made
            response = self._response(found)
            is_made = True
            return response

        self._share.sessions.has_waited(self._session, self)
        with self._call:
            self._share.leaders.stopped_waiting(map(self._partitions.key, self._places))
            if self._error is not None:
                raise self._error
            if self._call.answer_made(make) and is_made:
                return
        self._give_back(found)

    def _response(self, found: _Found) -> Response:
        table = messages.share_fetch
        topics: dict[UUID, list[PartitionData]] = {}
        leaders = []
        refused = {**self._refused, **found.refused}
        named = [*self._codes, *refused, *found.fetched]
        if self._call.message.share_session_epoch == OPENS:
            # The first answer of a session has all of them that serve.
            named += [place for place, met in self._met.items() if met.serves]
        for place in dict.fromkeys(named):
            code = refused.get(place, ErrorCode.NONE)
            acknowledged = self._codes.get(place, ErrorCode.NONE)
            not_led = ErrorCode.NOT_LEADER_OR_FOLLOWER in (code, acknowledged)
            leader_id, leader_epoch = self._partitions.leader(
                place, ErrorCode.NOT_LEADER_OR_FOLLOWER if not_led else ErrorCode.NONE
            )
            if not_led:
                leaders.append(leader_id)
            fetched = found.fetched.get(place)
            topics.setdefault(place.topic_id, []).append(
                table.PartitionData(
                    partition_index=place.partition,
                    error_code=code,
                    acknowledge_error_code=acknowledged,
                    acknowledge_error_message=self._partitions.words.get(place),
                    current_leader=table.LeaderIdAndEpoch(
                        leader_id=leader_id, leader_epoch=leader_epoch
                    ),
                    records=b"" if fetched is None else fetched.records,
                    acquired_records=[
                        table.AcquiredRecords(
                            first_offset=each.first_offset,
                            last_offset=each.last_offset,
                            delivery_count=each.delivery_count,
                        )
                        for each in (() if fetched is None else fetched.acquired)
                    ],
                )
            )
        size = sum(len(fetched.records) for fetched in found.fetched.values())
        return table.Response(
            throttle_time_ms=self._charge(size) if size else 0,
            acquisition_lock_timeout_ms=self._share.settings(self._session.group_id).lock_ms,
            responses=[
                table.ShareFetchableTopicResponse(topic_id=topic_id, partitions=each)
                for topic_id, each in topics.items()
            ],
            node_endpoints=[
                table.NodeEndpoint(
                    node_id=each.node_id, host=each.host, port=each.port, rack=each.rack
                )
                for each in self._endpoints.of(leaders)
            ],
        )
