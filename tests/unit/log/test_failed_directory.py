"""A data directory whose disk has failed: all of it is offline, and nothing of the others is."""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.opening.data_directory import BOOT_FILE, CLEAN_SHUTDOWN_FILE, PROBE_FILE
from kbroker.log.opening.directory_trouble import LOOK_MS
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import build_batch
from tests.unit.log.test_manager import lead, names, run

TOPIC, OTHER = UUID(int=7), UUID(int=8)


class Broker:
    """Two directories with two logs in each; logs that went offline, in their order."""

    def __init__(self, root: Path) -> None:
        self.first, self.second = root / "a", root / "b"
        self.clock = ManualClock()
        self.start()
        self.logs = [self.open("words", index) for index in range(4)]  # in turns
        for log in self.logs:
            log.append(build_batch([b"precious"]))

    def start(self) -> None:
        self.manager = LedLogManager([self.first, self.second], boot_id="same", clock=self.clock)
        self.manager.start()

    def open(self, topic: str, index: int, topic_id: UUID = TOPIC, **how: bool) -> LedLog:
        self.clock.advance(LOOK_MS)
        return lead(self.manager.open(topic, index, topic_id, {}, **how))

    def run(self) -> None:
        self.clock.advance(LOOK_MS)
        run(self.manager)

    def here(self, directory: Path) -> list[LedLog]:
        return [log for log in self.logs if log.log.path.parent == directory]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.manager.stop()


def dying(path: Path, error: int = errno.EIO) -> FileFaults:
    return FileFaults(Fault(path_part=f"{path}/", times=FOREVER, error=error))


def test_a_directory_that_fails_takes_all_its_logs_along(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    here = broker.here(broker.first)
    with dying(broker.first):
        broker.run()
    assert {log.name for log in broker.logs if not log.online} == {log.name for log in here}
    assert {log.name for log in broker.manager.replicas.offline} == {log.name for log in here}
    assert broker.manager.failed_directories() == [broker.first]
    assert [(use.path, use.failed) for use in broker.manager.use_of_directories(None)] == [
        (str(broker.first), True), (str(broker.second), False)
    ]  # fmt: skip
    (said,) = (r for r in caplog.records if r.levelno == logging.CRITICAL)
    assert f"data directory {broker.first} has failed: Input/output error" in said.getMessage()
    broker.manager.stop()
    assert CLEAN_SHUTDOWN_FILE not in names(broker.first)
    assert CLEAN_SHUTDOWN_FILE in names(broker.second)


def test_one_lost_write_is_enough(broker: Broker) -> None:
    """No checkpoint has failed by then."""
    log = broker.here(broker.first)[0]
    log.roll()
    with FileFaults(
        Fault(("sync",), f"{log.log.path}/", times=FOREVER, error=errno.EIO),
        Fault(path_part=PROBE_FILE, times=FOREVER, error=errno.EROFS),
    ):
        broker.clock.advance(LOOK_MS)
        next(broker.manager.checkpoint())
    assert broker.manager.failed_directories() == [broker.first]
    assert not any(log.online for log in broker.here(broker.first))


def test_new_logs_go_elsewhere_and_old_ones_are_not_begun_again(broker: Broker) -> None:
    with dying(broker.first):
        broker.run()
    broker.manager.make_names_last()
    lost = [log.name for log in broker.here(broker.first)]
    for index in range(3):
        assert broker.open("new", index, OTHER).log.path.parent == broker.second
    broker.manager.make_names_last()
    for log in broker.here(broker.first):
        broker.manager.close(log)
    for name in lost:
        # Reassigned away and back it would be a second log of the same partition.
        for new in (False, True):
            with pytest.raises(KafkaError, match="is missing or has failed") as refused:
                broker.open(*name, new=new)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    # A topic of that name that was made since is another.
    assert broker.open(*lost[0], OTHER).log.path.parent == broker.second
    broker.run()
    broker.manager.stop()
    shutil.rmtree(broker.second / str(lost[0]))
    broker.start()
    assert all(broker.open("words", index, new=False).log_end_offset == 1 for index in range(4))


def test_a_topic_with_logs_there_can_be_deleted(broker: Broker) -> None:
    with dying(broker.first):
        broker.run()
        for log in broker.logs:
            broker.manager.delete(log)
        broker.manager.delete_topic_directories({TOPIC: "words"})
        broker.manager.set_aside_strays(lambda *_: False)
        broker.manager.make_names_last()
    assert broker.manager.open_logs() == []


def test_the_next_start_may_lack_something_also_in_the_same_boot(
    broker: Broker, tmp_path: Path
) -> None:
    with dying(broker.first):
        broker.run()
        broker.manager.remember_boot()
    broker.manager.stop()
    assert BOOT_FILE not in names(broker.first)
    broker.start()
    assert broker.manager.lossy
    assert BOOT_FILE in names(broker.second)


def test_a_log_that_comes_after_the_failure_is_refused(broker: Broker, tmp_path: Path) -> None:
    """After a crash, all logs are open before the controller asks for one."""
    copies = [tmp_path / "c", tmp_path / "d"]
    for path, copy in zip((broker.first, broker.second), copies, strict=True):
        shutil.copytree(path, copy)
    manager = LedLogManager(copies, boot_id="same", clock=broker.clock)
    manager.start()
    broker.clock.advance(LOOK_MS)
    with dying(copies[0]), pytest.raises(KafkaError):
        manager.open("new", 0, OTHER, {})
    assert manager.failed_directories() == copies[:1]
    for log in broker.here(broker.first):
        with pytest.raises(KafkaError, match="has failed"):
            manager.open(*log.name, TOPIC, {}, new=False)
    assert manager.open_logs() == []
    manager.stop()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EINTR])
def test_an_error_that_is_not_of_the_disk_is_no_failure_of_it(broker: Broker, error: int) -> None:
    with dying(broker.first, error):
        broker.run()
    assert broker.manager.failed_directories() == []
    assert PROBE_FILE not in names(broker.first)
    assert all(log.online for log in broker.logs)


def test_one_bad_file_is_no_failed_directory(broker: Broker) -> None:
    log = broker.here(broker.first)[0]
    log.roll()
    with FileFaults(Fault(path_part=f"{log.log.path}/", times=FOREVER, error=errno.EIO)):
        broker.run()
        broker.run()
    assert broker.manager.failed_directories() == []
    assert [each.name for each in broker.logs if not each.online] == [log.name]


def test_a_new_log_on_a_dead_disk_finds_it_out(broker: Broker) -> None:
    with dying(broker.first):
        with pytest.raises(KafkaError):
            broker.open("new", 0, OTHER)
        assert broker.manager.failed_directories() == [broker.first]
        assert broker.open("new", 1, OTHER).log.path.parent == broker.second


def test_where_every_disk_has_failed_nothing_is_made(broker: Broker, tmp_path: Path) -> None:
    with dying(tmp_path):
        for index in range(3):
            with pytest.raises(KafkaError):
                broker.open("new", index, OTHER)
    assert len(broker.manager.failed_directories()) == 2


def test_of_directories_with_as_many_logs_the_one_with_fewer_bytes_is_next(
    tmp_path: Path,
) -> None:
    manager = LedLogManager([tmp_path / "a", tmp_path / "b"])
    manager.start()
    places = []
    for index, size in enumerate((1_000, 10, 10, 10)):
        log = lead(manager.open("words", index, TOPIC, {}))
        log.append(build_batch([b"x" * size]))
        places.append(log.log.path.parent.name)
    manager.stop()
    assert places == ["a", "b", "b", "a"]
