"""ApiVersions (18): every version, versions that do not exist, names of software, and garbage."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases._shapes import add_shapes
from tests.parity.requests import Raw, build
from tests.parity.talk import Talk, View

VERSIONS = range(5)
NAMED = range(3, 5)

book = Book()
cases = book.cases


def ask(version: int, name: str = "apache-kafka-java", software: str = "4.3.0") -> Any:
    return build(
        ApiKey.API_VERSIONS,
        version,
        client_software_name=name,
        client_software_version=software,
    )


def without_keys(data: dict[str, Any]) -> dict[str, Any]:
    """The list is compared once, by "asked"; elsewhere only its presence."""
    return {**data, "api_keys": "a list" if data["api_keys"] else data["api_keys"]}


SHORT: View = without_keys


@book.case("asked", versions=VERSIONS)
def asked(talk: Talk, version: int) -> None:
    talk.ask(ask(version))


@book.case("asked twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    talk.ask(ask(version), view=SHORT)
    talk.ask(ask(version), view=SHORT)


@book.case("asked behind another request", versions=VERSIONS)
def late(talk: Talk, version: int) -> None:
    talk.ask(build(ApiKey.METADATA, 12, topics=[]))
    talk.ask(ask(version), view=SHORT)


@book.case("every version in one piece")
def together(talk: Talk) -> None:
    talk.main.hold()
    for version in VERSIONS:
        talk.send(ask(version))
    talk.main.release()
    for _ in VERSIONS:
        talk.receive(view=SHORT)


# --- names of software --------------------------------------------------------------------------

NAMES = {
    "a letter": ("a", "1"),
    "dots and dashes": ("a.b-c", "1.0-SNAPSHOT"),
    "a digit": ("9", "9"),
    "capitals": ("ABC", "Z"),
    "long ones": ("a" * 5_000, "1" * 5_000),
    "no name": ("", "1"),
    "no version": ("a", ""),
    "neither": ("", ""),
    "a mark": ("a!", "1"),
    "a mark in the version": ("a", "1+2"),
    "an underscore": ("a_b", "1"),
    "a dash in front": ("-a", "1"),
    "a dash behind": ("a-", "1"),
    "a dot in front": ("a", ".1"),
    "a dot behind": ("a", "1."),
    "a blank": ("a b", "1"),
    "a blank around": (" a ", "1"),
    "not ASCII": ("\u00e9", "1"),
    "digits of another script": ("\u0667", "1"),
    "a line break": ("a\n", "1"),
    "only a dash": ("-", "1"),
}


@book.case("software", versions=NAMED, over=NAMES)
def software(talk: Talk, version: int, named: tuple[str, str]) -> None:
    talk.ask(ask(version, *named), view=SHORT)
    talk.ask(ask(version), view=SHORT)


@book.case("null software", versions=NAMED)
def null_software(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.API_VERSIONS, version, b"\x00\x021\x00"))


@book.case("software that is not UTF-8", versions=NAMED)
def not_utf8(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.API_VERSIONS, version, b"\x03a\xff\x021\x00"))


# --- versions that do not exist -----------------------------------------------------------------

UNKNOWN = {str(version): version for version in (-1, 5, 6, 100, 32_767, -32_768)}
BODIES = {
    "of the newest version": b"\x02a\x021\x00",
    "of nothing": b"",
    "of anything": b"\xff\xffno message\xff",
}


@book.case("an unknown version", over={f"{v} {b}": (UNKNOWN[v], BODIES[b]) for v in UNKNOWN
                                       for b in BODIES})  # fmt: skip
def unknown_version(talk: Talk, asked: tuple[int, bytes]) -> None:
    """The answer is of version 0, and the connection stays."""
    version, body = asked
    talk.ask(Raw(ApiKey.API_VERSIONS, version, body))
    talk.ask(ask(3), view=SHORT)


@book.case("unknown versions in one piece")
def unknown_together(talk: Talk) -> None:
    talk.main.hold()
    for version in (9, 4, 5, 0):
        talk.send(Raw(ApiKey.API_VERSIONS, version, BODIES["of the newest version"]))
    talk.main.release()
    for _ in range(4):
        talk.receive(view=SHORT)


@book.case("a body where there is none", versions=range(3))
def body(talk: Talk, version: int) -> None:
    talk.ask(Raw(ApiKey.API_VERSIONS, version, b"zzzz"), view=SHORT)


add_shapes(book, ApiKey.API_VERSIONS, VERSIONS, lambda talk, version: ask(version), view=SHORT)
