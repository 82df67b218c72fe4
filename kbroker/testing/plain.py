"""`kbroker start` in a process of its own, as users run it, on a free port; it removes its files.

    with PlainBroker({"auto.create.topics.enable": False}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

Purpose: the project's own tests of the program. To test an application, use `Broker`
(broker.py), which is this with topics, faults, a clock and inspection.

The broker is the kbroker that this interpreter imported, run as `python -m kbroker start`; another
interpreter's, where one is named. It is ready when its ready file appears, which the broker writes
by atomic rename once requests are accepted. restart() keeps data and port, so that clients find it
again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import kbroker
from kbroker.testing.process import ServerProcess

# For tests whose records are stamped years ago: a day before the first look for old records.
KEEPS_WHAT_IS_OLD: Final = MappingProxyType({"log.initial.task.delay.ms": 86_400_000})


class PlainBroker(ServerProcess):
    name = "kbroker"

    def __init__(
        self,
        overrides: Mapping[str, object] | None = None,
        data_dir: str | Path | None = None,
        port: int = 0,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        python: str | Path | None = None,
    ) -> None:
        super().__init__(overrides, data_dir, port, env=env, cwd=cwd)
        self._python = str(python) if python is not None else None
        self._ready: Mapping[str, object] = {}

    @property
    def ready_path(self) -> Path:
        return self.scratch_dir / "ready.json"

    @property
    def ready(self) -> Mapping[str, object]:
        """What the ready file said: pid, node_id, bootstrap, admin."""
        return self._ready

    @property
    def admin(self) -> str:
        """http://host:port of metrics and health; empty if there is none."""
        return str(self._ready.get("admin", ""))

    @property
    def node_id(self) -> int:
        return int(str(self._ready["node_id"]))

    def program(self) -> list[str]:
        """The interpreter's arguments in front of those of `kbroker start`."""
        return ["-m", "kbroker", "start"]

    def command(self) -> list[str]:
        command = [
            self._python or sys.executable, *self.program(),
            "--data-dir", str(self.data_dir),
            "--ready-file", str(self.ready_path),
        ]  # fmt: skip
        if "listeners" not in self.overrides:
            command += ["--port", str(self.port)]
        if self.port != 0 and "admin.listeners" not in self.overrides:
            # A free port there too, as with --port 0: tests do not share the default one.
            command += ["--override", "admin.listeners=http://127.0.0.1:0"]
        for key, value in self.overrides.items():
            command += ["--override", f"{key}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        environment = super().environment()
        if self._python is None:  # the same sources as here, whatever the working directory
            sources = str(Path(kbroker.__file__).parents[1])
            others = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = f"{sources}{os.pathsep}{others}" if others else sources
        return environment

    def prepare(self) -> None:
        self.ready_path.unlink(missing_ok=True)  # or a restart would see the previous start's

    def poll_ready(self) -> str | None:
        try:
            self._ready = json.loads(self.ready_path.read_bytes())
        except FileNotFoundError:
            return None
        return str(self._ready["bootstrap"])
