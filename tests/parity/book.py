"""Cases and how a family collects them.

A case is a label and a function that talks: it gets a `Talk` (one side's broker) and every answer
that it reads is a step of its record. The same function runs against Apache Kafka
when vectors are recorded, and against kbroker in the tests. So it may not depend on which it has.

    book = Book()
    cases = book.cases

    @book.case("all topics", versions=range(14))
    def all_topics(talk: Talk, version: int) -> None:
        talk.ask(build(ApiKey.METADATA, version, topics=None))

adds fourteen cases, "all topics v0" to "all topics v13". With `over` a function is also repeated
for each value of a mapping, which is its last argument and whose key goes into the label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.parity.talk import Talk

DEFAULT_SETUP = "default"


@dataclass(frozen=True)
class Case:
    """One entry of the vectors.

    `setup` names the broker's settings (sides.SETUPS). A case that is `alone` disturbs others, or
    has no time for them, and is held when no other case is under way.
    """

    label: str
    act: Callable[[Talk], object]
    setup: str = DEFAULT_SETUP
    alone: bool = False


class Book:
    """The cases of one family."""

    def __init__(self, *, setup: str = DEFAULT_SETUP) -> None:
        self._cases: list[Case] = []
        self._setup = setup

    def cases(self) -> Iterator[Case]:
        yield from self._cases

    def add(
        self,
        label: str,
        act: Callable[[Talk], object],
        *,
        setup: str | None = None,
        alone: bool = False,
    ) -> None:
        self._cases.append(Case(label, act, setup or self._setup, alone))

    def case(
        self,
        label: str,
        *,
        versions: Iterable[int] | None = None,
        over: Mapping[str, Any] | None = None,
        setup: str | None = None,
        alone: bool = False,
    ) -> Callable[[Callable[..., object]], Callable[..., object]]:
        """A decorator: act(talk[, version][, value]) becomes a case for each version and value."""
        all_versions = None if versions is None else list(versions)

        def add(act: Callable[..., object]) -> Callable[..., object]:
            for version in [None] if all_versions is None else all_versions:
                for tag, value in [("", None)] if over is None else over.items():
                    name = f"{label}, {tag}" if tag else label
                    arguments: list[Any] = []
                    if version is not None:
                        name += f" v{version}"
                        arguments.append(version)
                    if over is not None:
                        arguments.append(value)
                    bound = _bound(act, *arguments)
                    self.add(name, bound, setup=setup, alone=alone)
            return act

        return add


def _bound(act: Callable[..., object], *arguments: Any) -> Callable[[Talk], object]:
    return partial(_call, act, arguments)


def _call(act: Callable[..., object], arguments: tuple[Any, ...], talk: Talk) -> object:
    return act(talk, *arguments)
