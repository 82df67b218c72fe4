"""A log moves to another data directory while it serves: what is there, whatever comes between."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker._log import LocalLog
from kbroker.clock import ManualClock
from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.log._moving import SegmentCopy, begin_swap, end_swap, put_in_place
from kbroker.log._scrub import SegmentScrub
from kbroker.log.cleaner import CleanerSettings, LogCleaner
from kbroker.log.log_move import MOVED_FILE, SWAP_BYTES_MAX, LogMove, partition_of_future
from kbroker.log.mover import LogMover
from kbroker.log.partition_log import PartitionLog
from kbroker.log.verify import verify
from kbroker.protocol.record_batch import decode_batches
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support import memory
from tests.support.led_log import LedLog, LedLogManager
from tests.support.record_batches import Record, build_batch
from tests.unit.net.harness import eventually

TOPIC_ID = uuid.UUID(int=77)
NAME = TopicPartition("words", 0)
SETTINGS: dict[str, Any] = {
    "segment_bytes": 1_500, "index_interval_bytes": 200, "segment_index_bytes": 4_096,
    "file_delete_delay_ms": 0,
}  # fmt: skip


class Two:
    """A broker's two data directories, and one log in the first."""

    def __init__(self, place: Path, **settings: Any) -> None:
        self.first, self.second = place / "first", place / "second"
        self.settings = {**SETTINGS, **settings}
        self.values: list[bytes] = []
        self.start()

    def start(self) -> None:
        self.clock = ManualClock()
        self.manager = LedLogManager(
            [self.first, self.second], boot_id="one", clock=self.clock,
            segment_delete_delay_ms=0,
        )  # fmt: skip
        self.manager.start()
        self.log = self.manager.open(*NAME, TOPIC_ID, self.settings)
        self.log.set_leadership(1, True, 1, 1)

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            value = b"%06d" % len(self.values) + b"." * 60
            self.values.append(value)
            key = b"key %d" % (len(self.values) % 7)
            result = self.log.append(build_batch([Record(value, key)]))
            assert result.error == 0 and result.base_offset == len(self.values) - 1

    @property
    def mover(self) -> LogMover:
        return self.manager.mover

    def move(self, path: Path) -> None:
        self.on_this_thread(lambda: self.mover.ask(NAME, str(path)))

    def begin_moves_again(self) -> None:
        self.on_this_thread(self.mover.begin_again)

    def on_this_thread(self, ask: Callable[[], None]) -> None:
        """What is asked for is done here."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.mover, "_follow", lambda: None)
            ask()
        self.mover.move_all()

    def here(self) -> list[str]:
        """In which directories it is."""
        return [path.name for path in (self.first, self.second) if (path / str(NAME)).is_dir()]

    def read(self) -> list[bytes]:
        return [record.value or b"" for record in records_of(self.log)]

    def remove_left_over(self) -> None:
        for _ in self.manager.remove_deleted():
            pass

    def close(self) -> None:
        self.manager.stop()


def records_of(log: LedLog) -> Iterator[Any]:
    offset = log.log_start_offset
    while data := log.read(offset):
        for batch in decode_batches(data):
            yield from batch.records
            offset = batch.last_offset + 1


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    it = Two(tmp_path)
    yield it
    it.close()


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_it_is_there_and_whole_and_goes_on(two: Two) -> None:
    two.append(100)
    files = {name for name in names(two.first / "words-0") if not name.endswith(".snapshot")}
    two.move(two.second)
    assert two.here() == ["second"] and two.log.directory == str(two.second / "words-0")
    assert two.read() == two.values
    assert names(two.second / "words-0") >= files
    two.append(100)
    two.remove_left_over()
    assert not [name for name in names(two.first) if name.startswith("words")]
    assert MOVED_FILE not in names(two.second / "words-0")
    for clean in (True, False):
        two.manager.stop(as_found=not clean)
        two.start()
        assert two.read() == two.values and two.here() == ["second"]
        assert not verify(two.second / "words-0").damage
        two.append(10)


def test_its_files_are_those_that_it_had(two: Two) -> None:
    two.append(57)
    two.log.flush(whole=True)
    before = {
        path.name: path.read_bytes()
        for path in (two.first / "words-0").iterdir()
        if path.suffix == ".log"
    }
    indexes = sorted(path.name for path in (two.first / "words-0").glob("*index"))[:-2]
    sealed = {name: (two.first / "words-0" / name).read_bytes() for name in indexes}
    two.move(two.second)
    for name, data in {**before, **sealed}.items():
        assert (two.second / "words-0" / name).read_bytes() == data


def test_there_and_back_again(two: Two) -> None:
    for path in (two.second, two.first, two.second, two.first):
        two.append(30)
        two.move(path)
        two.remove_left_over()
        assert two.here() == [path.name] and two.read() == two.values


def test_who_appends_and_reads_meanwhile_notices_nothing(tmp_path: Path) -> None:
    two = Two(tmp_path, segment_bytes=30_000)
    two.append(50)
    stop, wrong = threading.Event(), list[object]()

    def read() -> None:
        while not stop.is_set():
            found = two.read()
            if found != two.values[: len(found)]:
                wrong.append(found)

    def append() -> None:
        while not stop.is_set() and len(two.values) < 5_000:
            two.append(5)

    threads = [threading.Thread(target=each) for each in (read, append)]
    for thread in threads:
        thread.start()
    try:
        for path in (two.second, two.first) * 4:
            two.move(path)
            two.remove_left_over()
            assert two.here() == [path.name]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong and two.read() == two.values
    two.close()


def test_a_slice_that_was_lent_is_read_in_the_old_file(two: Two) -> None:
    two.append(20)
    lent = two.log.read(0)
    two.move(two.second)
    two.remove_left_over()
    assert two.log.read(0) == lent


@pytest.mark.parametrize("what", ["cut", "begin again", "trim", "roll", "append"])
def test_what_is_done_to_it_meanwhile_is_done_to_the_copy(
    two: Two, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(100)

    def doing() -> None:
        if what == "cut":
            two.log.set_leadership(2, False, 2, 1)
            two.log.truncate_to(41)
            del two.values[41:]
            two.log.set_leadership(1, True, 3, 1)
        elif what == "begin again":
            two.log.set_leadership(2, False, 2, 1)
            two.log.begin_again(100)
            two.log.set_leadership(1, True, 3, 1)
        elif what == "trim":
            two.log.delete_records(60)
            for _ in two.manager.checkpoint():
                pass
        elif what == "roll":
            two.log.roll()
        two.append(5)

    original = LogMove.copy
    done: list[bool] = []

    def copy(move: LogMove) -> Iterator[int]:
        for at, piece in enumerate(original(move)):
            if at == 3 and not done:
                done.append(True)
                doing()
            yield piece

    monkeypatch.setattr(LogMove, "copy", copy)
    two.move(two.second)
    assert done and two.here() == ["second"]
    start = two.log.log_start_offset
    assert two.read() == two.values[start:]
    two.append(5)
    two.manager.stop(as_found=True)
    two.start()
    assert two.log.log_start_offset == start and two.read() == two.values[start:]
    assert not verify(two.second / "words-0").damage


def test_producers_and_epochs_go_with_it(two: Two) -> None:
    for sequence in range(40):
        two.log.append(
            build_batch([b"v" * 60], producer_id=7, producer_epoch=0, base_sequence=sequence)
        )
        if sequence == 20:
            two.log.set_leadership(1, True, 5, 1)
    entries, epochs = two.log.producer_entries(), two.log.epochs.entries
    for _ in two.manager.checkpoint():
        pass
    two.move(two.second)
    assert two.log.producer_entries() == entries and two.log.epochs.entries == epochs
    two.log.set_leadership(1, True, 6, 1)
    two.log.append(build_batch([b"v"], producer_id=7, producer_epoch=0, base_sequence=40))
    for clean in (True, False):
        two.manager.stop(as_found=not clean)
        two.start()
        assert two.log.producer_entries()[1][0].last_sequence == 40
        assert two.log.epochs.entries[:3] == [*epochs, (6, 40)]


def test_an_epoch_begins_while_it_changes_places(two: Two) -> None:
    """Who begins one has the lock of the epochs, which the move wants there."""
    two.append(20)
    controller = threading.Thread(target=two.log.epochs.assign, args=(9, 20), daemon=True)
    begin_swap(two.log.log)
    try:
        controller.start()
        controller.join(5)
        ended = not controller.is_alive()
    finally:
        end_swap(two.log.log)
    assert ended and two.log.epochs.latest == 9


def test_a_start_that_deleted_records_stays(two: Two) -> None:
    two.append(50)
    two.log.delete_records(33)
    two.manager.checkpointing.write_log_starts([two.log])
    two.move(two.second)
    two.manager.stop(as_found=True)
    two.start()
    assert two.log.log_start_offset == 33
    two.log.delete_records(40)
    two.manager.checkpointing.write_log_starts([two.log])
    two.manager.stop(as_found=True)
    two.start()
    assert two.log.log_start_offset == 40


def test_a_compacted_log_is_not_cleaned_on_its_way(tmp_path: Path) -> None:
    two = Two(tmp_path, compacted=True)
    two.append(100)
    two.log.roll()
    two.log.log.being_moved = True
    cleaner = LogCleaner(two.manager, lambda: CleanerSettings(backoff_ms=0), ManualClock())
    cleaner.clean_all()
    assert len(two.read()) == 100
    two.log.log.being_moved = False
    two.move(two.second)
    cleaner.clean_all()
    cleaner.stop()
    assert len(two.read()) == 7
    two.append(1)
    two.manager.stop(as_found=True)
    two.start()
    assert len(two.read()) == 8
    two.close()


def test_a_cleaning_ends_where_a_move_begins(tmp_path: Path) -> None:
    two = Two(tmp_path, compacted=True)
    two.append(100)
    two.log.roll()

    def settings() -> CleanerSettings:  # as a cleaning has begun
        two.log.log.being_moved = True
        return CleanerSettings(backoff_ms=0)

    cleaner = LogCleaner(two.manager, settings, ManualClock())
    with FileFaults() as faults:
        cleaner.clean_all()
    assert len(two.read()) == 100
    assert not [seen for seen in faults.seen if ".cleaned" in seen.path]
    two.close()


def test_bytes_that_are_too_many_are_copied_before_appends_wait(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(10)
    move = LogMove(two.log.log, two.second)
    move.begin()
    list(move.copy())
    two.log.log.configure(**{**SETTINGS, "segment_bytes": 64 << 20})
    big = build_batch([b"x" * 900_000])
    for _ in range(SWAP_BYTES_MAX // len(big) + 2):
        two.log.append(big)
    (held,) = two.manager.held([NAME])
    (second,) = [each for each in two.manager.usable if each.path == two.second]

    monkeypatch.setattr(LogMove, "_catch_up", lambda move: None)

    def swap() -> bool:
        return move.swap(lambda: two.manager.moving(held, second))

    assert not swap() and two.here() == ["first"]
    list(move.copy())
    assert swap() and two.here() == ["second"]
    assert len(list(records_of(two.log))) == two.log.log_end_offset


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_segment_that_is_copied_keeps_no_buffer(tmp_path: Path) -> None:
    """A log may have thousands, of 256 KB each."""
    two = Two(tmp_path, segment_bytes=300_000)
    for _ in range(400):
        two.log.append(build_batch([b"x" * 140_000]))
    move = LogMove(two.log.log, two.second)
    move.begin()
    before = resident_bytes()
    list(move.copy())
    assert resident_bytes() - before < 20 << 20
    move.call_off()
    two.close()


def test_what_is_restored_is_not_lost_on_the_way(two: Two) -> None:
    two.append(60)
    path = two.first / "words-0" / f"{0:020d}.log"
    sound = path.read_bytes()
    path.write_bytes(sound[:100] + bytes([sound[100] ^ 1]) + sound[101:])
    move = LogMove(two.log.log, two.second)
    move.begin()
    list(move.copy())
    scrub = SegmentScrub(two.log.log, 0)
    while scrub.step(1 << 20):
        pass
    (damaged,) = scrub.damage
    assert not two.log.log.restore(scrub, damaged.position, sound[: len(sound) // 20])
    move.give_up()
    assert two.log.log.restore(scrub, 0, sound)


# --- What fails half way --------------------------------------------------------------------------


def operations_of_a_move(place: Path) -> int:
    two = Two(place)
    two.append(60)
    with FileFaults() as faults:
        two.move(two.second)
    two.close()
    return len(faults.seen)


def test_a_kill_before_any_operation_of_a_move_loses_nothing() -> None:
    """What a process leaves that is killed there; the next start moves it on."""
    with memory.directory() as place:
        count = operations_of_a_move(place / "count")
        assert count > 40
        twice = sum(killed_before(nth, place / str(nth)) for nth in range(count))
    assert twice, "no kill left it in both"


def killed_before(nth: int, place: Path) -> bool:
    """Whether the log was left in both directories."""
    two = Two(place / "running")
    two.append(60)
    seen = 0

    def crash(operation: str, path: str) -> None:
        nonlocal seen
        if seen == nth:
            shutil.copytree(place / "running", place / "left")
        seen += 1

    with FileFaults(before=crash):
        two.move(two.second)
    two.close()
    shutil.rmtree(place / "running")
    (place / "left").rename(place / "running")
    twice = len(two.here()) == 2
    two.start()
    assert two.read() == two.values and len(two.here()) == 1, nth
    two.append(5)
    two.begin_moves_again()
    two.remove_left_over()
    assert two.read() == two.values
    two.close()
    for path in (two.first, two.second):
        assert {it for it in names(path) if it.startswith("words")} <= {"words-0"}, nth
    shutil.rmtree(place)
    return twice


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("where", ["first", "second"])
def test_an_operation_that_fails_leaves_it_where_it_was_or_there(error: int, where: str) -> None:
    with memory.directory() as place:
        count = operations_of_a_move(place / "count")
        failed = sum(one_fails(place / str(nth), nth, error, where) for nth in range(1, count))
    assert failed > (5 if where == "first" else 30)


def one_fails(place: Path, nth: int, error: int, where: str) -> bool:
    """Whether there were so many there."""
    two = Two(place)
    two.append(60)
    with FileFaults(Fault((), f"/{where}", nth=nth, error=error)) as faults:
        two.move(two.second)
    assert two.log.online and two.read() == two.values, nth
    two.append(20)
    two.remove_left_over()
    before = two.here()
    two.manager.stop(as_found=True)
    two.start()
    assert two.read() == two.values and two.here() == before[-1:], (nth, before)
    two.close()
    shutil.rmtree(place)
    return any(seen.failed for seen in faults.seen)


def test_without_its_source_a_copy_is_left_alone(two: Two, tmp_path: Path) -> None:
    two.append(60)
    move = LogMove(two.log.log, two.second)
    move.begin()
    two.close()
    shutil.move(two.first / "words-0", tmp_path / "away")
    manager = LedLogManager([two.first, two.second], boot_id="one")
    manager.start()
    manager.stop()
    assert move.future.is_dir()
    shutil.move(tmp_path / "away", two.first / "words-0")
    two.start()
    assert two.read() == two.values


def test_what_could_not_be_left_goes_before_the_next_move(two: Two) -> None:
    """Or a later start finds two, and no copy."""
    two.append(60)
    with FileFaults(Fault(("rename",), "/first/words-0", error=errno.EIO)):
        two.move(two.second)
    assert two.here() == ["first", "second"]
    two.append(20)
    two.move(two.first)
    assert two.here() == ["first"]
    two.manager.stop(as_found=True)
    two.start()
    assert two.read() == two.values and two.here() == ["first"]


def test_a_disk_that_says_nothing_any_more_ends_a_move_and_is_offline(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(60)
    stat = os.stat

    def fails(path: Any, **how: Any) -> os.stat_result:
        if str(path).startswith(f"{two.second}/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", fails)
    with FileFaults(Fault((), "/second", times=FOREVER, error=errno.EIO)):
        two.move(two.second)
    monkeypatch.undo()
    assert two.manager.failed_directories() == [two.second]
    assert two.mover.futures() == [] and not two.log.log.being_moved
    two.append(5)
    assert two.read() == two.values


def test_a_directory_that_fails_as_a_log_comes_there_takes_it_with_it(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(60)
    (second,) = [each for each in two.manager.usable if each.path == two.second]
    offline: list[PartitionLog] = []
    two.manager.went_offline = offline.append

    def fail(log: LocalLog, copies: list[SegmentCopy], directory: str) -> None:
        put_in_place(log, copies, directory)
        with FileFaults(Fault((), "/.probe", times=FOREVER, error=errno.EIO)):
            two.manager.trouble.look_at(second)

    monkeypatch.setattr("kbroker.log.log_move.put_in_place", fail)
    two.move(two.second)
    assert second.failed and not two.log.online and offline == [two.log.log]


def test_two_logs_that_are_no_copies_are_still_refused(two: Two) -> None:
    two.append(10)
    two.close()
    shutil.copytree(two.first / "words-0", two.second / "words-0")
    (two.second / "words-0" / MOVED_FILE).write_text("/somewhere/else/words-0")
    with pytest.raises(DataDirectoryError, match="is in two data directories"):
        LedLogManager([two.first, two.second], boot_id="one").start()
    shutil.rmtree(two.second / "words-0")
    two.start()


# --- Requests -------------------------------------------------------------------------------------


def code_of(asked: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        asked()
    return raised.value.code


def test_what_is_refused(two: Two, tmp_path: Path) -> None:
    mover = two.mover
    assert code_of(lambda: mover.ask(NAME, str(tmp_path / "x"))) is ErrorCode.LOG_DIR_NOT_FOUND
    long = TopicPartition("n" * 230, 0)
    assert code_of(lambda: mover.ask(long, str(two.second))) is ErrorCode.INVALID_TOPIC_EXCEPTION
    two.log.log.go_offline()
    assert code_of(lambda: mover.ask(NAME, str(two.second))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert mover.futures() == []


def test_what_comes_later_begins_where_it_was_asked_for(two: Two) -> None:
    for index, path in enumerate((two.second, two.second, two.first), start=1):
        name = TopicPartition("words", index)
        asked = code_of(lambda: two.mover.ask(name, str(path)))  # noqa: B023
        assert asked is ErrorCode.REPLICA_NOT_AVAILABLE
        two.manager.open(*name, TOPIC_ID, SETTINGS)
        assert (path / str(name)).is_dir()


def test_where_it_is_already_ends_a_move(two: Two) -> None:
    two.append(100)

    def ask() -> None:
        two.mover.ask(NAME, str(two.second))
        ((name, path, size, lag),) = two.mover.futures()
        assert (name, path, size, lag) == (NAME, str(two.second), 0, 100)
        two.mover.ask(NAME, str(two.first))
        assert two.mover.futures() == []

    two.on_this_thread(ask)
    assert two.here() == ["first"]


def test_a_move_that_is_called_off_leaves_nothing(two: Two) -> None:
    two.append(100)
    two.mover.bytes_per_second = lambda: 2_000.0
    asked = two.mover.ask
    asked(NAME, str(two.second))
    eventually(lambda: [it for it in two.mover.futures() if it.size_bytes], "a piece")
    use = two.manager.use_of_directories(None)
    assert [len(each.futures) for each in use] == [0, 1]
    asked(NAME, str(two.first))
    eventually(lambda: two.mover.thread is None or not two.mover.thread.is_alive(), "its end")
    two.remove_left_over()
    assert not [name for name in names(two.second) if name.startswith("words")]
    assert not two.log.log.being_moved and two.read() == two.values


@pytest.mark.parametrize("clean", [True, False])
def test_no_start_goes_on_with_what_was_called_off(two: Two, clean: bool) -> None:
    two.append(100)
    two.mover.bytes_per_second = lambda: 2_000.0
    two.mover.ask(NAME, str(two.second))
    eventually(lambda: [it for it in two.mover.futures() if it.size_bytes], "a piece")
    two.mover.ask(NAME, str(two.first))
    eventually(lambda: two.mover.thread is None or not two.mover.thread.is_alive(), "its end")
    two.manager.stop(as_found=not clean)
    two.start()
    two.begin_moves_again()
    assert two.here() == ["first"]
    two.remove_left_over()
    assert not [name for name in names(two.second) if name.startswith("words")]


def test_what_is_called_off_as_it_gets_there_comes_back(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(60)
    asked: list[Path] = []

    def put(log: LocalLog, copies: list[SegmentCopy], directory: str) -> None:
        if not asked:
            asked.append(two.first)
            two.mover.ask(NAME, str(two.first))
        put_in_place(log, copies, directory)

    monkeypatch.setattr("kbroker.log.log_move.put_in_place", put)
    monkeypatch.setattr(two.mover, "_follow", lambda: None)
    two.mover.ask(NAME, str(two.second))
    two.mover.move_all()
    assert two.here() == ["first"] and two.read() == two.values


def test_a_rate_that_falls_holds_up_what_is_left_alone(two: Two) -> None:
    two.append(200)
    waited: list[float] = []

    class Turned(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0)
            two.clock.advance(1000 * (timeout or 0))
            return False

    left = sum(path.stat().st_size for path in (two.first / "words-0").glob("*.log"))

    def rate() -> float:
        futures = two.mover.futures()
        copied = futures[0].size_bytes if futures else 0
        return 1_000.0 if copied > left // 2 else float("inf")

    two.mover.bytes_per_second = rate
    two.mover._stopping = Turned()  # type: ignore[misc]
    two.move(two.second)
    assert two.here() == ["second"]
    assert 0.3 * left < 1_000 * sum(waited) < 0.6 * left


def test_a_stop_ends_a_move_and_the_next_start_goes_on(two: Two) -> None:
    two.append(100)
    two.mover.bytes_per_second = lambda: 2_000.0
    two.mover.ask(NAME, str(two.second))
    eventually(lambda: [it for it in two.mover.futures() if it.size_bytes], "a piece")
    two.mover.stop()
    two.close()
    two.start()
    two.mover.begin_again()
    eventually(lambda: two.here() == ["second"], "the move to go on")
    eventually(lambda: not two.mover.futures(), "its end")
    two.remove_left_over()
    assert two.read() == two.values
    assert names(two.second) >= {"words-0"} and "words-0" not in names(two.first)


def test_a_topic_that_is_deleted_meanwhile_leaves_nothing(two: Two) -> None:
    two.append(100)
    two.mover.bytes_per_second = lambda: 2_000.0
    two.mover.ask(NAME, str(two.second))
    eventually(lambda: [it for it in two.mover.futures() if it.size_bytes], "a piece")
    two.manager.delete(two.log)
    eventually(lambda: not two.mover.futures(), "its end")
    eventually(lambda: two.mover.thread is None or not two.mover.thread.is_alive(), "its end")
    two.remove_left_over()
    for path in (two.first, two.second):
        assert not [name for name in names(path) if name.startswith("words")]


def test_names_of_futures() -> None:
    assert partition_of_future("a.b-c-12.0f0f-future") == TopicPartition("a.b-c", 12)
    assert partition_of_future("a-12.0f0f-delete") is None
    assert partition_of_future("a-future") is None
