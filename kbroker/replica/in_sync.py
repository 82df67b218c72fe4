"""In-sync replicas: a leader sees how its followers keep up, and asks for other in-sync sets.

A member that has not had all of the log for `replica.lag.time.max.ms` is to leave its set; a
replica beside it that has reached the high watermark, and the beginning of this leader's epoch, is
to join (KIP-497); for one that is about to, the high watermark waits. The controller decides; its
decision comes with its next image.

Until then the high watermark is over the *maximal* set: the committed one and all that have been
asked for. A record counts as committed only if it is with all that may be in the set from which the
controller elects. The outcome of a request is unknown if its answer was lost, or if the controller
says only that something failed: perhaps its store has it. The brokers that it asked for are waited
for, and it is made again, until the controller refuses just that or the partition has another
epoch.

One request at a time, for all partitions. On the controller's thread only, in step with the images
that it applies.

A log that is being changed cannot take everything at once: a leader whose epoch begins
after a write waits for the write, and on a disk that hangs that does not end. All logs of one
image, or look, are waited for LOG_WAIT_MS together. Those that are late then get it from the next
look as things are then, and until then they are where they were: an older epoch, as everywhere
where an image has not come yet. Nothing is asked for in their name.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_lines import LogLines
from kbroker.metadata.controller.partition_states import InSyncChange
from kbroker.replica.leadership import set_leadership
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
    from kbroker.replica._replica import Replica

log: Final = logging.getLogger("kbroker.replica")
lines: Final = LogLines(log)

# Before a partition whose change was refused is asked for again: a broker that is about to stop is
# refused until it has.
REFUSED_PAUSE_MS: Final = 1_000

# A follower that had everything so short a time ago is about to reach the high watermark. That
# waits for it so long at most, and after a follower that did not come not again for a while.
NEAR_MS: Final = 500
# For all logs that are being changed, on the thread that follows images and elects.
LOG_WAIT_MS: Final = 20
LATE_LOG_WAIT_MS: Final = 1  # of those that were so the last time
HOLD_MS_MAX: Final = 1_000
HOLD_PAUSE_MS: Final = 10_000

# Why each change was refused, in their order, and anything else where it was done; None: unknown. A
# change that was done comes with the next image.
Outcome = Sequence[object] | None
Ask = Callable[[Sequence[InSyncChange], Callable[[Outcome], None]], None]


class Follower(NamedTuple):
    """A follower as its leader knows it from its fetches; see Replica.followers."""

    broker_id: int
    is_waited_for: bool
    log_end_offset: int
    caught_up_ns: int
    fetched_ns: int
    broker_epoch: int


@dataclass(slots=True)
class _Led:
    """A partition that this broker leads with others, since it does in this epoch."""

    replica: Replica
    partition: PartitionImage
    began_ns: int
    began_offset: int  # the log's end then
    # The brokers asked for on top of the committed set, in this partition epoch.
    joining: set[int] = field(default_factory=set)
    # Those that are about to reach the high watermark, and since when that waits for them.
    held_for: dict[int, int] = field(default_factory=dict)
    hold_again_ns: int = 0  # when that may be, after a follower that did not come
    ask_again_ns: int = 0  # when that may be, after a refusal
    # Brokers that were refused as members, each with when it may be asked for again, apart from the
    # others: those may be eligible. Others of the set may lag meanwhile, and leave.
    refused: dict[int, int] = field(default_factory=dict)
    said: set[frozenset[int]] = field(default_factory=set)  # in-sync sets with a line in the log
    in_late_epoch: bool = False  # it has not begun yet

    @property
    def waited_for(self) -> set[int]:
        """By the high watermark, beside the committed set."""
        return self.joining | self.held_for.keys()

    def may_join(self, broker_id: int, now_ns: int) -> bool:
        return now_ns >= self.refused.get(broker_id, 0)

    def together(self, joining: Collection[int]) -> set[int]:
        """Those of these that one request may ask for."""
        again = self.refused.keys() & joining
        if len(again) < len(joining):
            return {*joining} - again
        return {min(again, key=lambda each: (self.refused[each], each))} if again else set()

    def is_settled(self, brokers: frozenset[int], since_ns: int) -> bool:
        """Whether there is nothing to ask for at a glance: all live, are in sync, and have not
        lagged since then."""
        return (
            len(self.partition.isr) == len(self.partition.replicas)
            and brokers.issuperset(self.partition.replicas)
            and self.replica.followers_keep_up(since_ns)
        )


class InSyncSets:
    """See the head of this file."""

    def __init__(
        self,
        node_id: int,
        ask: Ask,
        wake: Callable[[Replica], None],
        clock: Clock,
        lag_time_max_ms: int,
        is_changed: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        """`ask` hands changes to the controller; its callback comes on the controller's thread.
        `wake` answers the requests that wait for a high watermark that moved. `is_changed`: whether
        an answer of the former leader is being applied to a log, which cannot lead meanwhile."""
        self._node_id = node_id
        self._ask = ask
        self._wake = wake
        self._clock = clock
        self._lag_max_ns = lag_time_max_ms * NS_PER_MS
        self._broker_epochs: Mapping[int, int] = {}
        # Of partitions led here that do not have those yet: the ones that they have.
        self._epochs_before: dict[TopicPartition, Mapping[int, int]] = {}
        self._is_changed = is_changed
        self._waits_until_ns = 0  # for logs that are being changed
        self._late: dict[TopicPartition, tuple[Replica, PartitionImage]] = {}
        self._led: dict[TopicPartition, _Led] = {}
        self._in_flight: list[tuple[_Led, InSyncChange]] = []
        self._unknown: list[tuple[_Led, InSyncChange]] = []  # whether they were done
        # How often in-sync sets of partitions led here lost a member, or got one.
        self.shrinks = 0
        self.expands = 0

    def know(self, image: ClusterImage) -> None:
        """The registered brokers, in the image that is applied next. Leaders get them: fetches of
        an older start of a broker are refused from then on.

        A partition that this image changes gets them with its new state, in `lead`, and keeps those
        of before until then, however the image is applied: a start that ends a membership would
        count as a member's under the set of before.
        """
        self._wait_for_logs(LOG_WAIT_MS)
        epochs = {node_id: broker.epoch for node_id, broker in image.brokers.items()}
        if epochs != self._broker_epochs:
            before, self._broker_epochs = self._broker_epochs, epochs
            self._epochs_before = {**dict.fromkeys(self._led, before), **self._epochs_before}
        for name in [name for name in self._epochs_before if self._is_as_in(image, name)]:
            led = self._led[name]
            if not self._take_epochs(led, image):
                continue
            try:
                self._apply(led.replica, led.partition, led.waited_for)
                if led.replica.deletions_wait:  # for live followers only
                    self._wake(led.replica)
            except OSError as error:
                # It leads in an older epoch, in which none fetches: `lead` has logged that.
                lines.write(logging.ERROR, str(name), "%s cannot be led: %s", str(name), error)

    def _take_epochs(self, led: _Led, image: ClusterImage) -> bool:
        """False: they are as before. A start of a member that is lossy still, since the controller
        cannot read this partition's state to take it out, is not known."""
        before = self._epochs_before.pop(led.replica.name)
        now = dict(self._broker_epochs)
        for each in led.partition.isr:
            if each in image.brokers and image.brokers[each].lossy:
                now[each] = before.get(each, 0)
        if now != self._broker_epochs:
            self._epochs_before[led.replica.name] = now
        return now != before

    def _is_as_in(self, image: ClusterImage, name: TopicPartition) -> bool:
        """Whether this image has a partition that is led here in the state in which it is led."""
        led, topic = self._led[name], image.topics.get(name.topic)
        if topic is None or topic.topic_id != led.replica.topic_id:
            return False
        return led.partition == image.partition(*name)

    def _wait_for_logs(self, wait_ms: int) -> None:
        """For all logs that are changed from here on, together."""
        self._waits_until_ns = self._clock.monotonic_ns() + wait_ms * NS_PER_MS

    def _apply(
        self, replica: Replica, partition: PartitionImage, joining: Collection[int] = ()
    ) -> bool:
        """False: it is late, and gets it from the next look."""
        name = replica.name
        wait_ns = max(0, self._waits_until_ns - self._clock.monotonic_ns())
        leads = partition.leader == self._node_id
        epochs = self._epochs_before.get(name, self._broker_epochs)
        if not (leads and self._is_changed(name)) and set_leadership(
            self._node_id, replica, partition, joining, epochs, wait_ns
        ):
            self._late.pop(name, None)
            return True
        if name not in self._late:
            lines.write(
                logging.WARNING,
                "late",
                "%s is being changed for long: it follows what was decided when that is over",
                str(name),
            )
        self._late[name] = replica, partition
        return False

    def lead(self, replica: Replica, partition: PartitionImage) -> None:
        """Applies the controller's decision on a partition that is here to its replica."""
        led = self._led.get(replica.name)
        if led is None or led.partition != partition:
            self._epochs_before.pop(replica.name, None)
        if partition.leader == self._node_id and len(partition.replicas) > 1:
            joining = self._note(replica, partition).waited_for
        else:
            joining = set()
            self._led.pop(replica.name, None)
        applied = self._apply(replica, partition, joining)
        if not applied and (led := self._led.get(replica.name)) is not None:
            led.in_late_epoch = True

    def forget(self, topic_ids: Collection[UUID]) -> None:
        """These topics are not here any more; others may have their names by now."""
        for name in [name for name, led in self._led.items() if led.replica.topic_id in topic_ids]:
            del self._led[name]
            self._epochs_before.pop(name, None)
        for name in [name for name, (it, _) in self._late.items() if it.topic_id in topic_ids]:
            del self._late[name]

    def _note(self, replica: Replica, partition: PartitionImage) -> _Led:
        led = self._led.get(replica.name)
        if (
            led is None
            or led.replica is not replica  # its log was closed, and opened again
            or led.partition.leader_epoch != partition.leader_epoch
        ):
            now_ns = self._clock.monotonic_ns()
            led = self._led[replica.name] = _Led(replica, partition, now_ns, replica.log_end_offset)
        elif led.partition.partition_epoch < partition.partition_epoch:
            # Whatever was asked for in an epoch before cannot happen any more.
            led.joining.clear()
            led.held_for.clear()
            led.said.clear()
            before, now = {*led.partition.isr}, {*partition.isr}
            for each in now & led.refused.keys():
                del led.refused[each]
            self.shrinks += not before <= now
            self.expands += not now <= before
        led.partition = partition
        return led

    # --- every so often ---------------------------------------------------------------------------

    def look(self, brokers: Mapping[int, BrokerImage]) -> None:
        """Asks for the changes that the followers' fetches call for, unless a request is on its
        way."""
        if self._late:
            self._apply_late()
        self._wait_for_logs(LOG_WAIT_MS)
        if self._in_flight:
            return
        changes = [each for each in self._unknown if self._is_current(*each)]
        self._unknown = []
        again = {led.replica.name for led, _ in changes}
        changes += self._all_wanted(brokers, again)
        if changes:
            self._in_flight = changes
            self._ask([change for _, change in changes], self._answered)

    def _apply_late(self) -> None:
        """Those that were late, as things are now."""
        self._wait_for_logs(LATE_LOG_WAIT_MS)
        for name, (replica, partition) in list(self._late.items()):
            led = self._led.get(name)
            if led is not None and led.replica is not replica:
                led = None
            try:
                if led is None:
                    applied = self._apply(replica, partition)
                else:
                    applied = self._apply(replica, led.partition, led.waited_for)
            except OSError as error:
                lines.write(logging.ERROR, str(name), "%s cannot be led: %s", str(name), error)
                del self._late[name]
                continue
            if applied:
                if led is not None and led.in_late_epoch:
                    led.in_late_epoch = False
                    led.began_ns = self._clock.monotonic_ns()
                    led.began_offset = replica.log_end_offset
                self._wake(replica)

    def _is_current(self, led: _Led, change: InSyncChange) -> bool:
        """Whether the partition is still what it was when this was asked for."""
        return (
            self._led.get(led.replica.name) is led
            and led.partition.partition_epoch == change.partition_epoch
        )

    def _all_wanted(
        self, brokers: Mapping[int, BrokerImage], asked: Collection[TopicPartition]
    ) -> Iterator[tuple[_Led, InSyncChange]]:
        now_ns = self._clock.monotonic_ns()
        alive = frozenset(brokers)
        for name, led in self._led.items():
            if name in asked or name in self._late or now_ns < led.ask_again_ns:
                continue
            if led.is_settled(alive, now_ns - self._lag_max_ns):
                led.said.clear()
                continue
            if led.replica.online and self._node_id in brokers:
                try:
                    in_sync = self._wanted(led, brokers)
                    if in_sync.keys() != {*led.partition.isr}:
                        in_sync = self._wait_for(led, in_sync, brokers)
                except BlockingIOError:
                    continue  # its log is being changed: at the next look
                if in_sync.keys() != {*led.partition.isr}:
                    self._say(led, in_sync)
                    yield (
                        led,
                        InSyncChange(
                            led.replica.topic_id,
                            led.partition.index,
                            led.partition.leader_epoch,
                            led.partition.partition_epoch,
                            in_sync,
                        ),
                    )
                else:
                    if now_ns >= max(led.refused.values(), default=0):
                        led.said.clear()
                    with contextlib.suppress(BlockingIOError):
                        self._hold(led, brokers, now_ns)

    def _hold(self, led: _Led, brokers: Mapping[int, BrokerImage], now_ns: int) -> None:
        """The high watermark waits for a follower that is about to reach it.

        Under load it moves with every append, where the leader is in sync alone, and a
        follower that lags by a round trip would be seen there by chance or never. Apache
        Kafka's waits as well (for any that was caught up within the lag's time); here a
        second at most, in which a write with acks=-1 waits, too.
        """
        before = {*led.held_for}
        for each in (Follower(*found) for found in led.replica.followers()):
            broker = brokers.get(each.broker_id)
            near = (
                each.broker_id not in led.partition.isr
                and led.may_join(each.broker_id, now_ns)
                and broker is not None
                and each.broker_epoch == broker.epoch
                and each.log_end_offset >= led.began_offset
                and now_ns - each.caught_up_ns < NEAR_MS * NS_PER_MS
            )
            if near and now_ns >= led.hold_again_ns:
                led.held_for.setdefault(each.broker_id, now_ns)
            else:
                led.held_for.pop(each.broker_id, None)
        if any(now_ns - since_ns > HOLD_MS_MAX * NS_PER_MS for since_ns in led.held_for.values()):
            led.held_for.clear()
        if before != {*led.held_for}:
            self._apply(led.replica, led.partition, led.waited_for)
            if before - led.held_for.keys():  # a follower did not come
                led.hold_again_ns = now_ns + HOLD_PAUSE_MS * NS_PER_MS
                self._wake(led.replica)

    def _wanted(self, led: _Led, brokers: Mapping[int, BrokerImage]) -> dict[int, int]:
        """Brokers with their epochs."""
        now_ns = self._clock.monotonic_ns()
        # Read before the followers are: of one that the high watermark waits for, it is not beyond
        # the log end that is read after it.
        reached = max(led.replica.high_watermark, led.began_offset)
        in_sync = {self._node_id: brokers[self._node_id].epoch}
        for each in (Follower(*found) for found in led.replica.followers()):
            broker = brokers.get(each.broker_id)
            if broker is None:
                continue  # the controller takes out the dead by itself
            if each.broker_id in led.partition.isr:
                stays = not self._lags(each, led, now_ns)
            else:
                stays = (
                    led.may_join(each.broker_id, now_ns)
                    and each.broker_epoch == broker.epoch
                    and each.log_end_offset >= reached
                    and not self._lags(each, led, now_ns)  # it would have to leave at once
                )
            if stays:
                in_sync[each.broker_id] = broker.epoch
        joining = in_sync.keys() - {*led.partition.isr}
        later = joining - led.together(joining)
        return {each: epoch for each, epoch in in_sync.items() if each not in later}

    def _lags(self, follower: Follower, led: _Led, now_ns: int) -> bool:
        if follower.log_end_offset >= led.replica.log_end_offset:
            return False
        return now_ns - max(follower.caught_up_ns, led.began_ns) > self._lag_max_ns

    def _wait_for(
        self, led: _Led, in_sync: Mapping[int, int], brokers: Mapping[int, BrokerImage]
    ) -> dict[int, int]:
        """What of this set may be asked for: all who may be in it must have what is committed.

        The high watermark goes on while its followers are looked at. So it waits for those that are
        to join first, and then they are compared with it once more. Apache Kafka holds one lock
        over both.
        """
        joining = in_sync.keys() - {*led.partition.isr} - led.joining
        led.joining |= joining
        led.held_for.clear()
        if not self._apply(led.replica, led.partition, led.joining):
            led.joining -= joining
            raise BlockingIOError(f"the log of {led.replica.name} is being changed")
        again = self._wanted(led, brokers)
        if overtaken := joining - again.keys():
            led.joining -= overtaken
            self._apply(led.replica, led.partition, led.joining)
            self._wake(led.replica)
        return {each: epoch for each, epoch in in_sync.items() if each in again}

    def _say(self, led: _Led, in_sync: Collection[int]) -> None:
        left = sorted({*led.partition.isr}.difference(in_sync))
        joining = sorted({*in_sync}.difference(led.partition.isr))
        is_news = frozenset(in_sync) not in led.said  # what is refused is asked for again and again
        led.said.add(frozenset(in_sync))
        if left and is_news:
            log.info("%s: brokers %s lag and are to leave", led.replica.name, left)
        if joining and is_news:
            log.info("%s: brokers %s have caught up and are to join", led.replica.name, joining)

    def _answered(self, outcome: Outcome) -> None:
        asked, self._in_flight = self._in_flight, []
        if outcome is None:
            # The same once more: what refuses that, has refused or will refuse the first one.
            self._unknown = asked
            return
        for (led, change), result in zip(asked, outcome, strict=True):
            if isinstance(result, KafkaError) and result.code not in _ANOTHER_IMAGE_COMES:
                self._refused(led, change, result)

    def _refused(self, led: _Led, change: InSyncChange, error: KafkaError) -> None:
        refused = error.code in _NOT_DONE
        lines.write(
            logging.WARNING,
            error.code.name,
            "%s: the controller refused the in-sync set %s%s: %s",
            str(led.replica.name),
            str(sorted(change.in_sync)),
            "" if refused else ", and is asked again",
            error.message or error.code.name,
        )
        if not refused:
            self._unknown.append((led, change))
        elif self._is_current(led, change):
            led.joining.clear()
            again_ns = self._clock.monotonic_ns() + REFUSED_PAUSE_MS * NS_PER_MS
            if joining := {*change.in_sync}.difference(led.partition.isr):
                led.refused |= dict.fromkeys(joining, again_ns)
            else:
                led.ask_again_ns = again_ns
            self._apply(led.replica, led.partition)
            self._wake(led.replica)


# The controller has looked at the set itself, as things are now, and has not done it.
_NOT_DONE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST})
# Decided on an older state than the controller's: an image is on its way.
_ANOTHER_IMAGE_COMES: Final = frozenset(
    {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION}
)
