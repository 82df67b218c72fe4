"""DescribeClientQuotas (48): the quotas that match a filter (KIP-546). There are none yet.

What a filter may say is checked as Apache Kafka checks it, part by part, so that a tool learns of
its mistake today: the kinds are user, client-id and ip, each at most once, an address not together
with the others; a part asks for an exact name, for the default, or for every name.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.describe_client_quotas import ComponentData, Request

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_KINDS: Final = frozenset({USER, CLIENT_ID, IP})
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


def handle(services: Services, call: Call[Request]) -> None:
    _check(call.message.components)
    # `strict` leaves out entities with other parts: there are none.
    call.answer(
        messages.describe_client_quotas.Response(
            error_code=ErrorCode.NONE, error_message="", entries=[]
        )
    )


def _check(components: list[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        _check_one(component, seen)
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "an IP address cannot be combined with other entity types",
        )


def _check_one(component: ComponentData, seen: set[str]) -> None:
    kind, match, name = component.entity_type, component.match_type, component.match
    wrong: str | None = None
    if not kind:
        wrong = "a part of the filter names no kind of entity"
    elif kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no kind '{kind}': there are {known}")
    elif kind in seen:
        wrong = f"{kind} is in the filter more than once"
    elif match not in (_EXACT, _DEFAULT, _ANY):
        wrong = f"there is no match of type {match}"
    elif match == _EXACT and name is None:
        wrong = f"an exact match of {kind} needs a name"
    elif match != _EXACT and name is not None:
        wrong = f"only an exact match of {kind} has a name"
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
