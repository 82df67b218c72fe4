"""A worker's job, and the times that all clients are given."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

FENCED_STATUS: Final = 3
CLIENTS_OWN_STATUS: Final = 4
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_500
POLL_MS: Final = 15_000  # also how long a rebalance waits for a member
BATCH_RECORDS: Final = 200
POLL_S: Final = 0.2
AUTOMATIC_MS: Final = 1_000


class Fenced(Exception):
    """Another process has taken this instance's place."""


@dataclass(frozen=True)
class Job:
    """What a worker is to do."""

    client: str
    protocol: str  # "eager" or "cooperative"
    bootstrap: str
    topic: str
    group: str
    journal: str
    client_id: str
    instance: str | None = None
    automatic: bool = False

    def text(self) -> str:
        return json.dumps(asdict(self))
