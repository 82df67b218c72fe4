"""Files of a broker that hang until a test lets them go: a disk that does not answer.

    python -m kbroker.testing.hanging_files CONTROL start ...

is `kbroker start ...` with a control connection (control.py) at the Unix socket CONTROL, which
takes `hang`, `hung` and `let_files_go` alone; a `Broker` (broker.py) takes them beside its other
orders. No other module imports this: the broker that people run has no such switch. Every operation
on a file whose path has a text in it hangs, through the table of the log's file operations
(file_faults.py), which is not the system's own from the first `hang` on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kbroker.testing.file_faults import FOREVER, Fault, FileFaults


class HangingFiles:
    """The orders. Any thread."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._faults: FileFaults | None = None

    def hang(self, path_part: str, operations: Sequence[str] = ()) -> None:
        """These operations, or all, on files whose paths have this in them."""
        with self._lock:
            if self._faults is None:
                self._faults = FileFaults(only_hang=True).__enter__()
            self._faults.add(Fault(tuple(operations), path_part, times=FOREVER, hangs=True))

    def hung(self) -> int:
        """Operations that hang now."""
        return 0 if self._faults is None else self._faults.hung

    def let_go(self) -> int:
        """How many operations hung."""
        return 0 if self._faults is None else self._faults.let_go()

    def control(self, asked: dict[str, Any]) -> Any:
        match asked.pop("op"):
            case "hang":
                return self.hang(**asked)
            case "hung":
                return self.hung()
            case "let_files_go":
                return self.let_go()
            case what:
                raise ValueError(f"no such order: {what}")


def main(words: Sequence[str]) -> int:
    from kbroker.cli.main import main as kbroker
    from kbroker.testing.control import serve

    control_path, *arguments = words
    serve(Path(control_path), HangingFiles().control)
    return kbroker(arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
