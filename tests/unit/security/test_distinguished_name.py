"""The text of a name in a certificate, beside Java's, and DER that is none."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from kbroker.security.der import SEQUENCE, dotted, only_value, values_of
from kbroker.security.distinguished_name import name_of

# Names in DER, and X500Principal.getName() of Java 17: all kinds of strings, of attributes with and
# without a keyword, several in a part, blanks and characters to be escaped at every place.
VECTORS = Path(__file__).parents[2] / "vectors" / "distinguished_names.json"
CASES: list[tuple[str, str]] = [tuple(each) for each in json.loads(VECTORS.read_text())]


def test_there_are_many() -> None:
    assert len(CASES) >= 250
    assert any("=#" in text for _, text in CASES) and any("+" in text for _, text in CASES)


@pytest.mark.parametrize(("der", "text"), CASES)
def test_names_are_written_as_java_writes_them(der: str, text: str) -> None:
    assert name_of(bytes.fromhex(der)) == text


def test_bytes_that_are_no_name_are_a_value_error() -> None:
    dice = random.Random(1)
    for der, _ in CASES:
        whole = bytearray.fromhex(der)
        for cut in range(0, len(whole), max(1, len(whole) // 20)):
            with pytest.raises(ValueError, match=r"."):
                name_of(bytes(whole[:cut]))
        for _ in range(20):
            changed = bytearray(whole)
            changed[dice.randrange(len(changed))] = dice.randrange(256)
            try:
                assert isinstance(name_of(bytes(changed)), str)
            except ValueError:
                pass


@pytest.mark.parametrize(
    "data",
    [b"\x30", b"\x30\x05a", b"\x30\x80", b"\x30\x85\0\0\0\0\0", b"\x3f\x01\0", b"\x30\x82\x01"],
)
def test_values_that_are_cut(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(values_of(data))


@pytest.mark.parametrize("data", [b"", b"\x31\0", b"\x30\0\x30\0"])
def test_no_value_or_several(data: bytes) -> None:
    with pytest.raises(ValueError, match="no value of type 0x30"):
        only_value(data, SEQUENCE)


def test_object_identifiers() -> None:
    assert dotted(bytes([0x55, 4, 3])) == "2.5.4.3"
    assert dotted(bytes([0x88, 0x37, 1])) == "2.999.1"
    assert dotted(bytes([42, 0x86, 0x48, 0x86, 0xF7, 0x0D])) == "1.2.840.113549"
    for wrong in (b"", b"\x86", b"\x2a" * 65):
        with pytest.raises(ValueError, match="object identifier"):
            dotted(wrong)
