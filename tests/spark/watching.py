"""Names that appear in directories, noticed at once by the kernel (inotify)."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_CREATED: Final = 0x100
_MOVED_HERE: Final = 0x80
_EVENT: Final = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Of directories that exist; each event is (directory's name, name, whether by a rename)."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._file = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._names: dict[int, str] = {}
        for directory in directories:
            mask = _CREATED | _MOVED_HERE
            number = _libc.inotify_add_watch(self._file, os.fsencode(directory), mask)
            if number < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(directory))
            self._names[number] = directory.name

    def wait(
        self,
        wanted: Callable[[str, str, bool], bool],
        going_on: Callable[[], bool],
        timeout_s: float,
    ) -> bool:
        """Until an event is wanted; False if nothing goes on any more or the time is over."""
        deadline = time.monotonic() + timeout_s
        while going_on() and time.monotonic() < deadline:
            if not select.select([self._file], [], [], 0.2)[0]:
                continue
            for event in self._events():
                if wanted(*event):
                    return True
        return False

    def _events(self) -> list[tuple[str, str, bool]]:
        data, found, at = os.read(self._file, 65536), [], 0
        while at < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = data[at : at + size].rstrip(b"\0").decode()
            at += size
            found.append((self._names.get(number, ""), name, bool(mask & _MOVED_HERE)))
        return found

    def close(self) -> None:
        os.close(self._file)
