"""The end of a log, cut back; tests/model/log draws the cut, other conditions are here."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.clock import ManualClock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine import file_operations
from kbroker.log.engine.partition_log import PartitionLog, has_no_checkpoint
from kbroker.log.opening.loader import Checkpointed
from kbroker.testing.file_faults import FOREVER, Fault, FileFaults
from tests.support.led_log import LedLog, LedLogManager, open_led_log
from tests.support.record_batches import build_batch, parse_batches
from tests.unit.log.conftest import TOPIC_ID, OpenLog
from tests.unit.net.harness import eventually

SMALL = {"segment_bytes": 300, "index_interval_bytes": 0}
SLOW_MS = 2000


def filled(
    open_log: OpenLog,
    count: int = 20,
    points_fell: Callable[[PartitionLog], None] = has_no_checkpoint,
    **settings: int,
) -> LedLog:
    log: LedLog = open_log(points_fell=points_fell, **(settings or SMALL))
    for number in range(count):
        log.append(build_batch([b"%06d" % number]))
    return log


def stored(log: LedLog) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while data := log.read(offset):
        for batch in parse_batches(data):
            found += [record.value for record in batch.records]
            offset = batch.last_offset + 1
    return found


def values(*numbers: int) -> list[bytes]:
    return [b"%06d" % number for number in numbers]


def names(log: LedLog) -> list[str]:
    return sorted(each.name for each in log.path.iterdir() if each.suffix == ".log")


def test_lent_bytes_are_sent_whole_and_the_log_goes_on_without_them(open_log: OpenLog) -> None:
    log = filled(open_log, segment_bytes=1 << 20)
    lent = log.borrow(0, 1 << 20)
    promised = lent.read()
    log.truncate_to(12)
    for number in range(100, 120):
        log.append(build_batch([b"%06d" % number]))
    assert lent.read() == promised
    assert stored(log) == values(*range(12), *range(100, 120))
    lent.release()
    log.close()
    assert stored(open_log(clean=True, segment_bytes=1 << 20)) == values(
        *range(12), *range(100, 120)
    )


def test_a_look_for_a_place_meanwhile_leaves_none(open_log: OpenLog) -> None:
    """The reader's place is one of the old file: the next reader would be sent half a batch."""
    log = filled(open_log, 300, segment_bytes=1 << 20)  # more than the tail that is remembered
    found: list[bytes] = []
    with FileFaults(Fault(("read",), delay_ms=SLOW_MS)) as faults:
        reader = threading.Thread(target=lambda: found.append(log.read(10, 1)))
        reader.start()
        eventually(lambda: any(seen.operation == "read" for seen in faults.look()), "it reads")
        log.truncate_to(5)
        for number in range(300):
            log.append(build_batch([b"%09d" % number]))
        reader.join()
    assert parse_batches(found[0])[0].base_offset == 10
    assert parse_batches(log.read(11, 1))[0].base_offset == 11


def test_inside_a_batch_the_batch_goes(open_log: OpenLog) -> None:
    log: LedLog = open_log()
    for base in (0, 5):
        assert log.append(build_batch([b"v"] * 5)).base_offset == base
    log.truncate_to(7)
    assert log.log_end_offset == log.high_watermark == 5
    assert log.append(build_batch([b"w"])).base_offset == 5


def test_readers_find_nothing_of_the_removed_records(open_log: OpenLog) -> None:
    log = filled(open_log)
    for offset in range(20):
        log.read(offset, 1)  # noted among the places where readers go on
    log.truncate_to(9)
    with pytest.raises(KafkaError) as caught:
        log.read(10)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(9) == b"" and log.readable_bytes(9) == 0
    for number in range(200, 215):
        log.append(build_batch([b"%06d" % number]))
    for offset in range(9, 24):
        (record, *_) = parse_batches(log.read(offset, 1))[0].records
        assert record.value == b"%06d" % (191 + offset)


def test_epochs_and_producers_go_with_their_batches(open_log: OpenLog) -> None:
    log: LedLog = open_log(**SMALL)
    for sequence in range(6):
        if sequence == 3:
            log.set_leadership(1, True, 7, 1)
        log.append(build_batch(producer_id=9, producer_epoch=0, base_sequence=sequence))
    log.write_snapshot()
    log.truncate_to(3)
    assert log.epochs.entries == [(0, 0)]
    with pytest.raises(KafkaError) as caught:
        log.append(build_batch(producer_id=9, producer_epoch=0, base_sequence=6))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = build_batch(producer_id=9, producer_epoch=0, base_sequence=3)
    assert log.append(again).base_offset == 3


def test_at_an_offset_before_the_log_it_begins_again_there(open_log: OpenLog) -> None:
    log = filled(open_log)
    log.delete_records(15)
    log.trim()
    log.truncate_to(4)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (4, 4, 4)
    assert log.append(build_batch()).base_offset == 4
    log.close()
    again = open_led_log(log.path, "words", 0, TOPIC_ID, dict(SMALL), Checkpointed(True, 5, 5, 4))
    assert (again.log_start_offset, again.log_end_offset) == (4, 5)
    again.close()


def test_the_same_at_the_offset_where_it_began(open_log: OpenLog) -> None:
    log = filled(open_log, 3)
    log.begin_again(0)
    assert log.log_end_offset == 0 and names(log) == [f"{0:020d}.log"]
    assert log.append(build_batch()).base_offset == 0


@pytest.mark.parametrize("offset", [0, 5, 50])
def test_an_empty_log_has_no_epochs_of_before(open_log: OpenLog, offset: int) -> None:
    """Else its replica would ask its leader about a history that it does not hold."""
    log = filled(open_log, 3)
    log.set_leadership(1, True, 7, 1)
    log.append(build_batch())
    log.begin_again(offset)
    assert log.epochs.entries == []
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (offset,) * 3


def test_an_empty_log_knows_no_producer_of_before(open_log: OpenLog) -> None:
    """Else it would tell them, once it leads, what they sent to another history."""
    log = open_log(segment_bytes=100)
    for sequence in range(3):
        log.append(build_batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
        log.write_snapshot()
    log.begin_again(50)
    assert log.producer_entries() == (50, [])
    log.close()
    assert open_log(clean=True).producer_entries()[1] == []


@pytest.mark.parametrize("restarted", [False, True])
def test_producers_of_an_old_snapshot_do_not_come_back(open_log: OpenLog, restarted: bool) -> None:
    """Batches after it are deleted. By its sequences, which are older, the next batch of a producer
    would be out of order for ever. Apache Kafka removes such a snapshot, too."""
    log = open_log(segment_bytes=100)

    def append(*sequences: int) -> None:
        for sequence in sequences:
            log.append(build_batch(producer_id=7, producer_epoch=0, base_sequence=sequence))

    append(0, 1)
    log.write_snapshot()
    append(2, 3)
    log.set_leadership(1, True, 1, 1)
    append(4)
    log.delete_records(4)
    log.trim()  # with a snapshot as of 5
    log.truncate_to(4)
    if restarted:
        log.close()
        log = open_log(clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    append(4)
    assert log.log_end_offset == 5


def test_a_start_is_promised_less_before_a_file_is_touched(open_log: OpenLog) -> None:
    """Of a cut that is half on the disk, a start would trust what it does not read."""
    points: list[tuple[int, int]] = []
    log = filled(
        open_log,
        points_fell=lambda log: points.append((log.recovery_point, len(faults.look()))),
    )
    log.flush()
    assert log.recovery_point == 20
    with FileFaults(Fault(("rename", "truncate", "open"), delay_ms=0)) as faults:
        log.truncate_to(7)
    (point, operations), *_ = points
    assert point <= 7
    assert {each.operation for each in faults.seen[:operations]} <= {"open", "read"}
    assert {each.operation for each in faults.seen[operations:]} >= {"rename", "truncate"}


@pytest.mark.parametrize("cut", [LedLog.truncate_to, LedLog.begin_again])
def test_a_cut_that_cannot_be_written_down_changes_nothing(
    open_log: OpenLog, cut: Callable[[LedLog, int], None]
) -> None:
    """A full disk, say: the log goes on as it is, and the next try begins from the beginning."""
    tries: list[int] = []

    def points_fell(log: PartitionLog) -> None:
        tries.append(log.recovery_point)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    log = filled(open_log, points_fell=points_fell)
    log.flush()
    before = names(log), stored(log)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            cut(log, 7)
        assert log.online and (names(log), stored(log)) == before
    assert log.flush() == 20, "a cut that was given up keeps no point"
    cut(log, 7)
    assert log.log_end_offset == 7 and len(tries) == 3


@pytest.mark.parametrize("cut", [LedLog.truncate_to, LedLog.begin_again])
def test_a_log_that_went_offline_is_not_cut_again(
    open_log: OpenLog, cut: Callable[[LedLog, int], None]
) -> None:
    """It knows of no segment then, and would begin anew at that offset, over what it has."""
    log = filled(open_log)
    with FileFaults(Fault(("rename",), ".log", error=errno.EIO)), pytest.raises(OSError):
        log.truncate_to(7)
    assert not log.online
    there, start = names(log), log.log_start_offset
    with pytest.raises(OSError, match="closed"):
        cut(log, 15)
    assert (names(log), log.log_start_offset) == (there, start)
    assert len(stored(open_log(**SMALL))) >= 7


def test_a_flush_beside_a_cut_moves_no_point(open_log: OpenLog) -> None:
    flushed: list[int] = []
    log = filled(
        open_log, points_fell=lambda log: flushed.append(log.flush() and log.recovery_point)
    )
    log.flush()
    log.truncate_to(7)
    assert flushed[0] <= 7
    assert log.recovery_point <= 7
    log.flush()
    assert log.recovery_point == 7


def test_an_epoch_without_a_batch_goes_with_a_cut_at_the_end(open_log: OpenLog) -> None:
    """A leader that wrote nothing and follows now: its own epoch would be asked for, for ever."""
    log = filled(open_log, 3)
    log.set_leadership(1, True, 7, 1)
    log.truncate_to(3)
    assert log.epochs.entries == [(0, 0)] and log.log_end_offset == 3


def test_a_snapshot_beside_a_cut_has_the_producers(open_log: OpenLog) -> None:
    log = open_log()
    log.append(build_batch(producer_id=7, producer_epoch=0, base_sequence=0))
    log.write_snapshot()
    log.append(build_batch(producer_id=7, producer_epoch=0, base_sequence=1))
    log.set_leadership(1, True, 1, 1)
    log.append(build_batch(producer_id=7, producer_epoch=0, base_sequence=2))
    with FileFaults(Fault((), ".snapshot", delay_ms=SLOW_MS)) as faults:
        cutter = threading.Thread(target=log.truncate_to, args=(2,))
        cutter.start()
        eventually(lambda: any(".snapshot" in seen.path for seen in faults.look()), "it is cut")
        log.write_snapshot()
        cutter.join()
    offset, (producer,) = log.producer_entries()
    assert (offset, producer.producer_id, producer.last_sequence) == (2, 7, 1)


def test_a_cut_that_waits_for_a_roll_lets_the_others_go_on(open_log: OpenLog) -> None:
    log = filled(open_log, segment_bytes=1 << 20)
    begins = threading.Event()

    def cut() -> None:
        begins.set()
        log.truncate_to(5)

    roll, cutter = threading.Thread(target=log.roll), threading.Thread(target=cut)
    with FileFaults(Fault(("open",), delay_ms=SLOW_MS)) as faults:
        roll.start()
        eventually(lambda: any(seen.operation == "open" for seen in faults.look()), "it rolls")
        cutter.start()
        begins.wait()
        for _ in range(20):
            threading.Event().wait(0.001)
        assert roll.is_alive(), "the interpreter waited for the log's lock"
        roll.join()
        cutter.join()
    assert stored(log) == values(*range(5))


def test_no_high_watermark_beyond_the_end_is_answered(open_log: OpenLog) -> None:
    """Not between the cut and its end either, when it may be asked, or made the leader."""
    log = filled(open_log)
    ends: list[tuple[int, int]] = []

    def look(_: str, path: str) -> None:
        if path == str(log.path):  # of the directory, when its files are cut
            ends.append((log.high_watermark, log.log_end_offset))

    with FileFaults(before=look):
        log.truncate_to(5)
    assert ends and all(high_watermark <= end for high_watermark, end in ends), ends
    assert (log.high_watermark, log.log_end_offset) == (5, 5)


def test_cut_segments_are_removed_with_the_next_trim(open_log: OpenLog) -> None:
    log = filled(open_log)
    before = names(log)
    log.truncate_to(5)
    assert names(log) == [name for name in before if int(name[:20]) < 5]
    gone = log.trim()
    assert gone and all(path.suffix == ".deleted" and path.exists() for path in gone)


@pytest.mark.parametrize("operation", ["list", "read"])
def test_a_cut_whose_producers_cannot_be_restored_takes_the_log_offline(
    open_log: OpenLog, operation: str
) -> None:
    """Without them it would append a batch once more that it has."""
    log: LedLog = open_log(**SMALL)
    for sequence in range(9):
        log.append(build_batch(producer_id=9, producer_epoch=0, base_sequence=sequence))
        if sequence == 3:
            log.write_snapshot()
    of = str(log.path) if operation == "list" else ".snapshot"
    with (
        FileFaults(Fault((operation,), of, error=errno.EIO)),
        pytest.raises(OSError),
    ):
        log.truncate_to(6)
    assert not log.online


def test_below_the_start_nothing_fails_once_the_log_is_empty(open_log: OpenLog) -> None:
    """Its high watermark would stay where the log's start was, above its end."""
    log = filled(open_log)
    log.delete_records(15)
    log.trim()
    with FileFaults(Fault(("list",), nth=2, error=errno.EMFILE)):
        log.truncate_to(4)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (4, 4, 4)


CHANGES = ("rename", "truncate", "write", "open", "map", "unlink")


@pytest.mark.parametrize("lent", [False, True])
def test_a_cut_that_fails_half_way_leaves_a_beginning_of_the_log(
    open_log: OpenLog, lent: bool
) -> None:
    """At each operation in turn: the log is as it was or offline, the files hold a beginning."""
    nth = 1
    while True:
        log = filled(open_log)
        before = stored(log)
        slice_ = log.borrow(4) if lent else None
        with FileFaults(Fault(CHANGES, nth=nth, error=errno.EIO)) as faults:
            try:
                log.truncate_to(6)
                failed = False
            except OSError:
                failed = True
        if slice_ is not None:
            slice_.release()
        if failed and log.online:
            assert stored(log) == before
        log.close(clean=False)
        again = open_log(**SMALL)
        found = stored(again)
        assert len(found) >= 6 and found == values(*range(len(found)))
        again.begin_again(0)
        again.close()
        if not any(each.failed for each in faults.seen):
            break
        nth += 1
    assert nth > 5


# --- Something is wanting half way ----------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(file_operations.SHORT_OF))
@pytest.mark.parametrize("change", [lambda it: it.truncate_to(25), lambda it: it.begin_again(90)])
def test_a_log_that_lost_no_write_costs_the_others_nothing(
    tmp_path: Path, change: Callable[[LedLog], None], code: int
) -> None:
    """Its directory is not taken for one that may lack what was acknowledged."""

    def start() -> LedLogManager:
        logs = LedLogManager([tmp_path], clock=ManualClock(), boot_id="boot")
        logs.start()
        return logs

    logs = start()
    log, other = (logs.open("t", index, TOPIC_ID, {"segment_bytes": 2_000}) for index in (0, 1))
    for each in (log, other):
        each.set_leadership(1, True, 1, 1)
        for _ in range(60):
            each.append(build_batch([b"x" * 50]))
    with FileFaults(Fault(("open",), ".timeindex", error=code)), pytest.raises(OSError):
        change(log)
    assert not log.online
    list(logs.checkpoint())
    logs.stop()
    logs = start()
    assert not logs.clean and not logs.lossy
    assert logs.open("t", 1, TOPIC_ID, {}).log_end_offset == 60
    logs.stop()


@pytest.mark.parametrize("code", file_operations.NO_SPACE)
def test_a_full_disk_lets_a_log_begin_again(open_log: OpenLog, code: int) -> None:
    """Which frees its space."""
    log = open_log(segment_bytes=2_000)
    for _ in range(60):
        log.append(build_batch([b"x" * 50]))
    log.epochs.settle(log.log_end_offset)
    with FileFaults(Fault(("write",), times=FOREVER, error=code)):
        log.begin_again(90)
    assert (log.online, log.log_start_offset, log.log_end_offset) == (True, 90, 90)
    assert log.epochs.entries == [] and not log.epochs.path.exists()
    log.set_leadership(1, True, 4, 1)
    log.append(build_batch([b"x"]))
    log.epochs.settle(log.log_end_offset)
    log.close()
    assert open_log(clean=True, lead=False).epochs.entries == [(4, 90)]


def test_a_cut_opens_the_directory_before_it_changes_anything(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=2_000)
    for _ in range(60):
        log.append(build_batch([b"x" * 50]))
    with FileFaults() as faults:
        log.truncate_to(25)
    done = [(each.operation, each.path) for each in faults.seen]
    assert done.count(("open", str(log.path))) == 1
    first_change = next(at for at, (it, _) in enumerate(done) if it in ("rename", "truncate"))
    assert done.index(("open", str(log.path))) < first_change
