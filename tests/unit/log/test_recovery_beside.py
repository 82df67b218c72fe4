"""Logs that a crash left are read beside what is served: what is asked of them meanwhile."""

from __future__ import annotations

import errno
import logging
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log import manager as manager_module
from kbroker.log.engine.checkpoints import CLEANER_FILE, LOG_START_FILE, read_offsets, write_offsets
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.opening import recovery as recovery_module
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE
from kbroker.log.opening.directory_trouble import LOOK_MS
from kbroker.log.opening.loader import goes_on, open_partition_log
from kbroker.log.opening.placement import topic_id_of
from kbroker.log.opening.recovery import FREE_WAIT_MS, THREAD_NAME, LogNotReadyError, Recovery
from kbroker.own_thread import OwnThread
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.led_log import LedLogManager
from tests.support.record_batches import build_batch
from tests.unit.log.test_manager import lead, names, run

TOPIC, OTHER = UUID(int=1), UUID(int=2**64 - 1)
SLOW, QUICK = TopicPartition("slow", 0), TopicPartition("quick", 0)
SLOW_TOO = TopicPartition("slow", 1)
DEADLINE_S = 30.0
T = TypeVar("T")


class Crashed:
    """A data directory as a crash leaves it, and logs whose reading waits until it may go on."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = root / "data"
        self.clock = ManualClock()
        self.gates = {name: threading.Event() for name in (SLOW, SLOW_TOO)}
        self.begun: queue.SimpleQueue[TopicPartition] = queue.SimpleQueue()
        self.raises: dict[TopicPartition, Exception] = {}
        patch.setattr(manager_module, "open_partition_log", self._open)
        before = LedLogManager([root / "before"], clock=self.clock)
        before.start()
        for name in (SLOW, SLOW_TOO, QUICK):
            log = lead(before.open(*name, TOPIC, {}))
            for _ in range(5):
                log.append(build_batch([b"precious"]))
            log.delete_records(2)
            before.checkpointing.write_log_starts([log.log])
        shutil.copytree(root / "before", self.path)
        before.stop()
        self.manager = LedLogManager([self.path], clock=self.clock, recovery_threads=2)

    def _open(
        self, path: Path, topic: str, index: int, *rest: Any, go_on: Any = goes_on, **how: Any
    ) -> PartitionLog:
        name = TopicPartition(topic, index)
        if threading.current_thread().name == THREAD_NAME:
            self.begun.put(name)
            if name in self.gates:
                assert self.gates[name].wait(DEADLINE_S)
            if name in self.raises:
                raise self.raises[name]
        return open_partition_log(path, topic, index, *rest, go_on=go_on, **how)

    def start(self) -> None:
        self.manager.start(recover=Recovery.begin)

    def is_reading(self, *wanted: TopicPartition) -> None:
        """Until these have been begun. "quick" is before "slow": where both of that are, it has
        been read."""
        left = {*wanted}
        while left:
            left.discard(self.begun.get(timeout=DEADLINE_S))

    def all_read(self) -> None:
        for gate in self.gates.values():
            gate.set()
        for thread in self.manager.recoveries.threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def end(self) -> None:
        for gate in self.gates.values():
            gate.set()
        self.manager.stop()


@pytest.fixture
def crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crashed]:
    made = Crashed(tmp_path, monkeypatch)
    yield made
    made.end()


def beside(work: Callable[[], T]) -> Callable[[], T]:
    """Does it on a thread of its own; what comes back waits for its result."""
    results: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()

    def run_it() -> None:
        try:
            results.put(work())
        except Exception as error:
            results.put(error)

    threading.Thread(target=run_it).start()

    def result() -> T:
        found = results.get(timeout=DEADLINE_S)
        if isinstance(found, Exception):
            raise found
        return found

    return result


def not_ready(crashed: Crashed, name: TopicPartition) -> None:
    with pytest.raises(LogNotReadyError) as caught:
        crashed.manager.open(*name, TOPIC, {}, new=False)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_is_refused_until_it_is_read_and_others_are_not(crashed: Crashed) -> None:
    crashed.start()
    crashed.is_reading(SLOW, SLOW_TOO)
    manager, recoveries = crashed.manager, crashed.manager.recoveries
    not_ready(crashed, SLOW)
    assert lead(manager.open(*QUICK, TOPIC, {}, new=False)).log_end_offset == 5
    assert recoveries.take_ready() == [] and not recoveries.are_over
    assert recoveries.left_in(crashed.path) == 2
    not_ready(crashed, SLOW)
    run(manager)
    assert read_offsets(crashed.path / LOG_START_FILE)[SLOW] == 2  # kept, of a log that is not open
    crashed.all_read()
    assert not recoveries.are_over  # it has to be named first
    assert recoveries.take_ready() == [SLOW]
    assert recoveries.are_over and recoveries.left_in(crashed.path) == 0
    log = lead(manager.open(*SLOW, TOPIC, {}, new=False))
    assert (log.log_start_offset, log.log_end_offset) == (2, 5)
    manager.open("slow", 1, TOPIC, {}, new=False)
    manager.remember_boot()
    manager.stop()
    assert CLEAN_SHUTDOWN_FILE in names(crashed.path)


def test_a_log_that_is_read_while_it_is_refused_is_not_ready(
    crashed: Crashed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether it is left, and the one at its topic: no later look for ready logs
    comes when there is nothing left."""
    crashed.start()
    crashed.is_reading(SLOW, SLOW_TOO)

    def meanwhile(path: Path) -> UUID | None:
        crashed.all_read()
        return topic_id_of(path)

    monkeypatch.setattr(recovery_module, "topic_id_of", meanwhile)
    assert crashed.manager.open(*SLOW, TOPIC, {}, new=False).log_end_offset == 5
    assert crashed.manager.recoveries.are_over


def test_logs_that_are_asked_for_all_the_time(crashed: Crashed) -> None:
    """Each is refused until it can be had, and named if it was refused."""
    before = LedLogManager([crashed.path], clock=crashed.clock)
    before.start()
    for index in range(300):
        lead(before.open("many", index, OTHER, {})).append(build_batch())
    before.stop(as_found=True)
    crashed.gates.clear()
    crashed.start()
    left, refused = {*range(300)}, set()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # in each other's way as often as can be
    try:
        while left:
            for index in [*left]:
                try:
                    crashed.manager.open("many", index, OTHER, {}, new=False)
                except LogNotReadyError:
                    refused.add(index)
                else:
                    left.discard(index)
    finally:
        sys.setswitchinterval(interval)
    assert refused <= {name.partition for name in crashed.manager.recoveries.take_ready()}


def test_a_start_waits_for_a_time(crashed: Crashed) -> None:
    crashed.start()
    crashed.is_reading(SLOW)
    recoveries = crashed.manager.recoveries
    waited = beside(lambda: recoveries.wait(500))
    assert crashed.clock.wait_for_sleepers(1)
    crashed.clock.advance(500)
    assert waited() is False
    waited = beside(lambda: recoveries.wait(500))
    crashed.all_read()
    assert waited() is True
    assert recoveries.take_ready() == [] and recoveries.are_over  # none was refused


def test_a_stop_in_the_midst_leaves_all_for_the_next_start(
    crashed: Crashed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await_end = OwnThread.await_end

    def let_go(thread: OwnThread) -> bool:
        for gate in crashed.gates.values():
            gate.set()
        return await_end(thread)

    crashed.manager.recovery_threads = 1
    crashed.start()
    crashed.is_reading(SLOW)
    not_ready(crashed, SLOW)
    monkeypatch.setattr(OwnThread, "await_end", let_go)
    crashed.manager.stop()
    assert crashed.begun.empty()  # no further one
    assert CLEAN_SHUTDOWN_FILE not in names(crashed.path)
    assert read_offsets(crashed.path / LOG_START_FILE)[SLOW] == 2
    again = LedLogManager([crashed.path], clock=crashed.clock)
    again.start()
    assert not again.clean
    for name in (SLOW, QUICK):
        log = again.open(*name, TOPIC, {}, new=False)
        assert (log.log_start_offset, log.log_end_offset) == (2, 5)
    again.stop()


def test_another_topics_log_is_not_waited_for(crashed: Crashed) -> None:
    """The name belongs to a new topic; what the deleted one had is set aside unread."""
    crashed.manager.recovery_threads = 1
    crashed.start()
    crashed.is_reading(SLOW)
    log = crashed.manager.open("slow", 1, OTHER, {}, new=True)  # it waits for its turn
    assert log.log_end_offset == 0
    opened = beside(lambda: crashed.manager.open(*SLOW, OTHER, {}, new=False))
    assert crashed.clock.wait_for_sleepers(1)  # for the log that is being read
    crashed.gates[SLOW].set()
    assert opened().log_end_offset == 0
    assert len([name for name in names(crashed.path) if name.endswith("-stray")]) == 2
    crashed.all_read()
    assert crashed.manager.recoveries.take_ready() == []
    assert crashed.manager.open(*QUICK, TOPIC, {}, new=False).log_end_offset == 5


def test_a_log_that_cannot_be_let_go_of_is_asked_for_again(crashed: Crashed) -> None:
    crashed.manager.recovery_threads = 1
    crashed.start()
    crashed.is_reading(SLOW)
    deleted = beside(lambda: crashed.manager.delete_topic_directories({TOPIC: "slow"}))
    assert crashed.clock.wait_for_sleepers(1)
    crashed.clock.advance(FREE_WAIT_MS)
    with pytest.raises(OSError, match="is being read still"):
        deleted()
    crashed.all_read()
    crashed.manager.delete_topic_directories({TOPIC: "slow"})
    assert {name for name in names(crashed.path) if name.startswith("slow")} == {
        name for name in names(crashed.path) if name.endswith("-delete")
    }


def test_a_log_that_is_refused_for_another_that_is_let_go_of_is_named(crashed: Crashed) -> None:
    """Another topic's log in its place has a segment that takes long; and one that is not wanted,
    and comes back, while its reading ends."""
    crashed.start()
    crashed.is_reading(SLOW, SLOW_TOO)
    opened = beside(lambda: crashed.manager.open(*SLOW, OTHER, {}, new=False))
    assert crashed.clock.wait_for_sleepers(1)
    crashed.clock.advance(FREE_WAIT_MS)
    with pytest.raises(LogNotReadyError):
        opened()
    set_aside = beside(lambda: crashed.manager.set_aside_strays(lambda name, _: name != SLOW_TOO))
    assert crashed.clock.wait_for_sleepers(1)
    crashed.clock.advance(FREE_WAIT_MS)
    set_aside()
    not_ready(crashed, SLOW_TOO)
    crashed.all_read()
    assert sorted(crashed.manager.recoveries.take_ready()) == [SLOW, SLOW_TOO]
    assert crashed.manager.open(*SLOW, OTHER, {}, new=False).log_end_offset == 0
    assert crashed.manager.open(*SLOW_TOO, TOPIC, {}, new=False).log_end_offset == 5


def test_no_mark_covers_a_log_that_could_not_be_set_aside(crashed: Crashed) -> None:
    crashed.manager.recovery_threads = 1
    crashed.start()
    crashed.is_reading(SLOW)
    set_aside = beside(lambda: crashed.manager.set_aside_strays(lambda name, _: name == QUICK))
    assert crashed.clock.wait_for_sleepers(1)
    crashed.clock.advance(FREE_WAIT_MS)
    set_aside()
    crashed.all_read()
    crashed.manager.remember_boot()
    crashed.manager.stop()
    assert "slow-0" in names(crashed.path)
    assert CLEAN_SHUTDOWN_FILE not in names(crashed.path)


def test_a_stop_keeps_how_far_an_unopened_log_was_cleaned(crashed: Crashed) -> None:
    write_offsets(crashed.path / CLEANER_FILE, {QUICK: 3})
    crashed.start()
    crashed.all_read()
    crashed.manager.stop()
    assert read_offsets(crashed.path / CLEANER_FILE) == {QUICK: 3}


def test_strays_are_set_aside_unread(crashed: Crashed) -> None:
    crashed.manager.recovery_threads = 1
    crashed.start()
    crashed.is_reading(SLOW)
    crashed.manager.set_aside_strays(lambda name, _: name != SLOW_TOO)
    crashed.all_read()
    (stray,) = [name for name in names(crashed.path) if name.endswith("-stray")]
    assert stray.startswith("slow-1.")
    assert crashed.manager.open(*SLOW, TOPIC, {}, new=False).log_end_offset == 5


def test_an_error_is_raised_once_and_then_it_is_read_again(
    crashed: Crashed, caplog: pytest.LogCaptureFixture
) -> None:
    crashed.raises[SLOW] = OSError(errno.EIO, "Input/output error")
    crashed.start()
    crashed.is_reading(SLOW)
    not_ready(crashed, SLOW)
    crashed.all_read()
    assert "is tried again" in caplog.text and "slow-0 cannot be recovered" in caplog.text
    assert crashed.manager.recoveries.take_ready() == [SLOW]
    crashed.begun = queue.SimpleQueue()
    with pytest.raises(KafkaError, match=r"slow-0 cannot be opened: .*Input/output error"):
        crashed.manager.open(*SLOW, TOPIC, {}, new=False)
    assert crashed.begun.empty()
    assert crashed.manager.open(*SLOW, TOPIC, {}, new=False).log_end_offset == 5


def test_whatever_is_raised_none_waits_for_ever(crashed: Crashed) -> None:
    crashed.raises[SLOW] = ZeroDivisionError("a bug")
    crashed.start()
    crashed.is_reading(SLOW)
    not_ready(crashed, SLOW)
    crashed.all_read()
    assert crashed.manager.recoveries.take_ready() == [SLOW]
    assert sum(thread.failures.count for thread in crashed.manager.recoveries.threads) == 1
    with pytest.raises(KafkaError, match="its recovery failed"):
        crashed.manager.open(*SLOW, TOPIC, {}, new=False)
    assert crashed.manager.open(*QUICK, TOPIC, {}, new=False).log_end_offset == 5


def test_a_directory_that_fails_in_the_midst(crashed: Crashed) -> None:
    crashed.manager.recovery_threads = 1
    crashed.start()
    crashed.is_reading(SLOW)
    not_ready(crashed, SLOW)
    not_ready(crashed, SLOW_TOO)
    lead(crashed.manager.open(*QUICK, TOPIC, {}, new=False)).append(build_batch())
    crashed.clock.advance(LOOK_MS)
    with FileFaults(Fault(path_part=f"{crashed.path}/", times=FOREVER, error=errno.EIO)):
        run(crashed.manager)
    assert crashed.manager.failed_directories() == [crashed.path]
    crashed.all_read()
    assert SLOW_TOO in crashed.manager.recoveries.take_ready()  # never, and that is reported
    assert crashed.begun.empty()  # no further one
    for name in (SLOW, SLOW_TOO):
        for new in (False, True):
            with pytest.raises(KafkaError, match="missing or has failed"):
                crashed.manager.open(*name, TOPIC, {}, new=new)
    crashed.manager.stop()
    assert CLEAN_SHUTDOWN_FILE not in names(crashed.path)


def test_new_logs_go_to_the_directory_with_fewer_also_of_those_still_to_be_read(
    crashed: Crashed, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with_one = LedLogManager([other], clock=crashed.clock)
    with_one.start()
    with_one.open("here", 0, OTHER, {})
    with_one.stop()
    crashed.manager = LedLogManager([crashed.path, other], clock=crashed.clock)
    crashed.start()
    crashed.manager.open("here", 0, OTHER, {}, new=False)
    crashed.is_reading(SLOW)
    for index in range(2):  # there are three in the other one
        assert crashed.manager.open("new", index, OTHER, {}).log.path.parent == other


def test_internal_topics_and_small_logs_come_first(crashed: Crashed) -> None:
    before = LedLogManager([crashed.path], clock=crashed.clock)
    before.start()
    for topic, count in (("__consumer_offsets", 30), ("large", 20), ("middle", 10)):
        log = lead(before.open(topic, 0, OTHER, {}))
        for _ in range(count):
            log.append(build_batch([b"precious"]))
    # As much again, which is on the disk.
    log = lead(before.open("flushed", 0, OTHER, {}))
    for _ in range(20):
        log.append(build_batch([b"precious"]))
    log.roll()
    log.flush_rolled()
    before.checkpointing.write_of("recovery-point-offset-checkpoint", log.log)
    after = crashed.path.parent / "after"
    shutil.copytree(crashed.path, after)
    before.stop()
    crashed.gates.clear()
    manager = LedLogManager([after], clock=crashed.clock, recovery_threads=1)
    manager.start(recover=Recovery.begin)
    for thread in manager.recoveries.threads:
        thread.join(DEADLINE_S)
    order = [crashed.begun.get_nowait().topic for _ in range(7)]
    assert order == ["__consumer_offsets", "flushed", "quick", "slow", "slow", "middle", "large"]
    manager.stop()


def test_a_long_log_says_that_it_goes_on(
    crashed: Crashed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each of its segments."""
    caplog.set_level(logging.INFO, "kbroker.log")

    def slowly(*arguments: Any, go_on: Callable[[], None], **how: Any) -> PartitionLog:
        for _ in range(3):
            crashed.clock.advance(5_000)
            go_on()
        return open_partition_log(*arguments, **how)

    crashed.gates.clear()
    monkeypatch.setattr(manager_module, "open_partition_log", slowly)
    crashed.manager.recovery_threads = 1
    crashed.manager.start()
    assert caplog.text.count(f"recovering {crashed.path}: 0 of 3 logs") == 3


def test_nothing_is_left_to_read_after_a_clean_stop(tmp_path: Path) -> None:
    for _ in range(2):
        manager = LedLogManager([tmp_path / "data"])
        manager.start(recover=Recovery.begin)
        assert manager.recoveries.are_over and not [*manager.recoveries.threads]
        manager.stop()
