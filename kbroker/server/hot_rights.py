"""Decides about requests that C serves: their rights, once for each principal, host and resource.

Place in the flow: a handler returns from the hot path with requests of which C does not know a
verdict (`engine/apis/_produce_rights`, `_fetch_rights`). `Access` puts this before the dispatch.
It asks the authorizer, gives the verdicts to C, which keeps them until the ACLs change
(`engine/worker/_verdicts`), and C serves the request as if it had just come. Requests that Python
can serve whole (Heartbeat, OffsetCommit, those of transactions) it serves itself until C knows the
right; the authorizer gives what it allows to `allowed`.

C counts the denials of verdicts that it keeps. `write` gives the counts to the log of denials, as
further ones of the line that the first denial had. Of more than `DENIALS_MAX` at once the further
ones are not counted.

Any thread; the lock, a leaf, is held for a dictionary only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.handlers.call import session_for
from kbroker.limits import DENIALS_MAX
from kbroker.security.rights import Operation, Resource, ResourceType
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker._net import WrappedRequest
    from kbroker.engine._hot import HotPath
    from kbroker.engine._hot_verdicts import HotVerdicts
    from kbroker.security.authorizer import AclAuthorizer
    from kbroker.security.session import Session

    Dispatch = Callable[[WrappedRequest], None]

# Why the hot path passes such a request on.
REASON: Final = "rights"

# The rights that C asks for where Python serves a request if they are not known.
_KEPT: Final = frozenset(
    {
        (Operation.READ, ResourceType.GROUP),
        (Operation.READ, ResourceType.TOPIC),
        (Operation.WRITE, ResourceType.TOPIC),
        (Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
    }
)
# The APIs whose requests C serves once it knows these.
_SERVED: Final[frozenset[ApiKey]] = frozenset(
    {
        ApiKey.HEARTBEAT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.END_TXN,
    }
)
_NOT_COUNTED: Final = 0


class _Denial(NamedTuple):
    session: Session
    operation: Operation
    resource: Resource
    request: ApiKey
    place: int  # of its verdict


class HotRights:
    """The authorizer's verdicts for one hot path."""

    served = _SERVED

    def __init__(self, hot: HotPath, verdicts: HotVerdicts, authorizer: AclAuthorizer) -> None:
        self._hot = hot
        self._verdicts = verdicts
        self._authorizer = authorizer
        self._lock = threading.Lock()
        self._denials: dict[int, _Denial] = {}
        self._last_number = _NOT_COUNTED

    @property
    def generation(self) -> int:
        return self._verdicts.generation

    def keeps(self, operation: Operation, type_: ResourceType) -> bool:
        return (operation, type_) in _KEPT

    def allowed(
        self, session: Session, operation: Operation, resource: Resource, generation: int
    ) -> None:
        """Python has decided this for a request that it serves; C may serve the next one."""
        principal, host = session.principal, session.client_host
        try:
            _place, before, times = self._verdicts.allow(
                principal, host, generation, operation, *resource
            )
        except OSError:
            return  # of a forwarded request: the host is no address
        if before:
            with self._lock:
                known = self._denials.pop(before, None)
            if known is not None:
                self._note([(known, times)])

    def forget(self) -> None:
        """The ACLs have changed. Call this when the new ones are published."""
        self._verdicts.forget()

    def before(self, dispatch: Dispatch) -> Dispatch:
        """This dispatch, of the requests that the hot path leaves for other reasons."""

        def dispatch_or_decide(request: WrappedRequest) -> None:
            if request.reason == REASON:
                self._decide(request)
            else:
                dispatch(request)

        return dispatch_or_decide

    def _decide(self, request: WrappedRequest) -> None:
        generation = self._verdicts.generation  # before the ACLs are looked at
        session, key = session_for(request), ApiKey(request.api_key)
        asked = [
            (Operation(operation), Resource(ResourceType(type_), name))
            for operation, type_, name in self._verdicts.asked(request)
        ]
        try:
            denied = self._denied(session, key, asked)
            numbers = [self._number() if each in denied else None for each in asked]
        except BaseException:
            if key is ApiKey.PRODUCE:
                self._hot.produce_given_up(request)
            raise
        outcomes = self._verdicts.decided(request, generation, numbers)
        ended: list[tuple[_Denial, int]] = []
        with self._lock:
            for (operation, resource), number, outcome in zip(
                asked, numbers, outcomes, strict=True
            ):
                place, before, times = outcome
                known = self._denials.pop(before, None)
                if known is not None:
                    ended.append((known, times))
                if number and place >= 0:
                    self._denials[number] = _Denial(session, operation, resource, key, place)
        self._note(ended)

    def _denied(
        self, session: Session, key: ApiKey, asked: list[tuple[Operation, Resource]]
    ) -> set[tuple[Operation, Resource]]:
        by_operation: dict[Operation, list[Resource]] = {}
        for operation, resource in asked:
            by_operation.setdefault(operation, []).append(resource)
        return {
            (operation, resource)
            for operation, resources in by_operation.items()
            for resource in self._authorizer.decide(session, operation, resources, key)
        }

    def _number(self) -> int:
        """Of a denial that is to be counted."""
        with self._lock:
            if len(self._denials) >= DENIALS_MAX:
                return _NOT_COUNTED
            self._last_number += 1
            return self._last_number

    def write(self) -> None:
        """Give what C has counted to the log of denials."""
        with self._lock:
            counted = list(self._denials.items())
        found = [
            (number, known, self._verdicts.take_denials(known.place, number))
            for number, known in counted
        ]
        with self._lock:
            for number, _, times in found:
                if times < 0:
                    self._denials.pop(number, None)
        self._note((known, times) for _, known, times in found)

    def _note(self, denials: Iterable[tuple[_Denial, int]]) -> None:
        for known, times in denials:
            if times > 0:
                self._authorizer.note_repeats(
                    known.session, known.operation, known.resource, known.request, times
                )
