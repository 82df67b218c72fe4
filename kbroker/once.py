"""A callback that is called once, whatever its callee does.

A log or a queue promises to call back once. If it raises, its caller calls back itself, with an
error; then it is not known whether the callee has called already, or will.

Level 0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, ParamSpec

_P = ParamSpec("_P")


def once(call: Callable[_P, object]) -> Callable[_P, None]:
    """The first call counts; those after it do nothing. Any thread."""
    lock: Final = threading.Lock()

    def first(*args: _P.args, **kwargs: _P.kwargs) -> None:
        if lock.acquire(blocking=False):  # and never released
            call(*args, **kwargs)

    return first
