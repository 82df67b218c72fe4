"""Payloads as text: bounded, never changed, null is not empty."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.console.drawing import Form, draw, draw_headers, indented_json


@pytest.mark.parametrize(
    ("payload", "form", "text", "drawn_as"),
    [
        (None, Form.AUTO, None, "null"),
        (None, Form.HEX, None, "null"),
        (b"", Form.AUTO, "", "empty"),
        (b"abc", Form.AUTO, "abc", "text"),
        (b"abc", Form.HEX, "61 62 63", "hex"),
        (b"\xff", Form.AUTO, "ff", "hex"),
        (b"\xff", Form.TEXT, "ff", "hex"),
        (b"\0\1\2\3", Form.AUTO, "00 01 02 03", "hex"),
        (b"\0\1\2\3", Form.TEXT, "\0\1\2\3", "text"),
        ("a\tb\r\nß".encode(), Form.AUTO, "a\tb\r\nß", "text"),
        (b'{"a":[1,{}]}', Form.AUTO, '{"a":[1,{}]}', "text"),
        (b'{"a":[1,{}]}', Form.JSON, '{\n  "a": [\n    1,\n    {}\n  ]\n}', "json"),
        (b'{"a":1', Form.JSON, '{"a":1', "text"),
        (b"12", Form.JSON, "12", "text"),
    ],
)
def test_a_payload(payload: bytes | None, form: Form, text: str | None, drawn_as: str) -> None:
    assert draw(payload, form, 100) == (text, drawn_as)


@pytest.mark.parametrize("size", [9, 10, 11, 1_000_000])
@pytest.mark.parametrize("letter", ["a", "ß", "€", "😀"])
def test_a_long_text_is_cut(letter: str, size: int) -> None:
    drawn = draw((letter * size).encode(), Form.AUTO, 10)
    assert drawn.text == (letter * size if size <= 10 else letter * 10 + "…")


def test_long_bytes_are_cut() -> None:
    drawn = draw(b"\xff" * 1_000_000, Form.AUTO, 10)
    assert drawn.text == "ff ff ff f…"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(json_values.filter(lambda value: isinstance(value, list | dict)), st.booleans())
def test_indenting_changes_blanks_alone(value: object, compact: bool) -> None:
    text = json.dumps(value, separators=(",", ":") if compact else None, ensure_ascii=compact)
    indented = indented_json(text)
    assert indented is not None
    assert json.loads(indented) == value
    squeezed = json.dumps(json.loads(indented), ensure_ascii=compact)
    assert squeezed == json.dumps(value, ensure_ascii=compact)


def test_numbers_and_repeated_names_stay() -> None:
    text = '{"a":1e999,"a":12345678901234567890123456789}'
    assert indented_json(text) == ('{\n  "a": 1e999,\n  "a": 12345678901234567890123456789\n}')


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 900 + "]" * 900])
def test_nesting_is_bounded(text: str) -> None:
    indented = indented_json(text)
    assert indented is None or len(indented) < 200 * len(text)


def test_headers_are_bounded() -> None:
    headers = tuple((f"name{n}", b"v" * 10_000) for n in range(10_000))
    text = draw_headers(headers, Form.AUTO, 1_000)
    assert len(text) <= 1_001
    few = draw_headers(headers, Form.AUTO, 1_000_000)
    assert few.endswith("… and more")
    assert few.count("\n") == 50
