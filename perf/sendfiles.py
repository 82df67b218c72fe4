"""How many bytes a process sends by sendfile(2), and in how many calls: strace counts.

Each call of the process is stopped twice meanwhile, so nothing is timed beside it.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab import child
from perf.cells import CellError

ATTACHED: Final = b"attached"
END_WAIT_S: Final = 30.0
_SENT: Final = re.compile(r"sendfile.* = (\d+)$", re.MULTILINE)


@dataclass
class Sendfiles:
    """Calls that sent something."""

    calls: int = 0
    sent_bytes: int = 0

    def take(self, text: str) -> None:
        """Lines of strace."""
        sent = [int(size) for size in _SENT.findall(text)]
        self.calls += sum(size > 0 for size in sent)
        self.sent_bytes += sum(sent)


@contextmanager
def counted(pid: int, scratch: Path) -> Iterator[Sendfiles]:
    """Those of all threads of a process; they are there when it is left. CellError without
    strace. `scratch`: a file that does not exist."""
    found = Sendfiles()
    command = ["strace", "-f", "-e", "trace=sendfile", "-o", str(scratch), "-p", str(pid)]
    try:
        tracer = child.start(command, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise CellError("strace is not installed: it counts calls of sendfile") from None
    with tracer:
        said = tracer.stderr.readline() if tracer.stderr else b""
        if ATTACHED not in said:
            tracer.kill()
            raise CellError(f"strace: {said.decode(errors='replace').strip()}")
        try:
            yield found
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(END_WAIT_S)
    found.take(scratch.read_text())
    scratch.unlink()
