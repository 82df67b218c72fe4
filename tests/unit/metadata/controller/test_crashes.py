"""A controller that dies at every step, and the next one that goes on from there.

The 'death' is a store that lets one write through (or not) and nothing after it; the replica
manager's logs survive, as directories do. Whatever the moment: a topic is whole or gone, nothing
acknowledged is lost, and the logs are exactly those of the topics. The last test does it for real,
with a process that is killed.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller import ConfigChange, NewTopic, nodes, records
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.store.embedded import EmbeddedStore
from tests.unit.metadata.controller.harness import OneBroker

ROOT = Path(__file__).parents[4]
OK = ErrorCode.NONE


@pytest.fixture
def small_multis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are cut into many multis, as those of huge topics are."""
    monkeypatch.setattr(nodes, "MULTI_BYTES_MAX", 250)


def check_consistent(broker: OneBroker) -> None:
    image = broker.image
    assert set(broker.replicas.logs) == set(image.topic_ids)
    assert broker.embedded.children(records.TOPICS) == sorted(image.topics)
    assert broker.embedded.children(records.TOPIC_CONFIGS) == sorted(image.topics)
    assert broker.embedded.children(records.DELETED_TOPICS) == []
    for topic in image.topics.values():
        indexes = broker.embedded.children(records.partitions_path(topic.name))
        paths = {records.partition_state_path(topic.name, int(each)): each for each in indexes}
        stored = broker.embedded.get_many(list(paths))
        assert {int(paths[path]): node.version for path, node in stored.items()} == {
            each.index: each.partition_epoch for each in topic.partitions
        }
        assert [each.leader for each in topic.partitions] == [0] * len(topic.partitions)


def die_at_every_step(
    tmp_path: Path, act: Callable[[OneBroker], None], check: Callable[[OneBroker], None]
) -> int:
    """Run `act` on a broker with topics 'a' and 'b', dying one write later each time."""
    for step in itertools.count(1):
        for after_commit in (False, True):
            broker = OneBroker(tmp_path / f"{step}-{after_commit}")
            broker.start()
            broker.create(NewTopic("a", 4, 1, configs={"k": "1"}), NewTopic("b", 2, 1))
            broker.store.die_at = broker.store.writes + step
            broker.store.die_after_commit = after_commit
            act(broker)
            survived = not broker.store.down
            broker.stop()
            broker.start()
            check_consistent(broker)
            check(broker)
            broker.stop()
        if survived:
            return step
    raise AssertionError("unreachable")


@pytest.mark.usefixtures("small_multis")
def test_creation_cut_anywhere_leaves_whole_topics(tmp_path: Path) -> None:
    def act(broker: OneBroker) -> None:
        broker.create(NewTopic("c", 5, 1, configs={"k": "v"}), NewTopic("d", 3, 1))

    def check(broker: OneBroker) -> None:
        topics = broker.image.topics
        assert {"a", "b"} <= set(topics)
        if "c" in topics:
            assert (len(topics["c"].partitions), dict(topics["c"].configs)) == (5, {"k": "v"})
        if "d" in topics:
            assert "c" in topics and len(topics["d"].partitions) == 3

    assert die_at_every_step(tmp_path, act, check) > 4


@pytest.mark.usefixtures("small_multis")
def test_deletion_cut_anywhere_is_finished_or_has_not_begun(tmp_path: Path) -> None:
    def act(broker: OneBroker) -> None:
        broker.delete("a", "b")

    def check(broker: OneBroker) -> None:
        topics = broker.image.topics
        assert set(topics) in ({"a", "b"}, {"b"}, set())
        if "a" in topics:
            assert (len(topics["a"].partitions), dict(topics["a"].configs)) == (4, {"k": "1"})

    assert die_at_every_step(tmp_path, act, check) > 4


def test_a_rollback_cut_anywhere_leaves_whole_topics(tmp_path: Path) -> None:
    def act(broker: OneBroker) -> None:
        broker.replicas.fail_on = lambda name: RuntimeError("injected") if name == "c" else None
        broker.create("c", "d")
        broker.replicas.fail_on = lambda name: None

    assert die_at_every_step(tmp_path, act, lambda broker: None) > 2


def test_the_logs_of_a_deletion_cut_short_are_removed_at_the_next_start(tmp_path: Path) -> None:
    """Died between the store's write and the removal: only the tombstone knows."""
    broker = OneBroker(tmp_path)
    broker.start()
    broker.create(NewTopic("a", 4, 1))
    topic = broker.image.topics["a"]
    broker.replicas.fail_on_delete = lambda name: RuntimeError("the process is gone")
    broker.store.die_at = broker.store.writes + 2
    broker.delete("a")
    broker.stop()
    assert broker.replicas.logs == {topic.topic_id: "a"}
    broker.replicas.fail_on_delete = lambda name: None
    broker.start()
    assert broker.replicas.logs == {}
    check_consistent(broker)
    broker.stop()


@pytest.mark.parametrize("step", [1, 3, 5, 6])
def test_a_damaged_tombstone_costs_a_line_and_its_topic_does_not_come_back(
    tmp_path: Path, step: int, small_multis: None, caplog: pytest.LogCaptureFixture
) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    broker.create(NewTopic("a", 4, 1))
    broker.create("b")
    topic = broker.image.topics["a"]
    broker.replicas.fail_on_delete = lambda name: RuntimeError("the process is gone")
    broker.store.die_at = broker.store.writes + step + 1
    broker.delete("a")
    broker.stop()
    broker.replicas.fail_on_delete = lambda name: None
    store = EmbeddedStore.open(tmp_path)
    is_left = store.exists(records.topic_path("a"))
    store.set(records.tombstone_path(topic.topic_id), b"{")
    store.create(f"{records.DELETED_TOPICS}/of-no-topic", b"{}")
    store.close()
    broker.start()
    assert [*broker.image.topics] == ["b"]
    said = [each.getMessage() for each in caplog.records if "not finished" in each.getMessage()]
    assert sum("of-no-topic" in line for line in said) == 1
    assert broker.embedded.exists(records.tombstone_path(topic.topic_id)) is not is_left
    assert (topic.topic_id in broker.replicas.logs) is not is_left
    broker.stop()


def test_new_epochs_cut_short_never_go_back(tmp_path: Path, small_multis: None) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    broker.create(NewTopic("a", 6, 1))
    floor = [0] * 6
    for _ in range(4):
        broker.restart(new_epochs_at_start=True)
        epochs = [each.leader_epoch for each in broker.image.topics["a"].partitions]
        assert all(new > old for new, old in zip(epochs, floor, strict=True))
        floor = epochs
    broker.stop()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("small_multis")
def test_random_histories_with_random_deaths(tmp_path: Path, seed: int) -> None:
    """What was acknowledged is what there is; what was refused may be either."""
    rng = random.Random(seed)
    broker = OneBroker(tmp_path)
    broker.start()
    names = ["a", "b.c", "d_e", "f"]
    certain: dict[str, tuple[int, dict[str, str]] | None] = dict.fromkeys(names)
    ids_taken = -1
    old_ids: set[object] = set()
    for _ in range(40):
        name = rng.choice(names)
        match rng.randrange(6):
            case 0 | 1:
                partitions, configs = rng.randint(1, 5), {"k": str(rng.random())}
                (result,) = broker.create(NewTopic(name, partitions, 1, configs=configs))
                if result.error is OK:
                    assert certain.get(name) is None
                    assert result.topic_id not in old_ids
                    old_ids.add(result.topic_id)
                    certain[name] = (partitions, configs)
                elif result.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    certain.pop(name, None)
            case 2:
                (result,) = broker.delete(name)
                if result.error is OK:
                    certain[name] = None
                elif result.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    certain.pop(name, None)
            case 3:
                (result,) = broker.alter(ConfigChange(name, set={"k": "new"}))
                if result.error is OK:
                    known = certain.get(name)
                    if known is not None:
                        certain[name] = (known[0], {"k": "new"})
                elif result.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    certain.pop(name, None)
            case 4:
                try:
                    block = broker.take_ids(rng.randint(1, 50))
                except KafkaError:
                    pass
                else:
                    assert block.first > ids_taken
                    ids_taken = block.first + block.size - 1
            case 5:
                broker.store.die_at = broker.store.writes + rng.randint(1, 6)
                broker.store.die_after_commit = rng.random() < 0.5
        if broker.store.down or rng.random() < 0.05:
            broker.restart()
            check_consistent(broker)
            check_certain(broker.image, certain)
    broker.store.die_at = None
    broker.restart()
    check_consistent(broker)
    check_certain(broker.image, certain)
    broker.stop()


def check_certain(
    image: ClusterImage, certain: dict[str, tuple[int, dict[str, str]] | None]
) -> None:
    for name, expected in certain.items():
        topic = image.topic(name)
        found = None if topic is None else (len(topic.partitions), dict(topic.configs))
        assert found == expected, name


WORKER = """
import json, sys, threading
from kbroker.clock import SystemClock
from kbroker.metadata.controller import ConfigChange, Controller, NewTopic
from kbroker.metadata.controller.parts import Listeners, Rules, Session
from kbroker.metadata.image import BrokerImage
from kbroker.metadata.store.embedded import EmbeddedStore

store = EmbeddedStore.open(sys.argv[1])
rules = Rules(
    config={"num.partitions": 1, "default.replication.factor": 1},
    validate_configs=lambda configs: None, edit_list=lambda configs, name, parts, add: parts,
)
session = Session(store=store, broker=BrokerImage(0), clock=SystemClock())
controller = Controller(session, rules, Listeners(apply=lambda image, delta: []))
controller.start()
print(json.dumps(["cluster", controller.image.cluster_id]), flush=True)

def ask(method, *arguments):
    answered, answers = threading.Event(), []
    method(*arguments, lambda answer: (answers.append(answer), answered.set()))
    answered.wait()
    return answers[0]

for number in range(100_000):
    name = f"t{number % 7}"
    (result,) = ask(controller.delete_topics, [name])
    if not result.error:
        print(json.dumps(["deleted", name]), flush=True)
    (result,) = ask(controller.create_topics, [NewTopic(name, 3, 1)], False)
    print(json.dumps(["created", name, str(result.topic_id), int(result.error)]), flush=True)
    change = ConfigChange(name, set={"k": str(number)})
    ask(controller.alter_topic_configs, [change], False)
    print(json.dumps(["altered", name, str(number)]), flush=True)
    block = ask(controller.allocate_producer_ids, 10)
    print(json.dumps(["ids", block.first]), flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_loses_no_acknowledged_topic_config_or_id(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    topics: dict[str, str] = {}
    configs: dict[str, str] = {}
    ids_seen: list[int] = []
    cluster_ids: set[str] = set()
    last = ""
    for _ in range(2):
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert worker.stdout is not None
        lines = [worker.stdout.readline() for _ in range(rng.randrange(5, 150))]
        worker.send_signal(signal.SIGKILL)
        lines += worker.communicate()[0].splitlines()
        for kind, first, *rest in map(json.loads, lines):
            if kind == "cluster":
                cluster_ids.add(first)
            elif kind == "ids":
                ids_seen.append(first)
            elif kind == "altered":
                configs[first] = rest[0]
            elif kind == "deleted":
                topics.pop(first, None)
                configs.pop(first, None)
            else:
                assert rest[1] == 0
                topics[first] = rest[0]
            if kind in ("altered", "created", "deleted"):
                last = first
        broker = OneBroker(tmp_path)
        broker.start()
        cluster_ids.add(broker.image.cluster_id)
        ids_seen.append(broker.take_ids(10).first)
        # The request in flight at the end may or may not have been done. It was about the last
        # name that was acknowledged, or the one after it; every other topic is as it was said.
        in_flight = {last, f"t{(int(last[1:]) + 1) % 7}"}
        for name in (f"t{number}" for number in range(7)):
            topic = broker.image.topic(name)
            if topic is not None:
                assert len(topic.partitions) == 3
            if name not in in_flight:
                assert topics.get(name) == (None if topic is None else str(topic.topic_id))
                assert configs.get(name) == (None if topic is None else topic.configs.get("k"))
            topics.pop(name, None)
            configs.pop(name, None)
            if topic is not None:
                topics[name], configs[name] = str(topic.topic_id), topic.configs.get("k", "")
        broker.stop()
    assert ids_seen == sorted(set(ids_seen))
    assert all(b - a >= 10 for a, b in itertools.pairwise(ids_seen))
    assert len(cluster_ids) == 1
