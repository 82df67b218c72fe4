"""Consumer groups with their world in the hand of the test: clock, timers, topics, log, C's view.

The log is a list of batches, each with its records as bytes, so that a failover is a replay of
what was written. It refuses appends and lets the followers wait on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

from kbroker.clock import ManualClock
from kbroker.coordinator.consumer_group.beats import ShownBeat
from kbroker.coordinator.consumer_group.group import ConsumerGroup
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer, HeartbeatAsked
from kbroker.coordinator.consumer_group.quick import QuickGroups
from kbroker.coordinator.consumer_group.records import change_of
from kbroker.coordinator.consumer_group.replay import ConsumerReplay
from kbroker.coordinator.consumer_group.settings import Settings
from kbroker.coordinator.consumer_group.state import GroupState
from kbroker.coordinator.consumer_group.steps import Around, Steps
from kbroker.coordinator.consumer_group.topics import Topics
from kbroker.coordinator.group.consumer_records import decode_key
from kbroker.coordinator.group.departures import Departures
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from kbroker.purgatory.timer import Timer

GROUP = "g"
SESSION_MS = 45_000
HEARTBEAT_MS = 5_000
REBALANCE_MS = 60_000

NONE = ErrorCode.NONE
Records = Sequence[tuple[bytes, bytes | None]]
Partitions = Mapping[UUID, frozenset[int]]


def topic_of(
    name: str, partitions: int, number: int = 1, nodes: Sequence[int] = (1,)
) -> TopicImage:
    """`number`: another one is another topic of the same name."""
    topic_id = UUID(int=(number << 64) + int.from_bytes(name.encode()[:8], "big"))
    states = tuple(
        PartitionImage(name, each, tuple(nodes), tuple(nodes), nodes[0], 0, 0)
        for each in range(partitions)
    )
    return TopicImage(name, topic_id, states, MappingProxyType({}), internal=False)


class Log:
    """A partition of `__consumer_offsets`, as far as groups of this kind see it."""

    def __init__(self) -> None:
        self.batches: list[Records] = []
        self.refuses = NONE
        self.refuses_batch: Callable[[Records], ErrorCode] = lambda records: NONE
        self.holds = False
        self.held: list[tuple[int, Callable[[ErrorCode], object]]] = []
        self.state = NONE
        self.on_append: Callable[[Records], object] = lambda records: None

    def state_of(self, group_id: str) -> ErrorCode:
        return self.state

    def write_records(
        self,
        group_id: str,
        incarnation: int,
        records: Records,
        appended: Callable[[ErrorCode], object],
        done: Callable[[ErrorCode], object],
    ) -> None:
        code = self.refuses or self.refuses_batch(records)
        if code:
            appended(code)
            done(code)
            return
        self.batches.append(list(records))
        self.on_append(records)
        appended(NONE)
        self._settle(done)

    def delete_records(
        self,
        group_id: str,
        records: Records,
        in_log: Callable[[], object],
        done: Callable[[ErrorCode], object],
    ) -> None:
        if self.refuses:
            done(self.refuses)
            return
        self.batches.append(list(records))
        self.on_append(records)
        in_log()
        self._settle(done)

    def when_settled(self, group_id: str, done: Callable[[ErrorCode], object]) -> None:
        self._settle(done)

    def _settle(self, done: Callable[[ErrorCode], object]) -> None:
        if self.holds:
            self.held.append((len(self.batches), done))
        else:
            done(NONE)

    def release(self, code: ErrorCode = NONE) -> None:
        held, self.held = self.held, []
        for _, done in held:
            done(code)


class View:
    """The number that C has, and the members that it answers."""

    def __init__(self) -> None:
        self.published: dict[str, tuple[int, int]] = {}
        self.beats: dict[str, ShownBeat] = {}
        self.heard_ms: dict[str, int] = {}

    def publish_members(
        self,
        group_id: str,
        *,
        state: int,
        generation: int,
        members: Iterable[tuple[str, str | None]],
    ) -> None:
        assert not list(members)
        self.published[group_id] = (state, generation)

    def remove_members(self, group_id: str) -> None:
        self.published.pop(group_id, None)
        self.beats.clear()
        self.heard_ms.clear()

    def generation_of(self, group_id: str) -> int:
        return self.published.get(group_id, (0, 0))[1]


class BeatsView(Protocol):
    beats: dict[str, ShownBeat]
    heard_ms: dict[str, int]

    def generation_of(self, group_id: str) -> int: ...


class InC:
    """What C would answer (`group/_beats.pyx`), in few words."""

    def __init__(self, view: BeatsView, clock: ManualClock) -> None:
        self._view, self._clock = view, clock
        self.images = 0
        self.answered = 0

    def show(self, group_id: str, beat: ShownBeat) -> None:
        beats = self._view.beats
        if self._view.generation_of(group_id) != beat.generation:
            return
        for each in list(beats.values()):
            if each.generation == beat.generation:  # what belongs to the group
                beats[each.member_id] = each._replace(
                    images=beat.images, until_ms=beat.until_ms, interval_ms=beat.interval_ms
                )
        beats[beat.member_id] = beat

    def forget(self, group_id: str, member_id: str) -> None:
        self._view.beats.pop(member_id, None)
        self._view.heard_ms.pop(member_id, None)

    def heard_ms(self, group_id: str, member_id: str) -> int:
        return self._view.heard_ms.get(member_id, 0)

    def answer(self, asked: HeartbeatAsked) -> HeartbeatAnswer | None:
        """None: it is for Python."""
        plain = HeartbeatAsked(
            asked.group_id, asked.member_id, asked.epoch, asked.instance_id,
            client_id=asked.client_id, client_host=asked.client_host,
        )  # fmt: skip
        beat = self._view.beats.get(asked.member_id)
        if (
            asked != plain
            or beat is None
            or asked.epoch != beat.epoch
            or asked.instance_id not in (None, beat.instance_id)
            or (asked.client_id, asked.client_host) != (beat.client_id, f"/{beat.host}")
            or self._view.generation_of(asked.group_id) != beat.generation
            or self.images != beat.images
            or self._clock.monotonic_ms() >= beat.until_ms
        ):
            return None
        return HeartbeatAnswer(
            member_id=beat.member_id, epoch=beat.epoch, interval_ms=beat.interval_ms
        )

    def beaten(self, member_id: str) -> None:
        """C answers, and Python does not learn of it."""
        self._view.heard_ms[member_id] = self._clock.monotonic_ms()
        self.answered += 1


class Answer:
    def __init__(self) -> None:
        self._got: HeartbeatAnswer | None = None

    def __call__(self, answer: HeartbeatAnswer) -> None:
        assert self._got is None, f"answered twice: {self._got} and {answer}"
        self._got = answer

    @property
    def waits(self) -> bool:
        return self._got is None

    @property
    def got(self) -> HeartbeatAnswer:
        assert self._got is not None, "not answered"
        return self._got


class World:
    """One coordinator with one group, and all around it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.log = Log()
        self.view = View()
        self.failures = Failures("test")
        self.departures = Departures(self.clock)
        self.in_c = InC(self.view, self.clock)
        self.c_answers: Callable[[], bool] = lambda: False
        self._image = ClusterImage()
        self.settings = Settings(
            size_max=2**31 - 1,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            assignment_interval_ms=1_000,
            assignors=("uniform", "range"),
            pattern_refresh_ms=600_000,
        )._replace(**settings)
        self.jobs: list[Callable[[], object]] = []
        self.topics = Topics(lambda: self.image)
        self.gone: list[Steps] = []
        self.incarnation = 0
        self.group = self.new_group()

    def new_group(self) -> ConsumerGroup:
        self.incarnation += 1
        around = Around(
            settings=lambda group_id: self.settings,
            clock=self.clock,
            call_later=self.timer.call_later,
            store=self.log,  # type: ignore[arg-type]
            view=self.view,  # type: ignore[arg-type]
            beats=self.in_c,
            failures=self.failures,
            departures=self.departures,
            topics=self.topics,
            quick=QuickGroups(),
            beside=self._beside,
            gone=self._gone,
            turned=lambda group, image: None,
        )
        return ConsumerGroup(GROUP, around, self.incarnation)

    def _gone(self, group: Steps) -> None:
        self.gone.append(group)
        if group is self.group:
            self.group = self.new_group()

    def _beside(self, job: Callable[[], object]) -> bool:
        self.jobs.append(job)
        return True

    def work_beside(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    # --- topics and brokers ---

    @property
    def image(self) -> ClusterImage:
        return self._image

    @image.setter
    def image(self, image: ClusterImage) -> None:
        self._image = image
        self.in_c.images += 1

    def create(self, *topics: TopicImage) -> None:
        self.image = self.image.with_topics(topics).at_version(self.image.version + 1)

    def remove(self, *names: str) -> None:
        self.image = self.image.without_topics(names).at_version(self.image.version + 1)

    def racks(self, racks: Mapping[int, str | None]) -> None:
        brokers = [BrokerImage(node, rack=rack) for node, rack in racks.items()]
        self.image = self.image.with_brokers(brokers)

    def id_of(self, name: str) -> UUID:
        topic = self.image.topic(name)
        assert topic is not None
        return topic.topic_id

    # --- requests ---

    def join(self, member_id: str = "a", *topics: str, **how: Any) -> HeartbeatAnswer:
        asked: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topics": tuple(sorted(topics)) if topics else ("t",),
            "owned": {},
        }
        return self.beat(member_id, 0, **{**asked, **how})

    def beat(self, member_id: str, epoch: int, **how: Any) -> HeartbeatAnswer:
        return self.ask(member_id, epoch, **how).got

    def ask(self, member_id: str, epoch: int, **how: Any) -> Answer:
        answer = Answer()
        asked = HeartbeatAsked(
            GROUP, member_id, epoch, client_id="client", client_host="/127.0.0.1", **how
        )
        if epoch < 0:
            self.group.part(asked, answer)
            return answer
        at_once = self.in_c.answer(asked)
        if at_once is not None and self.c_answers():
            self.in_c.beaten(member_id)
            answer(at_once)
            return answer
        batches = len(self.log.batches)
        self.group.beat(asked, answer)
        if at_once is not None:
            assert answer.got == at_once, "C would answer something else"
            assert len(self.log.batches) == batches, "C would change nothing"
        return answer

    def pass_ms(self, time_ms: int) -> None:
        """Time passes, timer by timer."""
        end_ms = self.clock.monotonic_ms() + time_ms
        while (left_ms := end_ms - self.clock.monotonic_ms()) > 0:
            self.clock.advance(min(left_ms, 50))
            self.timer.advance()

    # --- the log ---

    def replayed(self, batches: Iterable[Records] | None = None) -> GroupState:
        """What a load of the log makes of the group."""
        found = replay(self.log.batches if batches is None else batches)
        return found.get(GROUP, GroupState())

    def fail_over(self, batches: int | None = None) -> None:
        """Another coordinator loads the first so many batches of the log, or all."""
        self.group.unload()
        del self.log.batches[len(self.log.batches) if batches is None else batches :]
        state = self.replayed()
        self.group = self.new_group()
        if state.exists:
            self.group.load(state)


def replay(batches: Iterable[Records]) -> dict[str, GroupState]:
    load = ConsumerReplay(lambda states: None)
    for records in batches:
        for raw, value in records:
            key = decode_key(raw)
            if key is not None:
                load.apply(key.group_id, change_of(key, value))
    return load.states
