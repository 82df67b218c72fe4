"""Sharer: a Java share consumer in an agent's program, as Sharer.java has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.clients.agents.driver import Agent, decoded

Place = tuple[str, int, int]  # topic, partition, offset


class Shared(NamedTuple):
    """A record, and how often it was delivered."""

    place: Place
    value: bytes | None
    deliveries: int


class Worked(NamedTuple):
    """What a worker has seen; (partition, offset, time in ns) each."""

    came: list[tuple[int, int, int]]
    accepted: list[tuple[int, int, int]]  # at the answer without an error
    unknown: list[tuple[int, int, int]]  # at an answer with one, or at the end of the connection
    errors: list[str]


class Sharer:
    """One consumer. `configs` are its own; a worker polls and accepts by itself."""

    def __init__(
        self,
        agent: Agent,
        name: str,
        group: str,
        topics: Sequence[str],
        configs: Mapping[str, object] | None = None,
        *,
        works: bool = False,
    ) -> None:
        self._agent = agent
        self._name = name
        texts = {key: str(value) for key, value in (configs or {}).items()}
        self._ask("share", group=group, topics=list(topics), configs=texts, works=works)

    def _ask(self, op: str, **arguments: Any) -> Any:
        return self._agent.ask(op, name=self._name, **arguments)

    def poll(self, ms: int = 20_000) -> list[Shared]:
        """The first records that come, at once; none in that time: an empty list."""
        return self.timed_poll(ms)[0]

    def timed_poll(self, ms: int = 20_000) -> tuple[list[Shared], int]:
        """And after how many ms they came."""
        found = self._ask("share_poll", ms=ms)
        records = [
            Shared(
                (each["topic"], each["partition"], each["offset"]),
                decoded(each["value"]),
                each["deliveries"],
            )
            for each in found["records"]
        ]
        return records, found["ms"]

    def acknowledge(self, kind: str, records: Iterable[Shared]) -> None:
        """ACCEPT, RELEASE, REJECT or RENEW; it is sent with the next poll or `sync`."""
        self._ask("share_acknowledge", type=kind, records=[list(each.place) for each in records])

    def sync(self) -> dict[str, str | None]:
        """By partition: the error's name, or None."""
        found: dict[str, str | None] = self._ask("share_sync")
        return found

    def lock_ms(self) -> int:
        found: int = self._ask("share_lock_ms")
        return found

    def worked(self) -> Worked:
        return _worked(self._ask("share_worked"))

    def close(self) -> None:
        """Not of a worker."""
        self._ask("share_close")


def _worked(found: Mapping[str, Any]) -> Worked:
    def places(key: str) -> list[tuple[int, int, int]]:
        return [(partition, offset, ns) for partition, offset, ns in found[key]]

    return Worked(places("came"), places("accepted"), places("unknown"), found["errors"])
