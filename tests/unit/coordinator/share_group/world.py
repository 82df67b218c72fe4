"""A share group with its world in the hand of the test: clock, topics, log and persister.

The log is that of the consumer groups' tests. The persister's answers wait in `asked`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from kbroker.clock import ManualClock
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer
from kbroker.coordinator.consumer_group.quick import QuickGroups
from kbroker.coordinator.consumer_group.record_steps import GroupAround
from kbroker.coordinator.consumer_group.settings import Settings
from kbroker.coordinator.consumer_group.topics import Topics
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share.seams import Outcome
from kbroker.coordinator.share_group.group import ShareGroup
from kbroker.coordinator.share_group.messages import HeartbeatAsked
from kbroker.coordinator.share_group.replay import ShareReplay
from kbroker.errors import ErrorCode
from kbroker.failures import Failures
from kbroker.metadata.image import ClusterImage, TopicImage
from kbroker.purgatory.timer import Timer
from tests.unit.coordinator.consumer_group.world import Answer, Log, View

GROUP = "g"
NONE = ErrorCode.NONE
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
RETRY_MS = 30_000


class Asked(NamedTuple):
    name: str
    key: SharePartition
    epoch: int
    answer: Callable[[Outcome], object]

    def done(self, code: ErrorCode) -> None:
        self.answer(Outcome(code))


class FakePersister:
    def __init__(self) -> None:
        self.asked: list[tuple[str, SharePartition, int, Callable[[Outcome], object]]] = []
        self.at_once = False
        self.on_first: Callable[[], object] | None = None
        self.codes: dict[int, ErrorCode] = {}
        self.starts: dict[SharePartition, int] = {}  # as the last question has them

    def initialize(
        self, key: SharePartition, state_epoch: int, start_offset: int, done: Any
    ) -> None:
        self.starts[key] = start_offset
        self.asked.append(("initialize", key, state_epoch, done))
        if self.on_first is not None:
            call, self.on_first = self.on_first, None
            call()
        if self.at_once:
            self.answer()

    def delete(self, key: SharePartition, done: Any) -> None:
        self.starts.pop(key, None)
        self.asked.append(("delete", key, 0, done))

    def take(self) -> list[Asked]:
        """All of them, which the test answers one by one."""
        asked, self.asked = self.asked, []
        return [Asked(*each) for each in asked]

    def answer(self, code: ErrorCode = NONE, **codes: ErrorCode) -> list[tuple[str, int]]:
        """All of them; which partitions they were. `codes` has those of single partitions, also
        as `p1`."""
        asked, self.asked = self.asked, []
        for _, key, _, done in asked:
            own = codes.get(f"p{key.partition}", self.codes.get(key.partition, code))
            done(Outcome(own))
        return [(name, key.partition) for name, key, _, _ in asked]


class World:
    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.log = Log()
        self.view = View()
        self.failures = Failures("test")
        self.image = ClusterImage()
        self.persister = FakePersister()
        self.settings = Settings(200, 45_000, 5_000, 1_000, ("simple",), 0)._replace(**settings)
        self.jobs: list[Callable[[], object]] = []
        self.has_states = True
        self.retry_ms = RETRY_MS
        self.works = True  # the log worker, at once
        self.works_later: list[Callable[[], object]] = []
        self.topics = Topics(lambda: self.image)
        self.incarnation = 0
        self.gone: list[Any] = []
        self.group = self.new_group()

    def new_group(self) -> ShareGroup:
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
        return ShareGroup(
            GROUP, around, self.incarnation, self._persister, lambda: self.retry_ms,
            self._on_worker, lambda: self.has_states,
        )  # fmt: skip

    def _on_worker(self, group_id: str, call: Callable[[], object]) -> None:
        assert group_id == GROUP
        if self.works:
            call()
        else:
            self.works_later.append(call)

    def _persister(self) -> Any:
        return self.persister

    def _beside(self, job: Callable[[], object]) -> bool:
        self.jobs.append(job)
        return True

    def create(self, *topics: TopicImage) -> None:
        self.image = self.image.with_topics(topics).at_version(self.image.version + 1)

    def remove(self, *names: str) -> None:
        self.image = self.image.without_topics(names).at_version(self.image.version + 1)

    def id_of(self, name: str) -> UUID:
        topic = self.image.topic(name)
        assert topic is not None
        return topic.topic_id

    def begin(self, member_id: str, epoch: int, topics: tuple[str, ...] | None = None) -> Answer:
        answer = Answer()
        asked = HeartbeatAsked(GROUP, member_id, epoch, None, topics, "client", "/host")
        (self.group.part if epoch < 0 else self.group.beat)(asked, answer)
        return answer

    def join(self, member_id: str = "a", *topics: str) -> HeartbeatAnswer:
        return self.begin(member_id, 0, topics or ("t",)).got

    def beat(self, member_id: str, epoch: int) -> HeartbeatAnswer:
        return self.begin(member_id, epoch).got

    def settle(self, member_id: str, epoch: int) -> HeartbeatAnswer:
        """Heartbeats until nothing changes; the last assignment."""
        assignment = None
        while True:
            found = self.beat(member_id, epoch)
            assert not found.code
            assignment = found.assignment or assignment
            if found.epoch == epoch and found.assignment is None:
                return found._replace(assignment=assignment)
            epoch = found.epoch

    def elapse(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance()

    def fail_over(self) -> None:
        """Another coordinator loads the log."""
        self.group.unload()
        self.group = self.new_group()
        replay = ShareReplay(lambda states: [self.group.load(state) for state in states.values()])
        for batch in self.log.batches:
            for key, value in batch:
                record = SimpleNamespace(offset=0, timestamp_ms=0, key=key, value=value)
                assert replay.record(record)
        replay.loaded()
