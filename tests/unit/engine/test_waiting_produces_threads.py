"""Produces that wait, many on each connection, beside all that ends them: each answered once.

`make test-tsan` and `make test-asan` run this, too. Followers fetch, some by handlers at once;
leaders come and go; deadlines come; peers end their sending side, or are gone, with whatever waits.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kbroker.core._live_objects import live_counts
from kbroker.errors import ErrorCode, KafkaError
from tests.unit.engine.following import BATCH, FOLLOWER, LONG_MS, lead
from tests.unit.engine.wire import Ask, fetch_frame, fetched_in, produce_frame, produced_in
from tests.unit.net.harness import Client, Rig, Topic, eventually, running

PRODUCERS = 4
ROUNDS = 60
IN_FLIGHT = 40
PARTITIONS = 3
# By turns, so that only some are parts of trains.
VERSIONS = (9, 10, 10)
ALLOWED = {
    int(each)
    for each in (
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    )
}


def test_produces_beside_all_that_ends_them(tmp_path: Path) -> None:
    beside_all(tmp_path)


def test_so_they_do_where_bounds_and_queue_are_met_all_the_time(tmp_path: Path) -> None:
    beside_all(tmp_path, pipelined_requests_max=5, queued_requests_max=2)


def beside_all(directory: Path, **bounds: int) -> None:
    before = live_counts()
    with running(directory, handlers=3, processors=2, **bounds) as rig:
        topic = rig.create("t", partitions=PARTITIONS)
        for log in topic.logs:
            lead(log)
        done = threading.Event()
        failures: list[BaseException] = []

        def guarded(turn: Callable[[], object]) -> None:
            try:
                turn()
            except BaseException as error:
                failures.append(error)

        def until_done(turn: Callable[[int], object]) -> None:
            for number in itertools.count():
                if done.wait(0.001) and number > 0:
                    return
                turn(number)

        others = [
            threading.Thread(target=guarded, args=(lambda each=each: until_done(each),))
            for each in what_ends_them(rig, topic)
        ]
        producers = [
            threading.Thread(target=guarded, args=(lambda seed=seed: produce(rig, topic, seed),))
            for seed in range(PRODUCERS)
        ]
        for thread in (*others, *producers):
            thread.start()
        for thread in producers:
            thread.join()
        done.set()
        for thread in others:
            thread.join()
        if failures:
            raise failures[0]
        assert rig.hot.statistics()["parked_produces"] > ROUNDS
        for client in rig.clients:
            client.close()
        eventually(lambda: rig.hot.statistics()["parked_bytes"] == 0, "memory is kept")
        # Counted until the answer has left or the connection has ended.
        eventually(lambda: rig.server.statistics()["pipelined_bytes"] == 0, "bytes are counted")
    for kind in ("parked_requests", "watches", "slot_rings"):
        assert live_counts()[kind] == before[kind]


def produce(rig: Rig, topic: Topic, seed: int) -> None:
    chance = random.Random(seed)
    client, sent = rig.client(), 0
    for _ in range(ROUNDS):
        count = chance.randrange(1, IN_FLIGHT)
        versions = [chance.choice(VERSIONS) for _ in range(count)]
        frames = [
            produce_frame(
                version,
                [
                    (
                        topic,
                        dict.fromkeys(
                            chance.sample(range(PARTITIONS), chance.choice((1, 1, 3))), BATCH
                        ),
                    )
                ],
                acks=chance.choice((-1, -1, -1, 1)),
                timeout_ms=chance.choice((1, 100, LONG_MS)),
                correlation_id=sent + number,
            )
            for number, version in enumerate(versions)
        ]
        client.send(b"".join(frames))
        leaves = chance.random()
        if leaves < 0.1:
            client.reset()
        elif leaves < 0.2:
            client.close()
        else:
            if leaves < 0.3:
                client.end_sending()
            check(client, sent, versions)
            sent += count
            if leaves >= 0.3:
                continue
            assert client.ended()
        client, sent = rig.client(), 0


def check(client: Client, first: int, versions: list[int]) -> None:
    for number, version in enumerate(versions):
        correlation_id, answer = produced_in(version, client.receive())
        assert correlation_id == first + number
        assert {each.error for each in answer.values()} <= ALLOWED


def what_ends_them(rig: Rig, topic: Topic) -> list[Callable[[int], object]]:
    followers = [rig.client() for _ in range(2)]

    def follower(client: Client) -> Callable[[int], object]:
        def fetches(_: int) -> None:
            asks = [
                Ask(topic, index, log.log_end_offset, leader_epoch=log.leader_epoch)
                for index, log in enumerate(topic.logs)
            ]
            client.send(fetch_frame(12, asks, replica_id=FOLLOWER))
            fetched_in(12, client.receive())

        return fetches

    def leaders(number: int) -> None:
        log = topic.logs[number % PARTITIONS]
        if number % 8 == 0:
            log.set_leadership(FOLLOWER, False, log.leader_epoch + 1, 0)
            rig.hot.wake(log)
        if number % 4 == 0:
            lead(log, epoch=log.leader_epoch + 1)
        rig.hot.wake(log)

    def deadlines(_: int) -> None:
        with suppress(IndexError):
            rig.hot.expire(rig.ticks.pop(0))

    def by_hand(number: int) -> None:
        log = topic.logs[number % PARTITIONS]
        with suppress(KafkaError):  # who leads changes beside this
            log.note_fetch(FOLLOWER, log.log_end_offset, 1)
        rig.hot.wake(log)

    return [*(follower(client) for client in followers), leaders, deadlines, by_hand]
