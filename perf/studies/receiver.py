"""The consuming process of a latency study: `python -m perf.studies.receiver`.

A process of its own, so that a sender that never rests does not keep it from Python's lock; one for
the whole study, because starting it costs more than a block. It reads commands from standard input,
one JSON object a line, and answers each with one line on standard output:

    {"do": "listen", "bootstrap": B, "topic": T, "options": {...}}   -> {"listening": true}
    (it consumes T's partition 0 from its start, and answers the first record with {"first": ns})
    {"do": "end", "records": N, "begin_ns": A, "end_ns": B}
        -> {"from_send": histogram, "from_due": histogram, "arrived": n}, once N records have come

Anything wrong is {"error": text} in place of an answer, and the block is over. End of input ends
the process. `Receiver` is the other end of the pipe.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from lab import child
from perf.cells import CellError
from perf.studies.stamped import Arrivals, StampError

POLL_S = 0.02
DRAIN_S = 30.0  # after the last record was sent, until it must have come
ANSWER_WAIT_S = DRAIN_S + 15.0
LINE_BYTES_MAX = 4 << 20
ROOT = Path(__file__).resolve().parents[2]


class Receiver:
    """Starts the process and talks to it. CellError where it reports an error or nothing."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        # In a session of its own: an interrupt is for the sender, which then ends this.
        self._process = child.start(
            [sys.executable, "-m", "perf.studies.receiver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, **command: Any) -> dict[str, Any]:
        """One command; its answer."""
        stdin = self._process.stdin
        if stdin is None:
            raise CellError("the receiving process has no standard input")
        try:
            stdin.write(json.dumps(command).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise CellError(f"the receiving process is gone: {error}") from None
        return self.answer()

    def answer(self, wait_s: float = ANSWER_WAIT_S) -> dict[str, Any]:
        """The next line from it."""
        line = self._line(time.monotonic() + wait_s)
        try:
            found = json.loads(line)
        except ValueError:
            raise CellError("the receiving process says what is not JSON") from None
        if not isinstance(found, dict) or "error" in found:
            raise CellError(f"consumer: {found['error'] if isinstance(found, dict) else found}")
        return found

    def _line(self, give_up: float) -> bytes:
        stdout = self._process.stdout
        if stdout is None:
            raise CellError("the receiving process has no standard output")
        while b"\n" not in self._buffer:
            ready = select.select([stdout], [], [], max(0.0, give_up - time.monotonic()))[0]
            chunk = os.read(stdout.fileno(), 1 << 16) if ready else b""
            if not chunk or len(self._buffer) > LINE_BYTES_MAX:
                raise CellError(
                    "the receiving process " + ("ended" if ready else "does not answer")
                )
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        """End of input; if that does not end it, a signal."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # it was gone already, with something unread
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# --- the process itself -------------------------------------------------------------------------


class _Commands:
    """Commands as they come, read beside the consuming loop."""

    def __init__(self) -> None:
        self._next: dict[str, Any] | None = None
        self._there = threading.Event()
        self._taken = threading.Event()
        self.ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in sys.stdin:
                self._next = json.loads(line)
                self._there.set()
                self._taken.wait()
                self._taken.clear()
        finally:
            self.ended = True
            self._there.set()

    def now(self) -> dict[str, Any] | None:
        """The command that waits, if one does."""
        if not self._there.is_set() or self.ended:
            return None
        found = self._next
        self._there.clear()
        self._taken.set()
        return found

    def wait(self) -> dict[str, Any] | None:
        """The next command; None at the end of input."""
        self._there.wait()
        return self.now()


def _say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _listen(commands: _Commands, listen: dict[str, Any]) -> None:
    """One block, from the command "listen" to the answer to "end"."""
    import confluent_kafka as ck

    consumer = ck.Consumer(
        {
            "bootstrap.servers": listen["bootstrap"],
            "group.id": "latency-study",  # a name is asked for; nothing is committed
            "enable.auto.commit": False,
            **listen["options"],
        }
    )
    try:
        consumer.assign([ck.TopicPartition(listen["topic"], 0, 0)])
        _say(listening=True)
        _say(**_consume(consumer, commands))
    finally:
        consumer.close()


def _consume(consumer: Any, commands: _Commands) -> dict[str, Any]:
    arrivals = Arrivals()
    end: dict[str, Any] | None = None
    give_up = float("inf")
    while end is None or len(arrivals) < end["records"]:
        message = consumer.poll(POLL_S)
        now_ns = time.monotonic_ns()
        if message is not None:
            if message.error():
                raise StampError(str(message.error()))
            arrivals.add(message.value() or b"", now_ns)
            if len(arrivals) == 1:
                _say(first=now_ns)
        if end is None:
            end = commands.now()
            if end is None and commands.ended:
                raise StampError("cut short")
            give_up = time.monotonic() + DRAIN_S if end else give_up
        elif message is None and time.monotonic() > give_up:
            raise StampError(f"{len(arrivals)} of {end['records']} records came in {DRAIN_S:.0f} s")
    from_send, from_due, arrived = arrivals.histograms(end["begin_ns"], end["end_ns"])
    return {
        "from_send": from_send.to_json(),
        "from_due": from_due.to_json(),
        "arrived": arrived,
    }


def main() -> None:
    commands = _Commands()
    while (command := commands.wait()) is not None:
        try:
            if command["do"] == "listen":
                _listen(commands, command)
            # an "end" here belongs to a block that has failed already
        except Exception as error:
            _say(error=f"{type(error).__name__}: {error}" if not str(error) else str(error))


if __name__ == "__main__":
    main()
