"""The clients that the workers use. Each is imported by the process that needs it."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import threading

    from tests.chaos.job import Job
    from tests.chaos.journal import Journal

Run = Callable[["Job", "Journal", "threading.Event"], None]
# Whose errors end the process that uses them, with a traceback; librdkafka hands its errors over.
LIBRARIES: Final = {"kafka-python": "kafka", "aiokafka": "aiokafka"}


def _later(module: str) -> Run:
    def run(job: Job, journal: Journal, stop: threading.Event) -> None:
        importlib.import_module(f"{__name__}.{module}").run(job, journal, stop)

    return run


RUN: Final[Mapping[str, Run]] = {
    "confluent": _later("confluent"),
    "kafka-python": _later("kafka_python"),
    "aiokafka": _later("aio"),
}
# Which clients do a protocol as it is meant. kafka-python 3.0.12 keeps its position in partitions
# that it had before and has again (`SubscriptionState.assign_from_subscribed` says so), even if
# others had them in between: a member that slept through rebalances then commits old offsets.
OF_PROTOCOL: Final[Mapping[str, tuple[str, ...]]] = {
    "eager": ("confluent", "aiokafka"),
    "cooperative": ("confluent",),
}


def began_in_a_library(error: BaseException) -> bool:
    """Whether a client library, and not what it calls of ours, raised it."""
    modules = (
        str(frame.f_globals.get("__name__")).partition(".")[0]
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )
    ours_or_theirs = [name for name in modules if name in ("tests", *LIBRARIES.values())]
    return bool(ours_or_theirs) and ours_or_theirs[-1] != "tests"
