"""FetcherManager: whom each partition of this broker is fetched from, as the controller says.

`follow` and `stop` are called on the controller's thread (or who stops it), the fetchers live on
the control loop. On return of `follow` no partition that it names is changed any more by what an
earlier leader says; the new word is on its way to the loop, in order. So a replica is made a leader
behind `follow` or `remove`, and a follower before it.

One fetcher for each broker that is followed and each of `num.replica.fetchers`: a partition always
belongs to the same of them. A fetcher without partitions ends, and its links with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import zlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.log_lines import LogLines
from kbroker.replica.fetcher import ReplicaFetcher, Source, Us
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
    failed: list[TopicPartition]  # the last answer was of no use, or the log is offline


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
    ) -> None:
        """`submit` runs a coroutine on the loop; `connect` is called there. `wake` answers the
        consumers that wait at a replica for what was fetched."""
        self._us = us
        self._submit = submit
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
        # The loop's.
        self._fetchers: dict[Source, tuple[ReplicaFetcher, asyncio.Task[None]]] = {}
        self._ended_fetchers = (0, 0)  # requests, bytes

    # --- the controller's thread ---

    def follow(self, changes: Mapping[TopicPartition, Leader | None]) -> None:
        """These partitions are led by others now; None: by nobody, or by us.

        The replica is there and knows the epoch. The same word again changes nothing, but for a
        partition that had gone offline.
        """
        followed = dict(self._followed)
        ended: list[FollowedPartition] = []
        begun: list[_Followed] = []
        for name, leader in changes.items():
            known = followed.get(name)
            replica = self._replica_of(name) if leader is not None else None
            if known is not None and known.leader == leader and _serves(known, replica):
                continue
            if known is not None:
                known.partition.end()
                ended.append(known.partition)
                del followed[name]
            if leader is not None and replica is not None:
                partition = FollowedPartition(
                    name, leader.topic_id, leader.leader_epoch, replica, self._lines, self._wake
                )
                followed[name] = _Followed(leader, partition)
                begun.append(followed[name])
        self._followed = followed
        if ended or begun:
            self._tell(self._change(ended, begun))

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
        """On return no log is changed by a fetcher any more; their links end soon."""
        self.remove(list(self._followed))

    # --- any thread ---

    @property
    def bytes_fetched(self) -> int:
        """Of record batches, since the start."""
        fetchers = [fetcher for fetcher, _ in list(self._fetchers.values())]
        return self._ended_fetchers[1] + sum(each.bytes_fetched for each in fetchers)

    def followed(self) -> Iterator[FollowedPartition]:
        """Every partition that is fetched."""
        return (each.partition for each in self._followed.values())

    def statistics(self) -> FetcherStatistics:
        partitions = [each.partition for each in self._followed.values()]
        fetchers = [fetcher for fetcher, _ in list(self._fetchers.values())]
        requests, _ = self._ended_fetchers
        return FetcherStatistics(
            fetchers=len(fetchers),
            partitions=len(partitions),
            requests=requests + sum(each.requests for each in fetchers),
            bytes_fetched=self.bytes_fetched,
            lag={each.name: each.lag for each in partitions},
            failed=[each.name for each in partitions if each.failures or each.offline],
        )

    # --- the loop ---

    def _tell(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._submit(work)
        except RuntimeError as error:  # the loop is lost, or has been stopped
            work.close()
            self._failures.note("following other brokers", error)

    async def _change(self, ended: list[FollowedPartition], begun: list[_Followed]) -> None:
        """Without a wait in it: what the controller said first is done first."""
        try:
            for fetcher, _ in self._fetchers.values():
                for partition in ended:
                    fetcher.forget(partition)
            for leader, partition in begun:
                if not partition.ended:
                    self._fetcher(self._source(leader, partition.name)).follow(partition)
            for source in [each for each, (it, _) in self._fetchers.items() if not it.partitions]:
                self._end(source)
        except Exception as error:
            self._failures.note("following other brokers", error)

    def _source(self, leader: Leader, name: TopicPartition) -> Source:
        # A topic's partitions take turns.
        spread = zlib.crc32(name.topic.encode()) + name.partition
        index = spread % self._fetchers_per_source
        return Source(leader.node_id, leader.address, index)

    def _fetcher(self, source: Source) -> ReplicaFetcher:
        if source not in self._fetchers:
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
            )
            task = asyncio.get_running_loop().create_task(fetcher.run())
            self._fetchers[source] = fetcher, task
        return self._fetchers[source][0]

    def _end(self, source: Source) -> None:
        fetcher, task = self._fetchers.pop(source)
        task.cancel()
        requests, bytes_fetched = self._ended_fetchers
        self._ended_fetchers = requests + fetcher.requests, bytes_fetched + fetcher.bytes_fetched


def _serves(known: _Followed, replica: Replica | None) -> bool:
    """Whether this goes on as it is: with the replica that there is, and not offline."""
    return known.partition.replica is replica and not known.partition.offline
