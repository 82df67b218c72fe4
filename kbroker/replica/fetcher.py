"""ReplicaFetcher: everything that is fetched from one broker over one link, and a second beside it.

Place in the flow: the controller's decisions come through `FetcherManager`; the leader's side is
`engine/apis/_fetch`. A round is one request for all partitions that may be asked, one answer, and
the work of each partition for its part (`fetcher_partition.py`, and `_taking.pyx` for all that have
nothing but records, docs/adr/0066); then the next begins at once. The leader keeps a request until
there is something, so a round takes as long as nothing happens.

A round is of a session (`fetcher_session.py`): request and answer carry the changes alone, and so
the work of a round is that of the changes, however many partitions have none.

A partition that has to be asked meanwhile, such as one that just got another leader, would wait for
that. It goes over a second lane (`fetcher_lane.py`), in rounds that hardly wait, until the
first comes back and takes everything along again: the high watermark of a new leader waits for its
followers.

After a refused connection, a lost one, or an answer that is none, the source has a pause, and every
partition stays. Pauses double, with jitter, up to `replica.fetch.backoff.ms`: a leader that does
not know yet that it leads is asked soon again, one that is gone seldom. A partition whose records
our log refuses has the whole pause at once, and one that is throttled (`throttle.py`) the one that
its rate asks for. A partition with a pause is in no session. A partition that was served goes to
the end of the order, here or at the leader, so that an answer's bound on bytes delays none for
ever.

Owner: one asyncio loop, the fetchers' in a broker. An append gives the GIL away and keeps the
loop until the disk has the bytes (docs/adr/0034); between two appends others may have their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer._replica_fetch import encode_fetch
from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, decode_list_offsets
from kbroker.peer.replica_fetch import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    Asked,
    Fetched,
    encode_list_offsets,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.replica._taking import Refused
from kbroker.replica.fetcher_lane import Lane
from kbroker.replica.fetcher_partition import FollowedPartition, Outcome
from kbroker.replica.fetcher_session import SESSION_ERRORS
from kbroker.replica.throttle import UNLIMITED
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.failures import Failures
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.log_lines import LogLines
    from kbroker.peer.address import Address
    from kbroker.replica.fetcher_settings import FetcherSettings, Link
    from kbroker.replica.throttle import FollowerThrottle
    from kbroker.types import TopicPartition

# The first pause after a failure; each is twice the one before, up to the key's.
BACKOFF_MS_MIN: Final = 20
BACKOFF_JITTER: Final = 0.2
_FETCH: Final = ApiKey.FETCH  # a member of an enum is looked up by its name each time
# How long a round over the second link waits at the leader.
SIDE_WAIT_MS: Final = 10


# Writes down where logs begin.
KeepStarts = Callable[[Sequence["PartitionLog"]], object]


def keep_nothing(logs: Sequence[PartitionLog]) -> None:
    """Of a fetcher whose leaders delete no records."""


class Source(NamedTuple):
    """The target of a fetcher: a broker, where it listens, and which of several fetchers of it."""

    node_id: int
    address: Address
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is not used here


class Us(NamedTuple):
    """What a leader must know of the follower that asks."""

    node_id: int
    broker_epoch: Callable[[], int]


class _Pause(NamedTuple):
    """In the order in which they are over."""

    until_ms: int
    number: int
    partition: FollowedPartition


class ReplicaFetcher:
    """See the head of this file."""

    def __init__(
        self,
        us: Us,
        source: Source,
        connect: Callable[[Address], Link],
        settings: FetcherSettings,
        clock: Clock,
        dice: random.Random,
        failures: Failures,
        lines: LogLines,
        throttle: FollowerThrottle,
        keep_starts: KeepStarts = keep_nothing,
    ) -> None:
        self.source = source
        self.requests = 0
        self._bytes_fetched = 0  # beside those that `Taking` counts
        self._us = us
        self._settings = settings
        self._clock = clock
        self._dice = dice
        self._failures = failures
        self._lines = lines
        self._throttle = throttle
        self._write_starts = keep_starts
        # Each is in a lane, or about to join one, or has a pause, or is offline.
        self._partitions: dict[TopicPartition, FollowedPartition] = {}
        self._joining: dict[TopicPartition, FollowedPartition] = {}
        self._pauses: list[_Pause] = []  # a heap
        self._pauses_begun = 0
        self._source_failures = 0
        self._source_retry_at_ms = 0
        limits = settings.limits
        self._main = Lane(connect(source.address), limits, clock, us.node_id)
        brief = limits._replace(max_wait_ms=min(SIDE_WAIT_MS, limits.max_wait_ms))
        self._side = Lane(connect(source.address), brief, clock, us.node_id)

    # --- which partitions ---

    def follow(self, partition: FollowedPartition) -> None:
        self._partitions[partition.name] = self._joining[partition.name] = partition
        self._look_again()

    def forget(self, partition: FollowedPartition) -> None:
        """Unless another has taken its place."""
        if self._partitions.get(partition.name) is partition:
            del self._partitions[partition.name]
            self._joining.pop(partition.name, None)
            self._leave(partition)

    def _leave(self, partition: FollowedPartition) -> None:
        self._main.leave(partition)
        self._side.leave(partition)

    @property
    def bytes_fetched(self) -> int:
        """Of record batches; any thread."""
        in_one_call = self._main.taking.record_bytes + self._side.taking.record_bytes
        return self._bytes_fetched + in_one_call

    @property
    def partitions(self) -> list[FollowedPartition]:
        return list(self._partitions.values())

    # --- rounds ---

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._serve(self._main))
                group.create_task(self._serve(self._side))
        finally:
            for lane in (self._main, self._side):
                with contextlib.suppress(KafkaError):
                    await lane.link.close()

    async def _serve(self, lane: Lane) -> None:
        while True:
            lane.changed.clear()
            now_ms = self._clock.monotonic_ms()
            if not self._fill(lane, now_ms):
                await self._pause(lane, now_ms)
                continue
            lane.busy = True
            if self._pauses:
                self._side.changed.set()  # one may be over before this round is
            try:
                while await self._round(lane) and self._goes_on(lane):
                    pass
            except Exception as error:
                # Our bug, not the source's: it must not stop the fetches of other partitions.
                self._failures.note(f"a fetch from broker {self.source.node_id}", error)
                lane.session.begin_again()
                for partition in lane.leave_all():
                    self._later(partition, Outcome.FAULT)
            finally:
                lane.busy = False
                self._main.changed.set()

    def _fill(self, lane: Lane, now_ms: int) -> bool:
        """The partitions that may be asked join the lane's next round; whether it has any."""
        if lane is self._main:
            if self._side.busy:
                return False  # it comes back soon, and all go on together
        elif not self._main.busy:
            return False
        if now_ms < self._source_retry_at_ms:
            return False
        if lane is self._main:
            for partition in self._side.leave_all():
                lane.join(partition)
        while self._pauses and self._pauses[0].until_ms <= now_ms:
            partition = heapq.heappop(self._pauses).partition
            if self._partitions.get(partition.name) is partition:
                lane.join(partition)
        for partition in self._joining.values():
            lane.join(partition)
        self._joining.clear()
        return bool(lane.members)

    async def _pause(self, lane: Lane, now_ms: int) -> None:
        """Until something changes, or a pause is over. `now_ms`: when `_fill` found no partition. A
        pause that was over then is the other lane's; one that ends right after it is not."""
        first_ms = self._pauses[0].until_ms if self._pauses else now_ms
        if lane.members or self._joining or (lane is self._main and self._side.members):
            first_ms = now_ms  # these wait for the source alone
        due_ms = max(first_ms, self._source_retry_at_ms)
        if due_ms <= now_ms:
            await lane.changed.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((due_ms - now_ms) / 1000):
                await lane.changed.wait()

    def _look_again(self) -> None:
        self._main.changed.set()
        self._side.changed.set()

    def _goes_on(self, lane: Lane) -> bool:
        """Whether the next round begins without a look at joining partitions: nothing has changed
        on the first link."""
        if lane is not self._main or self._side.busy or self._pauses:
            return False
        return not lane.changed.is_set()

    async def _round(self, lane: Lane) -> bool:
        """Whether the next one may begin at once."""
        if lane.has_moved:
            self._ask(lane)
        if not lane.members:
            return False
        self.requests += 1
        taking = lane.taking
        try:
            answer = await lane.link.call(_FETCH, FETCH_VERSION, self._body(lane))
            taking.begin(answer)
        except (KafkaError, ProtocolError) as error:
            self._fetch_failed(lane, error)
            return False
        del answer  # `taking` has it as long as it needs it
        self._source_failures = 0
        in_one_call, now_ms = self._in_one_call(), self._clock.wall_ms()
        found = taking.next(in_one_call, now_ms)
        if found is not None or lane.session.is_full:
            await self._apply(lane, found, in_one_call, now_ms)
        return True

    def _ask(self, lane: Lane) -> None:
        """The partitions that joined, or whose position needs more than a look at their logs."""
        moved = lane.take_moved()
        self._keep_starts(moved)
        for each in moved:
            if pause_ms := self._throttle.pause_ms(each.name):
                self._leave_for(each, pause_ms)
                continue
            failed = each.bring_to_disk()
            if failed is None:
                lane.session.ask(each.asked())
            else:
                self._settle(lane, each, failed, 0)

    def _body(self, lane: Lane) -> bytes:
        us = self._us
        body = lane.taking.usual_request(us.broker_epoch())
        if body is not None:
            return body
        metadata, asked, forgotten = lane.session.next_request()
        return encode_fetch(us.node_id, us.broker_epoch(), asked, lane.limits, metadata, forgotten)

    def _keep_starts(self, moved: Iterable[FollowedPartition]) -> None:
        """Writes down the starts of logs whose leaders have deleted records, before the leader gets
        them as deleted here; all together, since that is one file."""
        unsaved = [each for each in moved if not each.start_is_on_file]
        if not unsaved:
            return
        with contextlib.ExitStack() as changes:
            mine = [each for each in unsaved if changes.enter_context(each.being_changed())]
            try:
                self._write_starts([each.replica.log for each in mine])
            except Exception as error:
                self._failures.note("the starts of logs", error)

    def _fetch_failed(self, lane: Lane, error: Exception) -> None:
        """The session is not certain any more. Where that is all, it begins again at once."""
        code = error.code if isinstance(error, KafkaError) else None
        lane.session.begin_again(code)
        if lane.session.is_full or code not in SESSION_ERRORS:
            self._source_failed(error)

    def _in_one_call(self) -> bool:
        """Whether `Taking` may take the usual in. The bytes of throttled replicas are counted by
        name, here."""
        return self._throttle.bytes_per_s == UNLIMITED

    async def _apply(
        self, lane: Lane, found: Fetched | Refused | str | None, in_one_call: bool, now_ms: int
    ) -> None:
        """Hands each part of the answer of which there is more to say, `found` first, to its
        partition."""
        outside: list[tuple[FollowedPartition, Asked]] = []
        while found is not None:
            if isinstance(found, Fetched):
                outside += self._take(lane, found, now_ms)
            elif isinstance(found, Refused):
                self._not_taken(lane, found)
            else:
                await asyncio.sleep(0)  # the turn is over
            found = lane.taking.next(in_one_call, now_ms)
        if lane.session.is_full:
            for partition in lane.taking.left_out():
                self._later(partition, Outcome.NOT_YET)
        if outside:
            await self._enter_ranges(lane, outside)

    def _take(
        self, lane: Lane, fetched: Fetched, now_ms: int
    ) -> Iterator[tuple[FollowedPartition, Asked]]:
        """A part of which there is more to say than its records; a generator, of the partition if
        it is out of the leader's range."""
        key = lane.taking.key
        partition, position = lane.members.get(key), lane.session.position(key)
        if partition is None or position is None:
            if not lane.session.may_answer(key):
                lane.session.begin_again()  # the leader has another session in mind
            return
        outcome = self._applied(partition, position, fetched, now_ms)
        if outcome is Outcome.OUT_OF_RANGE:
            yield partition, position
        else:
            self._settle(lane, partition, outcome, len(fetched.records or b""))

    def _not_taken(self, lane: Lane, refused: Refused) -> None:
        partition: FollowedPartition = refused.partition
        try:
            outcome = partition.not_taken(refused.error)
        except Exception as error:
            self._failures.note(f"the fetch of {partition.name}", error)
            outcome = Outcome.FAULT
        self._settle(lane, partition, outcome, 0)

    def _applied(
        self, partition: FollowedPartition, asked: Asked, fetched: Fetched, now_ms: int
    ) -> Outcome:
        try:
            return partition.apply(asked, fetched, now_ms)
        except Exception as error:
            self._failures.note(f"the fetch of {partition.name}", error)
            return Outcome.FAULT

    async def _enter_ranges(
        self, lane: Lane, outside: list[tuple[FollowedPartition, Asked]]
    ) -> None:
        """The leader's log begins after our end, or ends before it."""
        epochs = {each.name: each.leader_epoch for each, _ in outside}
        try:
            # The end first: until the start is known it can only grow.
            ends = await self._list_offsets(lane, epochs, LATEST_TIMESTAMP)
            starts = await self._list_offsets(lane, epochs, EARLIEST_TIMESTAMP)
        except (KafkaError, ProtocolError) as error:
            self._source_failed(error)
            for partition, _ in outside:
                self._later(partition, Outcome.NOT_YET)
            return
        for partition, asked in outside:
            start, end = starts.get(partition.name, -1), ends.get(partition.name, -1)
            if min(start, end) < 0:
                self._later(partition, Outcome.NOT_YET)
                continue
            self._settle(lane, partition, partition.enter_range(asked, start, end), 0)

    async def _list_offsets(
        self, lane: Lane, epochs: dict[TopicPartition, int], timestamp: int
    ) -> dict[TopicPartition, int]:
        body = encode_list_offsets(self._us.node_id, epochs, timestamp)
        reader = await lane.link.call(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
        answers = decode_list_offsets(reader, LIST_OFFSETS_VERSION)
        return {
            name: answer.offset
            for name, answer in answers.items()
            if answer.error is ErrorCode.NONE
        }

    # --- what becomes of it ---

    def _settle(
        self, lane: Lane, partition: FollowedPartition, outcome: Outcome, record_bytes: int
    ) -> None:
        match outcome:
            case Outcome.APPENDED:
                partition.failures = 0
                self._bytes_fetched += record_bytes
                self._throttle.note_copied(partition.name, record_bytes)
                lane.note_moved(partition)
                lane.session.to_the_end(partition.key)
            case Outcome.NOTHING_NEW:
                partition.failures = 0
                lane.note_moved(partition)
            case Outcome.CUT:
                partition.failures = 0
                lane.join_anew(partition)  # what else was said is for the log as it is now
            case Outcome.OFFLINE:
                partition.offline = True
                self._leave(partition)
                self._failures.counted()
            case Outcome.DROPPED:
                # Its end is on the way here, or the replica does not know this epoch yet.
                self._later(partition, Outcome.NOT_YET)
            case _:
                self._later(partition, outcome)

    def _later(self, partition: FollowedPartition, outcome: Outcome) -> None:
        partition.failures += 1
        failures = partition.failures if outcome is Outcome.NOT_YET else _MANY
        self._leave_for(partition, self._backoff_ms(failures))

    def _leave_for(self, partition: FollowedPartition, pause_ms: int) -> None:
        self._leave(partition)
        until_ms = self._clock.monotonic_ms() + pause_ms
        self._pauses_begun += 1
        heapq.heappush(self._pauses, _Pause(until_ms, self._pauses_begun, partition))
        self._side.changed.set()  # the main lane may be at the leader when it is over

    def _source_failed(self, error: Exception) -> None:
        self._source_failures += 1
        pause_ms = self._backoff_ms(self._source_failures)
        self._source_retry_at_ms = self._clock.monotonic_ms() + pause_ms
        self._lines.write(
            logging.WARNING,
            f"broker {self.source.node_id}",
            "broker %d, whose %d partitions are followed, does not answer: %s",
            self.source.node_id,
            len(self._partitions),
            str(error),
        )

    def _backoff_ms(self, failures: int) -> int:
        plain_ms = min(BACKOFF_MS_MIN << min(failures - 1, _MANY), self._settings.backoff_ms)
        jitter = self._dice.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)
        return max(1, round(plain_ms * jitter))  # never without a pause


# Failures after which the pause is as long as it gets.
_MANY: Final = 30
