"""What records cost of a client's quota consumer_byte_rate, in an API that Python answers (KIP-13).

The records leave, and the client is not read for as long as they cost. The quotas of Fetch itself
are charged in C. A handler thread, before its request is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services

_KIND: Final = "fetch"

# Bytes of records -> the throttle time of the answer that has them, in ms.
FetchCharge = Callable[[int], int]


def no_charge(size: int) -> int:
    return 0


def fetch_charge(services: Services, call: Call[Any]) -> FetchCharge:
    """For the answer to this request."""
    quotas = services.quotas
    if quotas is None or _KIND not in quotas.in_force:
        return no_charge
    charge, session = quotas.charge, call.session
    user, client_id = session.principal.name, session.client_id or ""
    return lambda size: call.throttled(charge(user, client_id, kind=_KIND, size=size))
