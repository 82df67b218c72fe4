"""Runs `kbroker` with each call of its Python noted: `python -m perf.walk.traced start ...`.

The library of perf/native/walk_tracer.c is preloaded and notes the compiled calls; a profile
function reports those of Python to it. A code object gets a number when it is called first; the
file PERF_WALK_NAMES has a line for each: number, file, name. Code outside of PERF_WALK_SOURCES is
not noted.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
import threading
from types import CodeType, FrameType
from typing import Any, Final

PYTHON_BIT: Final = 1 << 63  # of a number in an event: it is Python's, no address


class _Profile:
    """The profile function of every thread. Numbers begin at 1; 0: not noted."""

    def __init__(self, sources: str, names_path: str) -> None:
        library = ctypes.PyDLL(None)
        self._enter, self._leave = library.walk_enter, library.walk_leave
        self._enter.argtypes, self._enter.restype = [ctypes.c_uint64], None
        self._leave.argtypes, self._leave.restype = [], None
        self._sources = sources
        self._names = open(names_path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._numbers: dict[CodeType, int] = {}
        self._lock = threading.Lock()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            number = self._numbers.get(code)
            if number is None:
                number = self._number(code)
            if number:
                self._enter(PYTHON_BIT | number)
        elif event == "return" and self._numbers.get(frame.f_code):
            self._leave()

    def _number(self, code: CodeType) -> int:
        with self._lock:
            if code in self._numbers:
                return self._numbers[code]
            number = len(self._numbers) + 1
            if not code.co_filename.startswith(self._sources) or code.co_name == "<module>":
                number = 0
            else:
                self._names.write(f"{number}\t{code.co_filename}\t{code.co_qualname}\n")
            self._numbers[code] = number
            return number


def main() -> None:
    profile = _Profile(os.environ["PERF_WALK_SOURCES"], os.environ["PERF_WALK_NAMES"])
    threading.setprofile(profile)
    sys.argv[0] = "kbroker"
    sys.setprofile(profile)
    runpy.run_module("kbroker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
