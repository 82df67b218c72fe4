"""Fetches of older records in order, 16 KB each: what a consumer that is late asks.

`python -m perf.instructions` counts them. The log is written first, and is longer than the part
that is read: its newest batches are found in memory, and are not what is counted here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from perf import batch, requests
from perf.cells import PLAIN_PRODUCE
from perf.client import Client
from perf.requests import FETCH, PRODUCE, Topic
from perf.spec import Partition
from perf.walk.kinds import Kind
from perf.wire import FLEXIBLE_SINCE, Writer, frame, request_header

BATCHES: Final = 1024
BATCHES_READ: Final = 700
FETCH_BYTES: Final = 16 << 10
CUT_BYTES: Final = 10_000  # of a batch: an answer ends inside of the second one
MAX_BYTES: Final = 50 << 20
WAIT_MS: Final = 500
SESSIONS_SINCE: Final = 13  # here: from version 7 on a client may have one


def _fetches(version: int, batch_bytes: int, client: Client, topic: Topic) -> Iterator[bytes]:
    """Round and round through the older part of a log; from version 13 on in a session."""
    _write(client, topic, batch_bytes)
    session_id = epoch = 0
    if version >= SESSIONS_SINCE:
        answer = client.ask(FETCH, version, _body(version, topic, 0, 0, 0))
        answer.get("i")
        answer.get("h")
        session_id = answer.get("i")
    while True:
        for offset in range(BATCHES_READ):
            epoch += 1
            body = _body(version, topic, offset, session_id, epoch)
            yield frame(request_header(FETCH, version), body)


def _write(client: Client, topic: Topic, batch_bytes: int) -> None:
    body = batch.of_size(batch_bytes, timestamp_ms=time.time_ns() // 1_000_000)
    one = requests.produce(PLAIN_PRODUCE, topic, [(Partition(0), body)], acks=1)
    body_at = len(request_header(PRODUCE, PLAIN_PRODUCE))
    for _ in range(BATCHES):
        client.ask(PRODUCE, PLAIN_PRODUCE, one.frame[body_at:])


def _body(version: int, topic: Topic, offset: int, session_id: int, epoch: int) -> bytes:
    in_session = version >= SESSIONS_SINCE
    w = Writer(version >= FLEXIBLE_SINCE[FETCH])
    if not in_session:
        w.put("i", -1)
    w.put("iiib", WAIT_MS, 1, MAX_BYTES, 0)
    if in_session:
        w.put("ii", session_id, epoch)
    w.count(1)
    if in_session:
        w.raw(topic.topic_id).count(1).put("iiqiqi", 0, -1, offset, -1, -1, FETCH_BYTES)
        w.tags().tags().count(0).string("").tags()
    else:
        w.string(topic.name).count(1).put("iqi", 0, offset, FETCH_BYTES)
    return bytes(w.data)


_ALL: Final = (
    Kind("fetch-old", "Fetch 4 of an older batch", partial(_fetches, 4, FETCH_BYTES)),
    Kind("fetch-old-cut", "Fetch 4 that cuts a batch", partial(_fetches, 4, CUT_BYTES)),
    Kind("fetch-old-session", "Fetch 18, in a session", partial(_fetches, 18, FETCH_BYTES)),
)
KINDS: Final = {kind.key: kind for kind in _ALL}
