"""A small blocking client for the work around a block: topics, producer ids, offsets.

One socket, one request at a time, fixed versions; an error code raises ClientError with the API and
the topic. The limit server knows fewer APIs: there a topic exists by being written to and its id
follows from its name, so `Client(limit=True)` answers those questions without asking.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence

from perf import metadata
from perf._load import limit_topic_id
from perf.metadata import ClusterState
from perf.requests import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    Topic,
)
from perf.wire import FLEXIBLE_SINCE, Reader, Writer, frame, read_exactly, request_header

CONNECT_TIMEOUT_S = 10.0
READY_RETRY_S = 0.02
READY_WAIT_S = 20.0
LATEST, EARLIEST = -1, -2


class ClientError(Exception):
    """The broker refused; `code` is Kafka's error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error code {code}")
        self.code = code


class Client:
    """A connection for set-up work. Not for threads."""

    def __init__(self, host: str, port: int, *, limit: bool = False) -> None:
        self.limit = limit
        self.host, self.port = host, port
        self._next_producer_id = 1_000
        self._socket = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
        self._socket.settimeout(READY_WAIT_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, body: bytes) -> Reader:
        """One request; its answer after the response header."""
        self._socket.sendall(frame(request_header(api_key, version), body))
        size = int.from_bytes(read_exactly(self._socket, 4), "big")
        flexible = version >= FLEXIBLE_SINCE[api_key]
        reader = Reader(read_exactly(self._socket, size), flexible)
        reader.get("i")
        if api_key != API_VERSIONS:
            reader.tags()
        return reader

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Served versions by API key."""
        r = self.ask(API_VERSIONS, 0, b"")
        if code := r.get("h"):
            raise ClientError("ApiVersions", code)
        return {r.get("h"): (r.get("h"), r.get("h")) for _ in range(r.count())}

    def create_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str] | None = None,
        replicas: Sequence[int] = (),
    ) -> Topic:
        """Create a topic and wait until every partition has a leader: this broker, of several."""
        self.create_topics([name], partitions, configs, replicas)
        return Topic(name, limit_topic_id(name), partitions) if self.limit else self.topic(name)

    def create_topics(
        self,
        names: Sequence[str],
        partitions: int,
        configs: Mapping[str, str] | None = None,
        replicas: Sequence[int] = (),
    ) -> None:
        """Create topics in one request; do not wait. `replicas`: of every partition, the one that
        leads first; by default one that the broker chooses."""
        if self.limit:
            return
        w = Writer().count(len(names))
        for name in names:
            if replicas:
                w.string(name).put("ih", -1, -1).count(partitions)
                for index in range(partitions):
                    w.put("i", index).count(len(replicas)).put(f"{len(replicas)}i", *replicas)
            else:
                w.string(name).put("ih", partitions, 1).count(0)
            w.count(len(configs or {}))
            for key, value in (configs or {}).items():
                w.string(key).string(value)
        w.put("i?", 30_000, False)
        r = self.ask(CREATE_TOPICS, 4, bytes(w.data))
        r.get("i")
        for _ in range(r.count()):
            name, code = r.string(), r.get("h")
            r.string()
            if code:
                raise ClientError(f"creating topic {name}", code)

    def topic(self, name: str, wait_s: float = READY_WAIT_S) -> Topic:
        """A topic's id and partition count, once all its partitions are led."""
        if self.limit:
            return Topic(name, limit_topic_id(name), 0)
        give_up = time.monotonic() + wait_s
        while True:
            (found,) = self.cluster([name]).topics
            topic = Topic(name, found.topic_id, len(found.partitions))
            code = found.missing
            if not code:
                # Metadata may know a leader before that leader's log is open: ask the log itself.
                try:
                    self.offsets(topic)
                    return topic
                except ClientError as error:
                    code = error.code
            if time.monotonic() > give_up:
                raise ClientError(f"topic {name} did not become ready", code)
            time.sleep(READY_RETRY_S)

    def cluster(self, names: Sequence[str] | None = ()) -> ClusterState:
        """What this broker knows of the cluster and of these topics; None: of all topics."""
        asked = metadata.question(names)
        return metadata.read(self.ask(METADATA, metadata.VERSION, asked))

    def delete_topic(self, name: str) -> None:
        self.delete_topics([name])

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics in one request."""
        w = Writer().count(len(names))
        for name in names:
            w.string(name)
        r = self.ask(DELETE_TOPICS, 1, bytes(w.put("i", 30_000).data))
        r.get("i")
        for _ in range(r.count()):
            name, code = r.string(), r.get("h")
            if code:
                raise ClientError(f"deleting topic {name}", code)

    def init_producer_id(self) -> tuple[int, int]:
        """A producer id and its epoch, for an idempotent producer without transactions."""
        if self.limit:
            self._next_producer_id += 1
            return self._next_producer_id, 0
        give_up = time.monotonic() + READY_WAIT_S
        while True:
            r = self.ask(INIT_PRODUCER_ID, 1, bytes(Writer().string(None).put("i", 60_000).data))
            r.get("i")
            code, producer_id, epoch = r.get("h"), r.get("q"), r.get("h")
            if not code:
                return producer_id, epoch
            if time.monotonic() > give_up:
                raise ClientError("InitProducerId", code)
            time.sleep(READY_RETRY_S)

    def offsets(self, topic: Topic, at: int = LATEST) -> list[int]:
        """The end (or start) offset of each partition."""
        w = Writer().put("i", -1).count(1).string(topic.name).count(topic.partitions)
        for index in range(topic.partitions):
            w.put("iq", index, at)
        r = self.ask(LIST_OFFSETS, 1, bytes(w.data))
        found = [0] * topic.partitions
        for _ in range(r.count()):
            r.string()
            for _ in range(r.count()):
                index, code = r.get("i"), r.get("h")
                r.get("q")
                if code:
                    raise ClientError(f"offsets of {topic.name}-{index}", code)
                found[index] = r.get("q")
        return found
