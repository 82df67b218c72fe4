"""Changed settings of clients and addresses as bytes between brokers: a tag of a difference.

Place in the flow: `cluster_delta_codec.py` writes and reads the rest of the difference. An entity
without settings has none any more. Those of users are in a tag of their own. Bytes from a peer are
not trusted: what could be no entity is a ProtocolError.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.protocol.wire import ProtocolError, Reader, Writer
from kbroker.quota.entities import QuotaEntity


def tag_of_quotas(changed: Mapping[QuotaEntity, Mapping[str, str]], tag: int) -> dict[int, bytes]:
    """No tag without a change, as of an earlier kbroker."""
    if not changed:
        return {}
    writer = Writer(flexible=True)
    writer.array(len(changed))
    for entity, settings in changed.items():
        for part in entity:
            writer.string(part)
        writer.array(len(settings))
        for key, value in settings.items():
            writer.string(key)
            writer.string(value)
        writer.tags()
    return {tag: writer.getvalue()}


def changed_quotas(reader: Reader) -> dict[QuotaEntity, Mapping[str, str]]:
    """Raises ProtocolError."""
    changed: dict[QuotaEntity, Mapping[str, str]] = {}
    for _ in range(reader.array()):
        entity = QuotaEntity(*(reader.nullable_string() for _ in range(3)))
        named = len(entity.parts)
        if entity.is_user or (entity.ip is not None and named > 1):
            raise ProtocolError("a quota of no client and no address")
        changed[entity] = {reader.string(): reader.string() for _ in range(reader.array())}
        reader.tags()
    return changed
