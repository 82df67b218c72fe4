"""A small blocking client over `NetworkClient`, for the command line and for tools.

Each method does one thing and returns when it is done or raises: `UserError` when no broker can be
reached, `KafkaError` for what a broker refused. The client owns an asyncio loop that runs only
inside its methods, so between two calls nothing happens: no heartbeat, no background refresh.

Retriable errors (a leader that moved, a topic that is being created, a lost connection) are tried
again with fresh metadata until `timeout_ms` is over. A produce that is sent again after a lost
connection may be stored twice unless its batches carry a producer id; `Producer` gives them one.

Owner: the thread that made it; not for two threads at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer import admin_messages, config_messages, messages
from kbroker.peer.admin_messages import DeleteRecordsResult
from kbroker.peer.config_messages import LogDirectory
from kbroker.peer.connection import Address, NetworkClientOptions
from kbroker.peer.messages import (
    ClusterMetadata,
    ConfigValue,
    FetchResult,
    NewTopic,
    OffsetResult,
    ProduceResult,
    ProducerId,
    TopicResult,
)
from kbroker.peer.network_client import NetworkClient
from kbroker.protocol.wire import ProtocolError, Reader
from kbroker.types import ApiKey, TopicPartition

Result = TypeVar("Result")
Decode = Callable[[Reader, int], Result]

DEFAULT_PORT: Final = 9092
_RETRY_BACKOFF_S: Final = 0.1
# A topic that stays unknown this long after auto-creation was asked for will not come.
_TOPIC_WAIT_MS_MAX: Final = 5_000


def parse_addresses(bootstrap: str) -> list[Address]:
    """`host:port,[::1]:9092,host` as addresses; `UserError` for anything else."""
    addresses: list[Address] = []
    for entry in bootstrap.split(","):
        text = entry.strip()
        if text.startswith("["):
            host, closed, rest = text[1:].partition("]")
            port_text = rest.removeprefix(":") if closed and rest[:1] in ("", ":") else "?"
        elif text.count(":") > 1:
            host, port_text = "", "?"
        else:
            host, _, port_text = text.partition(":")
        port = DEFAULT_PORT if port_text == "" else -1
        if port_text.isascii() and port_text.isdigit():
            port = int(port_text)
        if not host or not 0 < port < 65536:
            raise UserError(
                f"'{text}' is no broker address", "write host:port, for IPv6 [address]:port"
            )
        addresses.append(Address(host, port))
    return addresses


class Client:
    """One cluster, reached through any of its brokers."""

    def __init__(
        self, bootstrap: str, *, client_id: str = "kbroker-cli", timeout_ms: int = 30_000
    ) -> None:
        self._bootstrap = parse_addresses(bootstrap)
        self._timeout_ms = timeout_ms
        self._loop = asyncio.new_event_loop()
        self._network = NetworkClient(
            NetworkClientOptions(
                client_id=client_id,
                request_timeout_ms=timeout_ms,
                connection_setup_timeout_ms=min(timeout_ms, 10_000),
            )
        )
        self._brokers: dict[int, Address] = {}
        self._controller_id = -1
        self._leaders: dict[TopicPartition, int] = {}
        self._was_connected = False
        self._last_refusal: KafkaError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        try:
            self._run(self._network.close())
            self._run(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    # --- what a caller may ask ---

    def metadata(
        self, topics: Sequence[str] | None = None, *, auto_create: bool = False
    ) -> ClusterMetadata:
        """`None` asks for every topic. A topic's own error is in its entry."""
        return self._run(self._metadata(topics, auto_create))

    def partitions(self, topic: str, *, auto_create: bool = False) -> list[int]:
        """The topic's partitions once all have a leader; raises if the topic is not there."""
        return self._run(self._await_topic(topic, auto_create))

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        return self._run(
            self._at_controller(
                ApiKey.CREATE_TOPICS,
                lambda version: messages.encode_create_topics(
                    version, topics, timeout_ms=self._timeout_ms, validate_only=validate_only
                ),
                messages.decode_create_topics,
            )
        )

    def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        return self._run(
            self._at_controller(
                ApiKey.DELETE_TOPICS,
                lambda version: messages.encode_delete_topics(
                    version, names, timeout_ms=self._timeout_ms
                ),
                messages.decode_delete_topics,
            )
        )

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """`counts` are those that the topics shall have in all."""
        return self._run(
            self._at_controller(
                ApiKey.CREATE_PARTITIONS,
                lambda version: admin_messages.encode_create_partitions(
                    version, counts, timeout_ms=self._timeout_ms, validate_only=validate_only
                ),
                admin_messages.decode_create_partitions,
            )
        )

    def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, DeleteRecordsResult]:
        """The first offset to be left in each partition, or TO_HIGH_WATERMARK."""
        return self._run(
            self._until_answered(
                offsets,
                ApiKey.DELETE_RECORDS,
                lambda version, share: admin_messages.encode_delete_records(
                    version, share, timeout_ms=self._timeout_ms
                ),
                admin_messages.decode_delete_records,
            )
        )

    def topic_configs(self, topic: str) -> list[ConfigValue]:
        return self._run(
            self._anywhere(
                ApiKey.DESCRIBE_CONFIGS,
                lambda version: messages.encode_describe_configs(
                    version, messages.TOPIC_RESOURCE, topic
                ),
                messages.decode_describe_configs,
            )
        )

    def alter_topic_configs(
        self,
        topics: Sequence[str],
        values: Mapping[str, str],
        unset: Sequence[str],
        *,
        validate_only: bool = False,
    ) -> list[TopicResult]:
        """Set some keys of topics and let go of others; the rest stays as it is."""
        return self._run(
            self._at_controller(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                lambda version: config_messages.encode_alter_topic_configs(
                    version, topics, values, unset, validate_only=validate_only
                ),
                config_messages.decode_alter_topic_configs,
            )
        )

    def log_directories(self) -> dict[int, list[LogDirectory]]:
        """The data directories of every broker, by its id."""
        return self._run(self._log_directories())

    def init_producer_id(self) -> ProducerId:
        return self._run(
            self._anywhere(
                ApiKey.INIT_PRODUCER_ID,
                messages.encode_init_producer_id,
                messages.decode_init_producer_id,
            )
        )

    def produce(
        self, batches: Mapping[TopicPartition, bytes], *, acks: int = -1
    ) -> dict[TopicPartition, ProduceResult]:
        """One batch for each partition; with acks=0 the results are made up, all without error."""
        return self._run(self._produce(dict(batches), acks))

    def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
    ) -> dict[TopicPartition, FetchResult]:
        """One fetch from every leader concerned; a retriable error is just a partition left out."""

        def encode(version: int, asked: Mapping[TopicPartition, int]) -> bytes:
            return messages.encode_fetch(
                version,
                asked,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
            )

        return self._run(self._fetch(positions, encode))

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetResult]:
        """By timestamp in ms, or EARLIEST_TIMESTAMP / LATEST_TIMESTAMP; offset -1 is "none"."""
        return self._run(
            self._until_answered(
                timestamps,
                ApiKey.LIST_OFFSETS,
                messages.encode_list_offsets,
                messages.decode_list_offsets,
            )
        )

    # --- the loop inside ---

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)

    async def _connected(self) -> Address:
        """Any broker that answers: known ones first, then the bootstrap list.

        At the start nobody there is the user's trouble; later it is a cluster that restarts.
        """
        candidates = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        for address in candidates:
            if self._network.ready(address):
                return address
        reasons: list[str] = []
        for address in candidates:
            try:
                await self._network.wait_ready(address, fail_fast=True)
            except KafkaError as error:
                reasons.append(error.message)
            else:
                self._was_connected = True
                return address
        why = "; ".join(dict.fromkeys(reasons))
        if self._was_connected:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, why)
        raise UserError(
            why,
            "is the broker running? name it with -b host:port",
        )

    async def _call(
        self,
        address: Address,
        api_key: ApiKey,
        encode: Callable[[int], bytes],
        decode: Decode[Result],
        *,
        expects_response: bool = True,
    ) -> Result | None:
        await self._network.wait_ready(address)
        version = self._network.version(address, api_key, *messages.VERSIONS[api_key])
        reader = await self._network.call(
            address, api_key, version, encode(version), expects_response=expects_response
        )
        if not expects_response:
            return None
        try:
            return decode(reader, version)
        except ProtocolError as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{address} sent a malformed {api_key.label} response: {error}",
            ) from error

    async def _answer(
        self,
        address: Address,
        api_key: ApiKey,
        encode: Callable[[int], bytes],
        decode: Decode[Result],
    ) -> Result:
        result = await self._call(address, api_key, encode, decode)
        if result is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no {api_key.label} response")
        return result

    async def _retrying(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        deadline_s = self._loop.time() + self._timeout_ms / 1000
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.code.retriable or self._loop.time() >= deadline_s:
                    raise
            await asyncio.sleep(_RETRY_BACKOFF_S)

    async def _anywhere(
        self, api_key: ApiKey, encode: Callable[[int], bytes], decode: Decode[Result]
    ) -> Result:
        async def attempt() -> Result:
            return await self._answer(await self._connected(), api_key, encode, decode)

        return await self._retrying(attempt)

    async def _log_directories(self) -> dict[int, list[LogDirectory]]:
        await self._metadata([], False)
        return {
            node_id: await self._answer(
                address,
                ApiKey.DESCRIBE_LOG_DIRS,
                config_messages.encode_describe_log_dirs,
                config_messages.decode_describe_log_dirs,
            )
            for node_id, address in self._brokers.items()
        }

    async def _at_controller(
        self,
        api_key: ApiKey,
        encode: Callable[[int], bytes],
        decode: Callable[[Reader, int], list[TopicResult]],
    ) -> list[TopicResult]:
        async def attempt() -> list[TopicResult]:
            await self._metadata([], False)
            address = self._brokers.get(self._controller_id)
            if address is None:
                address = await self._connected()
            results = await self._answer(address, api_key, encode, decode)
            if any(result.error is ErrorCode.NOT_CONTROLLER for result in results):
                raise KafkaError(ErrorCode.NOT_CONTROLLER, f"{address} is not the controller")
            return results

        return await self._retrying(attempt)

    async def _metadata(self, topics: Sequence[str] | None, auto_create: bool) -> ClusterMetadata:
        answer = await self._anywhere(
            ApiKey.METADATA,
            lambda version: messages.encode_metadata(version, topics, auto_create=auto_create),
            messages.decode_metadata,
        )
        brokers = {node_id: Address(b.host, b.port) for node_id, b in answer.brokers.items()}
        for gone in set(self._brokers.values()) - set(brokers.values()) - set(self._bootstrap):
            self._network.forget(gone)
        self._brokers = brokers
        self._controller_id = answer.controller_id
        for topic in answer.topics.values():
            for partition in topic.partitions:
                self._leaders[TopicPartition(topic.name, partition.index)] = partition.leader
        return answer

    async def _await_topic(self, name: str, auto_create: bool) -> list[int]:
        """Partitions of a topic; waits for leaders, and for a topic that is being created."""
        wait_ms = min(self._timeout_ms, _TOPIC_WAIT_MS_MAX)
        deadline_s = self._loop.time() + wait_ms / 1000
        while True:
            topic = (await self._metadata([name], auto_create)).topics.get(name)
            error = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is not None and error is ErrorCode.NONE and topic.partitions:
                if all(partition.leader >= 0 for partition in topic.partitions):
                    return sorted(partition.index for partition in topic.partitions)
                error = ErrorCode.LEADER_NOT_AVAILABLE
            hopeless = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not auto_create
            if hopeless or not error.retriable or self._loop.time() >= deadline_s:
                raise KafkaError(error, f"topic '{name}'")
            await asyncio.sleep(_RETRY_BACKOFF_S)

    async def _by_leader(
        self, asked: Mapping[TopicPartition, Any]
    ) -> dict[Address, list[TopicPartition]]:
        """The partitions grouped by their leader's address; metadata is asked where it is old."""
        unknown = {tp.topic for tp in asked if self._leaders.get(tp, -1) not in self._brokers}
        if unknown:
            await self._metadata(sorted(unknown), False)
        grouped: dict[Address, list[TopicPartition]] = {}
        for partition in asked:
            address = self._brokers.get(self._leaders.get(partition, -1))
            if address is not None:
                grouped.setdefault(address, []).append(partition)
        return grouped

    def _leader_moved(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._leaders.pop(partition, None)

    async def _ask_leaders(
        self,
        asked: Mapping[TopicPartition, Any],
        api_key: ApiKey,
        encode: Callable[[int, Mapping[TopicPartition, Any]], bytes],
        decode: Decode[dict[TopicPartition, Any]],
        *,
        expects_response: bool = True,
    ) -> dict[TopicPartition, Any]:
        """One request to each leader at once. Partitions of a leader that fails are left out."""

        async def one(address: Address, partitions: list[TopicPartition]) -> dict[Any, Any]:
            share = {partition: asked[partition] for partition in partitions}
            try:
                answer = await self._call(
                    address,
                    api_key,
                    lambda version: encode(version, share),
                    decode,
                    expects_response=expects_response,
                )
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                self._leader_moved(partitions)
                self._last_refusal = error
                return {}
            if answer is None:
                return {partition: None for partition in partitions}
            moved = [tp for tp, result in answer.items() if result.error.retriable]
            self._leader_moved(moved)
            if moved:
                self._last_refusal = KafkaError(answer[moved[0]].error, str(moved[0]))
            return {tp: result for tp, result in answer.items() if tp not in moved}

        grouped = await self._by_leader(asked)
        answers = await asyncio.gather(*(one(*group) for group in grouped.items()))
        return {tp: result for answer in answers for tp, result in answer.items()}

    async def _until_answered(
        self,
        asked: Mapping[TopicPartition, Any],
        api_key: ApiKey,
        encode: Callable[[int, Mapping[TopicPartition, Any]], bytes],
        decode: Decode[dict[TopicPartition, Any]],
        *,
        expects_response: bool = True,
    ) -> dict[TopicPartition, Any]:
        deadline_s = self._loop.time() + self._timeout_ms / 1000
        self._last_refusal = None
        results: dict[TopicPartition, Any] = {}
        left = dict(asked)
        while True:
            results |= await self._ask_leaders(
                left, api_key, encode, decode, expects_response=expects_response
            )
            left = {tp: value for tp, value in asked.items() if tp not in results}
            if not left:
                return results
            if self._loop.time() >= deadline_s:
                if self._last_refusal is not None:
                    raise self._last_refusal
                names = ", ".join(str(tp) for tp in left)
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"no leader for {names}")
            await asyncio.sleep(_RETRY_BACKOFF_S)

    async def _produce(
        self, batches: dict[TopicPartition, bytes], acks: int
    ) -> dict[TopicPartition, ProduceResult]:
        results = await self._until_answered(
            batches,
            ApiKey.PRODUCE,
            lambda version, share: messages.encode_produce(
                version, share, acks=acks, timeout_ms=self._timeout_ms
            ),
            messages.decode_produce,
            expects_response=acks != 0,
        )
        if acks == 0:
            unknown = ProduceResult(
                error=ErrorCode.NONE, message=None, base_offset=-1, log_append_time_ms=-1
            )
            return {partition: unknown for partition in results}
        return results

    async def _fetch(
        self,
        positions: Mapping[TopicPartition, int],
        encode: Callable[[int, Mapping[TopicPartition, int]], bytes],
    ) -> dict[TopicPartition, FetchResult]:
        results = await self._ask_leaders(positions, ApiKey.FETCH, encode, messages.decode_fetch)
        if not results and positions:
            await asyncio.sleep(_RETRY_BACKOFF_S)  # all leaders moved: do not spin
        return results
