"""The options of Apache Kafka's tools, and the order of their lines, without a broker."""

from __future__ import annotations

import pytest

from kbroker.cli.kafka_tool import in_hash_order, java_hash
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
