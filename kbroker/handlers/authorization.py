"""Checks rights: those that a request needs as a whole, and those on single items for handlers.

Place in the flow: `registry.py` calls `authorize` for a request that it has read, on the broker
that does what the request says, before the handler runs. A request that lacks a right ends as
`KafkaError`, so its response says the code of the resource wherever it can (`Call`). A handler asks
for rights on single items with `denied` or `may`, and puts the errors where its API has them.

Without an authorizer everything is allowed, and nothing is looked at.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import KafkaError
from kbroker.handlers.call import session_for
from kbroker.handlers.forwarding import calls_itself_a_broker
from kbroker.handlers.metadata_topics import OPERATIONS_NOT_ASKED
from kbroker.security.rights import (
    CLUSTER_NAME,
    DENIED,
    OPERATIONS,
    Authorizer,
    Operation,
    Resource,
    ResourceType,
    Right,
)
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.security.session import Session

# As Apache Kafka answers them.
_WITHOUT_WORDS: Final = frozenset(
    {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_CLIENT_QUOTAS}
)
_NONE: Final[frozenset[str]] = frozenset()
_KEYS: Final = {int(key): key for key in ApiKey}


def authorize(
    authorizer: Authorizer,
    request: ColdRequest,
    rights: Iterable[Right],
    message: Any,
    key: ApiKey,
) -> None:
    """KafkaError: the request's client lacks a right without which nothing is done."""
    for right in rights:
        if right.whole and not _has(authorizer, session_for(request), right, message, key):
            raise KafkaError(DENIED[right.type], _words(right, key))


def _words(right: Right, request: ApiKey) -> str:
    """Those of the cluster's alone are answered: other codes say the same as their words."""
    if right.type is not ResourceType.CLUSTER or request in _WITHOUT_WORDS:
        return ""
    return f"{request.label} needs the right {right.operation.name} on the cluster"


def _has(
    authorizer: Authorizer, session: Session, right: Right, message: Any, request: ApiKey
) -> bool:
    resources = [Resource(right.type, str(name)) for name in right.names(message)]
    return not resources or not authorizer.authorize(session, right.operation, resources, request)


def denied(
    services: Services,
    call: Call[Any],
    operation: Operation,
    type_: ResourceType,
    names: Iterable[str],
    *,
    quiet: bool = False,
) -> frozenset[str]:
    """Those of the names on which the client may not do this. `quiet`: they are not logged."""
    authorizer = services.authorizer
    if authorizer is None:
        return _NONE
    resources = [Resource(type_, name) for name in names]
    if not resources:
        return _NONE
    request = call.request
    found = authorizer.authorize(
        session_for(request), operation, resources, _KEYS[request.api_key], quiet=quiet
    )
    return frozenset([resource.name for resource in found]) if found else _NONE


def operations_of(
    services: Services, call: Call[Any], type_: ResourceType, *, wanted: bool = True
) -> Callable[[str], int]:
    """A look-up for all resources of the request: the operations that the client may do on a name,
    as the bits of their numbers (KIP-430). Not `wanted`: the number that says so."""
    if not wanted:
        return lambda _: OPERATIONS_NOT_ASKED
    if services.authorizer is None:
        possible = sum(1 << each for each in OPERATIONS[type_])
        return lambda _: possible
    return services.authorizer.operations(session_for(call.request), type_)


def may(
    services: Services,
    call: Call[Any],
    operation: Operation,
    type_: ResourceType,
    name: str,
    *,
    quiet: bool = False,
) -> bool:
    """Whether the client may do this on the resource. `quiet`: a denial is not logged."""
    if services.authorizer is None:
        return True
    return not denied(services, call, operation, type_, (name,), quiet=quiet)


def may_on_cluster(
    services: Services, call: Call[Any], operation: Operation, *, quiet: bool = False
) -> bool:
    return may(services, call, operation, ResourceType.CLUSTER, CLUSTER_NAME, quiet=quiet)


def is_a_broker(services: Services, call: Call[Any]) -> bool:
    """Whether another broker of the cluster asks this for itself, with an authorizer in place.

    Brokers need one right, ClusterAction on the cluster. With it they could put anything into the
    other brokers' images, so nothing is hidden from them: one that believed that a transaction is
    over, because its topic is hidden, would abort it. A client that has this right has none more,
    unless it calls itself a broker on the listener between brokers.
    """
    if services.authorizer is None:
        return False
    inside = services.config.listeners.inter_broker_name
    return calls_itself_a_broker(call.request, inside) and may_on_cluster(
        services, call, Operation.CLUSTER_ACTION, quiet=True
    )
