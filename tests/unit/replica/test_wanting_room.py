"""Replicas that are offline because their disk was full come online when there is room."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker import limits
from kbroker.clock import ManualClock
from kbroker.config import BrokerConfig
from kbroker.log.engine import file_operations
from kbroker.metadata.image import ImageDelta, TopicImage
from kbroker.replica.log_tasks import LogTasks
from kbroker.scheduler import Scheduler
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch
from tests.unit.replica.test_manager import Held

SECONDS = 11  # of looks: more than a pause
NO_CLEANER = BrokerConfig.load(None, {}, ["log.cleaner.enable=false"])
NAMES = [TopicPartition("a", index) for index in range(3)]


class Broker(Held):
    """With a scheduler, and a controller that applies at once what it is given."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.scheduler_clock = ManualClock()
        self.scheduler = Scheduler(self.scheduler_clock)
        self.tries: list[list[TopicPartition]] = []
        tasks = LogTasks(
            self.logs, self.replicas.replicas, self._wake, self.scheduler_clock,
            lambda: NO_CLEANER, lambda names: self._apply_again([*names]),
        )  # fmt: skip
        tasks.schedule(self.scheduler)
        self.scheduler.run_due()

    def _apply_again(self, names: list[TopicPartition]) -> None:
        self.tries.append(names)
        topics = tuple(self.image.topics[it] for it in {it.topic for it in names})
        delta = ImageDelta(changed=topics, from_store=True, only=frozenset(names))
        self.replicas.apply(self.image, delta)

    def read(self, topic: TopicImage, *new: TopicPartition) -> list[TopicPartition]:
        """Apply what the store has; what stays offline."""
        self.image = self.image.with_topics([topic])
        delta = ImageDelta(created=(topic,), from_store=True, new=frozenset(new))
        return self.replicas.apply(self.image, delta)

    def pass_seconds(self, count: int = SECONDS) -> None:
        for _ in range(count):
            self.scheduler_clock.advance(limits.LOG_SPACE_PERIOD_MS)
            self.scheduler.run_due()


def made(path: Path) -> tuple[Broker, TopicImage]:
    """A broker that has stopped in order, with a topic, started again with nothing applied."""
    before = Held(path)
    topic = before.create("a", len(NAMES))
    before.log("a", 0).append(build_batch())
    before.logs.stop()
    broker = Broker(path)
    led = replace(topic, partitions=tuple(replace(it, leader_epoch=1) for it in topic.partitions))
    return broker, led


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
@pytest.mark.parametrize("operations", [("write",), ("open",), ("mkdir",)])
def test_new_replicas_come_online_when_there_is_room(
    tmp_path: Path, operations: tuple[str, ...], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker, topic = Broker(tmp_path), Held(tmp_path / "other").create("a", len(NAMES))
    with FileFaults(Fault(operations, f"{broker.path}/a-", times=FOREVER, error=code)):
        assert broker.read(topic, *NAMES) == NAMES
        broker.pass_seconds()
        assert not broker.replicas.replicas()
    broker.pass_seconds()
    assert sorted(broker.replicas.replicas()) == NAMES and not broker.replicas.any_offline
    assert all(caplog.text.count(f"{it} is open: there is room again") == 1 for it in NAMES)
    tries = len(broker.tries)
    broker.pass_seconds()
    assert len(broker.tries) == tries
    broker.logs.stop()


def test_logs_that_are_there_come_online_with_their_records(tmp_path: Path) -> None:
    broker, topic = made(tmp_path)
    with FileFaults(Fault(("open",), f"{broker.path}/a-", times=FOREVER, error=errno.ENOSPC)):
        assert broker.read(topic) == NAMES
    broker.pass_seconds()
    assert broker.log("a", 0).log_end_offset == 1
    broker.logs.stop()


def test_names_that_do_not_last_for_want_of_room_are_tried_again(tmp_path: Path) -> None:
    broker, topic = Broker(tmp_path), Held(tmp_path / "other").create("a", len(NAMES))
    fault = Fault(("sync",), error=errno.ENOSPC)
    with FileFaults(fault), pytest.raises(OSError, match="No space"):
        broker.read(topic, *NAMES)
    assert broker.replicas.any_offline
    broker.pass_seconds()
    assert sorted(broker.replicas.replicas()) == NAMES
    broker.logs.stop()


def test_a_full_disk_is_not_asked_for_logs(tmp_path: Path) -> None:
    """A file of some bytes says that it is full."""
    broker, topic = made(tmp_path)
    with FileFaults(Fault((), f"{broker.path}/", times=FOREVER, error=errno.ENOSPC)):
        assert broker.read(topic) == NAMES
        broker.pass_seconds(60)
        assert broker.tries == []
    broker.pass_seconds()
    assert sorted(broker.replicas.replicas()) == NAMES
    broker.logs.stop()


def test_a_disk_with_little_room_is_tried_with_one_log_after_a_pause(tmp_path: Path) -> None:
    """It takes the small file, and no log."""
    broker, topic = made(tmp_path)
    with FileFaults(Fault((), f"{broker.path}/a-", times=FOREVER, error=errno.ENOSPC)):
        assert broker.read(topic) == NAMES
        broker.pass_seconds(60)
        assert 3 <= len(broker.tries) <= 8 and {len(it) for it in broker.tries} == {1}
    broker.logs.stop()


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_other_trouble_waits_for_a_person(tmp_path: Path, code: int) -> None:
    broker, topic = made(tmp_path)
    with FileFaults(Fault((), f"{broker.path}/a-", times=FOREVER, error=code)):
        assert broker.read(topic) == NAMES
    broker.pass_seconds()
    assert broker.tries == []
    broker.logs.stop()


def test_a_log_that_is_deleted_meanwhile_is_not_tried(tmp_path: Path) -> None:
    broker, topic = made(tmp_path)
    with FileFaults(Fault((), f"{broker.path}/a-", times=FOREVER, error=errno.ENOSPC)):
        broker.read(topic)
    broker.delete(topic)
    broker.pass_seconds()
    assert broker.tries == [] and not broker.replicas.any_offline
    broker.logs.stop()


# --- Logs that a cut leaves half way --------------------------------------------------------------

KEPT, WRITTEN = 25, 60


def written(path: Path) -> Broker:
    """A broker with a log of several segments, and another one beside it."""
    broker = Broker(path)
    broker.create("a", 2)
    log = broker.log("a", 0)
    log.log.configure(segment_bytes=2_000)
    for sequence in range(WRITTEN):
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        log.append(build_batch([b"x" * 50], **fields))
    return broker


def opens_of_a_cut(path: Path) -> int:
    broker = written(path)
    with FileFaults() as faults:
        broker.log("a", 0).truncate_to(KEPT)
    broker.logs.stop()
    return sum(each.operation == "open" for each in faults.seen)


@pytest.mark.parametrize("code", sorted(file_operations.SHORT_OF))
def test_a_log_that_a_cut_left_half_way_opens_again(tmp_path: Path, code: int) -> None:
    opens = opens_of_a_cut(tmp_path / "counted")
    assert opens > 3
    for nth in range(1, opens + 1):
        broker = written(tmp_path / str(nth))
        log = broker.log("a", 0)
        with FileFaults(Fault(("open",), nth=nth, error=code)), pytest.raises(OSError) as failed:
            log.truncate_to(KEPT)
        assert failed.value.errno == code
        half_way = not log.online
        broker.pass_seconds()
        again = broker.log("a", 0)
        assert again.online
        if half_way:
            assert again.log is not log.log
            assert KEPT <= again.log_end_offset <= WRITTEN
            assert broker.log("a", 1).online and not broker.replicas.any_offline
        again.truncate_to(KEPT)
        assert again.log_end_offset == KEPT
        entries = again.log.producer_entries()[1]
        assert [each.last_sequence for each in entries] == [KEPT - 1]
        broker.restart()
        assert broker.logs.clean
        broker.logs.stop()


def test_a_log_that_lost_a_write_does_not_open_again(tmp_path: Path) -> None:
    broker = written(tmp_path)
    log = broker.log("a", 0)
    with FileFaults(Fault(("sync",), ".log", error=errno.ENOSPC)), pytest.raises(OSError):
        log.truncate_to(KEPT)
    broker.pass_seconds()
    assert broker.tries == [] and broker.log("a", 0) is log and not log.online
    broker.logs.stop()


def test_a_log_that_does_not_open_again_yet_is_offline_as_any_other(tmp_path: Path) -> None:
    broker = written(tmp_path)
    fault = Fault(("open",), "-0/", nth=3, times=FOREVER, error=errno.EMFILE)
    with FileFaults(fault):
        with pytest.raises(OSError, match="open files"):
            broker.log("a", 0).truncate_to(KEPT)
        broker.pass_seconds(60)
        assert 2 <= len(broker.tries) <= 8
        assert sorted(broker.replicas.replicas()) == [TopicPartition("a", 1)]
        assert broker.replicas.any_offline
    broker.pass_seconds()
    assert broker.log("a", 0).log_end_offset == KEPT
    assert not broker.replicas.any_offline
    broker.logs.stop()
