"""A broker around the handlers, made of small fakes, and kio as the client on the other side.

Requests are written by kio's writers and answers read by kio's readers, so that both directions of
every version are checked by another project's code. The controller decides with the real decision
functions, on the calling thread; `hold` makes it keep its callbacks, as the real one would while
it works.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig, edit_topic_list, validate_topic_overrides
from kbroker.coordinator.group._groups import GroupTable
from kbroker.coordinator.group.coordinator import GroupCoordinator
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.delayed import Purgatories
from kbroker.handlers.registry import REGISTRY
from kbroker.handlers.services import Services
from kbroker.limits import DELAY_MS_MAX
from kbroker.log.engine._results import DirectoryUse, MarkerAppended
from kbroker.log.engine.leader_epochs import LeaderEpochs
from kbroker.metadata.controller.config_changes import ResourceChange, plan_change
from kbroker.metadata.controller.decisions import (
    ConfigChange,
    Defaults,
    MorePartitions,
    NewTopic,
    TopicResult,
    plan_config_change,
    plan_deletion,
    plan_partitions,
    plan_topics,
)
from kbroker.metadata.controller.events import Charge, Reassignment
from kbroker.metadata.controller.feature_changes import FeatureUpdate, plan_features
from kbroker.metadata.controller.image_updates import ImageAnswer, ImageUpdate
from kbroker.metadata.controller.user_changes import QuotaChange, UserChange, UserResults
from kbroker.metadata.features import supported
from kbroker.metadata.image import BrokerImage, ClusterImage, TopicImage, delta_between
from kbroker.purgatory.timer import Timer
from kbroker.security.session import ANONYMOUS, Principal
from kbroker.server.dynamic_config import DynamicConfig
from kbroker.types import ApiKey, TopicPartition
from tests.support import schemas
from tests.support.group_memory import MemoryStore, NoView

CLUSTER_ID = "LgA8qWu9TMCDO1kS-PKCZg"
NODE_ID = 1


class AnsweredTwice(Exception):
    """The core would raise here."""


@dataclass
class FakeRequest:
    api_key: int
    api_version: int
    body: bytes
    correlation_id: int = 7
    client_id: str | None = "test"
    connection_id: str = "127.0.0.1:9092-127.0.0.1:50000-0"
    listener: str = "PLAINTEXT"
    local_host: str = "127.0.0.1"
    local_port: int = 9092
    peer_host: str = "127.0.0.1"
    peer_port: int = 50000
    principal: Principal = ANONYMOUS
    received_ns: int = 0
    answer: bytes | None = None
    closed: str | None = None
    throttle_ms: int = 0

    def throttle(self, throttle_ms: int) -> None:
        self.throttle_ms = throttle_ms

    def respond(self, body: bytes) -> None:
        if self.answer is not None or self.closed is not None:
            raise AnsweredTwice(self)
        assert isinstance(body, bytes)
        self.answer = body

    def close_connection(self, reason: str) -> None:
        if self.answer is not None or self.closed is not None:
            raise AnsweredTwice(self)
        self.closed = reason


class KnownEpochs(LeaderEpochs):
    """The real thing without its file."""

    def __init__(self, *entries: tuple[int, int]) -> None:
        self._entries = list(entries)


@dataclass
class FakeLog:
    log_start_offset: int = 0
    high_watermark: int = 0
    log_end_offset: int = 0
    leader_epoch: int = 0
    records: list[tuple[int, int, int]] = field(default_factory=list)  # offset, timestamp, epoch
    epochs: KnownEpochs = field(default_factory=lambda: KnownEpochs((0, 0)))
    follower_start: int = 2**63 - 1  # of the live follower that lags most
    producers: list[tuple[int, ...]] = field(default_factory=list)
    markers: list[tuple[int, int, int, bool, int, int]] = field(default_factory=list)
    outcomes: list[tuple[int, int]] = field(default_factory=list)  # runs and numbers of markers
    marker_error: ErrorCode = ErrorCode.NONE
    led_since: int = -1  # of appends above the high watermark
    open_transaction: int = 2**63 - 1  # the first offset of the first one that is open

    @property
    def last_stable_offset(self) -> int:
        return min(self.high_watermark, self.open_transaction)

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        visible = (r for r in self.records if r[0] < self.high_watermark)
        return next((r for r in visible if r[1] >= timestamp_ms), None)

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        return max(self.records, key=lambda r: (r[1], -r[0]), default=None)

    @property
    def low_watermark(self) -> int:
        return min(self.log_start_offset, self.follower_start)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
        transaction_version: int,
        now_ms: int,
        run: int,
        number: int,
    ) -> MarkerAppended:
        marker = (
            producer_id, producer_epoch, coordinator_epoch, committed, transaction_version, now_ms
        )  # fmt: skip
        self.outcomes.append((run, number))
        if self.marker_error:
            return MarkerAppended(self.marker_error, -1, -1)
        self.markers.append(marker)
        return MarkerAppended(ErrorCode.NONE, len(self.markers) - 1, self.led_since)

    def encode_producers(self) -> tuple[int, bytes]:
        encoded = b"".join(struct.pack(">qiiqiqx", *each) for each in self.producers)
        return len(self.producers), encoded


class FakeReplicas:
    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], FakeLog] = {}
        self.directories: list[DirectoryUse] = []
        self.moved: dict[TopicPartition, str] = {}
        self.refused_paths: dict[str, ErrorCode] = {}

    def use_of_directories(self, wanted: Set[TopicPartition] | None) -> list[DirectoryUse]:
        return [
            use._replace(logs=[log for log in use.logs if wanted is None or log[0] in wanted])
            for use in self.directories
        ]

    def partition(self, topic: str, index: int) -> FakeLog | None:
        return self.logs.get((topic, index))

    def move(self, name: TopicPartition, path: str) -> None:
        if path in self.refused_paths:
            raise KafkaError(self.refused_paths[path])
        self.moved[name] = path

    def delete_records(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        results: dict[TopicPartition, int | KafkaError] = {}
        for name, offset in wanted.items():
            log = self.logs[name]
            offset = log.high_watermark if offset == -1 else offset
            if 0 <= offset <= log.high_watermark:
                log.log_start_offset = max(log.log_start_offset, offset)
                results[name] = log.log_start_offset
            else:
                results[name] = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return results


class FakeController:
    """Decides as the real one does; applies nothing but the image."""

    def __init__(self, config: BrokerConfig, replicas: FakeReplicas, brokers: int = 1) -> None:
        self._config = config
        self._replicas = replicas
        self.image = ClusterImage(1, CLUSTER_ID, NODE_ID).with_brokers(
            BrokerImage(node, f"host{node}", 9000 + node, f"rack{node}", features=supported())
            for node in range(NODE_ID, NODE_ID + brokers)
        )
        self.active = True
        self.broker_epoch = 0
        self.followed: list[ImageUpdate] = []
        self.stopping: list[tuple[int, int]] = []
        self.leads_still: list[TopicPartition] | KafkaError = []
        self.hold = False
        self.held: list[Callable[[], None]] = []
        self.broken: Exception | None = None
        self.asked: list[list[NewTopic]] = []

    def shut_down(self, node_id: int, broker_epoch: int, done: Callable[[Any], None]) -> None:
        self.stopping.append((node_id, broker_epoch))
        self._run(partial(done, self.leads_still))

    def _run(self, work: Callable[[], None]) -> None:
        if self.broken is not None:
            raise self.broken
        if self.hold:
            self.held.append(work)
        else:
            work()

    def release(self) -> None:
        held, self.held = self.held, []
        for work in held:
            work()

    def create_topics(
        self,
        specs: Sequence[NewTopic],
        validate_only: bool,
        done: Callable[[Any], None],
        charge: Charge | None = None,
    ) -> None:
        self.asked.append(list(specs))
        self._run(partial(self._create, specs, validate_only, done))

    def _create(
        self, specs: Sequence[NewTopic], validate_only: bool, done: Callable[[Any], None]
    ) -> None:
        defaults = Defaults(
            self._config["num.partitions"],
            self._config["default.replication.factor"],
            validate_topic_overrides,
        )
        plans = plan_topics(self.image, specs, defaults, uuid.uuid4, 0)
        if not validate_only:
            self.publish(self.image.with_topics(p for p in plans if isinstance(p, TopicImage)))
        done(
            [
                TopicResult.of(plan)
                if isinstance(plan, TopicImage)
                else TopicResult.failed(spec.name, plan)
                for spec, plan in zip(specs, plans, strict=True)
            ]
        )

    def create_partitions(
        self,
        wanted: Sequence[MorePartitions],
        validate_only: bool,
        done: Callable[[Any], None],
        charge: Charge | None = None,
    ) -> None:
        self._run(partial(self._grow, wanted, validate_only, done))

    def _grow(
        self, wanted: Sequence[MorePartitions], validate_only: bool, done: Callable[[Any], None]
    ) -> None:
        plans = plan_partitions(self.image, wanted, 0)
        if not validate_only:
            self.publish(self.image.with_topics(p for p in plans if isinstance(p, TopicImage)))
        done(
            [
                TopicResult.of(plan)
                if isinstance(plan, TopicImage)
                else TopicResult.failed(each.topic, plan)
                for each, plan in zip(wanted, plans, strict=True)
            ]
        )

    def delete_topics(
        self,
        topics: Sequence[str | uuid.UUID],
        done: Callable[[Any], None],
        charge: Charge | None = None,
    ) -> None:
        self._run(partial(self._delete, topics, done))

    def _delete(self, topics: Sequence[str | uuid.UUID], done: Callable[[Any], None]) -> None:
        results = []
        for asked in topics:
            plan = plan_deletion(self.image, asked)
            if isinstance(plan, KafkaError):
                by_id = isinstance(asked, uuid.UUID)
                results.append(
                    TopicResult.failed(None, plan, asked)
                    if by_id
                    else TopicResult.failed(asked, plan)
                )
            else:
                self.publish(self.image.without_topics([plan.name]))
                results.append(TopicResult(plan.name, topic_id=plan.topic_id))
        done(results)

    def alter_topic_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool, done: Callable[[Any], None]
    ) -> None:
        self._run(partial(self._alter, changes, validate_only, done))

    def _alter(
        self, changes: Sequence[ConfigChange], validate_only: bool, done: Callable[[Any], None]
    ) -> None:
        results = []
        for change in changes:
            plan = plan_config_change(
                self.image.topic(change.topic),
                change,
                validate_topic_overrides,
                edit_topic_list,
            )
            if isinstance(plan, KafkaError):
                results.append(TopicResult.failed(change.topic, plan))
            else:
                results.append(TopicResult.of(plan))
                if not validate_only:
                    self.publish(self.image.with_topics([plan]))
        done(results)

    def alter_resource_configs(
        self, changes: Sequence[ResourceChange], validate_only: bool, done: Callable[[Any], None]
    ) -> None:
        self._run(partial(self._alter_resources, changes, validate_only, done))

    def _alter_resources(
        self, changes: Sequence[ResourceChange], validate_only: bool, done: Callable[[Any], None]
    ) -> None:
        results = []
        for change in changes:
            before = self.image.configs_of(*change.resource)
            plan = plan_change(before, change, DynamicConfig(self._config))
            results.append(plan if isinstance(plan, KafkaError) else None)
            if not isinstance(plan, KafkaError) and not validate_only:
                self.publish(self.image.with_configs({change.resource: plan}))
        done(results)

    def elect_leaders(
        self, unclean: bool, partitions: Sequence[TopicPartition], done: Callable[[Any], None]
    ) -> None:
        """test_brokers.py has the real one."""
        self._run(partial(done, [(each, None) for each in partitions]))

    def reassign(
        self, wanted: Sequence[Reassignment], factor_may_change: bool, done: Callable[[Any], None]
    ) -> None:
        """test_reassignment.py has the real one."""
        self._run(partial(done, [(each.name, None) for each in wanted]))

    def unregister_broker(self, node_id: int, done: Callable[[KafkaError | None], None]) -> None:
        """test_unregistration.py has the real one."""
        if node_id not in self.image.brokers:
            done(KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is unknown"))
            return
        others = [each for each in self.image.brokers.values() if each.node_id != node_id]
        self._run(partial(self._unregister, others, done))

    def _unregister(self, others: Sequence[BrokerImage], done: Callable[[None], None]) -> None:
        self.publish(self.image.with_brokers(others))
        done(None)

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        validate_only: bool,
        done: Callable[[KafkaError | None], None],
    ) -> None:
        try:
            levels = plan_features(self.image, updates)
        except KafkaError as error:
            done(error)
            return
        if not validate_only:
            self.publish(self.image.with_features(self.image.features.changed(levels)))
        self._run(partial(done, None))

    def alter_users(
        self, changes: Sequence[UserChange], done: Callable[[UserResults], None]
    ) -> None:
        results: UserResults = []
        for change in changes:
            before = self.image.users.get(change.name, {})
            if change.remove - before.keys():
                results.append(KafkaError(ErrorCode.RESOURCE_NOT_FOUND))
                continue
            after = {k: v for k, v in before.items() if k not in change.remove}
            self.image = self.image.with_users({change.name: {**after, **change.set}})
            results.append(None)
        done(results)

    def alter_quotas(
        self, changes: Sequence[QuotaChange], done: Callable[[UserResults], None]
    ) -> None:
        for change in changes:
            before = self.image.quota_settings(change.entity)
            after = {k: v for k, v in before.items() if k not in change.remove}
            self.image = self.image.with_quotas({change.entity: {**after, **change.set}})
        done([None for _ in changes])

    def follow(self, update: ImageUpdate, done: Callable[[ImageAnswer], None]) -> None:
        self.followed.append(update)
        done(ImageAnswer(ErrorCode.NONE, (TopicPartition("t", 3),)))

    def publish(self, image: ClusterImage) -> None:
        delta = delta_between(self.image, image)
        for topic in (*delta.created, *delta.changed):
            for partition in topic.partitions:
                self._replicas.logs.setdefault((topic.name, partition.index), FakeLog())
        self.image = image.at_version(self.image.version + 1)


class FakeProducerIds:
    def __init__(self) -> None:
        self.next = 1000
        self.broken: KafkaError | None = None

    def generate(self, done: Callable[[int | KafkaError], None]) -> None:
        if self.broken is not None:
            done(self.broken)
            return
        self.next += 1
        done(self.next - 1)


class FakeBroker:
    """The services and a client in one."""

    def __init__(self, *, brokers: int = 1, overrides: Sequence[str] = ()) -> None:
        self.config = BrokerConfig.load(None, {}, list(overrides))
        self.replicas = FakeReplicas()
        self.controller = FakeController(self.config, self.replicas, brokers)
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.purgatories = Purgatories.on(self.timer)
        self.producer_ids = FakeProducerIds()
        self.groups = GroupCoordinator(
            lambda: self.config, self.clock, self.timer.call_later, MemoryStore(), NoView()
        )
        # (replica, offset, timeout in ms, who is called when it is over)
        self.awaited: list[tuple[Any, ...]] = []
        self.services = Services(
            config=self.config,
            clock=self.clock,
            controller=self.controller,
            replicas=self.replicas,
            producer_ids=self.producer_ids,
            await_low_watermark=lambda *waiting: self.awaited.append(waiting),
            await_followers=lambda *waiting: self.awaited.append(waiting),
            wake=lambda _: None,
            purgatories=self.purgatories,
            cluster_id=CLUSTER_ID,
            node_id=NODE_ID,
            advertised=lambda request: (request.local_host, request.local_port),
            groups=self.groups,
            offsets=GroupTable(),
        )

    def elapse(self, ms: int = DELAY_MS_MAX) -> None:
        """Let time pass, for all that waits for a time."""
        self.clock.advance(ms)
        self.timer.advance()

    def create(self, *names: str, partitions: int = 1, **configs: str) -> None:
        specs = [
            NewTopic(n, partitions, 1, None, {k.replace("_", "."): v for k, v in configs.items()})
            for n in names
        ]

        def done(results: Sequence[TopicResult]) -> None:
            assert all(r.error is ErrorCode.NONE for r in results), results

        self.controller._create(specs, False, done)

    def send(self, key: int, version: int, body: bytes, **fields: Any) -> FakeRequest:
        request = FakeRequest(key, version, body, **fields)
        REGISTRY.dispatch(self.services, request)
        return request

    def call(self, entity: Any, **fields: Any) -> Any:
        """The decoded answer to a request."""
        return answer_of(self.ask(entity, **fields))

    def ask(self, entity: Any, **fields: Any) -> FakeRequest:
        return self.send(entity.__api_key__, entity.__version__, written(entity), **fields)


def written(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def answer_of(request: FakeRequest) -> Any:
    """What a client makes of the answer; all of it must be used up."""
    assert request.closed is None, request.closed
    assert request.answer is not None, "no answer"
    module = schemas.response_module(request.api_key, request.api_version)
    entity_class = getattr(module, f"{ApiKey(request.api_key).label}Response")
    entity, size = entity_reader(entity_class)(request.answer, 0)
    assert size == len(request.answer)
    return entity


def request_of(key: ApiKey, version: int, /, **fields: Any) -> Any:
    """kio's request of this API and version."""
    assert api_key_map[key] == key.name.lower()
    module = schemas.request_module(key, version)
    return getattr(module, f"{key.label}Request")(**fields)


def part_of(key: ApiKey, version: int, structure: str, /, **fields: Any) -> Any:
    """A structure inside such a request."""
    return getattr(schemas.request_module(key, version), structure)(**fields)


def changed(image: Any, **fields: Any) -> Any:
    """A copy of a piece of an image with some fields changed."""
    return dataclasses.replace(image, **fields)
