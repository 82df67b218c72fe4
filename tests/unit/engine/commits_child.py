"""OffsetCommit without memory for the offset, in a process of its own: run by test_groups.py.

A line of JSON for each commit: its error code, and the offset that the group has then.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support import capsules

left = 0  # calls that find no memory


def without_memory(before: Callable[..., int]) -> Callable[..., int]:
    def applied(*given: Any) -> int:
        global left
        left -= 1
        return -1 if left >= 0 else before(*given)

    return applied


pointers = [ctypes.c_void_p] * 4
prototype = ctypes.CFUNCTYPE(ctypes.c_int, *pointers, ctypes.c_int64)
unit = import_module("kbroker.coordinator.group._offsets")
capsules.replace(unit, "offset_apply_locked", prototype, without_memory)


def main() -> None:
    global left
    from kbroker.protocol import messages
    from tests.unit.engine.test_groups import GROUP, Beside

    beside = Beside(Path(sys.argv[1]))
    for offset, fails in ((5, 0), (9, 1), (12, 2), (15, 0)):
        beside.show()
        left = fails
        answer = beside.ask(beside.commit(7, {"orders": [(0, offset, "")]}))
        (topic,) = messages.offset_commit.Response.decode(answer, 7).topics
        known = beside.table.offset(GROUP, "orders", 0)
        assert known is not None
        print(json.dumps([topic.partitions[0].error_code, known.offset]), flush=True)
    beside.close()


if __name__ == "__main__":
    main()
