"""DescribeClientQuotas (48): the quotas that match a filter (KIP-546). Nobody has one yet.

What a filter may say is checked as Apache Kafka checks it, part by part, so that a tool learns of
its mistake today: the kinds are user, client-id and ip, each at most once, an address not together
with the others; a part asks for an exact name, for the default, or for every name.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import told
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_KINDS: Final = frozenset({USER, CLIENT_ID, IP})
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


class Component(NamedTuple):
    """One part of a filter; `name` belongs to an exact match only."""

    kind: str
    match: int
    name: str | None


def decode(request: ColdRequest) -> list[Component]:
    flexible = is_flexible(ApiKey.DESCRIBE_CLIENT_QUOTAS, request.api_version)
    reader = Reader(request.body, flexible=flexible)
    components = []
    for _ in range(reader.array()):
        components.append(Component(reader.string(), reader.int8(), reader.nullable_string()))
        reader.tags()
    reader.boolean()  # strict: entities with other kinds do not match; there are none
    reader.tags()
    return components


def handle(services: Services, request: ColdRequest) -> None:
    _check(decode(request))
    request.respond(_encode(request.api_version, ErrorCode.NONE, "", found=True))


def _check(components: list[Component]) -> None:
    seen: set[str] = set()
    for component in components:
        _check_one(component, seen)
        seen.add(component.kind)
    if IP in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "an address stands alone: others have quotas apart",
        )


def _check_one(component: Component, seen: set[str]) -> None:
    kind, match, name = component
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


def _encode(version: int, code: ErrorCode, message: str | None, *, found: bool) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.DESCRIBE_CLIENT_QUOTAS, version))
    out.int32(0)  # throttle time
    out.int16(code)
    out.string(told(message))
    out.array(0 if found else None)
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode(request.api_version, code, message or None, found=False)
