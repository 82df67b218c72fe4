"""Logging of the broker process: one line per event on standard error.

Text lines have Apache Kafka's layout, `[time] LEVEL message (logger)`; `logging.format=json` writes
one object per line with the same fields. Nothing else configures logging.

Whatever a message quotes, it is one line of bounded length: what would end it or move a cursor is
escaped (outside_text.py), and the lines of a traceback are indented, so that none of them can be
taken for an event.
"""

from __future__ import annotations

import json
import logging
import sys
from types import TracebackType
from typing import Final

from kbroker.limits import LOG_LINE_CHARS_MAX
from kbroker.outside_text import printable

_TEXT: Final = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
_TIME: Final = "%Y-%m-%d %H:%M:%S"


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


def configure_logging(style: str) -> None:
    """`style`: text or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter(_TEXT, _TIME))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
