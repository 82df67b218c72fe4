"""The levels of this broker's loggers by Apache Kafka's names for them, changed at run time.

A level that is set holds at once and until the broker stops: as in Apache Kafka it is not stored.
Python has five of the six levels; TRACE is below DEBUG and shows the same lines. A logger whose
level is taken away follows the one above it again. Loggers that the broker does not have are not
made, since nothing would ever log through them.

Any thread; the logging package has its own lock.
"""

from __future__ import annotations

import logging
from typing import Final

from kbroker.errors import ErrorCode, KafkaError

ROOT: Final = "root"
_OWN: Final = "kbroker"
TRACE: Final = 5
# From the gravest; the numbers in between do not occur.
_LEVELS: Final = (
    (logging.CRITICAL, "FATAL"),
    (logging.ERROR, "ERROR"),
    (logging.WARNING, "WARN"),
    (logging.INFO, "INFO"),
    (logging.DEBUG, "DEBUG"),
    (TRACE, "TRACE"),
)
_NUMBERS: Final = {name: number for number, name in _LEVELS}


def levels() -> list[tuple[str, str]]:
    """The root logger and this broker's own, by name, each with the level that holds for it."""
    return [(name, _name_of(logger.getEffectiveLevel())) for name, logger in _loggers().items()]


def check(name: str, level: str | None) -> None:
    """Whether a logger may be given a level, or lose its own (None); KafkaError if not."""
    if _logger(name) is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
    if level is None and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger cannot be without a level")
    if level is not None and level not in _NUMBERS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{level!r} is no level: use {', '.join(sorted(_NUMBERS))}"
        )


def change(name: str, level: str | None) -> None:
    """Give a logger a level, or take its own away; after `check`."""
    logger = _logger(name)
    if logger is not None:
        logger.setLevel(logging.NOTSET if level is None else _NUMBERS[level])


def _logger(name: str) -> logging.Logger | None:
    """The logger of this name, if it is there; a client may ask for thousands."""
    if name == ROOT:
        return logging.getLogger()
    known = logging.Logger.manager.loggerDict.get(name)
    return known if isinstance(known, logging.Logger) and name.split(".")[0] == _OWN else None


def _loggers() -> dict[str, logging.Logger]:
    own = {
        name: logger
        for name, logger in sorted(list(logging.Logger.manager.loggerDict.items()))
        if name.split(".")[0] == _OWN and isinstance(logger, logging.Logger)
    }
    return {ROOT: logging.getLogger(), **own}


def _name_of(level: int) -> str:
    return next((name for number, name in _LEVELS if level >= number), "TRACE")
