"""kcat, unchanged: text in through -P, the same bytes out through -C, and its listings.

The big stream is as large as KBROKER_BIG_BYTES says (tests/support/corpus.py).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.clients.adapters import CODECS
from tests.support import corpus, requirements
from tests.support.batches import Batch

pytestmark = pytest.mark.client

TIMEOUT_S = 60
BatchesOf = Callable[..., list[Batch]]


class Kcat:
    def __init__(self, bootstrap: str) -> None:
        self.command = [requirements.kcat(), "-b", bootstrap]

    def run(self, *arguments: str, stdin: bytes = b"", timeout_s: float = TIMEOUT_S) -> bytes:
        ran = subprocess.run(
            [*self.command, *arguments], input=stdin, capture_output=True, timeout=timeout_s
        )
        assert ran.returncode == 0, ran.stderr.decode(errors="replace")
        return ran.stdout


@pytest.fixture
def kcat(bootstrap: str) -> Kcat:
    return Kcat(bootstrap)


@pytest.mark.parametrize("codec", CODECS)
def test_text_through_and_back(kcat: Kcat, topic: str, codec: str, batches_of: BatchesOf) -> None:
    text = b"".join(line + b"\n" for line in corpus.lines(500_000))
    kcat.run("-P", "-t", topic, "-p", "0", "-z", codec, stdin=text)
    assert kcat.run("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == text
    batches = batches_of(topic)
    # A few records that would not get smaller go plain; the stream must not.
    packed = [batch for batch in batches if batch.record_count >= corpus.RECORDS_THAT_PACK]
    assert {batch.codec for batch in packed} == {codec}
    assert sum(batch.record_count for batch in batches) == text.count(b"\n")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("codec", CODECS)
def test_a_big_stream(
    kcat: Kcat, topic: str, codec: str, batches_of: BatchesOf, tmp_path: Path
) -> None:
    source = tmp_path / "lines"
    sent = write_lines(source, corpus.lines(corpus.big_bytes()))
    kcat.run("-P", "-t", topic, "-p", "0", "-z", codec, "-l", str(source), timeout_s=400)
    source.unlink()
    with subprocess.Popen(
        [*kcat.command, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"],
        stdout=subprocess.PIPE,
    ) as consumer:
        assert consumer.stdout is not None
        received = hashlib.file_digest(consumer.stdout, "sha256").hexdigest()
    assert (consumer.returncode, received) == (0, sent)
    packed = [b for b in batches_of(topic) if b.record_count >= corpus.RECORDS_THAT_PACK]
    assert {batch.codec for batch in packed} == {codec}


def write_lines(path: Path, lines: Iterable[bytes]) -> str:
    """Write the lines and return the digest of the file."""
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        while block := b"".join(line + b"\n" for line in itertools.islice(lines, 20_000)):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def test_keys_headers_and_null_values(kcat: Kcat, topic: str) -> None:
    kcat.run("-P", "-t", topic, "-p", "0", "-K", ":", "-Z", "-H", "a=1", "-H", "b=2",
             stdin=b"k1:v1\nk2:\nk3:v3\n")  # fmt: skip
    printed = kcat.run("-C", "-t", topic, "-p", "0", "-e", "-q", "-o", "beginning",
                     "-f", "%o %k %S %s %h\\n")  # fmt: skip
    assert printed.splitlines() == [b"0 k1 2 v1 a=1,b=2", b"1 k2 -1  a=1,b=2", b"2 k3 2 v3 a=1,b=2"]


def test_reading_from_an_offset_and_from_the_end(kcat: Kcat, topic: str) -> None:
    kcat.run("-P", "-t", topic, "-p", "0", stdin=b"".join(b"%d\n" % n for n in range(100)))
    read = ("-C", "-t", topic, "-p", "0", "-e", "-q")
    assert kcat.run(*read, "-o", "97") == b"97\n98\n99\n"
    assert kcat.run(*read, "-o", "-2") == b"98\n99\n"
    assert kcat.run(*read, "-o", "end") == b""
    assert kcat.run(*read, "-o", "beginning", "-c", "2") == b"0\n1\n"


def test_listing(kcat: Kcat, make_topic: Callable[..., str], bootstrap: str) -> None:
    topic = make_topic(partitions=3)
    listed = json.loads(kcat.run("-L", "-J"))
    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap]
    partitions = {t["topic"]: t["partitions"] for t in listed["topics"]}[topic]
    (node,) = (broker["id"] for broker in listed["brokers"])
    for number, partition in enumerate(sorted(partitions, key=lambda p: p["partition"])):
        assert (partition["partition"], partition["leader"]) == (number, node)
        assert [r["id"] for r in partition["replicas"]] == [node]
        assert [r["id"] for r in partition["isrs"]] == [node]


def test_asking_for_offsets_by_time(kcat: Kcat, topic: str) -> None:
    kcat.run("-P", "-t", topic, "-p", "0", stdin=b"one\ntwo\n")
    for asked, answered in (("-2", b"0"), ("0", b"0"), ("-1", b"2")):
        assert kcat.run("-Q", "-t", f"{topic}:0:{asked}").split()[-1] == answered, asked


def test_an_idempotent_producer(kcat: Kcat, topic: str, batches_of: BatchesOf) -> None:
    kcat.run("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", stdin=b"a\nb\n")
    assert all(batch.producer_id >= 0 for batch in batches_of(topic))
