"""kbroker as its users start it: `python -m kbroker start` with its defaults and a ready file."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

from perf.brokers.base import HERE, Broker, BrokerError, Place

ROOT = Path(__file__).resolve().parents[2]
BASELINE: Final = "baseline"  # the name of another checkout's


def built(checkout: Path) -> Path:
    """Where its sources are. BrokerError where nothing was built."""
    sources = checkout.resolve()
    if not list(sources.glob("kbroker/_net.*.so")):
        raise BrokerError(
            f"no built kbroker in {checkout}: its compiled core is missing -> run `make build`"
            " there"
        )
    return sources


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
        checkout: Path | None = None,
    ) -> None:
        """`checkout`: whose kbroker it is, by default that of these sources. It was built there,
        and runs under this one's interpreter and libraries."""
        super().__init__(directory, port, place=place)
        self._overrides = overrides
        self._sources = ROOT if checkout is None else built(checkout)
        self.program = ("-m", "kbroker")  # the interpreter's arguments in front of `start`
        self.variables: dict[str, str] = {}  # beside those of this process
        if checkout is not None:
            self.name = BASELINE
        self.ready_file = directory / "ready.json"

    def prepare(self) -> None:
        self.ready_file.unlink(missing_ok=True)

    def command(self) -> list[str]:
        line = [sys.executable, *self.program, "start"]
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
        path = os.pathsep.join(filter(None, [str(self._sources), os.environ.get("PYTHONPATH", "")]))
        return {**super().environment(), "PYTHONPATH": path, **self.variables}

    def version(self) -> str:
        if self._sources != ROOT:
            return str(self._sources)
        try:
            return installed_version("kbroker")
        except PackageNotFoundError:
            return "checkout"
