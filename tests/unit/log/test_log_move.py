"""A log moves to another data directory while it serves: what is there, whatever comes between."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.log.looking.verify import verify
from kbroker.log.upkeep._moving import begin_swap, end_swap
from kbroker.log.upkeep._scrub import SegmentScrub
from kbroker.log.upkeep.cleaner import CleanerSettings, LogCleaner
from kbroker.log.upkeep.log_move import MOVED_FILE, SWAP_BYTES_MAX, LogMove
from kbroker.testing.file_faults import FileFaults
from tests.support.record_batches import build_batch
from tests.unit.log.two_directories import NAME, SETTINGS, Two, names, records_of


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


def test_producers_and_readers_notice_nothing_meanwhile(tmp_path: Path) -> None:
    two = Two(tmp_path, segment_bytes=30_000)
    two.append(50)
    stop, wrong = threading.Event(), list[object]()
    wanted = threading.Semaphore(0)  # appends: as many beside each move

    def read() -> None:
        while not stop.is_set():
            found = two.read()
            if found != two.values[: len(found)]:
                wrong.append(found)

    def append() -> None:
        while wanted.acquire() and not stop.is_set():
            two.append(5)

    threads = [threading.Thread(target=each) for each in (read, append)]
    for thread in threads:
        thread.start()
    try:
        for path in (two.second, two.first) * 4:
            wanted.release(60)
            two.move(path)
            two.remove_left_over()
            assert two.here() == [path.name]
    finally:
        stop.set()
        wanted.release()
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
def test_changes_that_are_made_meanwhile_are_made_to_the_copy(
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


def test_restored_state_is_not_lost_on_the_way(two: Two) -> None:
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
