"""`kbroker explain TOPIC/PARTITION --isolation read_committed`: why a consumer of committed records
does not go on.

Exits with 0 if such consumers can read everything there is, else with 1 and the transaction that
they wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.findings.last_stable import held, stable_offsets
from kbroker.peer.partitions import Chosen, existing

if TYPE_CHECKING:
    from kbroker.peer.client import Client

ALL_READABLE: Final = "consumers of committed records can read everything: no transaction is open"


def explain(client: Client, topic: str, partition: int) -> dict[str, Any]:
    (where,) = existing(client, [Chosen(topic, (partition,))])
    facts: dict[str, Any] = {"partition": f"{topic}/{partition}"}
    offsets = stable_offsets(client, [where])
    if where not in offsets:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(where))
    found = offsets[where]
    facts["log"] = {
        "last_stable": found.last_stable,
        "high_watermark": found.high_watermark,
        "waiting": found.waiting,
    }
    if not found.waiting:
        return {**facts, "verdict": ALL_READABLE}
    (holder,) = held(client, offsets, client.cluster.clock.wall_ms())
    return {**facts, **holder.document(), "verdict": holder.verdict}
