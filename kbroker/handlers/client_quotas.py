"""DescribeClientQuotas (48) and AlterClientQuotas (49): quotas of users, clients and addresses
(KIP-546).

Quotas are a part of the image, and any broker describes them. The controller alters them: each
entity of a request as a whole or not at all, and one that cannot be altered does not hurt the
others. Filters and changes are checked as Apache Kafka checks them, part by part.

Any handler thread, then the controller's; holds no lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.user_changes import QuotaChange, UserResults
from kbroker.protocol import messages
from kbroker.quota.entities import (
    CLIENT_ID,
    EVERY,
    IP,
    USER,
    QuotaEntity,
    invalid_quota,
    quota_keys,
    quota_text,
)

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage
    from kbroker.protocol.messages import alter_client_quotas, describe_client_quotas
    from kbroker.protocol.messages.alter_client_quotas import EntryData
    from kbroker.protocol.messages.describe_client_quotas import ComponentData

_KINDS: Final = frozenset({USER, CLIENT_ID, IP})
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2

# The parts of an entity as a request names them: None is the default.
Parts = tuple[tuple[str, str | None], ...]


class _Filter(NamedTuple):
    """`exact`: names by kind, None for the default; `some`: kinds with any name, or the default."""

    exact: Mapping[str, str | None]
    some: frozenset[str]
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        parts = entity.parts
        wanted = self.exact.keys() | self.some
        if not wanted <= parts.keys() or (self.strict and len(parts) != len(wanted)):
            return False
        return all(
            parts[kind] == (EVERY if name is None else name) and name != EVERY
            for kind, name in self.exact.items()
        )


def handle_describe(services: Services, call: Call[describe_client_quotas.Request]) -> None:
    _check(call.message.components)
    table = messages.describe_client_quotas
    entries = [
        table.EntryData(
            entity=[
                table.EntityData(entity_type=kind, entity_name=name or None)
                for kind, name in entity.parts.items()
            ],
            values=[table.ValueData(key=key, value=value) for key, value in quotas.items()],
        )
        for entity, quotas in _found(services.controller.image, _filter(call.message))
    ]
    call.answer(table.Response(error_code=ErrorCode.NONE, error_message="", entries=entries))


def _found(
    image: ClusterImage, wanted: _Filter
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    return ((entity, quotas) for entity, quotas in image.all_quotas() if wanted.matches(entity))


def _filter(message: describe_client_quotas.Request) -> _Filter:
    exact = {each.entity_type: each.match for each in message.components if each.match_type != _ANY}
    some = (each.entity_type for each in message.components if each.match_type == _ANY)
    return _Filter(exact, frozenset(some), message.strict)


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


# --- changes --------------------------------------------------------------------------------------


def handle_alter(services: Services, call: Call[alter_client_quotas.Request]) -> None:
    errors: dict[Parts, KafkaError | None] = {}
    changes: dict[Parts, QuotaChange] = {}
    for entry in call.message.entries:
        parts = _parts(entry)
        try:
            if parts in errors:
                raise _invalid("Ignoring duplicate entity")
            errors[parts] = None
            changes[parts] = _change(parts, entry)
        except KafkaError as error:
            errors[parts] = error
    if call.message.validate_only or not changes:
        call.answer(_response(errors))
        return

    def done(results: UserResults) -> None:
        for parts, error in zip(changes, results, strict=True):
            errors[parts] = error or errors[parts]
        call.answer_made(lambda: _response(errors))

    services.controller.alter_quotas(tuple(changes.values()), done)


def alter_failure(
    call: Call[alter_client_quotas.Request], code: ErrorCode, message: str | None
) -> alter_client_quotas.Response:
    error = KafkaError(code, message or "")
    return _response(dict.fromkeys(map(_parts, call.message.entries), error))


def _response(errors: Mapping[Parts, KafkaError | None]) -> alter_client_quotas.Response:
    table = messages.alter_client_quotas
    entries = []
    for parts, error in errors.items():
        entity = [table.EntityData(entity_type=kind, entity_name=name) for kind, name in parts]
        code = ErrorCode.NONE if error is None else error.code
        message = None if error is None else error.message
        entries.append(table.Result(error_code=code, error_message=message, entity=entity))
    return table.Response(entries=entries)


def _parts(entry: EntryData) -> Parts:
    """Of a kind that is named twice the last name counts."""
    return tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))


def _change(parts: Parts, entry: EntryData) -> QuotaChange:
    """KafkaError: why not."""
    entity = _entity(parts)
    keys = [op.key for op in entry.ops]
    if len(set(keys)) < len(keys):
        raise _invalid("a quota is named more than once")
    settings: dict[str, str] = {}
    for op in entry.ops:
        if op.remove:
            continue
        if reason := invalid_quota(entity, op.key, op.value):
            raise _invalid(reason)
        settings[op.key] = quota_text(op.key, op.value)
    # A key that is no quota is not removed: a user's password is among its settings.
    removed = {op.key for op in entry.ops if op.remove} & {*quota_keys(entity)}
    return QuotaChange(entity, settings, frozenset(removed))


def _entity(parts: Parts) -> QuotaEntity:
    """KafkaError: there is no such entity."""
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind not in _KINDS:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == EVERY:
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = EVERY if name is None else name
    if not names:
        raise _invalid("Invalid empty client quota entity")
    if IP in names:
        if len(names) > 1:
            raise _invalid("an IP address cannot be combined with a user or a client id")
        names[IP] = _address(names[IP])
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def _address(text: str) -> str:
    """As clients' addresses are compared: names are not looked up."""
    if text == EVERY:
        return text
    try:
        address = ip_address(text)
    except ValueError:
        raise _invalid(f"{text} is not an IP address; names of hosts are not looked up") from None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
