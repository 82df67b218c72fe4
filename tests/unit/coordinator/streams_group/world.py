"""A streams group with its world in the hand of the test: clock, topics and log.

The log is that of the consumer groups' tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from kbroker.clock import ManualClock
from kbroker.config.group_settings import StreamsSettings
from kbroker.coordinator.consumer_group.quick import QuickGroups
from kbroker.coordinator.consumer_group.record_steps import GroupAround
from kbroker.coordinator.consumer_group.settings import Settings
from kbroker.coordinator.consumer_group.topics import Topics
from kbroker.coordinator.streams_group.group import StreamsGroup
from kbroker.coordinator.streams_group.images import (
    Endpoint,
    InternalTopic,
    Subtopology,
    TaskSet,
    TopologyImage,
)
from kbroker.coordinator.streams_group.messages import HeartbeatAsked, StreamsAnswer
from kbroker.coordinator.streams_group.replay import StreamsReplay
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.metadata.image import ClusterImage, TopicImage
from kbroker.purgatory.timer import Timer
from tests.unit.coordinator.consumer_group.world import Log, View, topic_of

GROUP = "g"
NONE = ErrorCode.NONE
REBALANCE_MS = 60_000
STORE = InternalTopic("store", 0, 0, (("cleanup.policy", "compact"),))
HALF = InternalTopic("half", 0, 0, ())


def part(
    name: str,
    *sources: str,
    changelogs: tuple[InternalTopic, ...] = (),
    sinks: tuple[str, ...] = (),
    repartitions: tuple[InternalTopic, ...] = (),
    groups: Any = (),
) -> Subtopology:
    return Subtopology(name, sources, (), changelogs, sinks, repartitions, groups)


SIMPLE = TopologyImage(0, (part("0", "t"),))
STATEFUL = TopologyImage(0, (part("0", "t", changelogs=(STORE,)),))


def tasks(subtopology_id: str, *partitions: int) -> Mapping[str, frozenset[int]]:
    return {subtopology_id: frozenset(partitions)}


def active(*partitions: int, of: str = "0") -> TaskSet:
    return TaskSet(tasks(of, *partitions))


EMPTY = TaskSet()


class Answer:
    """Of one heartbeat."""

    def __init__(self) -> None:
        self._got: list[StreamsAnswer] = []

    def __call__(self, answer: StreamsAnswer) -> None:
        self._got.append(answer)

    @property
    def waits(self) -> bool:
        return not self._got

    @property
    def got(self) -> StreamsAnswer:
        (answer,) = self._got
        return answer


class Client:
    """A member as Kafka Streams is one: it says what it owns when that has changed."""

    def __init__(self, world: World, member_id: str, process_id: str | None = None) -> None:
        self.world, self.member_id = world, member_id
        self.process_id = process_id or member_id
        self.endpoint: Endpoint | None = None
        self.epoch = 0
        self.rebalance_ms = REBALANCE_MS
        self.owned = EMPTY
        self.statuses: list[int] = []

    def join(self, topology: TopologyImage = SIMPLE) -> StreamsAnswer:
        self.epoch, self.owned = 0, EMPTY
        return self.take(self.world.ask(self.joins(topology)))

    def joins(self, topology: TopologyImage = SIMPLE) -> HeartbeatAsked:
        return HeartbeatAsked(
            GROUP, self.member_id, 0, -1, None, self.rebalance_ms, topology, EMPTY, self.process_id,
            self.endpoint, (), client_id="client", client_host="/host",
        )  # fmt: skip

    def beats(self, owned: TaskSet | None = None) -> HeartbeatAsked:
        return HeartbeatAsked(
            GROUP, self.member_id, self.epoch, owned=owned, client_id="client", client_host="/host"
        )

    def beat(self) -> StreamsAnswer:
        return self.take(self.world.ask(self.beats(self.owned)))

    def take(self, answer: StreamsAnswer) -> StreamsAnswer:
        if answer.code is ErrorCode.NONE:
            self.epoch = answer.epoch
            assert answer.done is not None
            self.statuses = [int(each.code) for each in answer.done.statuses]
            if answer.done.tasks is not None:
                self.owned = answer.done.tasks
        return answer

    def settle(self) -> TaskSet:
        """Heartbeats until nothing changes."""
        for _ in range(20):
            before = self.epoch, self.owned
            assert self.beat().code is NONE
            if before == (self.epoch, self.owned):
                return self.owned
        raise AssertionError("it does not settle")


class World:
    def __init__(self, standbys: int = 0, delay_ms: int = 0, **settings: Any) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.log = Log()
        self.view = View()
        self.failures = Failures("test")
        self.image = ClusterImage()
        self.settings = Settings(200, 45_000, 5_000, 1_000, ("sticky",), 0)._replace(**settings)
        self.own = StreamsSettings(45_000, 5_000, 1_000, standbys, delay_ms)
        self.jobs: list[Callable[[], object]] = []
        self.topics = Topics(lambda: self.image)
        self.incarnation = 0
        self.gone: list[Any] = []
        self.group = self.new_group()

    def new_group(self) -> StreamsGroup:
        self.incarnation += 1
        around = GroupAround(
            settings=lambda group_id: self.settings,
            clock=self.clock,
            call_later=self.timer.call_later,
            store=self.log,  # type: ignore[arg-type]
            view=self.view,  # type: ignore[arg-type]
            failures=self.failures,
            topics=self.topics,
            quick=QuickGroups(),
            beside=self._beside,
            gone=self.gone.append,
        )
        return StreamsGroup(GROUP, around, self.incarnation, lambda group_id: self.own)

    def _beside(self, job: Callable[[], object]) -> bool:
        self.jobs.append(job)
        return True

    def create(self, *topics: TopicImage) -> None:
        self.image = self.image.with_topics(topics).at_version(self.image.version + 1)

    def create_missing(self, answer: StreamsAnswer) -> None:
        """As the handler has it done."""
        assert answer.done is not None
        self.create(*(topic_of(each.name, each.partitions) for each in answer.done.missing))

    def begin(self, asked: HeartbeatAsked) -> Answer:
        if self.group in self.gone:  # as the coordinator makes another one
            self.group = self.new_group()
        answer = Answer()
        (self.group.part if asked.epoch < 0 else self.group.beat)(asked, answer)
        return answer

    def ask(self, asked: HeartbeatAsked) -> StreamsAnswer:
        return self.begin(asked).got

    def client(self, member_id: str, process_id: str | None = None) -> Client:
        return Client(self, member_id, process_id)

    def elapse(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance()

    def fail_over(self) -> None:
        """Another coordinator loads the log."""
        self.group.unload()
        self.group = self.new_group()
        replay = StreamsReplay(lambda states: [self.group.load(each) for each in states.values()])
        for batch in self.log.batches:
            for key, value in batch:
                record = SimpleNamespace(offset=0, timestamp_ms=0, key=key, value=value)
                assert replay.record(record)
        replay.loaded()
