"""A transactional id as its coordinator describes it, as a document for programs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.peer.transaction_messages import Client
    from kbroker.peer.transactions import Described


def document(described: Described, now_ms: int) -> dict[str, Any]:
    """What is known of an id, for programs."""
    from kbroker.peer.transactions import ONGOING

    found = described.transaction
    began = found.start_ms if found.start_ms >= 0 else None
    is_open = found.state == ONGOING and began is not None
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "coordinator": described.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "client": client_document(found.client),
        "timeout_ms": found.timeout_ms,
        "start_ms": began,
        "time_left_ms": found.start_ms + found.timeout_ms - now_ms if is_open else None,
        "partitions": [
            {"topic": each.topic, "partition": each.partition} for each in found.partitions
        ],
    }


def client_document(client: Client | None) -> dict[str, str] | None:
    return None if client is None else {"id": client.client_id, "address": client.host}
