"""A rung of the ladder as a process of its own; its code is perf/ladder.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perf.brokers.base import Broker
from perf.brokers.limit import ROOT


class LadderBroker(Broker):
    """One of the four designs, or the step between the last two."""

    is_limit = True  # as the limit server: a topic exists by being written to

    def __init__(
        self, directory: Path, port: int = 0, *, design: str = "loop", fsync: bool = False
    ) -> None:
        self.name = design
        super().__init__(directory, port)
        self._fsync = fsync

    def command(self) -> list[str]:
        line = [sys.executable, "-m", "perf.ladder", self.name]
        line += [str(self.port), str(self.directory)]
        return [*line, "--fsync"] if self._fsync else line

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": path}
