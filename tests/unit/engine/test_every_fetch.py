"""Each file operation of a Fetch fails once: would wait, no answer of the disk, few bytes.

The log is from before a start, so nothing of it is remembered, and every answer begins on a
Processor's thread, which waits for nothing, and goes on in a run or where waiting is allowed. What
a client gets is what it gets of a sound disk, late or not, or an error, or the end of its
connection; never other records, fewer records, or records without their aborted transactions.
"""

from __future__ import annotations

import errno
import struct
from typing import Final, NamedTuple

import pytest

from kbroker.testing.file_faults import FOREVER, Fault, FileFaults, Seen
from tests.unit.engine.test_read_committed import PLAIN, aborted, end, from_before_a_start, write
from tests.unit.engine.wire import Ask, fetch_frame, fetched_in
from tests.unit.net.harness import Rig, Topic

VERSION: Final = 12
NOW: Final = ("open_now", "read_now")
OFFSETS: Final = (0, 20)


class Way(NamedTuple):
    """How an operation fails, and whether all after it of its kind do."""

    operations: tuple[str, ...]
    error: int = 0
    bytes_max: int = -1
    times: int = 1

    def at(self, nth: int) -> Fault:
        return Fault(self.operations, "t-0", nth, self.times, self.error, self.bytes_max)


WAYS: Final = (
    Way(NOW, errno.EAGAIN),
    Way(NOW, errno.EAGAIN, times=FOREVER),
    Way(("read_now",), bytes_max=7),
    Way(("open_now", "read_now", "open", "read"), errno.EIO),
    Way(("open_now", "read_now", "open", "read"), errno.EIO, times=FOREVER),
    Way(("read",), bytes_max=7),
    Way(("read", "read_now"), bytes_max=0),
)


class Answer(NamedTuple):
    error: int
    records: bytes
    aborted: frozenset[tuple[int, int]]

    def is_as_good_as(self, other: Answer) -> bool:
        """One transaction too many does no harm, where it is not known how far the records go."""
        return self.records == other.records and self.aborted >= other.aborted


def answers(rig: Rig, topic: Topic, *, inline: bool) -> list[Answer | None]:
    """None: the connection ended."""
    found: list[Answer | None] = []
    for offset in OFFSETS:
        client = rig.client()
        asked = Ask(topic, 0, offset, 500 if inline else 1 << 20)
        client.send(fetch_frame(VERSION, [asked], read_committed=True))
        prefix = client.read(4)
        payload = client.read(struct.unpack(">i", prefix)[0]) if len(prefix) == 4 else b""
        client.close()
        if len(prefix) < 4 or len(payload) < struct.unpack(">i", prefix)[0]:
            found.append(None)
            continue
        got = fetched_in(VERSION, payload)
        assert got.error == 0
        only = got.only
        found.append(Answer(only.error, only.records or b"", frozenset(aborted(only) or [])))
    return found


def fits(way: Way, seen: Seen) -> bool:
    return seen.operation in way.operations and "t-0" in seen.path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inline", [True, False])
def test_an_answer_is_right_or_an_error(rig: Rig, way: Way, inline: bool) -> None:
    topic = rig.create("t")
    for producer in range(12):
        write(topic.logs[0], producer, size=100 if producer % 2 else 3000)
        end(topic.logs[0], producer, committed=producer % 3 == 0)
        topic.logs[0].append(PLAIN)
    from_before_a_start(rig, topic)
    expected = answers(rig, topic, inline=inline)
    assert all(each and each.error == 0 and each.records for each in expected)
    from_before_a_start(rig, topic)
    with FileFaults() as faults:
        answers(rig, topic, inline=inline)
    # A fetch that comes again repeats some of its operations.
    count = sum(fits(way, each) for each in faults.seen) + 3
    right = 0
    for nth in range(1, count + 1):
        from_before_a_start(rig, topic)
        with FileFaults(way.at(nth)):
            found = answers(rig, topic, inline=inline)
        for got, wanted in zip(found, expected, strict=True):
            if got is None or got.error:
                assert got is None or not got.records
                assert way.error != errno.EAGAIN, "it is late, and no error"
                continue
            assert wanted and got.is_as_good_as(wanted), f"operation {nth} of {count}"
            right += 1
    assert right
