"""Client quotas, as our clients describe and alter them (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.protocol import messages
from kbroker.protocol.wire import Reader
from kbroker.quota.entities import CLIENT_ID, EVERY, IP, USER, QuotaEntity

_EXACT: Final = 0
_DEFAULT: Final = 1


class EntityQuotas(NamedTuple):
    """The quotas of an entity, by key."""

    entity: QuotaEntity
    quotas: Mapping[str, float]


class QuotaResult(NamedTuple):
    """Of one entity that was to be altered."""

    error: ErrorCode
    message: str | None


def encode_describe_quotas(version: int, entity: QuotaEntity | None) -> bytes:
    """None: of all entities; else of those that have its parts, and others besides or not."""
    table = messages.describe_client_quotas
    components = [
        table.ComponentData(
            entity_type=kind,
            match_type=_DEFAULT if name == EVERY else _EXACT,
            match=name or None,
        )
        for kind, name in ({} if entity is None else entity.parts).items()
    ]
    return table.Request(components=components, strict=False).encode(version)


def decode_describe_quotas(reader: Reader, version: int) -> list[EntityQuotas]:
    answer = messages.describe_client_quotas.Response.decode(reader.raw(reader.left), version)
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode.for_code(answer.error_code), answer.error_message or "")
    found = []
    for entry in answer.entries or ():
        names = {each.entity_type: each.entity_name or EVERY for each in entry.entity}
        entity = QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))
        found.append(EntityQuotas(entity, {each.key: each.value for each in entry.values}))
    return found


def encode_alter_quotas(
    version: int, entity: QuotaEntity, quotas: Mapping[str, float], removed: Sequence[str]
) -> bytes:
    table = messages.alter_client_quotas
    ops = [table.OpData(key=key, value=value, remove=False) for key, value in quotas.items()]
    ops += [table.OpData(key=key, value=0.0, remove=True) for key in removed]
    named = [
        table.EntityData(entity_type=kind, entity_name=name or None)
        for kind, name in entity.parts.items()
    ]
    entry = table.EntryData(entity=named, ops=ops)
    return table.Request(entries=[entry], validate_only=False).encode(version)


def decode_alter_quotas(reader: Reader, version: int) -> list[QuotaResult]:
    answer = messages.alter_client_quotas.Response.decode(reader.raw(reader.left), version)
    return [
        QuotaResult(ErrorCode.for_code(entry.error_code), entry.error_message)
        for entry in answer.entries
    ]
