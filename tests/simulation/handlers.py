"""Requests that real handlers serve in a simulated broker, and what such a handler gets.

What only the controller does is handed on to it as `handlers/registry.py` does it: unless the
request comes from a broker, which hands nothing on twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode
from kbroker.handlers import (
    alter_partition,
    controlled_shutdown,
    delete_groups,
    delete_records,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    update_metadata,
)
from kbroker.handlers.forwarding import BETWEEN_BROKERS, forward
from kbroker.metadata.controller.image_updates import UPDATE_PART_VERSION
from kbroker.types import ApiKey
from tests.simulation.network import Answer

if TYPE_CHECKING:
    from tests.simulation.broker import Running


@dataclass
class Request:
    """What a real handler gets."""

    api_key: int
    api_version: int
    body: bytes
    answer: Answer
    client_id: str
    connection_id: str = "simulated"
    peer_host: str = "client"

    def respond(self, body: bytes) -> None:
        self.answer(body)

    def close_connection(self, reason: str) -> None:
        raise AssertionError(f"a broker cannot answer another: {reason}")


def _update_metadata(running: Any, request: Any) -> None:
    in_part = request.api_version == UPDATE_PART_VERSION
    (update_metadata.handle_part if in_part else update_metadata.handle)(running, request)


def _init_producer_id(running: Any, request: Any) -> None:
    if not running.informed:  # nobody is answered before that
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        request.respond(init_producer_id.failure(request, code, ""))
    elif running.controller.active or request.client_id == BETWEEN_BROKERS:
        init_producer_id.handle(running, request)
    else:
        forward(running, request, init_producer_id.decode, init_producer_id.failure)


SERVED: dict[int, Callable[[Any, Any], None]] = {
    ApiKey.UPDATE_METADATA: _update_metadata,
    ApiKey.ALTER_PARTITION: alter_partition.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.handle,
    ApiKey.OFFSET_COMMIT: offset_commit.handle,
    ApiKey.OFFSET_FETCH: offset_fetch.handle,
    ApiKey.JOIN_GROUP: join_group.handle,
    ApiKey.SYNC_GROUP: sync_group.handle,
    ApiKey.HEARTBEAT: heartbeat.handle,
    ApiKey.LEAVE_GROUP: leave_group.handle,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.DELETE_GROUPS: delete_groups.handle,
    ApiKey.OFFSET_DELETE: offset_delete.handle,
}


def serve(
    running: Running, api_key: ApiKey, version: int, body: bytes, answer: Answer, client_id: str
) -> None:
    SERVED[api_key](running, Request(api_key, version, body, answer, client_id))
