"""kbroker as its users start it: `python -m kbroker start` with its defaults and a ready file."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

from perf.brokers.base import HERE, Broker, Place

ROOT = Path(__file__).resolve().parents[2]


class KbrokerBroker(Broker):
    """One kbroker node."""

    name = "kbroker"

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        overrides: tuple[str, ...] = (),
        *,
        place: Place = HERE,
    ) -> None:
        super().__init__(directory, port, place=place)
        self._overrides = overrides
        self.ready_file = directory / "ready.json"

    def prepare(self) -> None:
        self.ready_file.unlink(missing_ok=True)

    def command(self) -> list[str]:
        line = [sys.executable, "-m", "kbroker", "start"]
        line += ["--data-dir", str(self.directory / "data")]
        if self.place is HERE:
            line += ["--port", str(self.port)]
        else:
            line += ["--override", f"listeners=PLAINTEXT://{self.address}"]
        line += ["--ready-file", str(self.ready_file)]
        for override in self._overrides:
            line += ["--override", override]
        return line

    def environment(self) -> dict[str, str]:
        # A checkout that is not installed works as well as one that is.
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return {**super().environment(), "PYTHONPATH": path}

    def version(self) -> str:
        try:
            return installed_version("kbroker")
        except PackageNotFoundError:
            return "checkout"
