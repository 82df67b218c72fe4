"""Fetches that Processors serve, beside all that changes under them: whole records or a reason.

`make test-tsan` and `make test-asan` run this, too. Topics come and go, so that snapshots are
published; leaders' epochs rise; Processors come and go; records are appended and deleted; and the
partitions are now too many, now too large, now too old for a Processor.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

from kbroker.errors import ErrorCode, KafkaError
from tests.support.record_batches import build_batch, parse_batches
from tests.unit.engine.wire import Ask, fetch_frame, fetched_in
from tests.unit.net.harness import NODE_ID, Client, Rig, running

READERS = 3
FETCHES = 80
PARTITIONS = 20
FEW = 6
SMALL, LARGE = build_batch([b"x" * 100] * 3), build_batch([b"x" * 300_000])
ALLOWED = (
    ErrorCode.NONE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


def test_fetches_at_once_beside_all_that_changes(tmp_path: Path) -> None:
    with running(tmp_path, handlers=2, processors=2) as rig:
        topic = rig.create("read", partitions=PARTITIONS, segment_bytes=400_000)
        for log in topic.logs[:-1]:
            log.append(SMALL)
        topic.logs[-1].append(LARGE)
        done = threading.Event()
        failures: list[BaseException] = []

        def until_done(turn: Callable[[int], object]) -> None:
            try:
                for number in itertools.count():
                    if done.wait(0.002):  # with handlers awake no Processor serves
                        return
                    turn(number)
            except BaseException as error:
                failures.append(error)

        def read(number: int) -> None:
            try:
                follow(rig, number)
            except BaseException as error:
                failures.append(error)

        others = [threading.Thread(target=until_done, args=(each,)) for each in what_changes(rig)]
        readers = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
        for thread in (*others, *readers):
            thread.start()
        for thread in readers:
            thread.join()
        done.set()
        for thread in others:
            thread.join()
        if failures:
            raise failures[0]
        assert served_at_once(rig) > 0


def served_at_once(rig: Rig) -> int:
    statistics = rig.hot.statistics()
    return statistics["fetch_requests"] - sum(
        handler["run_requests"] for handler in statistics["handlers"]
    )


def follow(rig: Rig, number: int) -> None:
    topic = rig.topics["read"]
    client, session = rig.client(), (0, 0)
    for turn in range(FETCHES):
        at = (turn + number) % FEW
        in_session = turn % 3 == 0
        # One, a few, what is too large for a Processor, or too many.
        chosen = [(at,), (at, FEW), (at,), range(FEW), (PARTITIONS - 1,), range(PARTITIONS)]
        asks = [
            Ask(topic, index, topic.logs[index].log_start_offset, 1 << 20, epoch, turn % 5 - 1)
            for index in chosen[0 if in_session else turn % len(chosen)]
            for epoch in (topic.logs[index].leader_epoch if turn % 2 else -1,)
        ]
        frame = fetch_frame(12, asks, max_bytes=1 << 20, session=session if in_session else (0, -1))
        answer = asked(client, frame)
        if answer is None:  # its Processor has gone
            client, session = rig.client(), (0, 0)
            continue
        found = fetched_in(12, answer)
        if in_session:
            session = (found.session_id, session[1] + 1) if found.session_id else (0, 0)
            assert found.error == 0
        for part in found.partitions.values():
            assert part.error in ALLOWED
            parse_batches(part.records or b"")


def asked(client: Client, frame: bytes) -> bytes | None:
    try:
        client.send(frame)
        head = client.read(4)
        return client.read(int.from_bytes(head, "big")) if len(head) == 4 else None
    except ConnectionError:
        return None


def what_changes(rig: Rig) -> list[Callable[[int], object]]:
    topic = rig.topics["read"]

    def leaders(number: int) -> None:
        log = topic.logs[number % PARTITIONS]
        log.set_leadership(NODE_ID, True, log.leader_epoch + 1, 1)

    def topics(number: int) -> None:
        rig.create(f"comes-{number}", partitions=2)
        rig.delete(f"comes-{number}")

    def processors(number: int) -> None:
        if number % 20 == 0:
            rig.server.resize(1 + number // 20 % 3)
            rig.hot.cover_processors()

    def appends(number: int) -> None:
        log = topic.logs[number % PARTITIONS]
        try:
            log.append(LARGE if number % 50 == 0 else SMALL)
        except KafkaError as error:  # its leader begins another epoch in this moment
            assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        rig.hot.wake(log)

    def deletes(number: int) -> None:
        try:
            topic.logs[number % PARTITIONS].delete_records(-1 if number % 9 == 0 else number // 50)
        except KafkaError as error:
            assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def figures(_: int) -> None:
        rig.hot.statistics()
        rig.server.statistics()

    return [leaders, topics, processors, appends, deletes, figures]
