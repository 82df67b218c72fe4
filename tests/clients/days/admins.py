"""What the day asks of an admin client, for each library: error codes instead of exceptions.

0 is success; everything else is Kafka's code. Values come back as plain Python.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin as confluent
import kafka
import kafka.admin
import kafka.errors

from tests.clients.adapters import TIMEOUT_S

Configs = dict[str, str]


class DayAdmin(Protocol):
    def create(self, topic: str, partitions: int, configs: Configs) -> int: ...

    def delete(self, topic: str) -> int: ...

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; none if there is no such topic."""
        ...

    def configs(self, topic: str, names: list[str]) -> dict[str, tuple[str | None, bool]]:
        """Value, and whether it is the topic's own."""
        ...

    def alter(self, topic: str, configs: Configs) -> int: ...

    def add_partitions(self, topic: str, count: int) -> int: ...

    def delete_records(self, topic: str, partition: int, before: int) -> tuple[int, int]:
        """Error, and the offset of the first record that is left."""
        ...

    def close(self) -> None: ...


class ConfluentAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._client = confluent.AdminClient({"bootstrap.servers": bootstrap})

    @staticmethod
    def _code(futures: dict[Any, Any]) -> int:
        (future,) = futures.values()
        try:
            future.result(TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            code: int = error.args[0].code()
            return code
        return 0

    def create(self, topic: str, partitions: int, configs: Configs) -> int:
        new = confluent.NewTopic(topic, partitions, 1, config=configs)
        return self._code(self._client.create_topics([new]))

    def delete(self, topic: str) -> int:
        return self._code(self._client.delete_topics([topic]))

    def partitions(self, topic: str) -> list[int]:
        found = self._client.list_topics(timeout=TIMEOUT_S).topics.get(topic)
        return [] if found is None else sorted(found.partitions)

    def configs(self, topic: str, names: list[str]) -> dict[str, tuple[str | None, bool]]:
        resource = confluent.ConfigResource(confluent.ConfigResource.Type.TOPIC, topic)
        (future,) = self._client.describe_configs([resource]).values()
        found = future.result(TIMEOUT_S)
        own = confluent.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: (found[name].value, found[name].source == own) for name in names}

    def alter(self, topic: str, configs: Configs) -> int:
        entries = [
            confluent.ConfigEntry(
                name, value, incremental_operation=confluent.AlterConfigOpType.SET
            )
            for name, value in configs.items()
        ]
        resource = confluent.ConfigResource(
            confluent.ConfigResource.Type.TOPIC, topic, incremental_configs=entries
        )
        return self._code(self._client.incremental_alter_configs([resource]))

    def add_partitions(self, topic: str, count: int) -> int:
        return self._code(self._client.create_partitions([confluent.NewPartitions(topic, count)]))

    def delete_records(self, topic: str, partition: int, before: int) -> tuple[int, int]:
        at = confluent_kafka.TopicPartition(topic, partition, before)
        (future,) = self._client.delete_records([at]).values()
        try:
            return 0, future.result(TIMEOUT_S).low_watermark
        except confluent_kafka.KafkaException as error:
            return error.args[0].code(), -1

    def close(self) -> None:
        pass


class KafkaPythonAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)

    @staticmethod
    def _code(call: Callable[[], object]) -> int:
        try:
            call()
        except kafka.errors.BrokerResponseError as error:
            code: int = error.errno
            return code
        return 0

    def create(self, topic: str, partitions: int, configs: Configs) -> int:
        new = kafka.admin.NewTopic(topic, partitions, 1, topic_configs=configs)
        return self._code(lambda: self._client.create_topics([new]))

    def delete(self, topic: str) -> int:
        return self._code(lambda: self._client.delete_topics([topic]))

    def partitions(self, topic: str) -> list[int]:
        for found in self._client.describe_topics([topic]):
            return sorted(p["partition_index"] for p in found["partitions"])
        return []

    def configs(self, topic: str, names: list[str]) -> dict[str, tuple[str | None, bool]]:
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic)
        answer = self._client.describe_configs([resource], config_filter="all")
        found = answer["topic"][topic]
        return {
            name: (found[name]["value"], "TOPIC" in str(found[name]["config_source"]))
            for name in names
        }

    def alter(self, topic: str, configs: Configs) -> int:
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic, configs)
        answer = self._client.alter_configs([resource], raise_on_unknown=False)
        failed = re.match(
            r"\[Error (\d+)\]", str(answer["topic"][topic])
        )  # a text, not an exception
        return 0 if failed is None else int(failed[1])

    def add_partitions(self, topic: str, count: int) -> int:
        wanted = {topic: kafka.admin.NewPartitions(count)}
        return self._code(lambda: self._client.create_partitions(wanted))

    def delete_records(self, topic: str, partition: int, before: int) -> tuple[int, int]:
        at = kafka.TopicPartition(topic, partition)
        try:
            answer = self._client.delete_records({at: before})
        except kafka.errors.BrokerResponseError as error:
            return error.errno, -1
        return 0, answer[at]["low_watermark"]

    def close(self) -> None:
        self._client.close()


class AioKafkaAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = self._run(self._start(bootstrap))

    @staticmethod
    async def _start(bootstrap: str) -> aiokafka.admin.AIOKafkaAdminClient:
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        return client

    def _run(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(work)

    def create(self, topic: str, partitions: int, configs: Configs) -> int:
        new = aiokafka.admin.NewTopic(topic, partitions, 1, topic_configs=configs)
        answer = self._run(self._client.create_topics([new]))
        return int(answer.topic_errors[0][1])

    def delete(self, topic: str) -> int:
        answer = self._run(self._client.delete_topics([topic]))
        return int(answer.topic_error_codes[0][1])

    def partitions(self, topic: str) -> list[int]:
        (found,) = self._run(self._client.describe_topics([topic]))
        return sorted(partition["partition"] for partition in found["partitions"])

    def configs(self, topic: str, names: list[str]) -> dict[str, tuple[str | None, bool]]:
        resource = aiokafka.admin.config_resource.ConfigResource(
            aiokafka.admin.config_resource.ConfigResourceType.TOPIC, topic
        )
        (answer,) = self._run(self._client.describe_configs([resource]))
        (described,) = answer.resources
        own_source = 1
        found = {entry[0]: (entry[1], entry[3] == own_source) for entry in described[4]}
        return {name: found[name] for name in names}

    def alter(self, topic: str, configs: Configs) -> int:
        resource = aiokafka.admin.config_resource.ConfigResource(
            aiokafka.admin.config_resource.ConfigResourceType.TOPIC, topic, configs
        )
        (answer,) = self._run(self._client.alter_configs([resource]))
        return int(answer.resources[0][0])

    def add_partitions(self, topic: str, count: int) -> int:
        wanted = {topic: aiokafka.admin.NewPartitions(count)}
        try:
            self._run(self._client.create_partitions(wanted))
        except aiokafka.errors.BrokerResponseError as error:
            code: int = error.errno
            return code
        return 0

    def delete_records(self, topic: str, partition: int, before: int) -> tuple[int, int]:
        at = aiokafka.TopicPartition(topic, partition)
        wanted = {at: aiokafka.admin.RecordsToDelete(before_offset=before)}
        try:
            return 0, self._run(self._client.delete_records(wanted))[at]
        except aiokafka.errors.BrokerResponseError as error:
            return error.errno, -1

    def close(self) -> None:
        self._run(self._client.close())
        self._loop.close()


ADMINS: dict[str, Callable[[str], DayAdmin]] = {
    "confluent-kafka": ConfluentAdmin,
    "kafka-python": KafkaPythonAdmin,
    "aiokafka": AioKafkaAdmin,
}
