"""What the measurements of a log have in common: two brokers by turns, compared within a round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perf.brokers import Broker, KafkaBroker, KbrokerBroker
from perf.measurement import OURS

# Apache Kafka's controller takes no new process of a killed broker while the session of the old one
# lasts, counted from the controller's own start: so it is over before the broker has read its logs.
BRIEF_SESSION: Final = ("broker.session.timeout.ms=1000", "broker.heartbeat.interval.ms=200")


def new_broker(
    kind: str, directory: Path, settings: tuple[str, ...] = (), *, killed: bool = False
) -> Broker:
    """One node of its kind, not started. `settings`: KEY=VALUE, the same names for both.
    `killed`: its directory was left by SIGKILL, and its start is not to wait for a session."""
    if kind == OURS:
        return KbrokerBroker(directory, overrides=settings)
    return KafkaBroker(directory, overrides=settings + (BRIEF_SESSION if killed else ()))


def order(brokers: Sequence[str], number: int) -> Sequence[str]:
    """Of a round, counted from 0: the other way round in every second one."""
    return brokers[:: -1 if number % 2 else 1]
