"""The options of Apache Kafka's tools, and the order of their lines, without a broker."""

from __future__ import annotations

import math

import pytest

from kbroker.cli.kafka_tool import in_hash_order, java_double, java_hash
from kbroker.cli.main import main


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("ab", 31 * 97 + 98), ("\U0001f600", 31 * 0xD83D + 0xDE00)],
)
def test_hashes(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_order_of_a_table() -> None:
    # Bucket h ^ h >>> 16 of 16: a is 97, q is 113, b is 98.
    assert list(in_hash_order(["q", "b", "a"])) == ["q", "a", "b"]
    many = [f"key{number}" for number in range(100)]
    assert sorted(in_hash_order(many)) == sorted(many)


@pytest.mark.parametrize(
    ("value", "text"),
    [(5.0, "5.0"), (0.001, "0.001"), (0.0005, "5.0E-4"), (9_999_999.5, "9999999.5"),
     (1e7, "1.0E7"), (123_456_789.0, "1.23456789E8"), (math.inf, "Infinity"), (math.nan, "NaN")],
)  # fmt: skip
def test_doubles(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "exactly one action"),
        (["--list", "--create"], "exactly one action"),
        (["--list"], "--bootstrap-server must be specified"),
        (["--li"], "li is not a recognized option"),
        (["--list", "--bootstrap-server", "h:1", "--partitions", "x"], "partitions"),
        (["--create", "--bootstrap-server", "h:1"], "[topic]"),
    ],
)
def test_wrong_usage(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-topics", *words]) == 1
    output = capsys.readouterr()
    assert line in output.err and output.out == ""
