"""All share-partitions that this broker serves, by group and partition, and who waits for them.

A share-partition is made by the first fetch of it and reads its state then. It ends when the leader
epoch changes, when the share coordinator refuses it, and after the last session of its group at
this broker. A request that comes after its end makes the next one; one that waits is answered with
the error. So there are no more of them than the sessions have partitions.

Fetches wait in a purgatory under the share-partition's key. `wake` has them look again, on a
handler's thread, once for all events until then: each at the share-partitions that have changed,
until nothing is left there. So a wake costs neither all partitions of a fetch, nor a look of every
fetch. Any thread; the lock is a leaf.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.coordinator.share.images import SharePartition as Key
from kbroker.engine.share.led import LedSharePartition
from kbroker.engine.share.spared_before import SparedBefore
from kbroker.errors import ErrorCode, KafkaError
from kbroker.replica.share.sessions import Place

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.engine.share.parts import LedLog, Parts
    from kbroker.metadata.image import ClusterImage
    from kbroker.purgatory.purgatory import Purgatory
    from kbroker.replica.share.sessions import ShareSession


class ShareLeaders:
    """See the module. `make_parts` gets `wake` and `forget`."""

    def __init__(
        self,
        make_parts: Callable[
            [Callable[[Key], object], Callable[[LedSharePartition], object]], Parts
        ],
        purgatory: Purgatory,
    ) -> None:
        self._purgatory: Final = purgatory
        self._parts: Final = make_parts(self.wake, self._forget)
        self._lock = threading.Lock()
        self._led: dict[Key, LedSharePartition] = {}
        self._by_group: dict[str, set[Key]] = {}
        self._woken: dict[Key, None] = {}
        self._spared: Final = SparedBefore()

    def __len__(self) -> int:
        return len(self._led)

    def every(self) -> list[LedSharePartition]:
        """Those of this moment."""
        with self._lock:
            return list(self._led.values())

    def find(self, key: Key) -> LedSharePartition | None:
        return self._led.get(key)

    def led(self, key: Key, log: LedLog) -> LedSharePartition:
        """The one of this log's leader epoch; its state may not have been read yet.
        KafkaError NOT_LEADER_OR_FOLLOWER: a later epoch has one."""
        epoch = log.leader_epoch
        while True:
            with self._lock:
                found = self._led.get(key)
                if found is None:
                    spared = self._spared.take(key)
                    made = LedSharePartition(key, log, epoch, self._parts, spared)
                    self._led[key] = made
                    self._by_group.setdefault(key.group_id, set()).add(key)
                    break
            if found.log is log and found.leader_epoch == epoch and found.stay():
                return found
            if found.leader_epoch > epoch:  # this log was looked up before the leader changed
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            found.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._forget(found)
        made.begin()
        return made

    def served(self, key: Key, log: LedLog) -> LedSharePartition | None:
        """The one of this log's leader epoch, if there is one."""
        found = self._led.get(key)
        if found is None or found.log is not log or found.leader_epoch != log.leader_epoch:
            return None
        return found

    def end_session(self, session: ShareSession) -> None:
        """Its records are available to others, also where one share-partition fails."""
        for place in list(session.partitions):
            try:
                found = self.find(Key(session.group_id, place.topic_id, place.partition))
                if found is not None:
                    found.end_session(session.number)
            except Exception as error:
                self._parts.failures.note("the end of a session at a share-partition", error)

    def end_group(self, group_id: str, is_used: Callable[[], bool]) -> None:
        """It has no session here any more, unless `is_used` says so by now: the next one reads the
        states again. They may be others by then, of another group with that name."""
        with self._lock:
            every = [self._led[key] for key in self._by_group.get(group_id, ())]
        for led in every:
            try:
                led.retire(is_used)
            except Exception as error:  # the others end all the same
                self._parts.failures.note("the end of a share-partition", error)

    def stopped_waiting(self, keys: Iterable[Key]) -> None:
        """A fetch of these has ended: the log is watched for others alone."""
        for key in keys:
            if self._purgatory.is_watched(key):
                continue
            found = self.find(key)
            if found is not None:
                found.stop_watching()
                if self._purgatory.is_watched(key):
                    self.wake(key)  # it has come meanwhile, and may have relied on the watch

    def follow(self, image: ClusterImage, node_id: int) -> None:
        """Those that this broker does not lead any more end, also where no client asks for them."""
        every = self.every()
        leads: dict[tuple[UUID, int], int] = {}
        for led in every:
            place = (led.key.topic_id, led.key.partition)
            if place not in leads:
                leads[place] = _epoch_led(image, node_id, *place)
            if leads[place] < 0 or leads[place] > led.leader_epoch:
                led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def wake(self, key: Key) -> None:
        with self._lock:
            is_first = not self._woken
            self._woken[key] = None
        if not is_first:
            return
        try:
            self._parts.call_soon(self._look_again)
        except BaseException:
            with self._lock:
                self._woken = {}  # or no later one would be the first
            raise

    def _look_again(self) -> None:
        with self._lock:
            woken, self._woken = self._woken, {}
        for key in woken:
            self._purgatory.check_and_complete(key, _HasToLook(key))

    def _forget(self, led: LedSharePartition) -> None:
        with self._lock:
            if self._led.get(led.key) is not led:
                return
            del self._led[led.key]
            self._spared.keep(led.key, led.spared)
            keys = self._by_group[led.key.group_id]
            keys.discard(led.key)
            if not keys:
                del self._by_group[led.key.group_id]


class WaitingFetch(Protocol):
    """What waits in the purgatory."""

    def met(self, place: Place) -> LedSharePartition | None:
        """For which it waits there."""
        ...

    def is_woken(self, place: Place) -> None:
        """It is to look there."""
        ...


class _HasToLook:
    """Of one wake: whether a fetch has to look. Not where one before it has left nothing."""

    def __init__(self, key: Key) -> None:
        self._place: Final = Place(key.topic_id, key.partition)
        self._exhausted: LedSharePartition | None = None
        self._changed: object = None  # as it was then

    def __call__(self, operation: Any) -> bool:
        fetch: WaitingFetch = operation
        led = fetch.met(self._place)
        if led is not None:
            changed = led.changed
            if led is self._exhausted and changed is self._changed:
                return False
            if led.is_exhausted():
                self._exhausted, self._changed = led, changed
                return False
        fetch.is_woken(self._place)
        return True


def _epoch_led(image: ClusterImage, node_id: int, topic_id: UUID, partition: int) -> int:
    """-1: this broker does not lead it."""
    topic = image.topic_by_id(topic_id)
    if topic is None or partition >= len(topic.partitions):
        return -1
    found = topic.partitions[partition]
    return found.leader_epoch if found.leader == node_id else -1
