"""What a client's changes of topics cost of its quota controller_mutation_rate (KIP-599).

Place in the flow: handlers of requests that create or delete topics or partitions make one for each
request and give it to the controller, which charges each topic for its partitions before it does
anything for it. A client of a strict version is refused a topic while it owes; older versions do
not know that error, and only wait.

A handler thread, then the controller's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kbroker.errors import ErrorCode, KafkaError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from collections.abc import Collection

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services

# None: it may be done.
Charge = Callable[[int], KafkaError | None]

STRICT_SINCE: Final = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
    # Of topics that are created since they were asked for; no version answers how that went.
    ApiKey.METADATA: 0,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
}
_KIND: Final = "mutation"


class QuotasOfClients(Protocol):
    """`ClientQuotas`, as Python sees it."""

    @property
    def in_force(self) -> Collection[str]: ...

    def mutate(self, user: str, client: str, count: float, strict: bool) -> tuple[bool, int]:
        """Whether it may be done, and how long the client is to wait, in ms."""

    def charge(self, user: str, client: str, *, kind: str, size: float) -> int:
        """How long the client is to wait that has used this, in ms."""

    def figures(
        self, most: int
    ) -> list[tuple[str, str | None, str | None, float, float, float, int, int]]:
        """Of those that were used last."""


class Mutations:
    """Those of one request. `charge`: None where there are no quotas of this kind."""

    def __init__(self, services: Services, call: Call[Any]) -> None:
        self.throttle_ms = 0  # of the answer
        self.charge: Charge | None = None
        quotas = services.quotas
        if quotas is None or _KIND not in quotas.in_force:
            return
        session = call.session
        user, client_id = session.principal.name, session.client_id or ""
        strict = call.version >= STRICT_SINCE[ApiKey(call.request.api_key)]
        self.charge = partial(self._charge, partial(quotas.mutate, user, client_id, strict=strict))

    def _charge(
        self, mutate: Callable[[int], tuple[bool, int]], partitions: int
    ) -> KafkaError | None:
        done, throttle_ms = mutate(partitions)
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        if done:
            return None
        return KafkaError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
        )
