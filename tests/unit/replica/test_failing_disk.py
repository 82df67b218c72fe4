"""One file operation after the other fails, in everything that is done beside the appends.

A round of checkpoints, records that are deleted, a topic that is deleted, one that is made, a start
that goes no further: each is done once to count its operations, then once more for each of them,
which fails; and a number of times with several that fail at random. After it the broker is killed,
or stopped, and started on a disk that works. Acknowledged records must be there, in order, once;
nothing that was deleted may come back.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.config.topic import TopicConfig
from kbroker.errors import KafkaError, UserError
from kbroker.log.manager import LogManager
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.image import BrokerImage, ClusterImage, ImageDelta, TopicImage, new_uuid
from kbroker.replica import manager
from kbroker.replica._replica import Replica
from kbroker.replica._topic_table import TopicTable
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.replica.manager import ReplicaManager, log_settings
from kbroker.testing.file_faults import Fault, FileFaults, Seen
from kbroker.types import TopicPartition
from tests.support import memory
from tests.support.record_batches import build_batch, parse_batches

NODE_ID = 1
RECORDS = 8
CONFIGS = {"file.delete.delay.ms": "0"}
SEGMENT_BYTES = 200  # two of the records; less than a topic may ask for
CUT = TopicPartition("kept", 0)
ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE)
RANDOM_ROUNDS = 25


class World:
    """A broker's logs, its requests, and its answers."""

    def __init__(self, path: Path, topics: tuple[TopicImage, ...], deleted_up_to: int) -> None:
        self.path = path
        self.topics = {topic.name: topic for topic in topics}
        self.deleted_up_to = deleted_up_to  # as acknowledged; of CUT
        self.asked_up_to = deleted_up_to
        self.removed: dict[str, TopicImage] = {}  # the store has a tombstone
        self.build()

    def build(self) -> None:
        held = HeldReplicas(lambda replica: None)
        self.logs = LogManager(
            [self.path / "one", self.path / "two"], clock=ManualClock(), listener=held
        )
        config = BrokerConfig.load(None, {}, [])
        self.replicas = ReplicaManager(config, NODE_ID, self.logs, TopicTable(), held)

    @property
    def image(self) -> ClusterImage:
        image = ClusterImage().with_brokers([BrokerImage(NODE_ID)])
        return image.with_topics(self.topics.values())

    def start(self) -> None:
        """As the store has it: finishes deletions, opens the rest."""
        self.logs.start()
        self.replicas.apply(self.image, self.stored())

    def stored(self) -> ImageDelta:
        return ImageDelta(
            deleted=tuple(self.removed.values()),
            created=tuple(self.topics.values()),
            from_store=True,
        )

    def at(self, path: Path) -> World:
        """The same, for another process, on a copy of the files or on the same."""
        other = World(path, tuple(self.topics.values()), self.deleted_up_to)
        other.asked_up_to, other.removed = self.asked_up_to, dict(self.removed)
        return other


# --- What is done on a disk that fails ------------------------------------------------------------


def checkpoint(world: World) -> None:
    for work in (
        world.logs.checkpoint, world.logs.checkpoint_recovery_points, world.logs.remove_deleted,
    ):  # fmt: skip
        for _ in work():
            pass


def delete_records(world: World) -> None:
    world.asked_up_to = 5
    if world.replicas.delete_records({CUT: 5})[CUT] == 5:
        world.deleted_up_to = 5
    checkpoint(world)


def delete_topic(world: World) -> None:
    topic = world.topics.pop("gone")
    world.removed["gone"] = topic
    world.replicas.apply(world.image, ImageDelta(deleted=(topic,)))
    del world.removed["gone"]


def create_topic(world: World) -> None:
    topic = new_topic_image("new", new_uuid(), [(NODE_ID,)] * 2, CONFIGS)
    world.topics["new"] = topic
    try:
        world.replicas.apply(world.image, ImageDelta(created=(topic,)))
    except (KafkaError, OSError):
        world.removed["new"] = world.topics.pop("new")  # the controller takes it back
        raise


def stop(world: World) -> None:
    world.logs.stop()


def start_in_vain(world: World) -> None:
    world.logs.stop()
    world.build()
    try:
        world.start()
    finally:
        world.logs.stop(as_found=True)


DEEDS = (checkpoint, delete_records, delete_topic, create_topic, stop, start_in_vain)


# --- The test -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def small_segments() -> Iterator[None]:
    def small(config: TopicConfig, replicas: int) -> dict[str, Any]:
        return {**log_settings(config, replicas), "segment_bytes": SEGMENT_BYTES}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manager, "log_settings", small)
        yield


@pytest.fixture
def place() -> Iterator[Path]:
    with memory.directory() as made:
        yield made


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two topics in two directories, stopped cleanly; some records of one are deleted."""
    topics = tuple(
        new_topic_image(name, new_uuid(), [(NODE_ID,)] * 2, CONFIGS) for name in ("kept", "gone")
    )
    world = World(tmp_path_factory.mktemp("seed") / "data", topics, 3)
    world.logs.start()
    world.replicas.apply(world.image, ImageDelta(created=topics))
    for log in world.replicas.replicas().values():
        for number in range(RECORDS):
            log.append(build_batch([b"%d" % number]))
    assert world.replicas.delete_records({CUT: 3}) == {CUT: 3}
    checkpoint(world)
    world.logs.stop()
    return world


def fresh(seed: World, path: Path) -> World:
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(seed.path, path / "data")
    world = seed.at(path / "data")
    world.start()
    for name, log in world.replicas.replicas().items():
        if name.topic == "kept":
            log.append(build_batch([b"%d" % RECORDS]))
    return world


def run(world: World, deed: Callable[[World], None], *faults: Fault) -> list[Seen]:
    with FileFaults(*faults) as seen:
        try:
            deed(world)
        except (KafkaError, OSError, UserError):
            assert faults
    return seen.seen


def check(world: World) -> None:
    """A start on a disk that works, and a stop; the other end is looked at before."""
    world.start()
    try:
        logs = world.replicas.replicas()
        assert {name.topic for name in logs} == world.topics.keys()
        for name, log in logs.items():
            if name.topic == "new":
                assert log.log_end_offset == 0
                continue
            low, high = (world.deleted_up_to, world.asked_up_to) if name == CUT else (0, 0)
            assert low <= log.log_start_offset <= high
            first, count = log.log_start_offset, RECORDS + (name.topic == "kept")
            assert stored(log) == [(n, b"%d" % n) for n in range(first, count)], name
            assert log.log_end_offset == count
        for path in (*world.path.glob("one/*-?"), *world.path.glob("two/*-?")):
            # A log that could not be begun, nor removed, is left without an id and without records.
            empty = all(file.stat().st_size == 0 for file in path.glob("*.log"))
            unnamed = empty and not (path / "partition.metadata").exists()
            assert path.name.rpartition("-")[0] in world.topics or unnamed
    finally:
        world.logs.stop()


def stored(log: Replica) -> list[tuple[int, bytes | None]]:
    """Every batch of one record, with its value."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        batches = parse_batches(log.read(offset))
        assert batches
        found += [(batch.base_offset, batch.records[0].value) for batch in batches]
        offset = found[-1][0] + 1
    return found


def check_both_ends(world: World, path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(world.path, path)  # what kill -9 leaves
    world.logs.stop()
    check(world.at(path))
    check(world.at(world.path))
    check(world.at(world.path))  # and what the second start has left


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_each_operation_in_turn(seed: World, place: Path, deed: Callable[[World], None]) -> None:
    world = fresh(seed, place / "counted")
    done = run(world, deed)
    assert len(done) > 3
    check_both_ends(world, place / "killed")
    for nth, seen in enumerate(done, start=1):
        fault = Fault(nth=nth, error=ERRORS[nth % len(ERRORS)])
        if seen.operation == "write" and nth % 2:
            fault = Fault(nth=nth, bytes_max=3)
        world = fresh(seed, place / "world")
        run(world, deed, fault)
        check_both_ends(world, place / "killed")


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_several_at_random(seed: World, place: Path, deed: Callable[[World], None]) -> None:
    world = fresh(seed, place / "counted")
    count = len(run(world, deed))
    world.logs.stop()
    choose = random.Random(deed.__name__)
    for _ in range(RANDOM_ROUNDS):
        faults = [
            Fault(nth=choose.randint(1, count), times=choose.choice((1, 1, 2, 50)),
                  error=choose.choice(ERRORS))
            for _ in range(choose.randint(1, 3))
        ]  # fmt: skip
        world = fresh(seed, place / "world")
        run(world, deed, *faults)
        check_both_ends(world, place / "killed")
