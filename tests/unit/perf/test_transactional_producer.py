"""The transactional producer of perf: what it repeats, and how its batches go on."""

from __future__ import annotations

from typing import Any

import pytest

from perf.client import ClientError
from perf.requests import Topic
from perf.transactions.producer import TV1, TV2, Kind, Producer, response, values
from perf.wire import Reader, Writer
from tests.support.record_batches import ParsedBatch, parse_batches

TOPIC = Topic("t", bytes(16), 2)
RECORDS = 3


class FakeClient:
    """Gives producer id 7, epoch 4."""

    def ask(self, api_key: int, version: int, body: bytes) -> Reader:
        return Reader(bytes(Writer(flexible=True).put("ihqh", 0, 0, 7, 4).tags().data), True)


def producer(kind: Kind) -> Producer:
    client: Any = FakeClient()
    return Producer(client, "x", kind, TOPIC, values(RECORDS, 10))


def added(frame: bytes, *codes: int) -> Reader:
    w = Writer(flexible=True).put("i", 0).tags().put("i", 0).count(1).string("t").count(len(codes))
    for index, code in enumerate(codes):
        w.put("ih", index, code).tags()
    return response(frame, bytes(w.tags().tags().data))


def ended(frame: bytes, epoch: int) -> Reader:
    w = Writer(flexible=True).put("i", 0).tags().put("ihqh", 0, 0, 7, epoch).tags()
    return response(frame, bytes(w.data))


def batches(made: Producer) -> list[ParsedBatch]:
    data, at = made.batch(), 0
    found = []
    for _ in range(TOPIC.partitions):
        at = data.index(b"\x02", data.index(bytes(8), at) + 16) - 16  # from its magic
        found += parse_batches(data[at : at + made.batch_bytes])
        at += made.batch_bytes
    return found


def test_a_concurrent_request_is_repeated() -> None:
    made = producer(TV1)
    steps = made.begun()
    frame = next(steps)
    assert steps.send(added(frame, 51, 51)) == frame
    assert made.repeats == 1
    with pytest.raises(StopIteration):
        steps.send(added(frame, 0, 0))
    steps = made.begun()
    with pytest.raises(ClientError, match="49"):
        steps.send(added(next(steps), 49, 49))


@pytest.mark.parametrize(("kind", "epoch", "sequence"), [(TV1, 4, RECORDS), (TV2, 5, 0)])
def test_the_next_transaction(kind: Kind, epoch: int, sequence: int) -> None:
    """TV1 goes on with the sequence, TV2 begins with the epoch of the response."""
    made = producer(kind)
    for each in batches(made):
        assert (each.producer_id, each.producer_epoch, each.base_sequence) == (7, 4, 0)
        assert each.attributes == 0x10
    steps = made.ended()
    with pytest.raises(StopIteration):
        steps.send(ended(next(steps), 5))
    for each in batches(made):
        assert (each.producer_epoch, each.base_sequence) == (epoch, sequence)
