"""Clusters that are measured by turns: all alive and warm, all but one held still.

In a round each has its turn; the order reverses from round to round, so that none is always the
last. Figures are compared within a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from perf.brokers.clustered import Settings
from perf.cluster.brokers import KINDS, NO_SETTINGS, Cluster, Make

SETTLE_S: Final = 0.05

Say = Callable[[str], None]


class Rotation:
    """One cluster of each kind. Use as a context manager around the rounds."""

    def __init__(
        self,
        kinds: Sequence[str],
        root: Path,
        brokers: int,
        say: Say,
        *,
        settings: Mapping[str, Settings] = MappingProxyType({}),
        settle_s: float = SETTLE_S,
        make: Mapping[str, Make] = KINDS,
    ) -> None:
        """`settings`: of a kind, beside those that it needs. `settle_s`: after it is woken.
        `make`: clusters by kind."""
        self._make = make
        self._kinds, self._root, self._brokers, self._say = kinds, root, brokers, say
        self._settings, self._settle_s = settings, settle_s
        self._clusters: dict[str, Cluster] = {}
        self._exit = ExitStack()

    def order(self, number: int) -> list[str]:
        """Of a round, counted from 0."""
        return list(self._kinds)[:: -1 if number % 2 else 1]

    @contextmanager
    def alone(self, kind: str) -> Iterator[Cluster]:
        """The one whose turn it is."""
        cluster = self._clusters[kind]
        cluster.resume()
        try:
            time.sleep(self._settle_s)
            cluster.wait_for_all()
            yield cluster
        finally:
            if all(broker.runs for broker in cluster.running):
                cluster.hold()

    def __enter__(self) -> Self:
        try:
            for kind in self._kinds:
                made = self._make[kind](
                    self._root / kind,
                    self._brokers,
                    holdable=True,
                    settings=self._settings.get(kind, NO_SETTINGS),
                )
                self._clusters[kind] = self._exit.enter_context(made)
                pids = ", ".join(f"{each.name} {each.pid}" for each in made.running)
                self._say(f"{kind}: {pids}")
                made.hold()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()
