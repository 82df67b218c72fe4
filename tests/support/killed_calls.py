"""kill -9 before any one of the calls that change files.

The work is done by a child of the test's process, in which the call with the number `last` of its
main thread ends the process: no lock stays, and nothing is cleaned up. Calls of SQLite are not
counted, since they are made in C.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

_CHANGE: Final = (
    "write", "pwrite", "copy_file_range", "ftruncate", "truncate", "link", "symlink", "unlink",
    "rename", "replace", "mkdir", "rmdir",
)  # fmt: skip
_FAILED: Final = 4


def is_killed_at(last: int, work: Callable[[], object]) -> bool:
    """False: the work was done with fewer calls. AssertionError: it failed, as it has printed."""
    child = os.fork()
    if not child:
        status = _FAILED
        try:
            _kill_at(last)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, f"it failed before call {last}"
    return False


def _kill_at(last: int) -> None:
    left, thread = last, threading.get_ident()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if threading.get_ident() == thread:
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
            return call(*arguments, **options)

        return made

    opened = os.open
    creating = counted(opened)

    def open_(path: Any, flags: int, *arguments: Any, **options: Any) -> Any:
        return (creating if flags & os.O_CREAT else opened)(path, flags, *arguments, **options)

    for name in _CHANGE:
        setattr(os, name, counted(getattr(os, name)))
    setattr(os, "open", open_)  # noqa: B010 - mypy refuses another signature


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory in memory: nothing is brought to the disk, which no kill needs."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory)
