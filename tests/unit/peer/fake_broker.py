"""A broker of a few hundred lines for tests of our client: kio's codecs, logs in memory.

It runs in a thread of its own on a free loopback port, so that blocking clients can talk to it.
`script(api, ...)` queues what happens to the next requests of one API instead of an answer:
`CLOSE` the connection, `SILENCE`, or a Kafka error for every partition of that request.
`requests` records what arrived. Responses go through kio's writers, requests through its readers.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Self
from uuid import UUID, uuid4

from kbroker.errors import ErrorCode
from kbroker.protocol.record_batch import decode_batches
from kbroker.protocol.versions import request_header_version, response_header_version
from kbroker.types import ApiKey
from tests.unit.peer.fake_answers import NO_TIME, altered, kio_error, log_dirs, make

CLOSE = "close"
SILENCE = "silence"
APIS = {
    ApiKey.PRODUCE: (0, 9),
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (0, 12),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 5),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
}
NODE_ID = 7


def module(api: ApiKey, version: int, kind: str) -> ModuleType:
    return import_module(f"kio.schema.{api.name.lower()}.v{version}.{kind}")


def kio_bytes(entity: Any) -> bytes:
    from kio.serial import entity_writer

    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_read(entity: type[Any], data: bytes) -> Any:
    """The entity, which must be all there is."""
    from kio.serial import entity_reader

    value, size = entity_reader(entity)(data, 0)
    assert size == len(data), f"{len(data) - size} bytes after the message"
    return value


@dataclass
class FakePartition:
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first, last, bytes
    end: int = 0
    start: int = 0
    late_fetches: int = 0  # that find a new leader whose high watermark is the log's start yet


@dataclass
class FakeTopic:
    partitions: dict[int, FakePartition]
    topic_id: UUID = field(default_factory=uuid4)
    configs: dict[str, str | None] = field(default_factory=dict)
    internal: bool = False


class FakeBroker:
    def __init__(
        self, *, auto_create: bool = True, apis: Mapping[Any, tuple[int, int]] | None = None
    ) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.auto_create = auto_create
        self.apis: dict[Any, tuple[int, int]] = dict(APIS if apis is None else apis)
        self.requests: list[tuple[ApiKey, int, Any]] = []
        self.port = 0
        self._scripts: dict[ApiKey, deque[Any]] = defaultdict(deque)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fake-broker")
        self._started = threading.Event()
        self._arrived = threading.Condition()
        self._stop = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add_topic(self, name: str, partitions: int = 1, **values: Any) -> FakeTopic:
        topic = FakeTopic({index: FakePartition() for index in range(partitions)}, **values)
        self.topics[name] = topic
        return topic

    def script(self, api: ApiKey, *turns: Any) -> None:
        self._scripts[api].extend(turns)

    def seen(self, api: ApiKey) -> list[Any]:
        return [entity for key, _, entity in self.requests if key is api]

    def wait_for(self, api: ApiKey) -> None:
        """Until a request of that API has come."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: bool(self.seen(api)), timeout=60)

    def records(self, name: str, partition: int = 0) -> list[Any]:
        data = b"".join(batch for _, _, batch in self.topics[name].partitions[partition].batches)
        return [record for batch in decode_batches(data) for record in batch.records]

    # --- the server ---

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        connections: set[asyncio.Task[None]] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await self._connection(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass  # the client went away, or the test is over
            finally:
                connections.discard(task)
                writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 24)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            answer = self._answer(frame)
            if answer == CLOSE:
                return
            if isinstance(answer, bytes):
                writer.write(len(answer).to_bytes(4, "big") + answer)
                await writer.drain()

    def _answer(self, frame: bytes) -> bytes | str | None:
        api = ApiKey(int.from_bytes(frame[0:2], "big"))
        version = int.from_bytes(frame[2:4], "big")
        body_at = 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True))
        if request_header_version(api, version) >= 2:
            body_at += 1
        supported = self.apis.get(api)
        if api is ApiKey.API_VERSIONS and supported and version > supported[1]:
            return frame[4:8] + b"\x00\x23" + b"\x00\x00\x00\x00"
        if supported is None or not supported[0] <= version <= supported[1]:
            return CLOSE
        request = kio_read(
            getattr(module(api, version, "request"), f"{api.label}Request"), frame[body_at:]
        )
        with self._arrived:
            self.requests.append((api, version, request))
            self._arrived.notify_all()
        turn = self._scripts[api].popleft() if self._scripts[api] else None
        if turn in (CLOSE, SILENCE):
            return CLOSE if turn == CLOSE else None
        error = turn if isinstance(turn, ErrorCode) else ErrorCode.NONE
        where = module(api, version, "response")
        response = getattr(self, f"_{api.name.lower()}")(where, request, error)
        if response is None:
            return None
        header = frame[4:8] + (b"\x00" if response_header_version(api, version) else b"")
        return header + kio_bytes(response)

    # --- one method for each API: (response module, request, error) -> response ---

    def _api_versions(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        keys = tuple(
            make(where, "ApiVersion", api_key=int(key), min_version=low, max_version=high)
            for key, (low, high) in self.apis.items()
        )
        return make(
            where,
            "ApiVersionsResponse",
            error_code=kio_error(error),
            api_keys=keys,
            throttle_time=NO_TIME,
        )

    def _metadata(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        if request.topics is None:
            names = sorted(self.topics)
        else:
            names = [topic.name for topic in request.topics]
            if self.auto_create and request.allow_auto_topic_creation:
                for name in names:
                    if name not in self.topics:
                        self.add_topic(name)
        broker = make(
            where,
            "MetadataResponseBroker",
            node_id=NODE_ID,
            host="127.0.0.1",
            port=self.port,
            rack=None,
        )
        return make(
            where,
            "MetadataResponse",
            throttle_time=NO_TIME,
            brokers=(broker,),
            cluster_id="fake",
            controller_id=NODE_ID,
            topics=tuple(self._topic(where, name, error) for name in names),
        )

    def _topic(self, where: ModuleType, name: str, error: ErrorCode) -> Any:
        topic = self.topics.get(name)
        if topic is None and error is ErrorCode.NONE:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        listed = topic if topic is not None and error is ErrorCode.NONE else FakeTopic({})
        return make(
            where,
            "MetadataResponseTopic",
            error_code=kio_error(error),
            name=name,
            topic_id=listed.topic_id,
            is_internal=listed.internal,
            partitions=tuple(
                make(
                    where,
                    "MetadataResponsePartition",
                    error_code=kio_error(ErrorCode.NONE),
                    partition_index=index,
                    leader_id=NODE_ID,
                    leader_epoch=3,
                    replica_nodes=(NODE_ID,),
                    isr_nodes=(NODE_ID,),
                    offline_replicas=(),
                )
                for index in listed.partitions
            ),
        )

    def _create_topics(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        results = []
        for topic in request.topics:
            this = error
            if this is ErrorCode.NONE and topic.name in self.topics:
                this = ErrorCode.TOPIC_ALREADY_EXISTS
            if this is ErrorCode.NONE and not request.validate_only:
                configs = {entry.name: entry.value for entry in topic.configs}
                count = topic.num_partitions if topic.num_partitions > 0 else 1
                self.add_topic(topic.name, count, configs=configs)
            results.append(
                make(
                    where,
                    "CreatableTopicResult",
                    name=topic.name,
                    topic_id=uuid4(),
                    error_code=kio_error(this),
                    error_message="there already" if this else None,
                    num_partitions=topic.num_partitions,
                    replication_factor=1,
                    configs=(),
                )
            )
        return make(where, "CreateTopicsResponse", throttle_time=NO_TIME, topics=tuple(results))

    def _delete_topics(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        results = []
        for name in request.topic_names:
            gone = self.topics.pop(name, None) is not None
            this = ErrorCode.NONE if gone else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(
                make(where, "DeletableTopicResult", name=name, error_code=kio_error(error or this))
            )
        return make(where, "DeleteTopicsResponse", throttle_time=NO_TIME, responses=tuple(results))

    def _create_partitions(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        results = []
        for asked in request.topics:
            this, topic = error, self.topics.get(asked.name)
            if this is ErrorCode.NONE and topic is None:
                this = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif this is ErrorCode.NONE and topic is not None and not request.validate_only:
                for index in range(len(topic.partitions), asked.count):
                    topic.partitions[index] = FakePartition()
            results.append(
                make(
                    where,
                    "CreatePartitionsTopicResult",
                    name=asked.name,
                    error_code=kio_error(this),
                    error_message=None,
                )
            )
        return make(
            where, "CreatePartitionsResponse", throttle_time=NO_TIME, results=tuple(results)
        )

    def _delete_records(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                log = self.topics[topic.name].partitions[asked.partition_index]
                offset = log.end if asked.offset == -1 else asked.offset
                this = error
                if this is ErrorCode.NONE and offset > log.end:
                    this = ErrorCode.OFFSET_OUT_OF_RANGE
                elif this is ErrorCode.NONE:
                    log.start = max(log.start, offset)
                partitions.append(
                    make(
                        where,
                        "DeleteRecordsPartitionResult",
                        partition_index=asked.partition_index,
                        low_watermark=-1 if this else log.start,
                        error_code=kio_error(this),
                    )
                )
            topics.append(
                make(
                    where,
                    "DeleteRecordsTopicResult",
                    name=topic.name,
                    partitions=tuple(partitions),
                )
            )
        return make(where, "DeleteRecordsResponse", throttle_time=NO_TIME, topics=tuple(topics))

    def _describe_configs(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        resource = request.resources[0]
        entries: list[tuple[str, str | None, int]] = [("segment.bytes", "1073741824", 5)]
        entries += [(k, v, 1) for k, v in self.topics[resource.resource_name].configs.items()]
        return make(
            where,
            "DescribeConfigsResponse",
            throttle_time=NO_TIME,
            results=(
                make(
                    where,
                    "DescribeConfigsResult",
                    error_code=kio_error(error),
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=tuple(
                        make(
                            where,
                            "DescribeConfigsResourceResult",
                            name=name,
                            value=value,
                            read_only=False,
                            config_source=source,
                            is_sensitive=False,
                            synonyms=(),
                            documentation=None,
                        )
                        for name, value, source in entries
                    ),
                ),
            ),
        )

    def _incremental_alter_configs(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        return altered(self.topics, where, request, error)

    def _describe_log_dirs(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        return log_dirs(self.topics, where, error)

    def _init_producer_id(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        return make(
            where,
            "InitProducerIdResponse",
            throttle_time=NO_TIME,
            error_code=kio_error(error),
            producer_id=4711,
            producer_epoch=2,
        )

    def _produce(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        topics = []
        for topic in request.topic_data:
            partitions = []
            for data in topic.partition_data:
                base_offset, this = -1, error
                known = self.topics.get(topic.name)
                if this is ErrorCode.NONE and (known is None or data.index not in known.partitions):
                    this = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif this is ErrorCode.NONE and known is not None:
                    base_offset = append(known.partitions[data.index], data.records)
                partitions.append(
                    make(
                        where,
                        "PartitionProduceResponse",
                        index=data.index,
                        error_code=kio_error(this),
                        base_offset=base_offset,
                        record_errors=(),
                    )
                )
            topics.append(
                make(
                    where,
                    "TopicProduceResponse",
                    name=topic.name,
                    partition_responses=tuple(partitions),
                )
            )
        if request.acks == 0:
            return None
        return make(where, "ProduceResponse", responses=tuple(topics), throttle_time=NO_TIME)

    def _fetch(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                held = self.topics[topic.topic].partitions[asked.partition]
                this, data, high_watermark = error, b"", held.end
                if held.late_fetches > 0:
                    held.late_fetches -= 1
                    high_watermark = held.start
                elif this is ErrorCode.NONE and not held.start <= asked.fetch_offset <= held.end:
                    this = ErrorCode.OFFSET_OUT_OF_RANGE
                elif this is ErrorCode.NONE:
                    data = _read(held, asked.fetch_offset, asked.partition_max_bytes)
                partitions.append(
                    make(
                        where,
                        "PartitionData",
                        partition_index=asked.partition,
                        error_code=kio_error(this),
                        high_watermark=high_watermark,
                        last_stable_offset=high_watermark,
                        log_start_offset=held.start,
                        aborted_transactions=None,
                        records=data,
                    )
                )
            topics.append(
                make(
                    where, "FetchableTopicResponse", topic=topic.topic, partitions=tuple(partitions)
                )
            )
        return make(
            where,
            "FetchResponse",
            throttle_time=NO_TIME,
            error_code=kio_error(ErrorCode.NONE),
            responses=tuple(topics),
        )

    def _list_offsets(self, where: ModuleType, request: Any, error: ErrorCode) -> Any:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                held = self.topics[topic.name].partitions[asked.partition_index]
                offset = held.end if asked.timestamp == -1 else held.start
                if asked.timestamp >= 0:
                    records = self.records(topic.name, asked.partition_index)
                    young = [r.offset for r in records if r.timestamp_ms >= asked.timestamp]
                    offset = young[0] if young else -1
                partitions.append(
                    make(
                        where,
                        "ListOffsetsPartitionResponse",
                        partition_index=asked.partition_index,
                        error_code=kio_error(error),
                        timestamp=-1,
                        offset=offset,
                    )
                )
            topics.append(
                make(
                    where,
                    "ListOffsetsTopicResponse",
                    name=topic.name,
                    partitions=tuple(partitions),
                )
            )
        return make(where, "ListOffsetsResponse", throttle_time=NO_TIME, topics=tuple(topics))


def append(partition: FakePartition, data: bytes) -> int:
    (batch,) = decode_batches(data)
    base = partition.end
    stored = base.to_bytes(8, "big") + data[8:]
    partition.batches.append((base, base + len(batch.records) - 1, stored))
    partition.end = base + len(batch.records)
    return base


def _read(partition: FakePartition, offset: int, max_bytes: int) -> bytes:
    """Whole first batch, then as much as fits: cut anywhere, as a real log is."""
    wanted = [batch for _, last, batch in partition.batches if last >= offset]
    if not wanted:
        return b""
    return b"".join(wanted)[: max(len(wanted[0]), max_bytes)]
