"""`kbroker produce` and `consume` through the real entry point, against the fake broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.cli.consume import Start, parse_start
from kbroker.cli.main import main
from kbroker.cli.produce import read_lines
from kbroker.compression import Codec
from kbroker.errors import ErrorCode, UsageError
from kbroker.protocol.record_batch import Record, decode_batches, encode_batch
from kbroker.types import ApiKey
from tests.unit.peer.fake_broker import FakeBroker, FakePartition, append

Run = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        yield fake


class PipeIn:
    """The standard input of a command: a real descriptor that gives these bytes."""

    def __init__(self, data: bytes) -> None:
        self._read, write = os.pipe()
        self._feeder = threading.Thread(target=self._feed, args=(write, data))
        self._feeder.start()

    @staticmethod
    def _feed(write: int, data: bytes) -> None:
        with os.fdopen(write, "wb") as pipe:
            pipe.write(data)

    def fileno(self) -> int:
        return self._read

    def close(self) -> None:
        self._feeder.join(10)
        os.close(self._read)


@pytest.fixture
def produce(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    def kbroker(data: bytes, *words: str) -> tuple[int, str]:
        stdin = PipeIn(data)
        monkeypatch.setattr(sys, "stdin", stdin)
        try:
            status = main(["produce", *words, "-b", broker.bootstrap])
        finally:
            stdin.close()
        return status, capsys.readouterr().err

    return kbroker


@pytest.fixture
def consume(broker: FakeBroker, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    def kbroker(*words: str) -> tuple[int, bytes, str]:
        status = main(["consume", *words, "-b", broker.bootstrap])
        captured = capfdbinary.readouterr()
        return status, captured.out, captured.err.decode()

    return kbroker


# --- produce ---


def test_lines_become_records(produce: Any, broker: FakeBroker) -> None:
    assert produce(b"one\n\xff\x00two\n\nlast", "t") == (0, "")
    assert [(r.key, r.value) for r in broker.records("t")] == [
        (None, b"one"),
        (None, b"\xff\x00two"),
        (None, b""),
        (None, b"last"),
    ]


def test_no_input_writes_nothing(produce: Any, broker: FakeBroker) -> None:
    assert produce(b"", "t") == (0, "")
    assert not broker.seen(ApiKey.PRODUCE)


def test_a_large_input_is_whole(produce: Any, broker: FakeBroker) -> None:
    lines = [b"%d " % i + b"x" * (i % 500) for i in range(20_000)]
    assert produce(b"\n".join(lines) + b"\n", "t", "-z", "lz4") == (0, "")
    assert [r.value for r in broker.records("t")] == lines
    assert len(broker.seen(ApiKey.PRODUCE)) < 200, "a pipe is read in pieces, not in lines"


def test_keys(produce: Any, broker: FakeBroker) -> None:
    produce(b"a:1\nb:2:3\nnone\n:4\n", "t", "-K", ":")
    produce(b"5", "t", "-k", "fixed")
    produce(b"k\t6", "t", "-K", "\\t")
    assert [(r.key, r.value) for r in broker.records("t")] == [
        (b"a", b"1"),
        (b"b", b"2:3"),
        (None, b"none"),
        (b"", b"4"),
        (b"fixed", b"5"),
        (b"k", b"6"),
    ]


def test_headers_null_and_partition(produce: Any, broker: FakeBroker) -> None:
    broker.add_topic("t", 3)
    produce(b"k:\n", "t", "-K", ":", "-Z", "-p", "2", "-H", "a=1=2", "-H", "b")
    (record,) = broker.records("t", 2)
    assert (record.key, record.value) == (b"k", None)
    assert record.headers == (("a", b"1=2"), ("b", None))


@pytest.mark.parametrize(("word", "acks"), [("0", 0), ("1", 1), ("-1", -1), ("all", -1)])
def test_acks_and_codec(produce: Any, broker: FakeBroker, word: str, acks: int) -> None:
    assert produce(b"v\n", "t", "--acks", word, "-z", "gzip")[0] == 0
    if acks == 0:
        return  # sent, and no answer says when it arrived
    (request,) = broker.seen(ApiKey.PRODUCE)
    assert request.acks == acks
    data = request.topic_data[0].partition_data[0].records
    assert next(decode_batches(data)).codec is Codec.GZIP


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-k", "a", "-K", ":"], "exclude each other"),
        (["-H", "=x"], "no name"),
        (["-z", "brotli"], "brotli"),
        (["-p", "-1"], "-1"),
    ],
)
def test_wrong_usage(produce: Any, words: list[str], said: str) -> None:
    status, err = produce(b"", "t", *words)
    assert status == 2 and said in err and err.count("\n") == 1


def test_a_refused_record(produce: Any, broker: FakeBroker) -> None:
    broker.script(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
    status, err = produce(b"v\n", "t")
    assert (status, err) == (1, "error: MESSAGE_TOO_LARGE (10): t-0: not written\n")


def test_lines_are_given_as_they_come() -> None:
    read, write = os.pipe()
    lines = read_lines(read)
    os.write(write, b"a\nb\npart")
    assert next(lines) == [b"a", b"b"]
    os.write(write, b" of\nc\n")
    assert next(lines) == [b"part of", b"c"]
    os.write(write, b"end")
    os.close(write)
    assert list(lines) == [[b"end"]]
    os.close(read)


# --- consume ---


def fill(broker: FakeBroker, partition: FakePartition, count: int, **record: Any) -> None:
    for number in range(count):
        fields = {"key": b"k", "value": b"%d" % number, "timestamp_ms": 1000 + number, **record}
        append(partition, encode_batch([Record(**fields)]))


def test_everything_to_the_end(consume: Run, broker: FakeBroker) -> None:
    fill(broker, broker.add_topic("t").partitions[0], 5)
    assert consume("t", "-e") == (0, b"0\n1\n2\n3\n4\n", "")


def test_the_end_is_not_the_high_watermark_of_a_leader_that_is_new(
    consume: Run, broker: FakeBroker
) -> None:
    """What was acknowledged by the leader before it may lie above that for a moment."""
    partition = broker.add_topic("t").partitions[0]
    fill(broker, partition, 5)
    partition.late_fetches = 2
    assert consume("t", "-e") == (0, b"0\n1\n2\n3\n4\n", "")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["-o", "beginning", "-e"], b"01234"),
        (["-o", "3", "-e"], b"34"),
        (["-o", "-2", "-e"], b"34"),
        (["-o", "-99", "-e"], b"01234"),
        (["-o", "s@1003", "-e"], b"34"),
        (["-o", "s@9999", "-e"], b""),
        (["-o", "end", "-e"], b""),
        (["-o", "5", "-e"], b""),
        (["--from-beginning", "-c", "2"], b"01"),
        (["-o", "1", "-c", "1"], b"1"),
    ],
)
def test_where_to_begin_and_stop(
    consume: Run, broker: FakeBroker, words: list[str], values: bytes
) -> None:
    fill(broker, broker.add_topic("t").partitions[0], 5)
    assert consume("t", "-f", "%s", *words) == (0, values, "")


def test_a_batch_is_entered_in_its_middle(consume: Run, broker: FakeBroker) -> None:
    records = [Record(None, b"%d" % number, timestamp_ms=1) for number in range(10)]
    append(broker.add_topic("t").partitions[0], encode_batch(records, codec=Codec.ZSTD))
    assert consume("t", "-o", "7", "-e", "-f", "%o=%s ")[1] == b"7=7 8=8 9=9 "


def test_the_default_start_is_the_end(consume: Run, broker: FakeBroker) -> None:
    """Ten old records, then ten that are written when the consumer's first fetch has come."""
    partition = broker.add_topic("t").partitions[0]
    fill(broker, partition, 10, value=b"old")

    def write_when_reading() -> None:
        broker.wait_for(ApiKey.FETCH)
        fill(broker, partition, 10, value=b"new")

    writer = threading.Thread(target=write_when_reading)
    writer.start()
    status, out, _ = consume("t", "-c", "10")
    writer.join(10)
    assert (status, out) == (0, b"new\n" * 10)


def test_all_letters(consume: Run, broker: FakeBroker) -> None:
    partition = broker.add_topic("t").partitions[0]
    headers = (("a", b"1"), ("b", None))
    fill(broker, partition, 1, key=b"key", value=b"value", headers=headers)
    fill(broker, partition, 1, key=None, value=None)
    form = "%t/%p/%o %T %k(%K) %s(%S) [%h] %%\\x41\\t\\\\n\\n"
    assert consume("t", "-e", "-f", form)[1] == (
        b"t/0/0 1000 key(3) value(5) [a=1,b=NULL] %A\t\\n\nt/0/1 1000 (-1) (-1) [] %A\t\\n\n"
    )


def test_json(consume: Run, broker: FakeBroker) -> None:
    partition = broker.add_topic("t").partitions[0]
    fill(broker, partition, 1, key=None, value="ü".encode(), headers=(("a", b"1"),))
    assert json.loads(consume("t", "-e", "-J")[1]) == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp_ms": 1000,
        "headers": [{"name": "a", "value": "1"}],
        "key": None,
        "value": "ü",
    }


def test_partitions(consume: Run, broker: FakeBroker) -> None:
    topic = broker.add_topic("t", 3)
    for partition in topic.partitions.values():
        fill(broker, partition, 2)
    out = consume("t", "-e", "-f", "%p%s ")[1].split()
    assert sorted(out) == [b"00", b"01", b"10", b"11", b"20", b"21"]
    assert consume("t", "-e", "-p", "1", "-f", "%p%s ")[1] == b"10 11 "
    status, _, err = consume("t", "-e", "-p", "3")
    assert status == 1 and "partitions 0-2, not 3" in err


def test_small_answers_are_asked_for_until_the_end(consume: Run, broker: FakeBroker) -> None:
    fill(broker, broker.add_topic("t").partitions[0], 30, value=b"x" * 100_000)
    status, out, _ = consume("t", "-e", "-f", "%S ")
    assert (status, out.split()) == (0, [b"100000"] * 30)
    assert len(broker.seen(ApiKey.FETCH)) >= 3


def test_control_batches_are_not_records(consume: Run, broker: FakeBroker) -> None:
    from kbroker.protocol._crc32c import crc32c

    partition = broker.add_topic("t").partitions[0]
    fill(broker, partition, 1)
    marker = bytearray(encode_batch([Record(b"\0\0\0\1", b"\0\0\0\0\0\0", timestamp_ms=1)]))
    marker[22] |= 0x30
    marker[17:21] = crc32c(bytes(marker[21:])).to_bytes(4, "big")
    append(partition, bytes(marker))
    fill(broker, partition, 1)
    assert consume("t", "-e", "-f", "%o ")[1] == b"0 2 "


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["nope", "-e"], 1, "UNKNOWN_TOPIC_OR_PARTITION (3): topic 'nope'"),
        (["t", "-o", "99", "-e"], 1, "OFFSET_OUT_OF_RANGE (1): t-0: there is no offset 99"),
        (["t", "-o", "x"], 2, "offset 'x'"),
        (["t", "-o", "s@"], 2, "offset 's@'"),
        (["t", "-o", "1", "--from-beginning"], 2, "exclude each other"),
        (["t", "-f", "%Z"], 2, "unknown %Z"),
        (["t", "-f", "%"], 2, "unknown %"),
        (["t", "-f", "\\xZZ"], 2, "no byte"),
        (["t", "-c", "0"], 2, "0"),
    ],
)
def test_trouble_is_one_line(
    consume: Run, broker: FakeBroker, words: list[str], status: int, said: str
) -> None:
    broker.add_topic("t")
    got, out, err = consume(*words)
    assert (got, out) == (status, b"") and said in err
    assert err.startswith("error: ") and err.count("\n") == 1


def test_starts() -> None:
    assert parse_start("-5") == Start("tail", 5)
    assert parse_start("s@17") == Start("time", 17)
    assert parse_start("0") == Start("offset", 0)
    for text in ("", "-", "--5", "1.5", "²", "9223372036854775808"):
        with pytest.raises(UsageError):
            parse_start(text)


def test_a_closed_output_ends_quietly(broker: FakeBroker) -> None:
    fill(broker, broker.add_topic("t").partitions[0], 40, value=b"x" * 100_000)
    command = [sys.executable, "-m", "kbroker", "consume", "t", "-e", "-b", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(60)


@pytest.mark.parametrize("words", [["topic", "list"], ["topic", "--help"], ["consume", "--help"]])
def test_modules_that_a_command_does_not_import(broker: FakeBroker, words: list[str]) -> None:
    """A command answers within 150 ms: the schema library, codecs and uvloop stay out of it."""
    if words[-1] != "--help":
        words = [*words, "-b", broker.bootstrap]
    script = (
        "import sys; from kbroker.cli.main import main; status = main(sys.argv[1:]);"
        "heavy = {'kio', 'cramjam', 'uvloop', 'numpy', 'hypothesis', 'http', 'sqlite3'};"
        "print(sorted(heavy & sys.modules.keys()), status, file=sys.stderr);"
        "assert 'asyncio' not in sys.modules or '--help' not in sys.argv"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[] 0"
