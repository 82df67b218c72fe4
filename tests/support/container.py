"""A container of an unpacked image, run by `runc` without an engine.

The root is read-only, the user is 1000, no capability is left, and new privileges are refused. The
network is the machine's own: a broker in it listens on loopback like any other of a test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tests.support import requirements

STOP_S = 30
_MOUNTS = (
    ("/proc", "proc", "proc", ()),
    ("/dev", "tmpfs", "tmpfs", ("nosuid", "mode=755", "size=65536k")),
    ("/dev/shm", "tmpfs", "shm", ("nosuid", "noexec", "nodev", "mode=1777", "size=65536k")),
)


def runc() -> str:
    return requirements.program("runc", "`make test` or `apt-get install runc` installs it")


class Container:
    """`image` is its config, as the layout has it. `mounts` are folders by their places inside."""

    def __init__(
        self,
        root: Path,
        image: dict[str, Any],
        bundle: Path,
        *words: str,
        environment: dict[str, str] | None = None,
        mounts: dict[str, Path] | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self.name = f"kbroker-test-{uuid4().hex[:12]}"
        self.log_path = bundle / "log"
        self._bundle = bundle
        bundle.mkdir(parents=True, exist_ok=True)
        made = image["config"]
        user, group = map(int, made["User"].split(":"))
        variables = [*made["Env"], *(f"{k}={v}" for k, v in (environment or {}).items())]
        spec: dict[str, Any] = {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False,
                "user": {"uid": user, "gid": group},
                "args": [*made["Entrypoint"], *(words or made["Cmd"])],
                "env": variables,
                "cwd": made["WorkingDir"],
                "noNewPrivileges": True,
                "capabilities": {},
            },
            "root": {"path": str(root), "readonly": True},
            "hostname": "kbroker",
            "mounts": [
                {"destination": place, "type": kind, "source": source, "options": list(options)}
                for place, kind, source, options in _MOUNTS
            ]
            + [
                {
                    "destination": place,
                    "type": "bind",
                    "source": str(folder),
                    "options": ["rbind", "rw"],
                }
                for place, folder in (mounts or {}).items()
            ],
            "linux": {
                "namespaces": [{"type": each} for each in ("pid", "ipc", "uts", "mount")],
            },
        }
        if memory_bytes is not None:
            spec["linux"]["resources"] = {"memory": {"limit": memory_bytes}}
        (bundle / "config.json").write_text(json.dumps(spec))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [runc(), "--root", str(self._state), "run", "--bundle", str(self._bundle),
                 self.name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._running()
        if process.poll() is None:
            self._runc("kill", self.name, "KILL")
            process.wait(STOP_S)
        self._runc("delete", "--force", self.name)

    @property
    def _state(self) -> Path:
        return self._bundle / "runc"

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _runc(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [runc(), "--root", str(self._state), *words],
            capture_output=True, text=True, timeout=STOP_S,
        )  # fmt: skip

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """To process 1 of the container."""
        ran = self._runc("kill", self.name, number.name.removeprefix("SIG"))
        assert ran.returncode == 0, ran.stderr

    def wait(self) -> int:
        """For its end; the exit status."""
        return self._running().wait(STOP_S)

    def is_running(self) -> bool:
        return self._running().poll() is None

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command inside, as `docker exec` does it."""
        return self._runc("exec", self.name, *words)

    def pid(self) -> int:
        """Of process 1, as this machine counts."""
        return int(json.loads(self._runc("state", self.name).stdout)["pid"])


def owned(folder: Path, user: int = 1000) -> Path:
    """A folder for the container's user, as an engine makes a volume of it."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, user, 0)
    folder.chmod(0o770)
    return folder
