"""A controller with everything around it faked but the store, and ways to make things go wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError, MetadataStoreError
from kbroker.metadata.controller import (
    ConfigChange,
    Controller,
    MorePartitions,
    NewTopic,
    TopicResult,
)
from kbroker.metadata.controller.parts import Listeners, Rules, Session
from kbroker.metadata.controller.producer_ids import ProducerIdBlock
from kbroker.metadata.image import BrokerImage, ClusterImage, ImageDelta, TopicImage
from kbroker.metadata.store.base import (
    MetadataStore,
    Node,
    Operation,
    SessionCallback,
    StoreUnavailableError,
    Watch,
    WatchCallback,
    WatchKind,
)
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.types import TopicPartition

WAIT_S = 60.0
SETTINGS = {
    "num.partitions": 3,
    "default.replication.factor": 1,
    "zookeeper.session.timeout.ms": 6_000,
}


def validate_configs(configs: Mapping[str, str]) -> None:
    """In place of kbroker.config: every key with 'bad' in it is unknown."""
    for name in configs:
        if "bad" in name:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown topic config {name}")


def edit_list(configs: Mapping[str, str], name: str, parts: str, add: bool) -> str:
    """In place of kbroker.config: the text before, a sign and the parts."""
    return f"{configs.get(name, '')}{'+' if add else '-'}{parts}"


class FakeReplicas:
    """In place of the replica manager: idempotent, keeps logs over restarts, fails on demand."""

    def __init__(self) -> None:
        self.logs: dict[UUID, str] = {}
        self.calls: list[ImageDelta] = []
        self.fail_on: Callable[[str], Exception | None] = lambda name: None
        self.fail_on_delete: Callable[[str], Exception | None] = lambda name: None
        self.published: Callable[[], ClusterImage] = ClusterImage
        self.seen_early: list[str] = []
        self.thread_names: set[str] = set()
        self.offline: list[TopicPartition] = []
        self.removing: set[UUID] = set()  # a disk does not answer

    @property
    def deleted_last(self) -> tuple[TopicImage, ...]:
        return next((call.deleted for call in reversed(self.calls) if call.deleted), ())

    def apply(self, image: ClusterImage, delta: ImageDelta) -> list[TopicPartition]:
        self.calls.append(delta)
        self.thread_names.add(threading.current_thread().name)
        for topic in delta.deleted:
            error = self.fail_on_delete(topic.name)
            if error is not None:
                raise error
            self.logs.pop(topic.topic_id, None)
        for topic in (*delta.created, *delta.changed, *delta.reconfigured):
            # No client may see a topic before its log is open.
            if topic.topic_id not in self.logs and topic.topic_id in self.published().topic_ids:
                self.seen_early.append(topic.name)
            error = self.fail_on(topic.name)
            if error is not None:
                raise error
            self.logs[topic.topic_id] = topic.name
        opened = {topic.name for topic in (*delta.created, *delta.changed)}
        return [name for name in self.offline if name.topic in opened]


class FaultyStore(MetadataStore):
    """Passes everything on, until the process 'dies': at one write, before or after its commit.

    From then on nothing goes through any more, as for a process that is gone.
    """

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.writes = 0
        self.die_at: int | None = None
        self.die_after_commit = False
        self.down = False

    @property
    def session_id(self) -> int:
        return self.store.session_id

    def new_session(self) -> MetadataStore:
        return self._alive().new_session()

    def _alive(self) -> MetadataStore:
        if self.down:
            raise StoreUnavailableError("", "injected")
        return self.store

    def get(self, path: str) -> Node:
        return self._alive().get(path)

    def exists(self, path: str) -> bool:
        return self._alive().exists(path)

    def children(self, path: str) -> list[str]:
        return self._alive().children(path)

    def children_data(self, path: str) -> dict[str, Node]:
        return self._alive().children_data(path)

    def get_many(self, paths: Sequence[str]) -> dict[str, Node]:
        return self._alive().get_many(paths)

    def multi(self, operations: Sequence[Operation]) -> list[int]:
        store = self._alive()
        self.writes += 1
        if self.writes != self.die_at:
            return store.multi(operations)
        if self.die_after_commit:
            store.multi(operations)
        self.down = True
        raise StoreUnavailableError("", "injected")

    def watch(
        self, path: str, kind: WatchKind, callback: WatchCallback, *, persistent: bool = False
    ) -> Watch:
        return self._alive().watch(path, kind, callback, persistent=persistent)

    def on_session_event(self, callback: SessionCallback) -> None:
        self._alive().on_session_event(callback)

    def close(self) -> None:
        self.store.close()


class OneBroker:
    """A broker's metadata half on a directory: start, ask, stop, start again."""

    def __init__(self, directory: Path, node_id: int = 0) -> None:
        self.directory = directory
        self.node_id = node_id
        self.clock = ManualClock()
        self.replicas = FakeReplicas()
        self.settings: dict[str, int] = dict(SETTINGS)
        self.store_is_away = False  # for new sessions
        self.session_failure: Exception | None = None  # in a way that no store has

    def start(self, store: EmbeddedStore | None = None, **options: Any) -> Controller:
        self.embedded = store or EmbeddedStore.open(self.directory)
        self.store = FaultyStore(self.embedded)
        given: dict[str, Any] = {
            "store": self.store,
            "broker": BrokerImage(self.node_id),
            "clock": self.clock,
            "config": self.settings,
            "validate_configs": validate_configs,
            "edit_list": edit_list,
            "apply": self.replicas.apply,
            "removing": lambda: self.replicas.removing,
            **options,
        }
        parts = [
            part(**{each.name: given.pop(each.name) for each in fields(part) if each.name in given})
            for part in (Session, Rules, Listeners)
        ]
        assert not given, given
        self.controller = Controller(*parts)
        self.replicas.published = lambda: self.controller.image
        try:
            self.controller.start()
        except BaseException:
            self.embedded.close()
            raise
        return self.controller

    def next_session(self) -> FaultyStore:
        """As a broker of a cluster begins one after one that is over."""
        if self.store_is_away:
            raise MetadataStoreError("no server answers", "wait")
        if self.session_failure is not None:
            raise self.session_failure
        self.embedded.close()
        self.embedded = self.embedded.new_session()
        self.store = FaultyStore(self.embedded)
        return self.store

    def stop(self) -> None:
        self.controller.stop()
        self.embedded.close()

    def restart(self, **options: Any) -> Controller:
        self.stop()
        return self.start(**options)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def create(self, *specs: NewTopic | str, validate_only: bool = False) -> list[TopicResult]:
        topics = [NewTopic(spec) if isinstance(spec, str) else spec for spec in specs]
        return wait(lambda done: self.controller.create_topics(topics, validate_only, done))

    def grow(self, *wanted: MorePartitions, validate_only: bool = False) -> list[TopicResult]:
        return wait(lambda done: self.controller.create_partitions(wanted, validate_only, done))

    def delete(self, *topics: str | UUID) -> list[TopicResult]:
        return wait(lambda done: self.controller.delete_topics(topics, done))

    def alter(self, *changes: ConfigChange, validate_only: bool = False) -> list[TopicResult]:
        return wait(lambda done: self.controller.alter_topic_configs(changes, validate_only, done))

    def take_ids(self, count: int) -> ProducerIdBlock:
        block = wait(lambda done: self.controller.allocate_producer_ids(count, done))
        if isinstance(block, KafkaError):
            raise block
        return block


def wait(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """Ask, and return what the callback was given; it must be called exactly once."""
    answered = threading.Event()
    answers: list[Any] = []

    def done(answer: Any) -> None:
        answers.append(answer)
        answered.set()

    ask(done)
    if not answered.wait(WAIT_S):
        raise TimeoutError("no answer")
    assert len(answers) == 1
    return answers[0]


def eventually(holds: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(int(WAIT_S * 200)):
        if holds():
            return
        tick.wait(0.005)
    raise TimeoutError("never came")


def codes(results: Sequence[TopicResult]) -> list[ErrorCode]:
    return [result.error for result in results]
