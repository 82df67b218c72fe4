"""Leaders whose followers a test moves by hand: what tests of waiting produces share.

`note_fetch` says how far a follower has come; `rig.hot.wake` is what the fetch path and the replica
manager call after it.
"""

from __future__ import annotations

from typing import Final

from tests.support.led_log import LedLog
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Produced, produce_frame, produced_in
from tests.unit.net.harness import NODE_ID, Client, Rig, Topic, eventually

LONG_MS: Final = 600_000
FOLLOWER: Final = 2
OTHER: Final = 3
BATCH: Final = build_batch([b"a", b"b"])


def lead(
    log: LedLog, followers: dict[int, bool] | None = None, *, epoch: int = 0, in_sync: int = 2
) -> None:
    """This broker leads; one follower, in sync, where nothing else is said."""
    log.set_leadership(
        NODE_ID, True, epoch, in_sync, {FOLLOWER: True} if followers is None else followers
    )


def replicated(rig: Rig, name: str = "t", partitions: int = 1, **settings: int) -> Topic:
    topic = rig.create(name, partitions, **settings)
    for log in topic.logs:
        lead(log)
    return topic


def follow(rig: Rig, log: LedLog, offset: int | None = None, broker: int = FOLLOWER) -> None:
    """The follower fetches from there, by default from the end."""
    log.note_fetch(broker, log.log_end_offset if offset is None else offset, 1)
    rig.hot.wake(log)


def send(client: Client, topic: Topic, *indexes: int, version: int = 9, **options: int) -> None:
    options = {"acks": -1, "timeout_ms": LONG_MS} | options
    client.send(produce_frame(version, [(topic, dict.fromkeys(indexes or (0,), BATCH))], **options))


def received(client: Client, version: int = 9) -> list[Produced]:
    return list(produced_in(version, client.receive())[1].values())


def codes(client: Client, version: int = 9) -> list[int]:
    return [result.error for result in received(client, version)]


def nothing_waits(rig: Rig) -> None:
    figures = rig.hot.statistics()
    assert figures["parked_now"] == figures["parked_produces_now"] == 0
    eventually(lambda: rig.hot.statistics()["parked_bytes"] == 0, "memory is kept")
