"""A file for the log, which is opened again when another program has moved it.

Place in the flow: `configure_logging` makes one if `logging.file` is set. Programs that rotate logs
rename the file; the next line then goes to a new one. SIGUSR1 and SIGHUP open the file again
without waiting for a line (`reopen`), so that the program may compress the old one.

Logging must not fail: a line that the file cannot take (a full disk, a directory that is gone) goes
to standard error. Any thread; the lock is that of Python's handlers, a leaf.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from io import TextIOWrapper
from typing import Final

from kbroker.errors import ConfigError

FILE: Final = "logging.file"
_MODE: Final = 0o640


class LogFile(logging.StreamHandler[TextIOWrapper]):
    def __init__(self, path: str) -> None:
        """ConfigError: it cannot be written, or is no file of a disk."""
        self._path = os.path.abspath(os.path.expanduser(path))
        try:
            stream = self._open()
        except OSError as error:
            raise ConfigError(
                f"{FILE}: cannot write {self._path}: {error.strerror or error}", "check the path"
            ) from None
        super().__init__(stream)

    def reopen(self) -> bool:
        """The file of that path is written from now on. False: it cannot be opened, and the lines
        go on to the old one."""
        self.acquire()
        try:
            return self._reopen_locked()
        finally:
            self.release()

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_the_file() and not self._reopen_locked() and not self.stream.closed:
            self.handleError(record)  # beside the old file, which an operator may not find
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """To standard error; without the traceback that logging would print for each line."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # a record whose arguments do not fit its text, or no standard error
            pass

    def close(self) -> None:
        self.stream.close()
        super().close()

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, _MODE)  # a pipe could hang without O_NONBLOCK
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("it is no regular file")
        return open(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def _reopen_locked(self) -> bool:
        try:
            stream = self._open()
        except OSError:
            return False
        old, self.stream = self.stream, stream
        try:
            old.close()
        except OSError:  # of a line that its disk did not take
            pass
        return True

    def _is_the_file(self) -> bool:
        try:
            there, here = os.stat(self._path), os.fstat(self.stream.fileno())
        except (OSError, ValueError):  # it is closed
            return False
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
