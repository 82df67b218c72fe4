"""Copies for a dead-letter topic: what they have, and what is left out."""

from __future__ import annotations

import pytest

from kbroker.compression import Codec
from kbroker.engine.share.copies import Context, Copies, copies_of
from kbroker.limits import SHARE_DEAD_LETTER_BYTES_MAX
from kbroker.protocol.record_batch import Record, decode_batches, encode_batch
from kbroker.replica.share.partition import ToCopy
from kbroker.replica.share.states import Event
from kbroker.types import TopicPartition

CONTEXT = Context("g", TopicPartition("orders", 7), 5, True, 1_048_588, 1_234)
WHOLE = Record(b"key", b"value", (("one", b"1"), ("none", None)), 5)


def log(*batches: list[Record], **how: object) -> bytes:
    data, base = b"", 0
    for records in batches:
        data += encode_batch(records, base_offset=base, **how)  # type: ignore[arg-type]
        base += len(records)
    return data


def wanted(first: int, last: int, cause: Event | None = Event.REJECT, count: int = 1) -> ToCopy:
    return ToCopy(first, last, count, cause)


def made(copies: Copies) -> list[Record]:
    return [record for batch in decode_batches(copies.batch) for record in batch.records]


def headers(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_copy_has_the_parts_of_its_record_and_names_its_place(codec: Codec) -> None:
    data = log([WHOLE] * 3, [WHOLE] * 3, codec=codec)
    copies = copies_of(data, [wanted(4, 4)], CONTEXT)
    (copy,) = made(copies)
    assert (copies.copied, copies.left_out) == (1, 0)
    assert copies.reached >= 4
    assert (copy.key, copy.value, copy.timestamp_ms) == (b"key", b"value", 1_234)
    assert copy.headers[:2] == WHOLE.headers
    assert copy.headers[2:] == (
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"7"),
        ("__dlq.errors.offset", b"4"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
        ("kb-dead-letter-reason", b"rejected"),
    )


def test_without_the_record_a_copy_is_a_reference_alone() -> None:
    copies = copies_of(log([WHOLE] * 2), [wanted(0, 1)], CONTEXT._replace(is_whole=False))
    assert (copies.copied, copies.left_out, copies.reached) == (2, 0, 1)
    for offset, copy in enumerate(made(copies)):
        assert (copy.key, copy.value) == (None, None)
        assert headers(copy)["__dlq.errors.offset"] == str(offset)
        assert "kb-dead-letter-left-out" not in headers(copy)


@pytest.mark.parametrize(
    ("cause", "count", "message", "reason"),
    [
        (Event.REJECT, 5, "Offset rejected by client.", "rejected"),
        (Event.RELEASE, 5, "Offset delivery count exceeded the threshold.", "released"),
        (Event.LOCK_ENDS, 5, "Offset delivery count exceeded the threshold.", "lock ended"),
        (Event.SESSION_ENDS, 5, "Offset delivery count exceeded the threshold.", "session ended"),
        (Event.USED_UP, 3, "Offset delivery count exceeded the threshold.", "limit lowered"),
        (None, 5, "Offset delivery count exceeded the threshold.", None),
        (None, 4, "Offset rejected by client.", None),
    ],
)
def test_the_reason(cause: Event | None, count: int, message: str, reason: str | None) -> None:
    (copy,) = made(copies_of(log([WHOLE]), [wanted(0, 0, cause, count)], CONTEXT))
    found = headers(copy)
    assert found["__dlq.errors.message"] == message
    assert found["__dlq.errors.delivery.count"] == str(count)
    assert found.get("kb-dead-letter-reason") == reason


def test_gaps_and_markers_have_no_copy() -> None:
    data = log([WHOLE] * 2)
    data += encode_batch([WHOLE], base_offset=4, control=True, transactional=True)
    data += encode_batch([WHOLE], base_offset=5)
    copies = copies_of(data, [wanted(1, 5)], CONTEXT)
    assert [headers(copy)["__dlq.errors.offset"] for copy in made(copies)] == ["1", "5"]
    assert copies.reached == 5
    nothing = copies_of(data, [wanted(2, 4)], CONTEXT)
    assert (nothing.batch, nothing.copied, nothing.reached) == (b"", 0, 4)


def test_a_record_that_is_too_large_is_left_out() -> None:
    data = log([WHOLE, WHOLE._replace(value=b"x" * 5_000), WHOLE])
    copies = copies_of(data, [wanted(0, 2)], CONTEXT._replace(bytes_max=4_000))
    assert (copies.copied, copies.left_out) == (3, 1)
    one, large, other = made(copies)
    assert (one.value, large.value, large.key, other.value) == (b"value", None, None, b"value")
    assert headers(large)["kb-dead-letter-left-out"] == "too large"
    assert len(copies.batch) <= 4_000


def test_a_batch_is_no_larger_than_the_topic_takes_and_the_rest_follows() -> None:
    data = log([WHOLE._replace(value=b"x" * 1_000)] * 10)
    context = CONTEXT._replace(bytes_max=4_000)
    seen: list[str] = []
    left = [wanted(0, 9)]
    while left:
        copies = copies_of(data, left, context)
        assert 0 < len(copies.batch) <= 4_000
        seen += [headers(copy)["__dlq.errors.offset"] for copy in made(copies)]
        first = copies.reached + 1
        left = [] if first > 9 else [wanted(first, 9)]
    assert seen == [str(offset) for offset in range(10)]


def test_a_record_larger_than_a_batch_of_ours_is_alone() -> None:
    large = WHOLE._replace(value=b"x" * (SHARE_DEAD_LETTER_BYTES_MAX + 1))
    context = CONTEXT._replace(bytes_max=10 * SHARE_DEAD_LETTER_BYTES_MAX)
    copies = copies_of(log([large, WHOLE]), [wanted(0, 1)], context)
    assert (copies.copied, copies.left_out, copies.reached) == (1, 0, 0)


def test_a_damaged_batch_has_references() -> None:
    data = bytearray(log([WHOLE] * 3))
    data[-1] ^= 1
    copies = copies_of(bytes(data), [wanted(1, 2)], CONTEXT)
    assert (copies.copied, copies.left_out, copies.reached) == (2, 2, 2)
    for copy in made(copies):
        assert headers(copy)["kb-dead-letter-left-out"] == "unreadable"


def test_several_runs_of_one_read() -> None:
    data = log([WHOLE] * 5, [WHOLE] * 5)
    runs = [wanted(1, 1), wanted(3, 5, Event.LOCK_ENDS, 5), wanted(9, 9)]
    copies = copies_of(data, runs, CONTEXT)
    found = [headers(copy) for copy in made(copies)]
    assert [each["__dlq.errors.offset"] for each in found] == ["1", "3", "4", "5", "9"]
    assert [each["__dlq.errors.delivery.count"] for each in found] == ["1", "5", "5", "5", "1"]
    assert copies_of(b"", runs, CONTEXT) == Copies(b"", 0, 0, 0)
