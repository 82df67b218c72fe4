"""FetcherManager: the leader from which each partition is fetched, as the controller decides.

`follow`, `look` and `stop` are called on the controller's thread (or the one that stops it), the
fetchers live on a loop of their own. On return of `follow` no partition that it names is changed
any more by answers of an earlier leader, but for those that `changes` names, whose log is being
changed for long; the new leader is on its way to the loop, in order. So a replica is made a leader
after `follow` or `remove`, when `changes` does not name it, and a follower before it.

One fetcher for each broker that is followed and each of `num.replica.fetchers`: a partition always
belongs to the same of them. A fetcher without partitions ends, and its links with it.

An append keeps the loop until the disk has the bytes. Where one takes longer than HANGS_MS, `look`
leaves the loop to it and goes on with another one: all partitions are followed again from there,
and that log's when its change is over. LOOPS_LEFT_MAX loops may be left so; after that an append
that hangs keeps all.

A loop may not take what it is to do, since there is no thread or no descriptor for it now. That is
kept, and `look` gives it to the loop again after a pause until it takes it; /readyz shows why
(`failing`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import zlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kbroker.limits import TASK_RETRY_MS
from kbroker.log_lines import LogLines, first_few
from kbroker.replica.fetcher import KeepStarts, ReplicaFetcher, Source, Us, keep_nothing
from kbroker.replica.fetcher_partition import FollowedPartition
from kbroker.replica.fetcher_settings import FetcherSettings, Link
from kbroker.replica.throttle import FollowerThrottle

if TYPE_CHECKING:
    from concurrent.futures import Future
    from uuid import UUID

    from kbroker.clock import Clock
    from kbroker.failures import Failures
    from kbroker.peer.address import Address
    from kbroker.replica._replica import Replica
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.replica")

Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]

# For the changes under way, all together, where others lead; and at the stop.
CHANGE_WAIT_S: Final = 0.02
STOP_WAIT_S: Final = 5.0
# A loop that has been at one change for so long is left to it.
HANGS_MS: Final = 500
LOOPS_LEFT_MAX: Final = 8


class Loop(Protocol):
    """A thread with an asyncio loop."""

    def submit(self, work: Coroutine[Any, Any, None]) -> Future[None]: ...
    def stop(self) -> None: ...


@dataclass(eq=False, slots=True)
class _Crew:
    """A loop, and the fetchers that live on it."""

    submit: Submit
    stop: Callable[[], None]
    fetchers: dict[Source, tuple[ReplicaFetcher, asyncio.Task[None]]] = field(default_factory=dict)
    ended: tuple[int, int] = (0, 0)  # what fetchers that are no more have asked and fetched
    leaves: bool = False  # it was left, and ends its fetchers when it goes on again
    is_over: bool = False  # it has done that

    @property
    def requests(self) -> int:
        return self.ended[0] + sum(each.requests for each, _ in list(self.fetchers.values()))

    @property
    def bytes_fetched(self) -> int:
        return self.ended[1] + sum(each.bytes_fetched for each, _ in list(self.fetchers.values()))


class Leader(NamedTuple):
    """Who leads a partition, as the controller says it."""

    topic_id: UUID
    node_id: int
    address: Address
    leader_epoch: int


class FetcherStatistics(NamedTuple):
    fetchers: int
    partitions: int
    requests: int
    bytes_fetched: int
    lag: dict[TopicPartition, int]
    # The last answer was of no use, the log is offline, or there is no fetcher yet.
    failed: list[TopicPartition]


class _Followed(NamedTuple):
    leader: Leader
    partition: FollowedPartition


class FetcherManager:
    """See the head of this file."""

    def __init__(
        self,
        us: Us,
        submit: Submit,
        connect: Callable[[Address], Link],
        replica_of: Callable[[TopicPartition], Replica | None],
        settings: FetcherSettings,
        clock: Clock,
        dice: random.Random,
        failures: Failures,
        wake: Callable[[Replica], None],
        is_throttled: Callable[[TopicPartition], bool] = lambda _: False,
        loops: Callable[[], Loop] | None = None,
        keep_starts: KeepStarts = keep_nothing,
    ) -> None:
        """`submit` runs a coroutine on the loop; `connect` is called there. `wake` answers the
        consumers that wait at a replica for the fetched records. `keep_starts` writes down the
        starts of logs that leaders have moved. `loops` makes loops of our own, which are used
        instead, and left where they hang."""
        self._us = us
        self._loops = loops
        self._keep_starts = keep_starts
        self._crew = _Crew(submit, _nothing) if loops is None else _crew(loops())
        self._left: list[_Crew] = []
        self._of_left = (0, 0)  # requests and bytes of those that are over
        # Changes under way, with how many there have been and when that was seen first.
        self._seen: dict[FollowedPartition, tuple[int, int]] = {}
        self._ending: dict[TopicPartition, FollowedPartition] = {}  # with a change under way
        # What the loop has not taken yet, if it did not when it should have.
        self._to_end: list[FollowedPartition] = []
        self._to_begin: list[_Followed] = []
        self._give_again_ms = 0
        self.failing = ""  # why it did not take that; any thread
        self._connect = connect
        self._replica_of = replica_of
        self._settings = settings
        self._fetchers_per_source = settings.fetchers_per_source
        self._clock = clock
        self._dice = dice
        self._failures = failures
        self._wake = wake
        self.throttle: Final = FollowerThrottle(clock, is_throttled)
        self._lines = LogLines(logger, clock.monotonic_ns)
        # Replaced and never changed, so that any thread may read it.
        self._followed: Mapping[TopicPartition, _Followed] = {}

    # --- the controller's thread ---

    def follow(self, changes: Mapping[TopicPartition, Leader | None]) -> None:
        """These partitions have another leader now; None: no leader, or this broker.

        The replica is there and knows the epoch. A repeated call changes nothing, but for a
        partition that had gone offline.
        """
        self._follow(changes, CHANGE_WAIT_S)

    def _follow(self, changes: Mapping[TopicPartition, Leader | None], wait_s: float) -> None:
        followed = dict(self._followed)
        ended: list[FollowedPartition] = []
        begun: list[_Followed] = []
        until_ms = self._clock.monotonic_ms() + wait_s * 1000
        for name, leader in changes.items():
            known = followed.get(name)
            replica = self._replica_of(name) if leader is not None else None
            if known is not None and known.leader == leader and _serves(known, replica):
                continue
            if known is not None:
                left_s = max(0.0, (until_ms - self._clock.monotonic_ms()) / 1000)
                self._end_one(known.partition, left_s)
                ended.append(known.partition)
                del followed[name]
            if leader is not None and replica is not None:
                followed[name] = self._begun(name, leader, replica)
                begun.append(followed[name])
        self._followed = followed
        if ended or begun:
            self._note_change(ended, begun)
            self._give()

    def _begun(self, name: TopicPartition, leader: Leader, replica: Replica) -> _Followed:
        partition = FollowedPartition(
            name,
            leader.topic_id,
            leader.leader_epoch,
            replica,
            self._lines,
            self._wake,
            self._ending.get(name),
        )
        return _Followed(leader, partition)

    def _end_one(self, partition: FollowedPartition, wait_s: float) -> None:
        if partition.end(wait_s):
            self._ending.pop(partition.name, None)
        else:
            self._ending[partition.name] = partition

    def changes(self, name: TopicPartition) -> bool:
        """Whether something that an earlier leader has said is still being done to this log."""
        partition = self._ending.get(name)
        if partition is None:
            return False
        if not partition.is_over():
            return True
        del self._ending[name]
        return False

    def look(self) -> None:
        """Every so often: a loop that hangs at a log is left to it. One that did not take what it
        is to do gets it again."""
        if self.failing and self._clock.monotonic_ms() >= self._give_again_ms:
            self._give()
            for crew in self._left:
                self._have_leave(crew)
        for crew in [each for each in self._left if each.is_over]:
            self._left.remove(crew)
            requests, bytes_fetched = self._of_left
            self._of_left = requests + crew.requests, bytes_fetched + crew.bytes_fetched
            crew.stop()
        if self._loops is None or len(self._left) == LOOPS_LEFT_MAX:
            return
        now_ms = self._clock.monotonic_ms()
        changed = self._changed(now_ms)
        hangs = [name for name, since_ms in changed if now_ms - since_ms >= HANGS_MS]
        if hangs:
            logger.error(
                "the log of %s hangs: its disk does not answer; other partitions are followed on",
                first_few([str(name) for name in hangs]),
            )
            self._go_on_with(_crew(self._loops()))

    def _changed(self, now_ms: int) -> Iterator[tuple[TopicPartition, int]]:
        """Logs that the loop is changing, with when a look has seen that first."""
        before, self._seen = self._seen, {}
        for each in self.followed():
            if (changes := each.changes) & 1:
                seen = before.get(each)
                if seen is None or seen[0] != changes:
                    seen = changes, now_ms
                self._seen[each] = seen
                yield each.name, seen[1]

    def _go_on_with(self, crew: _Crew) -> None:
        left, self._crew = self._crew, crew
        self._left.append(left)
        self._seen.clear()
        followed: dict[TopicPartition, _Followed] = {}
        for name, (leader, partition) in self._followed.items():
            self._end_one(partition, 0)
            followed[name] = self._begun(name, leader, partition.replica)
        self._followed = followed
        self._to_end, self._to_begin = [], list(followed.values())
        self._give()
        self._have_leave(left)

    def _have_leave(self, crew: _Crew) -> None:
        if not crew.leaves:
            crew.leaves = self._submit(crew, self._leave(crew))

    async def _leave(self, crew: _Crew) -> None:
        """The append for which the loop was left is over."""
        for source in list(crew.fetchers):
            self._end(crew, source)
        crew.is_over = True

    def remove(self, names: Iterable[TopicPartition]) -> None:
        """These partitions have no log here any more, or soon have none."""
        self.follow(dict.fromkeys(names))

    def resize(self, fetchers_per_source: int) -> None:
        """`num.replica.fetchers` has changed: every partition finds its fetcher again."""
        if fetchers_per_source == self._fetchers_per_source:
            return
        self._fetchers_per_source = fetchers_per_source
        leaders = {name: each.leader for name, each in self._followed.items()}
        self.remove(leaders)
        self.follow(leaders)

    def stop(self) -> None:
        """On return no log is changed by a fetcher any more, but by one that hangs; their links end
        soon."""
        self._follow(dict.fromkeys(self._followed), STOP_WAIT_S)
        for crew in (self._crew, *self._left):
            crew.stop()

    # --- any thread ---

    @property
    def bytes_fetched(self) -> int:
        """Of record batches, since the start."""
        crews = (self._crew, *self._left)
        return self._of_left[1] + sum(each.bytes_fetched for each in crews)

    def followed(self) -> Iterator[FollowedPartition]:
        """Every partition that is fetched."""
        return (each.partition for each in self._followed.values())

    def statistics(self) -> FetcherStatistics:
        partitions = [each.partition for each in self._followed.values()]
        crews = (self._crew, *self._left)
        waiting = {each.partition for each in self._to_begin}
        return FetcherStatistics(
            fetchers=len(self._crew.fetchers),
            partitions=len(partitions),
            requests=self._of_left[0] + sum(each.requests for each in crews),
            bytes_fetched=self.bytes_fetched,
            lag={each.name: each.lag for each in partitions},
            failed=[
                each.name for each in partitions if each.failures or each.offline or each in waiting
            ],
        )

    # --- what a loop is to do ---

    def _note_change(self, ended: list[FollowedPartition], begun: list[_Followed]) -> None:
        """After the changes that the loop has not taken yet. A partition of which it does not know
        need not be ended there."""
        unknown = {each.partition for each in self._to_begin}
        self._to_end = [*self._to_end, *(each for each in ended if each not in unknown)]
        waiting = (*self._to_begin, *begun)
        self._to_begin = [each for each in waiting if not each.partition.ended]

    def _give(self) -> None:
        """All changes that the loop has not taken, in their order."""
        ended, begun = self._to_end, self._to_begin
        if not (ended or begun):
            self.failing = ""
        elif self._submit(self._crew, self._change(self._crew, ended, begun)):
            self._to_end, self._to_begin, self.failing = [], [], ""

    def _submit(self, crew: _Crew, work: Coroutine[Any, Any, None]) -> bool:
        """False: there is no loop now, or it is lost."""
        try:
            crew.submit(work)
        except Exception as error:
            work.close()
            self._failures.note("following other brokers", error)
            self.failing = f"{type(error).__name__}: {error}"
            self._give_again_ms = self._clock.monotonic_ms() + TASK_RETRY_MS
            return False
        return True

    async def _change(
        self, crew: _Crew, ended: list[FollowedPartition], begun: list[_Followed]
    ) -> None:
        """On the loop. Without a wait in it: what the controller said first is done first."""
        try:
            for fetcher, _ in crew.fetchers.values():
                for partition in ended:
                    fetcher.forget(partition)
            for leader, partition in begun:
                if not partition.ended:
                    self._fetcher(crew, self._source(leader, partition.name)).follow(partition)
            for source in [each for each, (it, _) in crew.fetchers.items() if not it.partitions]:
                self._end(crew, source)
        except Exception as error:
            self._failures.note("following other brokers", error)

    def _source(self, leader: Leader, name: TopicPartition) -> Source:
        # A topic's partitions take turns.
        spread = zlib.crc32(name.topic.encode()) + name.partition
        index = spread % self._fetchers_per_source
        return Source(leader.node_id, leader.address, index)

    def _fetcher(self, crew: _Crew, source: Source) -> ReplicaFetcher:
        if source not in crew.fetchers:
            fetcher = ReplicaFetcher(
                self._us,
                source,
                self._connect,
                self._settings,
                self._clock,
                self._dice,
                self._failures,
                self._lines,
                self.throttle,
                self._keep_starts,
            )
            task = asyncio.get_running_loop().create_task(fetcher.run())
            crew.fetchers[source] = fetcher, task
        return crew.fetchers[source][0]

    def _end(self, crew: _Crew, source: Source) -> None:
        fetcher, task = crew.fetchers.pop(source)
        task.cancel()
        requests, bytes_fetched = crew.ended
        crew.ended = requests + fetcher.requests, bytes_fetched + fetcher.bytes_fetched


def _crew(loop: Loop) -> _Crew:
    return _Crew(loop.submit, loop.stop)


def _nothing() -> None:
    """A loop that is others' as well is not ours to stop."""


def _serves(known: _Followed, replica: Replica | None) -> bool:
    """Whether this goes on as it is: with the replica that there is, and not offline."""
    return known.partition.replica is replica and not known.partition.offline
