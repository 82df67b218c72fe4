"""Logging of the broker process: one line per event on standard error.

Text lines have Apache Kafka's layout, `[time] LEVEL message (logger)`; `logging.format=json` writes
one object per line with the same fields. Nothing else configures logging.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Final

_TEXT: Final = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
_TIME: Final = "%Y-%m-%d %H:%M:%S"


class JsonFormatter(logging.Formatter):
    """ts, level, logger, thread, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "ts": f"{self.formatTime(record, _TIME)},{int(record.msecs):03d}",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure_logging(style: str) -> None:
    """`style`: text or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else logging.Formatter(_TEXT, _TIME))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
