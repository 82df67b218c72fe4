"""A broker in the test's own process, in the clothes of subprocess.Popen.

Faster to start, and a debugger steps into it; in exchange the tested process shares its interpreter
lock with it, and there is no kill -9: `kill` is an ordinary stop. Its log goes to the file that a
process of its own would write, as far as it comes from kbroker's loggers.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kbroker.cli.start import build_config, serve_admin
from kbroker.cli.start_arguments import parse_plain
from kbroker.errors import UsageError
from kbroker.testing.inspected import InspectedBroker

_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


class _LogFile(logging.FileHandler):
    """Of one broker. One of those that run has the level of the logger, and gives it back."""

    has_level = False


class InProcess:
    """Started when it is made; an error of the start is the caller's to see."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log_path: Path
    ) -> None:
        """`command` as Broker.command has it: the program, then its arguments."""
        arguments = parse_plain([str(word) for word in command[command.index("--data-dir") :]])
        if arguments is None:
            raise UsageError(f"these are no arguments of a broker: {command}", "see overrides")
        config = build_config(arguments, environment)
        self._handler = _LogFile(log_path)
        self._handler.setFormatter(logging.Formatter(_FORMAT))
        self._logger = logging.getLogger("kbroker")
        self._logger.addHandler(self._handler)
        if self._logger.level == logging.NOTSET:
            self._logger.setLevel(logging.INFO)
            self._handler.has_level = True
        self._status: int | None = None
        self._ended = threading.Event()
        ready_file = None if arguments.ready_file is None else Path(arguments.ready_file)
        self._broker = InspectedBroker(config, Path(config.log_dirs[0]), ready_file, serve_admin)
        try:
            self._broker.start()
        except BaseException:
            self._end(1)
            raise

    @property
    def pid(self) -> int:
        return os.getpid()

    def control(self, order: dict[str, Any]) -> Any:
        return self._broker.control(dict(order))

    def poll(self) -> int | None:
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("kbroker in this process", timeout or 0)
        return self._status or 0

    def send_signal(self, sig: int) -> None:
        """Any signal is a request to stop; on return it has."""
        if self._status is None:
            self._end(0 if self._broker.stop() else 1)

    def kill(self) -> None:
        self.send_signal(0)

    def _end(self, status: int) -> None:
        self._status = status
        self._ended.set()
        self._logger.removeHandler(self._handler)
        self._handler.close()
        if self._handler.has_level:
            self._handler.has_level = False
            others = [it for it in self._logger.handlers if isinstance(it, _LogFile)]
            if others:
                others[0].has_level = True
            else:
                self._logger.setLevel(logging.NOTSET)
