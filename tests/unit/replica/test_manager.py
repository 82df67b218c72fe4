"""The replica manager on real logs: partitions that are added, records that are deleted."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine.checkpoints import LOG_START_FILE, read_offsets
from kbroker.log.manager import LogManager
from kbroker.log.opening.recoveries import Recover
from kbroker.log.opening.recovery import Recovery
from kbroker.metadata.controller.decisions import first_partition_state, new_topic_image
from kbroker.metadata.image import BrokerImage, ClusterImage, ImageDelta, TopicImage, new_uuid
from kbroker.replica._replica import Replica
from kbroker.replica._topic_table import TopicTable
from kbroker.replica.held_replicas import HeldReplicas
from kbroker.replica.manager import ReplicaManager
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch

NODE_ID = 1


class Held:
    """What a broker has of replicas."""

    def __init__(self, path: Path) -> None:
        self.path = path / "data"
        self.image = ClusterImage().with_brokers([BrokerImage(NODE_ID)])
        self._start()

    def _start(self, *, recover: Recover = Recovery.finish) -> None:
        self.clock = ManualClock()
        held = HeldReplicas(self._wake)
        self.logs = LogManager([self.path], clock=self.clock, listener=held)
        self.logs.start(recover=recover)
        self.woken: list[TopicPartition] = []
        self.online_when_woken: list[bool] = []
        self.replicas = ReplicaManager(
            BrokerConfig.load(None, {}, []), NODE_ID, self.logs, TopicTable(), held
        )

    def restart(self, *, as_found: bool = False, recover: Recover = Recovery.finish) -> None:
        """With nothing applied yet. `as_found`: as after a crash."""
        self.logs.stop(as_found=as_found)
        self._start(recover=recover)

    def _wake(self, log: Replica) -> None:
        self.woken.append(log.name)
        self.online_when_woken.append(log.online)

    def create(self, name: str, partitions: int) -> TopicImage:
        topic = new_topic_image(name, new_uuid(), [(NODE_ID,)] * partitions, {})
        self.image = self.image.with_topics([topic])
        self.replicas.apply(self.image, ImageDelta(created=(topic,)))
        return topic

    def delete(self, *topics: TopicImage) -> None:
        self.image = self.image.without_topics([topic.name for topic in topics])
        self.replicas.apply(self.image, ImageDelta(deleted=topics))

    def grow(self, *topics: tuple[TopicImage, int]) -> list[TopicImage]:
        grown = [
            replace(
                topic,
                partitions=(
                    *topic.partitions,
                    *(
                        first_partition_state(topic.name, index, (NODE_ID,))
                        for index in range(len(topic.partitions), count)
                    ),
                ),
            )
            for topic, count in topics
        ]
        image = self.image.with_topics(grown)
        self.replicas.apply(image, ImageDelta(changed=tuple(grown)))
        self.image = image
        return grown

    def log(self, name: str, index: int) -> Replica:
        log = self.replicas.partition(name, index)
        assert log is not None
        return log


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    made = Held(tmp_path)
    yield made
    made.logs.stop()


def test_added_partitions_take_records_and_the_old_ones_stay_open(held: Held) -> None:
    topic = held.create("a", 2)
    old = held.log("a", 1)
    old.append(build_batch())
    held.grow((topic, 4))
    assert held.log("a", 1) is old and old.log_end_offset == 1
    assert held.log("a", 3).append(build_batch()).base_offset == 0
    assert held.replicas.statistics()["partitions"] == 4
    held.grow((topic, 4))  # again is nothing
    assert held.log("a", 3).log_end_offset == 1


@pytest.mark.parametrize(("sent", "own", "used"), [(0, 1, 1), (2, 1, 2), (2, 3, 3)])
def test_no_fewer_need_to_be_in_sync_than_the_controller_says(
    held: Held, sent: int, own: int, used: int
) -> None:
    """By its number others are eligible, and it may be another than that of our settings."""
    topic = held.create("a", 1).with_configs({"min.insync.replicas": str(own)})
    three = replace(topic.partitions[0], replicas=(NODE_ID, 2, 3), min_in_sync=sent)
    topic = replace(topic, partitions=(three,))
    image = held.image.with_topics([topic])
    held.replicas.apply(image, ImageDelta(changed=(topic,)))
    assert held.log("a", 0).log.min_insync_replicas == used
    held.replicas.apply(image, ImageDelta(reconfigured=(topic,)))
    log = held.log("a", 0)
    assert log.log.min_insync_replicas == used
    # In sync alone: with more that are needed a record is not committed.
    log.append(build_batch())
    assert log.high_watermark == (1 if used == 1 else 0)


def test_a_log_that_cannot_be_opened_leaves_all_as_it_was(held: Held) -> None:
    one, two = held.create("a", 1), held.create("b", 1)
    (held.path / "b-2").write_text("in the way")
    with pytest.raises(KafkaError) as caught:
        held.grow((one, 3), (two, 3))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    for name in ("a", "b"):
        assert held.log(name, 0).append(build_batch()).base_offset == 0
        assert held.replicas.partition(name, 1) is None
    held.grow((one, 3))  # what was closed can be opened
    (held.path / "b-2").unlink()
    held.grow((two, 3))
    assert held.log("b", 2).online and held.log("a", 2).online


def test_deleted_records_are_on_file_and_waiters_are_woken(held: Held) -> None:
    held.create("a", 2)
    for _ in range(5):
        held.log("a", 0).append(build_batch())
    first, second, none = (TopicPartition("a", index) for index in (0, 1, 7))
    results = held.replicas.delete_records({second: 1, first: 3, none: 0})
    assert results[first] == 3
    for name, code in (
        (second, ErrorCode.OFFSET_OUT_OF_RANGE),
        (none, ErrorCode.KAFKA_STORAGE_ERROR),
    ):
        error = results[name]
        assert isinstance(error, KafkaError) and error.code is code
    assert held.woken == [first]
    assert read_offsets(held.path / LOG_START_FILE) == {first: 3}


def test_a_start_that_cannot_be_written_is_an_error_and_holds_all_the_same(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.create("a", 1)
    held.log("a", 0).append(build_batch())
    name = TopicPartition("a", 0)

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(28, "disk full")

    with monkeypatch.context() as patch:
        patch.setattr("kbroker.log.opening.data_directory.write_offsets", fail)
        error = held.replicas.delete_records({name: -1})[name]
    assert isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert held.log("a", 0).log_start_offset == 1  # published; asked again it is on file
    assert held.replicas.delete_records({name: 0}) == {name: 1}
    assert read_offsets(held.path / LOG_START_FILE) == {name: 1}


def test_a_start_is_on_file_or_its_partition_has_an_error(tmp_path: Path) -> None:
    """Of several directories one fails between the move of the start and its checkpoint; and a log
    may be closed there."""
    paths = [tmp_path / name for name in ("one", "two", "three")]
    held = HeldReplicas(lambda _: None)
    logs = LogManager(paths, clock=ManualClock(), listener=held)
    logs.start()
    replicas = ReplicaManager(BrokerConfig.load(None, {}, []), NODE_ID, logs, TopicTable(), held)
    topic = new_topic_image("a", new_uuid(), [(NODE_ID,)] * 3, {})
    replicas.apply(ClusterImage().with_topics([topic]), ImageDelta(created=(topic,)))
    found = [replicas.partition("a", index) for index in range(3)]
    for each in found:
        assert each is not None
        each.append(build_batch())
    by_path = {each.log.path.parent: each for each in found if each is not None}
    kept, lost, closed = (by_path[path] for path in paths)
    (directory,) = (each for each in logs.usable if each.path == paths[1])
    directory.failed = True
    logs.close(closed.log)
    failed = logs.checkpointing.write_log_starts([each.log for each in by_path.values()])
    assert failed.keys() == {lost.name, closed.name}
    results = replicas.delete_records({kept.name: 1, lost.name: 1})
    assert results[kept.name] == 1
    error = results[lost.name]
    assert isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert read_offsets(paths[0] / LOG_START_FILE) == {kept.name: 1}
    assert not (paths[1] / LOG_START_FILE).exists()
    logs.stop()


def test_a_new_replica_begins_where_there_is_a_directory_that_works(tmp_path: Path) -> None:
    """At a broker that gets it from the controller. Others of the topic are read as before."""
    paths = [tmp_path / name for name in ("one", "two")]
    held = HeldReplicas(lambda _: None)
    logs = LogManager(paths, clock=ManualClock(), listener=held)
    logs.start()
    replicas = ReplicaManager(BrokerConfig.load(None, {}, []), NODE_ID, logs, TopicTable(), held)
    (broken,) = (each for each in logs.usable if each.path == paths[0])
    broken.failed = True
    topic = new_topic_image("a", new_uuid(), [(NODE_ID,)] * 2, {})
    old, new = TopicPartition("a", 0), TopicPartition("a", 1)
    delta = ImageDelta(created=(topic,), from_store=True, new=frozenset([new]))
    assert replicas.apply(ClusterImage().with_topics([topic]), delta) == [old]
    replica = replicas.partition(*new)
    assert replica is not None and replica.log.path.parent == paths[1]
    logs.stop()


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if entry.is_dir()}


def test_a_removal_that_fails_half_way_ends_every_log_and_is_gone_on_with(held: Held) -> None:
    topic = held.create("a", 3)
    logs = [held.log("a", index) for index in range(3)]
    with (
        FileFaults(Fault(("rename",), "a-1", times=2, error=errno.EIO)),
        pytest.raises(OSError, match="Input/output"),
    ):
        held.delete(topic)
    assert not any(log.online for log in logs)
    assert sorted(held.woken) == [log.name for log in logs]
    assert held.replicas.partition("a", 1) is None
    assert {"a-1"} == {name for name in names(held.path) if name.startswith("a-") and len(name) < 5}
    held.delete(topic)
    assert not any(len(name) < 5 for name in names(held.path))
    held.create("a", 3)
    assert held.log("a", 1).append(build_batch()).base_offset == 0


def test_a_removal_lasts_before_it_is_answered(held: Held) -> None:
    topic = held.create("a", 2)
    with FileFaults() as faults:
        held.delete(topic)
    done = [(each.operation, Path(each.path).name) for each in faults.seen]
    renamed = max(at for at, (operation, _) in enumerate(done) if operation == "rename")
    assert ("sync", held.path.name) in done[renamed:]
    with FileFaults() as faults:
        held.create("b", 20)
    synced = [
        each for each in faults.seen if (each.operation, each.path) == ("sync", str(held.path))
    ]
    assert len(synced) == 1  # for all of them together


def test_topics_deleted_together_have_the_directory_listed_once(held: Held) -> None:
    topics = [held.create(f"topic-{number}", 1) for number in range(20)]
    with FileFaults() as faults:
        held.delete(*topics)
    listed = [
        each for each in faults.seen if (each.operation, each.path) == ("list", str(held.path))
    ]
    assert len(listed) == 1
    assert not any(name.endswith("-0") for name in names(held.path))


def test_a_partition_that_cannot_be_opened_stays_offline_beside_the_others(held: Held) -> None:
    topic = held.create("a", 3)
    held.log("a", 0).append(build_batch())
    held.restart()
    away = held.path.parent / "away"
    os.rename(held.path / "a-1", away)
    (held.path / "a-1").write_text("in the way")
    stored = ImageDelta(created=(topic,), from_store=True)
    offline = TopicPartition("a", 1)
    assert held.replicas.apply(held.image, stored) == [offline]
    assert held.log("a", 0).append(build_batch()).base_offset == 1
    assert held.replicas.partition("a", 1) is None
    held.grow((topic, 4))  # a new partition beside it, which does not begin the old one anew
    assert held.log("a", 3).online and held.replicas.partition("a", 1) is None
    (held.path / "a-1").unlink()
    os.rename(away, held.path / "a-1")
    assert held.replicas.apply(held.image, stored) == []
    assert held.log("a", 1).online


def test_logs_that_cannot_be_closed_are_opened_at_the_next_try(held: Held, tmp_path: Path) -> None:
    topic = held.create("a", 3)
    for index in range(3):
        held.log("a", index).append(build_batch(producer_id=7, producer_epoch=0, base_sequence=0))
    shutil.copytree(held.path, tmp_path / "crash" / "data")
    shutil.rmtree(tmp_path / "crash" / "data" / "a-2")
    after = Held(tmp_path / "crash")
    led = replace(topic, partitions=tuple(replace(p, leader_epoch=1) for p in topic.partitions))
    image, stored = held.image.with_topics([led]), ImageDelta(created=(led,), from_store=True)
    with (
        FileFaults(
            Fault(("sync",), error=errno.EIO),  # of the name of a-2, which is new
            Fault(("write",), ".snapshot", times=FOREVER, error=errno.ENOSPC),
        ),
        pytest.raises(OSError, match="Input/output"),
    ):
        after.replicas.apply(image, stored)
    # Whatever happens to the topic until the store is read again, its logs are not new ones.
    grown = ImageDelta(changed=(led,))
    assert after.replicas.apply(image, grown) == [TopicPartition("a", n) for n in range(3)]
    assert after.replicas.apply(image, stored) == []
    ends = [after.replicas.replicas()[TopicPartition("a", n)].log_end_offset for n in range(3)]
    assert ends == [1, 1, 0]
    after.logs.stop()


def test_no_mark_covers_a_log_that_could_not_be_closed(held: Held) -> None:
    held.create("a", 1)
    log = held.log("a", 0)
    log.append(build_batch())
    with FileFaults(Fault(("sync",), error=errno.EIO)):
        held.logs.close(log.log)
    held.restart()
    assert not held.logs.clean


def test_a_topic_that_was_deleted_offline_is_made_anew(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = held.create("a", 1)
    held.log("a", 0).append(build_batch())
    held.restart()
    led = replace(topic, partitions=(replace(topic.partitions[0], leader_epoch=1),))

    def fail(*directories: object) -> None:
        raise OSError(errno.EIO, "the device said no")

    with monkeypatch.context() as patched:
        patched.setattr(held.logs, "make_names_last", fail)
        with pytest.raises(OSError, match="the device said no"):
            held.replicas.apply(held.image, ImageDelta(created=(led,), from_store=True))
    held.delete(topic)
    held.create("a", 1)
    assert held.log("a", 0).append(build_batch()).base_offset == 0


def test_waiters_at_a_replica_that_is_taken_away_are_answered(held: Held) -> None:
    """Produces while their log is led elsewhere, consumers of any replica when it ends."""
    topic = held.create("t", 1)
    (partition,) = topic.partitions
    moved = replace(partition, leader=2, leader_epoch=1, partition_epoch=1, replicas=(2,), isr=(2,))
    held.replicas.apply(held.image, ImageDelta(changed=(replace(topic, partitions=(moved,)),)))
    assert held.replicas.partition("t", 0) is None
    assert held.woken == [TopicPartition("t", 0)] * 2
    assert held.online_when_woken == [True, False]


def test_which_leaders_hold_followers_back(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the topic's settings name them, when its logs are opened and when they change."""
    sent: dict[TopicPartition, bool] = {}

    class Recorded(Replica):
        def throttle(self, throttled: bool) -> None:
            sent[self.name] = throttled

    monkeypatch.setattr("kbroker.replica.manager.Replica", Recorded)
    topic = held.create("t", 3)
    assert [*sent.values()] == [False] * 3
    for named, expected in (
        ("0:1,1:2", [True, False, False]),
        ("*", [True, True, True]),
        ("", [False, False, False]),
    ):
        configs = {"leader.replication.throttled.replicas": named}
        held.replicas.apply(held.image, ImageDelta(reconfigured=(replace(topic, configs=configs),)))
        assert [*sent.values()] == expected
