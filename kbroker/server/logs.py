"""Logging of the broker process: one line per event, on standard error or in a file.

Text lines have Apache Kafka's layout, `[time] LEVEL message (logger)`; `logging.format=json` writes
one object per line with the same fields. A line on standard error that systemd's journal
reads begins with its priority (sd-daemon(3)). Nothing else configures logging.

Whatever a message quotes, it is one line of bounded length: what would end it or move a cursor is
escaped (outside_text.py), and the lines of a traceback are indented, so that none of them can be
taken for an event.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kbroker.limits import LOG_LINE_CHARS_MAX
from kbroker.outside_text import printable

if TYPE_CHECKING:
    from kbroker.server.log_file import LogFile

_TEXT: Final = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
_TIME: Final = "%Y-%m-%d %H:%M:%S"
# Of syslog(3), by the least level.
_PRIORITIES: Final = (
    (logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6),
)  # fmt: skip
_DEBUG: Final = 7


ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class TextFormatter(logging.Formatter):
    """One line, and after it the traceback where there is one, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message, LOG_LINE_CHARS_MAX)
        return super().formatMessage(record)

    def formatException(self, ei: ExceptionInfo) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {printable(line, LOG_LINE_CHARS_MAX)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """ts, level, logger, thread, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "ts": f"{self.formatTime(record, _TIME)},{int(record.msecs):03d}",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": printable(record.getMessage(), LOG_LINE_CHARS_MAX),
        }
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            entry["exception"] = "\n".join(printable(line, LOG_LINE_CHARS_MAX) for line in lines)
        return json.dumps(entry, ensure_ascii=False)


class JournalFormatter(logging.Formatter):
    """Each line of another formatter with the priority of its event before it."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        priority = next((each for least, each in _PRIORITIES if record.levelno >= least), _DEBUG)
        text = self._inner.format(record)
        return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


def configure_logging(style: str, file: str | None = None) -> LogFile | None:
    """`style`: text or json. `file`: its path; the handler that writes it, or None. ConfigError: it
    cannot be written."""
    handler: logging.Handler
    opened = None
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        from kbroker.server.log_file import LogFile

        handler = opened = LogFile(file)
    formatter = JsonFormatter() if style == "json" else TextFormatter(_TEXT, _TIME)
    of_journal = file is None and is_journal(os.environ)
    handler.setFormatter(JournalFormatter(formatter) if of_journal else formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    return opened


def is_journal(environ: Mapping[str, str]) -> bool:
    """Whether standard error goes to systemd's journal: the variable has its device and inode."""
    named = environ.get("JOURNAL_STREAM", "")
    if not named:
        return False
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return named == f"{found.st_dev}:{found.st_ino}"
