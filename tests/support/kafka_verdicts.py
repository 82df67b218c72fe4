"""What Apache Kafka's own classes say of record batches: Verdicts.java in a JVM of its own.

`digest_of` is the same CRC-32 over records that the program answers with.
"""

from __future__ import annotations

import struct
import subprocess
import threading
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from kbroker.protocol.record_batch import Record
from tests.clients.agents import programs
from tests.support import kafka_classes

_ANSWER: Final = struct.Struct(">BIH")
_PRODUCED, _COMPACTED, _APPEND_TIME, _CONSUMED = 1, 2, 4, 8


class Verdict(NamedTuple):
    produced: bool  # into a topic with CreateTime
    produced_compacted: bool
    produced_append_time: bool  # into a topic with LogAppendTime
    consumed: bool  # all of it, with the content that has this digest
    digest: int
    tombstones: int


class KafkaVerdicts:
    """A context manager; `ask` as often as you like."""

    def __enter__(self) -> Self:
        classes = programs.build("java")
        self._process = subprocess.Popen(
            kafka_classes.command("Verdicts", classes=classes, heap="-Xmx512m", log="info"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, batches: Sequence[bytes]) -> list[Verdict]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        feeder = threading.Thread(target=self._feed, args=(batches,))
        feeder.start()
        answer = stdout.read(_ANSWER.size * len(batches))
        feeder.join()
        return [
            Verdict(
                bool(taken & _PRODUCED), bool(taken & _COMPACTED), bool(taken & _APPEND_TIME),
                bool(taken & _CONSUMED), digest, tombstones,
            )
            for taken, digest, tombstones in _ANSWER.iter_unpack(answer)
        ]  # fmt: skip

    def _feed(self, batches: Sequence[bytes]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        for batch in batches:
            stdin.write(struct.pack(">i", len(batch)) + batch)
        stdin.flush()


def digest_of(records: Iterable[Record]) -> int:
    """Offset, timestamp, key, value and headers of each."""
    crc = 0

    def add(number: int) -> None:
        nonlocal crc
        crc = zlib.crc32(struct.pack(">q", number), crc)

    def add_bytes(data: bytes | None) -> None:
        nonlocal crc
        add(-1 if data is None else len(data))
        crc = zlib.crc32(data or b"", crc)

    for record in records:
        add(record.offset)
        add(record.timestamp_ms)
        add_bytes(record.key)
        add_bytes(record.value)
        add(len(record.headers))
        for name, value in record.headers:
            add_bytes(name.encode())
            add_bytes(value)
    return crc
