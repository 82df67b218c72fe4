"""Checks the rights that a request needs as a whole, before its handler runs.

Place in the flow: `registry.py` calls this for a request that it has read, on the broker that does
what the request says. A request that lacks a right ends as `KafkaError`, so its response says the
code of the resource wherever it can (`Call`). Rights on single items are not checked here
(`security/rights.py`).

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.errors import KafkaError
from kbroker.security.rights import DENIED, Authorizer, Resource, Right

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kbroker.security.session import Session


def authorize(
    authorizer: Authorizer, session: Session, rights: Iterable[Right], message: Any
) -> None:
    """KafkaError: the session's principal lacks a right without which nothing is done."""
    for right in rights:
        if right.whole and not _has(authorizer, session, right, message):
            raise KafkaError(DENIED[right.type])


def _has(authorizer: Authorizer, session: Session, right: Right, message: Any) -> bool:
    resources = [Resource(right.type, name) for name in right.names(message)]
    return not resources or not authorizer.authorize(session, right.operation, resources)
