"""Text from outside: texts that fit into an answer again, and the part that is printed."""

from __future__ import annotations

import random
import zlib

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import LABEL_CHARS_MAX, SHOWN_CHARS_MAX, TEXT_BYTES_MAX
from kbroker.outside_text import can_be_told, label, printable
from kbroker.protocol.wire import Reader, Writer

NO_UTF8 = b"\xff" * 11_000


@pytest.mark.parametrize("flexible", [False, True])
def test_a_text_that_is_no_utf8_comes_in_and_may_be_too_long_to_go_out(flexible: bool) -> None:
    out = Writer(flexible=False)
    out.int16(len(NO_UTF8))
    text = Reader(out.getvalue() + NO_UTF8, flexible=False).string()
    assert text == "\ufffd" * 11_000
    assert not can_be_told(text)
    with pytest.raises(KafkaError) as raised:
        Writer(flexible=flexible).string(text)
    assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("text", "beside", "fits"),
    [
        (None, 0, True),
        ("", 0, True),
        ("g" * TEXT_BYTES_MAX, 0, True),
        ("g" * (TEXT_BYTES_MAX - 37), 37, True),
        ("g" * (TEXT_BYTES_MAX - 36), 37, False),
        ("\u00e9" * (TEXT_BYTES_MAX // 2), 0, True),
        ("\u00e9" * (TEXT_BYTES_MAX // 2 + 1), 0, False),
        ("\U0001f600" * (TEXT_BYTES_MAX // 4), 0, True),
        ("\U0001f600" * (TEXT_BYTES_MAX // 4 + 1), 0, False),
    ],
)
def test_texts_that_fit(text: str | None, beside: int, fits: bool) -> None:
    assert can_be_told(text, beside) is fits
    if text is not None and not beside and fits:
        Writer(flexible=True).string(text)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("orders", "orders"),
        ("größe", "größe"),
        ("a\nb\r\x1b[2J\0", "a\\nb\\r\\x1b[2J\\x00"),
        ("a\u2028b\u202e", "a\\u2028b\\u202e"),
        ("x" * SHOWN_CHARS_MAX, "x" * SHOWN_CHARS_MAX),
        ("x" * 300, "x" * SHOWN_CHARS_MAX + "... (300 characters)"),
    ],
)
def test_printed_text(text: str, seen: str) -> None:
    assert printable(text) == seen


def test_labels_are_bounded_and_stay_different() -> None:
    long = "x" * 30_000
    assert label("orders") == "orders"
    assert len({label(long), label(long + "y"), label(long[:-1])}) == 3
    assert len(label(long)) < LABEL_CHARS_MAX + 20


def test_no_client_can_make_two_groups_one_label() -> None:
    """Names with one CRC are easily found; a scrape with a series twice is refused as a whole."""
    start = zlib.crc32(b"x" * LABEL_CHARS_MAX)
    random_ = random.Random(1)
    ends: dict[int, str] = {}
    while True:
        end = random_.randbytes(8).hex()
        other = ends.setdefault(zlib.crc32(end.encode(), start), end)
        if other != end:
            break
    assert label("x" * LABEL_CHARS_MAX + end) != label("x" * LABEL_CHARS_MAX + other)
