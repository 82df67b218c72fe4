"""A conversation with a fresh broker, to be held with Apache Kafka and with our handlers.

`python -m tests.unit.handlers.scenario HOST:PORT FILE` holds it with a running broker (node 1, one
broker, default configuration but replication factors 1, no topics) and writes down every answer;
`test_parity.py` holds it with the handlers and compares. Requests that need a topic's id take it
from the side they talk to, so answers are compared with ids masked.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2

from tests.unit.handlers import (
    test_api_versions,
    test_configs,
    test_list_offsets,
    test_metadata,
    test_small_families,
    test_topics,
)
from tests.unit.handlers.support import written

ANSWERS = Path(__file__).with_name("apache_kafka_4_3_0.json")

TopicId = Callable[[str], uuid.UUID]
Step = tuple[str, Callable[[TopicId], Any]]

UNKNOWN_ID = uuid.UUID("11111111-2222-4333-8444-555555555555")
md, lo = test_metadata.ask, test_list_offsets.ask
create, delete = test_topics.create, test_topics.delete
configs = test_configs.ask


def steps() -> Iterator[Step]:
    """Each request with a label; the labels are unique."""
    for number, (label, make) in enumerate(_steps()):
        yield f"{number:03} {label}", make


def _steps() -> Iterator[Step]:
    for v in range(5):
        yield f"versions v{v}", lambda _, v=v: test_api_versions.ask(v)
    yield "versions, bad name", lambda _: test_api_versions.ask(3, "a!", "1")
    yield from _creations()
    yield from _metadata()
    yield from _list_offsets()
    yield from _small()
    yield from _configs()
    yield from _deletions()


def _creations() -> Iterator[Step]:
    for v in range(2, 8):
        topic = {"name": f"v{v}", "partitions": 2, "configs": {"retention.ms": "77"}}
        yield f"create v{v}", lambda _, v=v, t=topic: create(v, t)
        yield f"create v{v} again", lambda _, v=v, t=topic: create(v, t)
        yield f"validate v{v}", lambda _, v=v: create(v, {"name": "not"}, validate_only=True)
    for v in (4, 7):
        old = [{"name": "old"}, {"name": "o_d"}] if v == 4 else []
        yield f"create old v{v}", lambda _, v=v, old=old: create(v, *old)
        for i, (_, topic) in enumerate(test_topics.REFUSALS):
            yield f"refused {i} v{v}", lambda _, v=v, t=topic: create(v, t)
    many = [{"name": n} for n in ("b1", "d1", "a1", "d1", "c1")]
    yield "create twice", lambda _: create(7, *many)
    yield "create defaults", lambda _: create(7, {"name": "def", "partitions": -1, "factor": -1})
    yield "create assigned", lambda _: create(7, test_topics.assigned((0, [1]), (1, [1])))
    yield "create too late", lambda _: create(7, {"name": "late"}, timeout_ms=0)


def _metadata() -> Iterator[Step]:
    for v in range(14):
        # Up to v3 naming a topic creates it.
        names = ["v7", *(["none"] if v >= 4 else []), "a b", "", "x" * 250, "v7"]
        yield (
            f"metadata v{v}",
            lambda _, v=v, n=names: md(v, n, topic_operations=True, cluster_operations=True),
        )
        yield f"metadata v{v}, no operations", lambda _, v=v, n=names: md(v, n)
        yield f"metadata v{v}, none", lambda _, v=v: md(v, [])
        if v:
            yield f"metadata v{v}, all", lambda _, v=v: md(v, None, topic_operations=True)
    for v in (12, 13):
        yield (
            f"metadata v{v} by id",
            lambda topic_id, v=v: md(v, [topic_id("v7"), UNKNOWN_ID, topic_id("v6")]),
        )
        yield (
            f"metadata v{v} by id, operations",
            lambda topic_id, v=v: md(v, [topic_id("v7"), UNKNOWN_ID], topic_operations=True),
        )
        yield (
            f"metadata v{v}, id and name",
            lambda topic_id, v=v: md(v, [("v2", topic_id("v7")), ("v3", None)]),
        )
    for v in (10, 11):
        yield f"metadata v{v} by id", lambda topic_id, v=v: md(v, [("v7", topic_id("v7"))])


def _list_offsets() -> Iterator[Step]:
    for v in range(1, 12):
        for question in range(-8, 0):
            yield f"offsets v{v} {question}", lambda _, v=v, q=question: lo(v, ("v7", [(0, q)]))
        yield f"offsets v{v} moment", lambda _, v=v: lo(v, ("v7", [(0, 0)]))
        yield (
            f"offsets v{v} mixed",
            lambda _, v=v: lo(
                v, ("v7", [(0, -1), (9, -1), (-1, -1)]), ("none", [(0, -2), (1, -9)])
            ),
        )
        yield f"offsets v{v} twice", lambda _, v=v: lo(v, ("v7", [(0, -1), (0, -2), (1, -1)]))
        yield f"offsets v{v} replica", lambda _, v=v: lo(v, ("v7", [(0, -1)]), replica=1)
        if v >= 4:
            for epoch in (-1, 0, 5):
                yield (
                    f"offsets v{v} epoch {epoch}",
                    lambda _, v=v, e=epoch: lo(v, ("v7", [(0, -1, e)])),
                )


def _small() -> Iterator[Step]:
    small = test_small_families
    for v in range(6):
        yield f"init v{v}", lambda _, v=v: small.init(v)
        yield f"init v{v}, empty name", lambda _, v=v: small.init(v, "")
    yield "init with id", lambda _: small.init(5, None, 5, 3)
    yield "init with half an id", lambda _: small.init(5, None, 5, -1)
    for v in range(1, 7):
        yield f"coordinator v{v}, bad type", lambda _, v=v: small.find(v, ["k"], 9)
    yield "coordinator, nobody", lambda _: small.find(6, [])
    for v in range(3):
        for operations in (False, True):
            yield (
                f"cluster v{v} {operations}",
                lambda _, v=v, o=operations: small.describe(v, operations=o),
            )
    for v in (1, 2):
        for endpoint in (0, 2, 3):
            yield (
                f"cluster v{v} endpoint {endpoint}",
                lambda _, v=v, e=endpoint: small.describe(v, endpoint=e),
            )


def _configs() -> Iterator[Step]:
    broker_keys = ["node.id", "num.io.threads", "log.retention.ms", "nope", "ssl.key.password"]
    for v in range(1, 5):
        asked = {"synonyms": True, "documentation": False}
        yield f"configs v{v}", lambda _, v=v, a=asked: configs(v, (2, "v7", None), **a)
        yield (
            f"configs v{v} some",
            lambda _, v=v: configs(v, (2, "v7", ["retention.ms", "nope"]), (4, "1", broker_keys)),
        )
        # A type it does not know makes Apache Kafka refuse all resources of the request.
        known = [refusal for refusal in test_configs.REFUSALS if refusal[0] in (2, 4, 8)]
        refused = [(kind, name, None) for kind, name, _ in known]
        yield f"configs v{v} refused", lambda _, v=v, r=refused: configs(v, *r)


def _deletions() -> Iterator[Step]:
    for v in range(1, 7):
        name = f"v{v + 1}" if v > 1 else "old"
        asked = [name, "none", "none", "b1", "b1", "a b"]
        yield f"delete v{v}", lambda _, v=v, a=asked: delete(v, *a)
    ids = [UNKNOWN_ID, (None, None), ("o_d", UNKNOWN_ID)]
    yield "delete by id", lambda topic_id: delete(6, *ids, topic_id("def"))
    yield "delete by id and name", lambda topic_id: delete(6, topic_id("b1"), "b1")
    yield "delete too late", lambda _: delete(6, "b1", timeout_ms=0)


# --- holding it with a real broker --------------------------------------------------------------


class Connection:
    """One blocking connection; enough of a client to record with."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=30)

    def ask(self, entity: Any) -> bytes:
        """The body of the answer."""
        header = HeaderV2 if entity.__flexible__ else HeaderV1
        head = header(
            request_api_key=entity.__api_key__,
            request_api_version=entity.__version__,
            correlation_id=7,
            client_id="scenario",
        )
        frame = written(head) + written(entity)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._read(4))
        tags = 1 if entity.__flexible__ and entity.__api_key__ != 18 else 0
        return self._read(size)[4 + tags :]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise EOFError("the broker closed the connection")
            data += more
        return data


def _pause(seconds: float) -> None:
    """Recording is with somebody else's broker, which has no clock of ours to turn."""
    threading.Event().wait(seconds)


def _settled(connection: Connection, entity: Any) -> bytes:
    """The answer once the broker has loaded what it needs (producer ids, after its start)."""
    for _ in range(20):
        answer = connection.ask(entity)
        loading = struct.pack(">ih", 0, 14)
        if entity.__api_key__ != 22 or not answer.startswith(loading):
            return answer
        _pause(1)
    raise TimeoutError("the broker does not finish loading")


def record(host: str, port: int, path: Path) -> None:
    from tests.unit.handlers.support import FakeRequest, answer_of

    connection = Connection(host, port)

    def topic_id(name: str) -> uuid.UUID:
        entity = md(12, [name])
        request = FakeRequest(3, 12, b"", answer=connection.ask(entity))
        found: uuid.UUID = answer_of(request).topics[0].topic_id
        return found

    answers = {}
    for label, make in steps():
        answers[label] = _settled(connection, make(topic_id)).hex()
        if label.split()[1] in ("create", "delete"):
            _pause(0.3)  # the broker learns of it a moment after the client
    path.write_text(json.dumps(answers, indent=0) + "\n")


if __name__ == "__main__":
    host_, _, port_ = sys.argv[1].rpartition(":")
    record(host_, int(port_), Path(sys.argv[2]))
