"""Lines of offsets: what --export prints is what --from-file reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.cli import offset_lines
from kbroker.cli.main import main
from kbroker.cli.offset_lines import offset_line, parse_lines
from kbroker.errors import UsageError
from kbroker.types import TopicPartition
from tests.unit.peer.fake_broker import FakeBroker

# As kafka-consumer-groups.sh of Apache Kafka 4.3.0 prints them.
PRINTED = {
    "plain": "plain",
    "exactly-24-characters-xx": "exactly-24-characters-xx",
    "a-group-with-25-characters": '"a-group-with-25-characters"',
    "with,comma": '"with,comma"',
    'with "quote': '"with ""quote"',
    "  spaces ": '"  spaces "',
    "new\nline": '"new\nline"',
    "tab\tx": '"tab\tx"',
    "nul\0x": '"nul\0x"',
    "#hash": '"#hash"',
    "plus+": '"plus+"',
    "back\\slash": '"back\\slash"',
    "sep\u2028x": "sep\u2028x",
    "é": "é",
}


@pytest.mark.parametrize("group", [*PRINTED, "car\rriage", "\x1c\x85"])
def test_a_line_is_read_as_it_was_printed(group: str) -> None:
    line = offset_line(group, "orders", 3, 2**63 - 1)
    assert line == PRINTED.get(group, line.partition(",orders")[0]) + f",orders,3,{2**63 - 1}"
    data = (offset_line("other", "orders", 3, 1) + "\n" + line + "\n").encode()
    for of_groups in (False, True):
        found = parse_lines(data, group, of_groups=of_groups)
        assert found == {TopicPartition("orders", 3): 2**63 - 1}


def test_lines_as_people_write_them() -> None:
    data = b'orders, 0, 03\r\n"two",1,"0"\n \n,,\ng,orders,1,9\n g,orders,2,9\nh,orders,2\n'
    with pytest.raises(UsageError, match="line 7 is no offset: 'h,orders,2'"):
        parse_lines(data, "g")
    whole = data.replace(b"h,orders,2\n", b"")
    assert parse_lines(whole, "g") == {
        TopicPartition("orders", 0): 3,
        TopicPartition("two", 1): 0,
        TopicPartition("orders", 1): 9,
    }
    assert parse_lines(data, "g", of_groups=True) == {TopicPartition("orders", 1): 9}
    assert parse_lines(b"", "g") == {}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"orders,0\n", "line 1 is no offset"),
        (b"a,0,1\norders,0,-1\n", "line 2 is no offset"),
        ("orders,0,\u0663\n".encode(), "line 1 is no offset"),
        (b",0,1\n", "line 1 is no offset"),
        (b"g,g,orders,0,1\n", "line 1 is no offset"),
        (b"x" * 5000, "5000 characters"),
        (b"orders,2147483648,1\n", "line 1 has a number that is too large"),
        (b"orders,0,9223372036854775808\n", "line 1 has a number that is too large"),
        (b"orders,0," + b"1" * 5000, "line 1 has a number that is too large"),
        (b"orders," + b"1" * 5000 + b",0", "line 1 has a number that is too large"),
        (b'"orders,0,1\na,0,1\n', "is no CSV: unexpected end of data"),
        (b'a,0,1\n"or"ders,0,1\n', "line 2 is no CSV"),
        (b"x" * 200_000 + b",0,1\n", "line 1 is no CSV: field larger than field limit"),
    ],
)
def test_lines_that_are_no_offsets(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_lines(data, "g")


def test_a_file_that_is_too_large_is_refused_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"orders,0,12\n"
    monkeypatch.setattr(offset_lines, "FILE_BYTES_MAX", len(data))
    assert parse_lines(data, "g") == {TopicPartition("orders", 0): 12}
    monkeypatch.setattr(offset_lines, "FILE_BYTES_MAX", len(data) - 1)
    with pytest.raises(UsageError, match="more than 11 bytes"):
        parse_lines(data, "g")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        fake.add_topic("a")
        yield fake


@pytest.mark.parametrize("data", [b'"a,0,1\n', b"a,0," + b"1" * 5000, b"\xff,0,1", b"x" * 200_000])
def test_a_file_that_cannot_be_read_ends_in_one_line(
    broker: FakeBroker, tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(data)
    reset = ["group", "reset", "g", "--from-file", str(file), "-b", broker.bootstrap]
    assert main(reset) in (1, 2)
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("error: ") and output.err.count("\n") == 1
    words = ["--reset-offsets", "--group", "g", "--from-file", str(file), "--dry-run"]
    assert main(["kafka-consumer-groups", *words, "--bootstrap-server", broker.bootstrap]) == 0
    output = capsys.readouterr()
    assert output.err == "" and output.out.startswith("\nError: ") and output.out.count("\n") == 2
