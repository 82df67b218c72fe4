"""The primitive types, both encodings, against kio's readers and writers."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import readers, writers

from kbroker import limits
from kbroker.errors import KafkaError
from kbroker.protocol.wire import (
    ProtocolError,
    Reader,
    Writer,
    encode_string,
    encode_unsigned_varint,
)


def by_kio(write: Any, value: Any) -> bytes:
    out = io.BytesIO()
    write(out, value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "bits"), [("int8", 8), ("int16", 16), ("int32", 32), ("int64", 64)]
)
@given(data=st.data())
def test_integers(name: str, bits: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    out = Writer(flexible=True)
    getattr(out, name)(value)
    assert out.getvalue() == by_kio(getattr(writers, f"write_{name}"), value)
    assert getattr(Reader(out.getvalue(), flexible=True), name)() == value


@given(value=st.integers(0, 2**32 - 1))
def test_varints(value: int) -> None:
    encoded = encode_unsigned_varint(value)
    assert encoded == by_kio(writers.write_unsigned_varint, value)
    reader = Reader(encoded, flexible=True)
    assert (reader.unsigned_varint(), reader.left) == (value, 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_no_varint(value: int) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        encode_unsigned_varint(value)


@pytest.mark.parametrize("data", [b"\x80" * 5, b"\xff\xff\xff\xff\x1f", b"\x80\x80", b""])
def test_varints_that_are_too_long_or_cut(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Reader(data, flexible=True).unsigned_varint()


def test_nothing_may_be_written_first() -> None:
    out = Writer(flexible=False)
    out.raw(b"")
    assert out.getvalue() == b""
    out.int16(7)
    assert out.getvalue() == b"\0\7"


@pytest.mark.parametrize("flexible", [False, True])
@given(value=st.none() | st.text(max_size=300))
def test_strings(flexible: bool, value: str | None) -> None:
    out = Writer(flexible=flexible)
    out.string(value)
    write = (
        writers.write_nullable_compact_string if flexible else writers.write_nullable_legacy_string
    )
    assert out.getvalue() == by_kio(write, value)
    reader = Reader(out.getvalue(), flexible=flexible)
    assert (reader.nullable_string(), reader.left) == (value, 0)


@pytest.mark.parametrize("flexible", [False, True])
def test_null_where_it_may_not_be(flexible: bool) -> None:
    null = Writer(flexible=flexible)
    null.string(None)
    with pytest.raises(ProtocolError, match="null"):
        Reader(null.getvalue(), flexible=flexible).string()
    null = Writer(flexible=flexible)
    null.array(None)
    assert Reader(null.getvalue(), flexible=flexible).nullable_array() is None
    with pytest.raises(ProtocolError, match="null"):
        Reader(null.getvalue(), flexible=flexible).array()


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert Reader(b"\x04a\xffb", flexible=True).string() == "a\ufffdb"


def test_a_string_is_no_longer_than_the_older_encoding_can_say() -> None:
    longest = "x" * 32767
    reader = Reader(encode_string(longest, flexible=True), flexible=True)
    assert reader.string() == longest
    with pytest.raises(ProtocolError, match="32768"):
        Reader(encode_unsigned_varint(32769) + b"x" * 32768, flexible=True).string()
    with pytest.raises(KafkaError):
        encode_string(longest + "x", flexible=True)


@pytest.mark.parametrize("value", [None, uuid.uuid4()])
def test_ids(value: uuid.UUID | None) -> None:
    out = Writer(flexible=False)
    out.uuid(value)
    assert out.getvalue() == by_kio(writers.write_uuid, value)
    assert Reader(out.getvalue(), flexible=False).uuid() == value


@pytest.mark.parametrize("flexible", [False, True])
def test_an_array_has_no_more_items_than_bytes(flexible: bool) -> None:
    out = Writer(flexible=flexible)
    out.array(3)
    head = out.getvalue()
    assert Reader(head + b"123", flexible=flexible).array() == 3
    with pytest.raises(ProtocolError):
        Reader(head + b"12", flexible=flexible).array()


def test_all_arrays_of_a_request_share_one_budget() -> None:
    half = limits.ARRAY_ITEMS_MAX // 2 + 1
    reader = Reader(half.to_bytes(4) * 2 + bytes(2 * half), flexible=False)
    assert reader.array() == half
    with pytest.raises(ProtocolError):
        reader.array()


def test_tagged_fields_known_unknown_cut_and_too_many() -> None:
    data = b"\x03" + b"\x00\x02\x00\x07" + b"\x63\x01x" + b"\x01\x01\x05" + b"rest"
    seen: dict[int, int] = {}
    reader = Reader(data, flexible=True)
    reader.tags({0: lambda r: seen.update({0: r.int16()}), 1: lambda r: seen.update({1: r.int8()})})
    assert seen == {0: 7, 1: 5}
    assert reader.left == 4
    Reader(b"anything", flexible=False).tags()
    for size in range(len(data) - 4):
        with pytest.raises(ProtocolError):
            Reader(data[:size], flexible=True).tags()
    many = encode_unsigned_varint(limits.TAGGED_FIELDS_MAX + 1)
    with pytest.raises(ProtocolError, match="tagged"):
        Reader(many + b"\x00\x00" * (limits.TAGGED_FIELDS_MAX + 1), flexible=True).tags()


@given(data=st.binary(max_size=12), steps=st.lists(st.integers(0, 11), max_size=8))
def test_reading_never_leaves_the_bytes(data: bytes, steps: list[int]) -> None:
    for flexible in (False, True):
        reader = Reader(data, flexible=flexible)
        reads = [
            *(reader.int8, reader.int16, reader.int32, reader.int64, reader.uuid, reader.boolean),
            *(reader.nullable_string, reader.nullable_bytes, reader.nullable_array),
            *(reader.tags, reader.unsigned_varint, reader.float64),
        ]
        try:
            for step in steps:
                reads[step]()
        except ProtocolError:
            pass
        assert 0 <= reader.left <= len(data)


def test_kio_reads_our_bytes() -> None:
    out = Writer(flexible=True)
    out.string("abc")
    out.array(2)
    value, size = readers.read_compact_string(out.getvalue(), 0)
    assert (value, size) == ("abc", 4)
    assert readers.read_compact_array_length(out.getvalue(), size)[0] == 2
