"""Violations that are planted in a server, each stopped before a wrong byte leaves.

One plant is one wrong value in the compiled core of a process of its own (`_plants.pyx`). What the
test then sends meets it, and `require` ends the smallest thing that cannot be trusted: of the log
not a byte has changed, of the connection not a byte has come, and a line names the invariant.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kbroker.errors import ErrorCode
from kbroker.testing._plants import PLANTS
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import (
    Ask,
    fetch,
    fetch_frame,
    produce_frame,
    produce_one,
    produced_in,
)
from tests.unit.net.harness import DEADLINE_S, Client, Topic, cold_frame

FETCH_VERSION: Final = 11
STORAGE_ERROR: Final = 56


class Planted:
    """The process, with a batch in its log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.engine.planted_child", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        hello = self._answer()
        self._port: int = hello["port"]
        self.topic = Topic("planted", uuid.UUID(hello["topic_id"]), [])
        self.session = 0
        self.other = Topic("other", uuid.UUID(int=0), [])
        self._clients: list[Client] = []
        self.first = self.client()
        self.log_before = self.log() if produce_one(self.first, self.topic, build_batch()) else b""

    def client(self) -> Client:
        self._clients.append(Client(self._port))
        return self._clients[-1]

    def tell(self, line: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def tell_the_last(self, line: str) -> None:
        """A command that the process does not survive."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.end()
        return json.loads(line)

    def log(self) -> bytes:
        return (self._folder / "planted-0" / f"{0:020}.log").read_bytes()

    def park(self, client: Client) -> None:
        client.send(fetch_frame(FETCH_VERSION, [self.at_end()], max_wait_ms=600_000))
        self.tell("parked 1")

    def park_produce(self, client: Client) -> None:
        """One whose answer has a place among those of its connection."""
        self.tell("lead_two")
        client.send(produce_frame(9, [(self.topic, {0: build_batch()})], acks=-1))
        self.tell("parked 1")
        self.log_before = self.log()

    def at_end(self) -> Ask:
        return Ask(self.topic, offset=1)

    def end(self) -> tuple[int, str]:
        """Its status and what it has said on standard error."""
        assert self._process.stderr is not None
        status = self._process.wait(DEADLINE_S)  # it reads its commands until it ends
        return status, self._process.stderr.read()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Planted]:
    it = Planted(tmp_path)
    yield it
    it.close()


# --- A partition: offline, KAFKA_STORAGE_ERROR, and nothing else ----------------------------------

Meets = Callable[[Planted], None]


def produces(planted: Planted) -> None:
    assert produce_one(planted.first, planted.topic, build_batch()).error == STORAGE_ERROR


def fetches(planted: Planted) -> None:
    found = fetch(planted.first, FETCH_VERSION, [Ask(planted.topic)]).only
    assert (found.error, found.records or b"") == (STORAGE_ERROR, b"")


def fetches_little(planted: Planted) -> None:
    found = fetch(planted.first, FETCH_VERSION, [Ask(planted.topic, max_bytes=1)]).only
    assert (found.error, found.records or b"") == (STORAGE_ERROR, b"")


def advances(planted: Planted) -> None:
    planted.tell("advance")


def is_cut(planted: Planted) -> None:
    assert planted.tell("cut") is False


def is_flushed(planted: Planted) -> None:
    assert planted.tell("flush") is False


def ends_times(planted: Planted) -> None:
    assert planted.tell("end_times") is False


def does_nothing(planted: Planted) -> None:
    """What is planted is met at once."""


OF_PARTITION: Final[tuple[tuple[str, Meets, str], ...]] = (
    ("end_before_segment", produces, "log: it ends in the active segment"),
    ("start_beyond_end", produces, "log: it starts at or before its end"),
    ("recovery_point_beyond_end", produces, "log: no more is on the disk than was written"),
    ("recovery_point_beyond_end", is_flushed, "log: no more is on the disk than was written"),
    ("settled_beyond_end", produces, "log: no more is settled than was written"),
    ("recent_beyond_ring", is_cut, "log: recent batches fit their ring"),
    ("segment_closed", produces, "log: the active segment is open"),
    ("segment_closed", fetches, "read: a slice has a file"),
    ("segment_size_negative", produces, "log: the active segment has a size"),
    ("segment_not_held", produces, "log: the active segment is held"),
    ("segments_beyond_room", produces, "log: it has an active segment"),
    ("recent_beyond_ring", produces, "log: recent batches fit their ring"),
    ("high_watermark_beyond_end", produces, "high watermark: it is at or below the log's end"),
    ("high_watermark_beyond_end", fetches, "high watermark: it is at or below the log's end"),
    ("last_stable_beyond_high_watermark", produces,
     "last stable offset: it is at or below the high watermark"),
    ("last_stable_beyond_high_watermark", fetches,
     "last stable offset: it is at or below the high watermark"),
    ("time_entry_before_map", ends_times, "index: a time's entry is in the map"),
    ("follower_ahead", advances, "in-sync replicas: none is ahead of the leader"),
    ("start_moves_beyond_end", does_nothing, "log start: it is at or before the end"),
    ("slice_before_file", fetches, "read: a slice has a place"),
    ("recent_batch_longer_than_its_file", fetches_little,
     "read: a slice ends in what was written"),
    ("batch_longer_than_its_header", does_nothing, "append: a batch is as long as its header says"),
    ("batch_without_header", does_nothing, "append: a batch has a header"),
    ("batch_without_data", does_nothing, "append: a batch has a header"),
    ("batch_with_other_offsets", does_nothing,
     "append: a batch has as many offsets as its header says"),
    ("batch_of_other_format", does_nothing, "append: a batch is of format 2"),
    ("segments_replaced_beyond_end", does_nothing,
     "segments: those that are replaced are the log's"),
    ("every_segment_dropped", does_nothing, "segments: one stays when the first go"),
)  # fmt: skip

# Met by a batch that is in the file by then, whole and where it belongs.
OF_INDEX: Final[tuple[tuple[str, str], ...]] = (
    ("offset_entry_before_map", "index: an offset's entry is in the map"),
    ("time_entry_before_map", "index: a time's entry is in the map"),
)


@pytest.mark.parametrize(("name", "meets", "text"), OF_PARTITION)
def test_a_partition_goes_offline(planted: Planted, name: str, meets: Meets, text: str) -> None:
    planted.tell(f"plant {name}")
    meets(planted)
    assert planted.log() == planted.log_before
    state = planted.tell("state")
    assert (state["online"], state["broken"]["partition"] >= 1) == (False, True)
    assert produce_one(planted.first, planted.topic, build_batch()).error == STORAGE_ERROR
    assert produce_one(planted.first, planted.other, build_batch()).error == ErrorCode.NONE
    assert planted.log() == planted.log_before
    planted.tell_the_last("")
    status, said = planted.end()
    assert status == 0
    assert f"so it goes offline: {text} (found " in said


@pytest.mark.parametrize(("name", "text"), OF_INDEX)
def test_a_partition_whose_index_is_wrong_goes_offline(
    planted: Planted, name: str, text: str
) -> None:
    planted.tell(f"plant {name}")
    assert produce_one(planted.first, planted.topic, build_batch()).error == ErrorCode.NONE
    state = planted.tell("state")
    assert (state["online"], state["broken"]["partition"] >= 1) == (False, True)
    written = planted.log()
    assert written.startswith(planted.log_before)
    assert produce_one(planted.first, planted.topic, build_batch()).error == STORAGE_ERROR
    assert produce_one(planted.first, planted.other, build_batch()).error == ErrorCode.NONE
    assert planted.log() == written
    planted.tell_the_last("")
    status, said = planted.end()
    assert status == 0
    assert f"so it goes offline: {text} (found " in said


# --- A connection: closed, and nothing else -------------------------------------------------------

OF_CONNECTION: Final[tuple[tuple[str, str], ...]] = (
    ("answer_shorter", "channel: an answer is as long as its size says"),
    ("answer_longer", "channel: an answer is as long as its size says"),
    ("answer_size_wrong", "channel: an answer is as long as its size says"),
    ("answer_without_bytes", "channel: an answer begins with its size"),
    ("answer_piece_lost", "channel: bytes that are sent are there"),
    ("answer_range_before_file", "channel: a range that is sent is in its file"),
    ("answer_of_no_request", "channel: an answer is to a request that was read"),
    ("answer_sent_in_part", "channel: nothing of a new answer was sent"),
    ("answer_to_no_frame", "channel: an answer is to a frame"),
    ("answer_without_action", "channel: an answer has an action"),
)


NOTHING: Final = {"connection": 0, "partition": 0, "process": 0, "count": 0}


def assert_one_is_closed(planted: Planted, text: str) -> None:
    """Others are served, and the log is untouched."""
    assert planted.tell("state")["broken"] == {**NOTHING, "connection": 1}
    assert planted.log() == planted.log_before
    assert produce_one(planted.first, planted.topic, build_batch()).error == ErrorCode.NONE
    planted.tell_the_last("")
    status, said = planted.end()
    assert status == 0
    assert f"so it is closed: {text} (found " in said


@pytest.mark.parametrize(("name", "text"), OF_CONNECTION)
def test_a_connection_is_closed(planted: Planted, name: str, text: str) -> None:
    client = planted.client()
    planted.park(client)
    planted.tell(f"spoil {name}")
    assert client.ended()
    assert_one_is_closed(planted, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cached_frames_forgotten", "channel: cached frames are counted"),
        ("state_without_request", "channel: an event that its state allows"),
    ],
)
def test_a_connection_in_a_wrong_state_is_closed(planted: Planted, name: str, text: str) -> None:
    # Its answer is right, and leaves; what comes after it cannot be trusted.
    client = planted.client()
    planted.park_produce(client)
    planted.tell(f"spoil {name}")
    ((_, answer),) = produced_in(9, client.receive())[1].items()
    assert answer.error == ErrorCode.REQUEST_TIMED_OUT
    assert client.ended()
    assert_one_is_closed(planted, text)


def test_a_connection_without_a_slot_for_an_answer_is_closed(planted: Planted) -> None:
    client = planted.client()
    planted.park_produce(client)
    planted.tell("spoil slot_of_another")
    assert client.ended()
    assert_one_is_closed(planted, "channel: a cached answer has its slot")


def test_a_connection_with_more_than_its_chunk_is_closed(planted: Planted) -> None:
    client = planted.client()
    frame = cold_frame(b"x" * 100)
    received = planted.tell("received")
    client.send(frame[:50])
    planted.tell(f"fills_up {received + 50}")
    planted.tell("plant received_beyond_chunk")
    client.send(frame[50:])
    assert client.ended()
    assert_one_is_closed(planted, "frames: what has arrived is in its chunk")


# --- The process: SIGABRT, and nothing else -------------------------------------------------------


def parks(planted: Planted) -> None:
    planted.park(planted.first)


def parks_a_produce(planted: Planted) -> None:
    planted.park_produce(planted.first)


def begins_a_session(planted: Planted) -> None:
    answer = fetch(planted.first, FETCH_VERSION, [planted.at_end()], session=(0, 0))
    planted.session = answer.session_id


def only_serves(planted: Planted) -> None:
    """Nothing is to be there before."""


def expires(planted: Planted) -> None:
    planted.tell_the_last("expire")


def leaves(planted: Planted) -> None:
    planted.first.close()


def asks(planted: Planted) -> None:
    planted.first.send(fetch_frame(FETCH_VERSION, [Ask(planted.topic)]))


def sends(planted: Planted) -> None:
    planted.first.send(produce_frame(9, [(planted.topic, {0: build_batch()})]))


def waits(planted: Planted) -> None:
    planted.first.send(fetch_frame(FETCH_VERSION, [planted.at_end()], max_wait_ms=600_000))


def asks_python(planted: Planted) -> None:
    planted.first.send(cold_frame())


def goes_on(planted: Planted) -> None:
    planted.first.send(fetch_frame(FETCH_VERSION, [], session=(planted.session, 1)))


def forgets(planted: Planted) -> None:
    planted.first.send(
        fetch_frame(FETCH_VERSION, [], session=(planted.session, 1), forgotten=[(planted.topic, 0)])
    )


def ends_the_session(planted: Planted) -> None:
    planted.first.send(fetch_frame(FETCH_VERSION, [], session=(planted.session, -1)))


# name, what is there before, what meets it, the line. Where the name is met by itself, or spoils an
# answer, the command does not come back.
OF_PROCESS: Final[tuple[tuple[str, Meets, Meets, str], ...]] = (
    ("answer_of_another_processor", parks, does_nothing,
     "answers: each is for its own Processor"),
    ("in_flight_forgotten", parks, does_nothing, "channel: requests come back once"),
    ("slots_head_beyond_ring", parks_a_produce, does_nothing,
     "slots: one that is filled is in the ring"),
    ("slots_more_than_ring", parks_a_produce, does_nothing,
     "slots: one that is filled is in the ring"),
    ("oldest_channel_lost", only_serves, leaves,
     "closed channel: neighbours by activity name each other"),
    ("newest_channel_lost", only_serves, leaves,
     "closed channel: neighbours by activity name each other"),
    ("shared_chunk_not_held", only_serves, asks, "chunk: one with a reference gets another"),
    ("queue_without_end", only_serves, asks_python, "request queue: nothing follows the last"),
    ("ready_channel_that_is_not", only_serves, does_nothing,
     "ready channels: each of them is one"),
    ("requests_forgotten", only_serves, asks, "request: freed as often as made"),
    ("free_requests_forgotten", only_serves, asks, "request: free ones are counted"),
    ("parked_not_held", parks, expires, "long poll: one whose time is over is held"),
    ("parked_in_no_state", parks, leaves, "parked request: its state is one"),
    ("deadlines_lost", parks, leaves, "deadlines: neighbours name each other"),
    ("deadline_of_itself", parks, leaves, "deadlines: neighbours name each other"),
    ("channels_parked_lost", parks, expires, "of a channel: neighbours name each other"),
    ("watches_first_lost", parks, expires, "watch: neighbours name each other"),
    ("watches_last_lost", parks, expires, "watch: neighbours name each other"),
    ("watch_before_itself", parks, expires, "watch: neighbours name each other"),
    ("watch_after_itself", parks, expires, "watch: neighbours name each other"),
    ("consumers_forgotten", parks, expires, "watch: consumers that wait are counted"),
    ("session_not_held", begins_a_session, goes_on, "fetch session: one that is found is held"),
    ("oldest_session_lost", begins_a_session, ends_the_session,
     "fetch sessions: neighbours by age name each other"),
    ("session_partitions_forgotten", begins_a_session, forgets,
     "session's partitions: one that goes is known"),
    ("reader_inside", only_serves, sends, "snapshot: a reader enters one at a time"),
    ("arena_overfull", only_serves, sends, "arena: what is taken fits its block"),
    ("segment_read_not_held", only_serves, asks, "segment: one with a reference gets another"),
    ("partition_not_held", only_serves, waits, "partition: one with a reference gets another"),
    ("log_not_held", only_serves, does_nothing, "log: one with a reference gets another"),
    ("second_writer", only_serves, does_nothing, "log: one writes at a time"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "before", "meets", "text"), OF_PROCESS)
def test_the_process_ends(
    planted: Planted, name: str, before: Meets, meets: Meets, text: str
) -> None:
    before(planted)
    if meets is not does_nothing:
        planted.tell(f"plant {name}")
        meets(planted)
    elif before in (parks, parks_a_produce):
        planted.tell_the_last(f"spoil {name}")
    else:
        planted.tell_the_last(f"plant {name}")
    status, said = planted.end()
    assert (status, planted.log()) == (-signal.SIGABRT, planted.log_before)
    assert f"broken invariant of the process, so it ends: {text} (found " in said
    # Of a request that is counted wrong the answer has left, and was right.
    if meets is not leaves and name != "requests_forgotten":
        assert planted.first.ended()


# --- A count: corrected, and nothing ends ---------------------------------------------------------


def expires_alone(planted: Planted) -> None:
    planted.tell("expire")


# name, what is there before, what meets it, the line.
OF_COUNT: Final[tuple[tuple[str, Meets, Meets, str], ...]] = (
    ("live_objects_forgotten", only_serves, does_nothing,
     "live objects: no more of a kind were freed than made"),
    ("connections_quota_forgotten", only_serves, leaves,
     "connection quotas: an address's connections are among all"),
    ("parked_forgotten", parks, expires_alone, "parked requests: they are counted"),
    ("parked_writes_forgotten", parks_a_produce, expires_alone,
     "parked requests: writes are counted"),
    ("slots_bytes_forgotten", parks_a_produce, expires_alone,
     "slots: the head's bytes are counted"),
    ("waiting_handler_forgotten", only_serves, asks, "queue: handlers that wait are counted"),
    ("handler_in_python_forgotten", only_serves, does_nothing,
     "in Python: handlers there are counted"),
    ("unsent_bytes_forgotten", only_serves, does_nothing,
     "unsent answers: a channel's are among all"),
    ("unsent_bytes_of_all_forgotten", only_serves, does_nothing,
     "unsent answers: a channel's are among all"),
    ("aside_forgotten", only_serves, does_nothing, "set aside: requests are counted"),
    ("aside_bytes_forgotten", only_serves, does_nothing, "set aside: their bytes are counted"),
    ("groups_forgotten", only_serves, does_nothing, "shard: its groups are counted"),
    ("groups_bytes_forgotten", only_serves, does_nothing, "shard: its bytes are counted"),
    ("groups_offsets_forgotten", only_serves, does_nothing, "shard: its offsets are counted"),
    ("members_bytes_forgotten", only_serves, does_nothing,
     "shard: its members' bytes are counted"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "before", "meets", "text"), OF_COUNT)
def test_a_count_is_corrected(
    planted: Planted, name: str, before: Meets, meets: Meets, text: str
) -> None:
    before(planted)
    planted.tell(f"plant {name}")
    meets(planted)
    planted.tell("corrected")
    assert planted.tell("state") == {"online": True, "broken": {**NOTHING, "count": 1}}
    assert planted.log() == planted.log_before
    assert produce_one(planted.client(), planted.other, build_batch()).error == ErrorCode.NONE
    planted.tell_the_last("")
    status, said = planted.end()
    assert status == 0
    assert f"so it is corrected: {text} (found " in said


# --- All of them ----------------------------------------------------------------------------------


def test_every_plant_is_met() -> None:
    met = [*OF_PARTITION, *OF_INDEX, *OF_CONNECTION, *OF_PROCESS, *OF_COUNT]
    others = {
        "cached_frames_forgotten", "state_without_request", "received_beyond_chunk",
        "slot_of_another",
    }  # fmt: skip
    assert {name for name, *_ in met} | others == set(PLANTS)
    assert len(PLANTS) >= 40
