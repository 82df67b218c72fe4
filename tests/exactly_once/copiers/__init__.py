"""Programs that copy records from one topic to another, each once, by different libraries.

    COPIER HOST:PORT TRANSACTIONAL_ID GROUP FROM TO

Each consumes, produces, and commits both in one transaction, as its library's documentation says:
after an error that allows it the transaction is aborted and the copier goes back to its committed
offsets; any other error ends the process with status 3, and its next start goes on.

A copier prints each step of a transaction, and goes on when it has read a line, so that it or its
broker may be killed exactly there; it ends with its standard input:

    taken       records were consumed and a transaction has begun
    sent        they are written and acknowledged, in the open transaction
    offsets     their offsets are in the transaction, too
    committed   the transaction is over

franz-go commits offsets and ends the transaction in one call, so it has no step between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from tests.clients.agents.programs import program
from tests.support import kafka_classes

TAKEN: Final = "taken"
SENT: Final = "sent"
OFFSETS: Final = "offsets"
COMMITTED: Final = "committed"
ENDED_BY_AN_ERROR: Final = 3


def step(name: str) -> None:
    """Print it, and wait until the copier may go on."""
    print(name, flush=True)
    if not sys.stdin.readline():
        sys.exit(0)


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.exactly_once.copiers.{module}"]


def _java() -> list[str]:
    return kafka_classes.command("Copier", classes=program("java"))


COMMANDS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "confluent-kafka": lambda: _python("librdkafka"),
    "aiokafka": lambda: _python("aio"),
    "java": _java,
    "franz-go": lambda: [str(program("go") / "agent"), "copy"],
}
# The last step before the call that commits.
LAST_STEP: Final[Mapping[str, str]] = {
    "confluent-kafka": OFFSETS, "aiokafka": OFFSETS, "java": OFFSETS, "franz-go": SENT,
}  # fmt: skip
