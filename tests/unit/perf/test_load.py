"""The load generator: what it counts against the limit server, and what it refuses to believe."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perf import batch, requests
from perf._load import Load, LoadError
from perf.brokers import LimitBroker
from perf.cells import BY_KEY, Bench, Cell
from perf.client import EARLIEST
from perf.histogram import Histogram
from perf.requests import Topic
from perf.spec import Batch, Connection, Partition, Run, Stream
from perf.wire import Writer
from tests.support.own_things import collected_by_hand
from tests.unit.perf.fake import FakeBroker

TOPIC = Topic("t", bytes(16), 1)


@pytest.fixture(scope="module")
def limit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitBroker]:
    broker = LimitBroker(tmp_path_factory.mktemp("limit"))
    broker.start()
    try:
        yield broker
    finally:
        broker.discard()


def _fixed(stream: Stream, count: int) -> Stream:
    return replace(stream, send_limit=count)


def test_every_record_is_counted(limit: LimitBroker) -> None:
    with limit.client() as client:
        topic = client.create_topic("counted", 2)
        body = batch.of_records(100, 1000)
        connections = tuple(
            requests.produce(7, topic, [(Partition(i, expected_offset=0), body)], acks=1)
            for i in range(2)
        )
        stream = _fixed(Stream("produce", 7, connections, in_flight=5), 1001)
        run = Run(limit.host, limit.port, (stream,), limit.pid, warm_s=0, window_s=0)
        result = Load(run).go()
        counted = result["streams"][0]
        assert (counted["sent"], counted["answered"], counted["errors"]) == (1001, 1001, 0)
        assert counted["records_all"] == 1001 * body.records == sum(client.offsets(topic))
        assert client.offsets(topic, EARLIEST) == [0, 0]
        assert Histogram.from_native(counted["latency"]).total == counted["requests"] == 1001
        assert counted["bytes"] == 1001 * len(connections[0].frame)
        assert result["broker_cpu_ns"] > 0 and result["own_cpu_ns"] > 0


@pytest.mark.parametrize("size", [50, 3000, 60_000])
def test_patched_batches_keep_a_valid_crc(limit: LimitBroker, size: int) -> None:
    """The limit server checks each CRC and the consumer checks it again, so a wrong patch of
    sequence or stamp fails on both sides."""
    with limit.client() as client:
        topic = client.create_topic(f"patched-{size}", 3)
        body = batch.encode(
            [batch.payload(size), b"second"], producer_id=9, producer_epoch=0, stamped=True
        )
        pairs = [
            (Partition(i, next_sequence=0x7FFFFFFF - 3, expected_offset=0), body) for i in range(3)
        ]
        producing = Stream(
            "produce",
            13,
            (requests.produce(13, topic, pairs, acks=-1, idempotent=True),),
            acks=-1,
            in_flight=3,
            send_limit=50,
        )
        consuming = Stream(
            "fetch",
            18,
            (requests.fetch(18, topic, [Partition(i) for i in range(3)]),),
            tail=True,
            session=True,
            stamped_at=body.stamp_at,
            verify_every=1,
        )
        run = Run(limit.host, limit.port, (producing, consuming), warm_s=0, window_s=5)
        sent, got = Load(run).go()["streams"]
        assert sent["records_all"] == got["records_all"] == 50 * 3 * 2
        assert got["verified_batches"] == 150
        assert Histogram.from_native(got["end_to_end"]).total > 0


@pytest.mark.parametrize(
    "key", ["p-100-16x5", "p-16k-4x5", "p-1m-4x5", "p-1k-4x5-acks0", "p-1k-4x5-runs", "j-lz4"]
)
def test_cells_hold_the_records_that_they_acknowledge(limit: LimitBroker, key: str) -> None:
    """Bench.run compares the log's end with the acknowledged records, and raises otherwise."""
    small = replace(BY_KEY[key], bytes_max=64 << 20)
    # A shorter window may pass without an answer where others have the processors.
    block = Bench(limit, seconds=0.3, warm_s=0.02).run(small)
    assert block.requests > 0 and block.records > 0
    assert block.broker_cpu_s > 0


def test_large_fetches_are_walked_by_their_heads(limit: LimitBroker) -> None:
    with limit.client() as client:
        topic = client.create_topic("uniform", 1)
        body = batch.of_size(16 << 10)
        filling = requests.produce(7, topic, [(Partition(0, expected_offset=0), body)], acks=1)
        stream = Stream("produce", 7, (filling,), in_flight=5, send_limit=300)
        Load(Run(limit.host, limit.port, (stream,), warm_s=0, window_s=0)).go()
        reading = Stream(
            "fetch",
            4,
            (requests.fetch(4, topic, [Partition(0, start_offset=0, end_offset=300)]),),
            partition_max_bytes=1 << 20,
            uniform_bytes=16 << 10,
            uniform_records=1,
            verify_every=4,
            send_limit=50,
        )
        run = Run(limit.host, limit.port, (reading,), warm_s=0, window_s=0)
        counted = Load(run).go()["streams"][0]
    # Round after round: 64 batches of 16 KB to an answer, 44 in the one that meets the end.
    rounds, left = divmod(50, 5)
    assert counted["records_all"] == rounds * 300 + left * 64
    assert 0 < counted["verified_batches"] < counted["records_all"]


def test_a_broken_batch_is_an_error(limit: LimitBroker) -> None:
    with limit.client() as client:
        topic = client.create_topic("broken", 1)
        body = batch.of_records(100)
        good = requests.produce(7, topic, [(Partition(0), body)], acks=1)
        bad = bytearray(good.frame)
        bad[-5] ^= 1
        stream = Stream("produce", 7, (replace(good, frame=bytes(bad)),), send_limit=3)
        run = Run(limit.host, limit.port, (stream,), warm_s=0, window_s=0)
        counted = Load(run).go()["streams"][0]
        assert (counted["errors"], counted["first_error"]) == (3, 2)
        assert client.offsets(topic) == [0]


def test_fixed_rate_measures_from_the_intended_time(limit: LimitBroker) -> None:
    cell = Cell("rate", "", "produce", 100, 2, 5, rate=500.0)
    block = Bench(limit, seconds=0.4, warm_s=0).run(cell)
    # Every request that the window meant is in the histogram, whatever held it up.
    assert block.latency.total == pytest.approx(200, abs=2)


def _produce_answer(offset: int, code: int = 0, partition: int = 0) -> bytes:
    written = Writer().put("i", 1).string("t").put("i", 1)
    return bytes(written.put("ihqqq", partition, code, offset, -1, 0).put("i", 0).data)


def _against(answer: object, count: int = 3, **partition: int) -> dict[str, object]:
    body = batch.of_records(100)
    made = requests.produce(7, TOPIC, [(Partition(0, **partition), body)], acks=1)
    stream = Stream("produce", 7, (made,), send_limit=count)
    with FakeBroker(answer) as broker:  # type: ignore[arg-type]
        run = Run("127.0.0.1", broker.port, (stream,), warm_s=0, window_s=0, stall_s=20)
        result: dict[str, object] = Load(run).go()["streams"][0]
        return result


def test_offsets_must_grow() -> None:
    with pytest.raises(LoadError, match="offset 0 of partition 0 after 0"):
        _against(lambda number, frame: bytes(_produce_answer(0)))


def test_a_sole_writer_knows_its_offsets() -> None:
    with pytest.raises(LoadError, match="offset 2 of partition 0 where 1 had to come"):
        _against(lambda number, frame: bytes(_produce_answer((number - 1) * 2)), expected_offset=0)


def test_error_codes_are_counted() -> None:
    counted = _against(lambda number, frame: bytes(_produce_answer(number, code=6)))
    assert (counted["errors"], counted["first_error"], counted["records_all"]) == (3, 6, 0)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (bytes(_produce_answer(0, partition=7)), "not asked for"),
        (bytes(_produce_answer(0))[:-6], "ends early"),
        (b"\x7f\xff\xff\xff", "ends early"),
        (None, "closed the connection"),
    ],
)
def test_malformed_answers_end_the_run(answer: bytes | None, match: str) -> None:
    with pytest.raises(LoadError, match=match):
        _against(lambda number, frame: answer)


@pytest.mark.parametrize("seed", range(20))
def test_random_answers_never_pass(seed: int) -> None:
    """Noise where an answer should be ends the run or is counted as an error."""
    noise = random.Random(seed).randbytes(random.Random(seed).randrange(0, 200))
    try:
        counted = _against(lambda number, frame: noise)
    except LoadError:
        return
    assert counted["errors"]


def test_fetch_must_go_on_where_it_stopped() -> None:
    body = batch.of_records(100).data

    def answer(number: int, frame: bytes) -> bytes:
        w = Writer().put("i", 0).put("i", 1).string("t").put("i", 1)
        return bytes(w.put("ihqq", 0, 0, 9, 9).put("i", -1).bytes(body).data)

    reading = Stream("fetch", 4, (requests.fetch(4, TOPIC, [Partition(0)]),), tail=True)
    with FakeBroker(answer) as broker:
        run = Run("127.0.0.1", broker.port, (reading,), warm_s=0, window_s=5, stall_s=20)
        # The first batch is offset 0; it must not come again at offset 1.
        with pytest.raises(LoadError, match=r"batch 0\.\.0 of partition 0 where offset 1 had to"):
            Load(run).go()


def test_a_load_that_cannot_be_run_is_refused() -> None:
    with pytest.raises(ValueError, match="streams"):
        Load(Run("127.0.0.1", 1, ()))
    outside = Connection(b"frame", (Partition(0),), (Batch(0, 100, 1, 0, 0),))
    with pytest.raises(ValueError, match="outside"):
        Load(Run("127.0.0.1", 1, (Stream("produce", 7, (outside,)),)))
    with pytest.raises(ValueError, match="in_flight"):
        Load(Run("127.0.0.1", 1, (Stream("produce", 7, (outside,), in_flight=0),)))


def test_nothing_of_a_load_is_left(limit: LimitBroker) -> None:
    def files() -> int:
        return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))

    bench = Bench(limit, seconds=0.02, warm_s=0)
    bench.run(BY_KEY["p-100-4x5"])
    with collected_by_hand():
        before = files()
        for _ in range(3):
            bench.run(BY_KEY["p-100-4x5"])
        assert files() == before
