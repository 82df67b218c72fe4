"""Processes that do not outlive the one that started them, whatever ends it: kill -9 as well.

A study holds its brokers still (SIGSTOP) for most of their lives. One that was orphaned like that
would stay for good, with its memory and its port; so the kernel is asked to kill a child when its
parent dies (prctl(2), PR_SET_PDEATHSIG). To the kernel a parent is a *thread*: start children from
one that lives as long as they are wanted, which in this harness is the main thread.

The data directory of a process that was killed stays; `kbroker-*` in the directory for data.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None)  # looked up here: between fork and exec nothing may take a lock


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Popen of a process in a session of its own, killed when the calling thread ends. OSError."""
    parent = os.getpid()

    def bind() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that
            os._exit(1)

    return subprocess.Popen(command, start_new_session=True, preexec_fn=bind, **options)
