"""The entities that quotas are set for, and the quotas that each kind of entity can have.

An entity is a user, a client id, both together, or an IP address (KIP-55, 546, 612). Each part is a
name or the default: what holds for every user, client or address without a quota of its own.

Values are kept as text, as Apache Kafka 3.9 keeps them in ZooKeeper, with other settings of the
entity beside them: a user's node also has its SCRAM credentials. `quotas_of` finds the quotas among
them, and skips what is no quota, as something else may have been written there.

Pure values; any thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

EVERY: Final = ""  # in place of a name: the default entity

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

# Of users and clients.
CLIENT_QUOTAS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
IP_QUOTAS: Final = (CONNECTION_CREATION_RATE,)
# Those that are whole numbers, with their greatest value.
_WHOLE: Final[Mapping[str, int]] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: 2**63 - 1,
        CONSUMER_BYTE_RATE: 2**63 - 1,
        CONNECTION_CREATION_RATE: 2**31 - 1,
    }
)
# Of a whole number, as a client computes it; it is kept as it came.
_ROUNDING: Final = 1e-6


class QuotaEntity(NamedTuple):
    """None: it has no such part; EVERY: the default. `ip` only by itself."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def is_user(self) -> bool:
        """A user alone: its settings are among those of the user."""
        return self.client_id is None and self.ip is None

    @property
    def parts(self) -> dict[str, str]:
        """Those that it has, by kind."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return {kind: name for kind, name in named if name is not None}

    def __str__(self) -> str:
        parts = self.parts.items()
        return " and ".join(
            f"{kind} {'(default)' if name == EVERY else name}" for kind, name in parts
        )


def quota_keys(entity: QuotaEntity) -> tuple[str, ...]:
    """Of an entity of this kind."""
    return CLIENT_QUOTAS if entity.ip is None else IP_QUOTAS


def quotas_of(entity: QuotaEntity, settings: Mapping[str, str]) -> dict[str, float]:
    """The quotas among an entity's settings; what cannot be read is none."""
    found: dict[str, float] = {}
    for key in quota_keys(entity):
        text = settings.get(key)
        if text is None:
            continue
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0:
            found[key] = value
    return found


def invalid_quota(entity: QuotaEntity, key: str, value: float) -> str | None:
    """Why this is no value of this quota; None: it is one."""
    if key not in quota_keys(entity):
        return f"Invalid configuration key {key}"
    if not value > 0 or math.isinf(value):
        return f"Quota {key} must be greater than 0"
    most = _WHOLE.get(key)
    if most is None:
        return None
    if abs(value - round(value)) > _ROUNDING:
        return f"Configuration {key} cannot be a fractional value"
    if value > float(most):
        return f"Proposed value for {key} is too large"
    return None


def quota_text(key: str, value: float) -> str:
    """As Apache Kafka 3.9 writes it into a node."""
    if key in _WHOLE and value.is_integer():
        return str(round(value))
    return repr(value)
