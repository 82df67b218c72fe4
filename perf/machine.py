"""Where figures come from: the machine, its kernel, and which kbroker measured."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from kbroker import __version__

HERE: Final = Path(__file__).parent


def describe_machine() -> dict[str, Any]:
    """The machine and the build of the figures."""
    return {
        "cpus": os.cpu_count(),
        "model": _model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit_of(HERE) or "unknown",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def machine_line() -> str:
    """The machine in a few words: `2 x AMD EPYC, Linux 6.18.5`."""
    return f"{os.cpu_count()} x {_model()}, {platform.system()} {platform.release()}"


def version_line() -> str:
    """kbroker's version, with the commit in a clone: `0.1.0 (1a2b3c4-dirty)`."""
    commit = commit_of(HERE)
    return f"{__version__} ({commit})" if commit else __version__


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.machine())


def commit_of(folder: Path) -> str:
    """Of the checkout that it is in; "" where there is none."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=folder,
            capture_output=True,
            text=True,
        ).stdout.strip()
    except OSError:  # no git here
        return ""
