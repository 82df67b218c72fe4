"""ElectLeaders (43): partitions that have a leader already, and unknown partitions."""

from __future__ import annotations

from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

VERSIONS = range(3)
PREFERRED, UNCLEAN = 0, 1

book = Book()
cases = book.cases


def ask(
    version: int,
    *topics: tuple[str, list[int]],
    kind: int = PREFERRED,
    everything: bool = False,
    timeout: int = 30_000,
) -> Any:
    """Version 0 elects preferred leaders only: it has no field for the kind."""
    asked = [{"topic": name, "partitions": partitions} for name, partitions in topics]
    return build(
        ApiKey.ELECT_LEADERS,
        version,
        election_type=kind,
        topic_partitions=None if everything else asked,
        timeout=timeout,
    )


@book.case("a leader that is elected already", versions=VERSIONS)
def elected(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (talk.topic(partitions=2), [0, 1])))


@book.case("whom nobody can take the place of", versions=VERSIONS)
def unclean(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (talk.topic(partitions=2), [1, 0]), kind=UNCLEAN))


@book.case("a kind", versions=[1, 2], over={f"{kind}": kind for kind in (2, 3, -1, 127, -128)})
def kinds(talk: Talk, version: int, kind: int) -> None:
    talk.ask(ask(version, (talk.topic(), [0]), kind=kind))
    talk.ask(ask(version, kind=kind, everything=True))


@book.case("what is not there", versions=VERSIONS)
def absent(talk: Talk, version: int) -> None:
    name = talk.topic(partitions=2)
    none = talk.name("none")
    talk.ask(ask(version, (name, [0, 2, -1, 2**31 - 1, -(2**31)])))
    talk.ask(ask(version, (none, [0, 1])))
    talk.ask(ask(version, (name, [1]), (none, [0])))
    talk.ask(ask(version, (none, [0]), kind=UNCLEAN))


@book.case("names that no topic can have", versions=VERSIONS)
def names(talk: Talk, version: int) -> None:
    for name in ("", "a b", "..", "a" * 250, "__cluster_metadata"):
        talk.ask(ask(version, (name, [0])))


@book.case("nothing", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(ask(version))
    talk.ask(ask(version, (talk.topic(), [])))
    talk.ask(ask(version, (talk.name("none"), [])))


@book.case("every partition", versions=VERSIONS, over={"preferred": PREFERRED, "unclean": UNCLEAN})
def everything(talk: Talk, version: int, kind: int) -> None:
    talk.topic(partitions=3)

    def own(data: Any) -> Any:
        results = data["replica_election_results"]
        data["replica_election_results"] = [r for r in results if talk.mine(r["topic"])]
        return data

    talk.ask(ask(version, kind=kind, everything=True), view=own)


@book.case("twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name, other = talk.topic("a"), talk.topic("b")
    talk.ask(ask(version, (name, [0, 0])))
    talk.ask(ask(version, (name, [0]), (other, [0]), (name, [0])))


@book.case("many topics, in their order", versions=VERSIONS)
def order(talk: Talk, version: int) -> None:
    names = [talk.topic(letter, partitions=2) for letter in "cab"]
    talk.ask(ask(version, *((name, [1, 0]) for name in names)))


@book.case("a time", versions=VERSIONS, over={f"{ms}": ms for ms in (0, -1, -(2**31))})
def times(talk: Talk, version: int, ms: int) -> None:
    talk.ask(ask(version, (talk.topic(), [0]), timeout=ms))


@book.case("a topic that is gone", versions=VERSIONS)
def gone(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.delete(name)
    talk.ask(ask(version, (name, [0])))


@book.case("unknown tagged fields", versions=[2])
def unknown_tags(talk: Talk, version: int) -> None:
    talk.ask(tagged(ask(version, (talk.topic(), [0])), {9: b"x"}), header_tags={77: b"yz"})


@book.case("bytes behind the message", versions=VERSIONS)
def longer(talk: Talk, version: int) -> None:
    request = ask(version, (talk.topic(), [0]))
    talk.ask(raw(request, raw(request).body + b"more"))


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    request = ask(version, ("t", [0]))
    talk.ask(raw(request, raw(request).body[:-2]))


@book.case("a version that is not served")
def beyond(talk: Talk) -> None:
    talk.ask(raw(ask(2), version=3))
