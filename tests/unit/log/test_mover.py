"""Who asks for moves between data directories, calls them off, and goes on with them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker._log import LocalLog
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.upkeep._moving import SegmentCopy, put_in_place
from kbroker.log.upkeep.log_move import Unfinished, partition_of_future
from kbroker.types import TopicPartition
from tests.unit.log.two_directories import NAME, SETTINGS, TOPIC_ID, Two, names
from tests.unit.net.harness import eventually


def code_of(asked: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        asked()
    return raised.value.code


def test_moves_that_are_refused(two: Two, tmp_path: Path) -> None:
    mover = two.mover
    assert code_of(lambda: mover.ask(NAME, str(tmp_path / "x"))) is ErrorCode.LOG_DIR_NOT_FOUND
    long = TopicPartition("n" * 230, 0)
    assert code_of(lambda: mover.ask(long, str(two.second))) is ErrorCode.INVALID_TOPIC_EXCEPTION
    two.log.log.go_offline()
    assert code_of(lambda: mover.ask(NAME, str(two.second))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert mover.futures() == []


def test_a_log_that_comes_later_begins_where_it_was_asked_for(two: Two) -> None:
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
    two.rate = lambda: 2_000.0
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
def test_no_start_goes_on_with_a_cancelled_move(two: Two, clean: bool) -> None:
    two.append(100)
    two.rate = lambda: 2_000.0
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


def test_a_move_that_is_cancelled_at_its_end_comes_back(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(60)
    asked: list[Path] = []

    def put(log: LocalLog, copies: list[SegmentCopy], directory: str) -> None:
        if not asked:
            asked.append(two.first)
            two.mover.ask(NAME, str(two.first))
        put_in_place(log, copies, directory)

    monkeypatch.setattr("kbroker.log.upkeep.log_move.put_in_place", put)
    monkeypatch.setattr(two.mover, "_follow", lambda: None)
    two.mover.ask(NAME, str(two.second))
    two.mover.move_all()
    assert two.here() == ["first"] and two.read() == two.values


def test_a_rate_that_falls_holds_up_the_remaining_bytes_alone(two: Two) -> None:
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

    two.rate = rate
    two.mover._stopping = Turned()  # type: ignore[misc]
    two.move(two.second)
    assert two.here() == ["second"]
    assert 0.3 * left < 1_000 * sum(waited) < 0.6 * left


def test_a_stop_ends_a_move_and_the_next_start_goes_on(two: Two) -> None:
    two.append(100)
    two.rate = lambda: 2_000.0
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


@pytest.mark.parametrize("is_open", [False, True])
def test_a_request_is_later_than_a_move_that_was_cut(two: Two, is_open: bool) -> None:
    """Also where that log is not open yet, and where the request was done by then."""
    two.append(100)
    two.rate = lambda: 2_000.0
    two.mover.ask(NAME, str(two.second))
    eventually(lambda: [it for it in two.mover.futures() if it.size_bytes], "a piece")
    two.mover.stop()
    two.close()
    two.start()
    if is_open:
        two.move(two.first)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(two.mover, "_held", lambda name: None)
            assert code_of(lambda: two.mover.ask(NAME, str(two.first))) is (
                ErrorCode.REPLICA_NOT_AVAILABLE
            )
    two.begin_moves_again()
    assert two.mover.unfinished == []
    assert two.here() == ["first"]
    assert two.read() == two.values


def test_a_log_that_goes_while_its_move_is_to_go_on_begins_where_a_request_has_asked(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is later than the move that was cut."""
    (first,) = (each for each in two.manager.usable if each.path == two.first)
    two.mover.unfinished = [cut] = [Unfinished(NAME, first, two.first)]
    monkeypatch.setattr(two.mover, "_held", lambda name: None)
    asked = code_of(lambda: two.mover.ask(NAME, str(two.second)))
    assert asked is ErrorCode.REPLICA_NOT_AVAILABLE and two.mover.unfinished == []
    two.mover._ask(NAME, str(two.first), cut)
    preferred = two.mover.preferred(NAME)
    assert preferred is not None and preferred.path == two.second


def test_a_topic_that_is_deleted_meanwhile_leaves_nothing(two: Two) -> None:
    two.append(100)
    two.rate = lambda: 2_000.0
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
