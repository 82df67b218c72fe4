"""The clients that the workers use. Each is imported by the process that needs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import threading

    from tests.chaos.job import Job
    from tests.chaos.journal import Journal

Run = Callable[["Job", "Journal", "threading.Event"], None]


def _later(module: str) -> Run:
    def run(job: Job, journal: Journal, stop: threading.Event) -> None:
        importlib.import_module(f"{__name__}.{module}").run(job, journal, stop)

    return run


RUN: Final[Mapping[str, Run]] = {
    "confluent": _later("confluent"),
    "kafka-python": _later("kafka_python"),
    "aiokafka": _later("aio"),
}
# Which clients do a protocol as it is meant. kafka-python 3.0.12 knows cooperative-sticky, but a
# member that was expelled keeps its partitions and old positions when it comes back, and commits
# them: with any broker commits then go back.
OF_PROTOCOL: Final[Mapping[str, tuple[str, ...]]] = {
    "eager": ("confluent", "kafka-python", "aiokafka"),
    "cooperative": ("confluent",),
}
