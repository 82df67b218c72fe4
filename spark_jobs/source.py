"""Where records come from: Spark's Kafka connector, or our own data source that needs no jars.

An `Endpoint` says which brokers and how to speak to them. Client properties (TLS, SASL, time-outs)
go to either as they are, from `--kafka-option NAME=VALUE` and `--command-config FILE`; they may
hold passwords, so no message has them.

An `Inspector` asks the brokers what the stream itself does not tell: the topic's id and where its
partitions begin and end now. With the connector it is the connector's own Admin client, in the
driver's JVM and with the same properties; without it, our client.

Inspectors may be used by any thread, one call at a time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol
from uuid import UUID

from spark_jobs.errors import EXIT_USAGE, JobError, first_line
from spark_jobs.kbroker_options import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Kind = Literal["kafka", "kbroker"]
PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
# A broker that is away is noticed within a minute, and aborted records do not land; a
# --kafka-option wins.
_DEFAULTS: Final = {
    "default.api.timeout.ms": "20000", "request.timeout.ms": "15000",
    "isolation.level": "read_committed",
}  # fmt: skip
_POLL_TIMEOUT_MS: Final = 60_000
_ASK_TIMEOUT_S: Final = 30


class BrokerAway(JobError):
    """No broker answers; it may come back."""


class TopicState(NamedTuple):
    """A topic now. `topic_id` is "" where the brokers have none; offsets: partition -> (first
    offset, offset after the last)."""

    topic_id: str
    offsets: Mapping[int, tuple[int, int]]


class Inspector(Protocol):
    def describe(self, topic: str) -> TopicState | None:
        """None if there is no such topic. BrokerAway; JobError for lasting trouble."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Endpoint:
    """`properties` are the client's, without the connector's prefix "kafka."."""

    bootstrap: str
    kind: Kind = "kafka"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def client_properties(self) -> dict[str, str]:
        """For a Java client."""
        return {**_DEFAULTS, **self.properties, "bootstrap.servers": self.bootstrap}

    def stream(
        self,
        spark: SparkSession,
        topic: str,
        starts: Mapping[int, int],
        records_max: int,
        *,
        fail_on_loss: bool = True,
    ) -> DataFrame:
        """The topic from `starts` on, at most `records_max` in a batch: Kafka's columns.

        JobError where Spark has no such source, or has it only here and not where it plans.
        """
        from pyspark.errors import PySparkException

        offsets = json.dumps({topic: {str(partition): at for partition, at in starts.items()}})
        options = {"subscribe": topic, "startingOffsets": offsets,
                   "maxOffsetsPerTrigger": str(records_max),
                   "failOnDataLoss": str(fail_on_loss).lower()}  # fmt: skip
        try:
            return spark.readStream.format(self.kind).options(**self._options(), **options).load()
        except PySparkException as error:
            raise JobError(f"{topic}: {first_line(error)}") from error

    def _options(self) -> dict[str, str]:
        options = {f"kafka.{name}": value for name, value in self.client_properties().items()}
        if self.kind == "kafka":
            options["kafkaConsumer.pollTimeoutMs"] = str(_POLL_TIMEOUT_MS)
        return options

    def inspector(self, spark: SparkSession) -> Inspector:
        if self.kind == "kafka":
            return AdminInspector(spark, self.client_properties())
        return PeerInspector(self.bootstrap, self.properties)


def endpoint(
    spark: SparkSession,
    bootstrap: str,
    wanted: str,
    options: list[str],
    command_config: str | None,
) -> Endpoint:
    """`wanted`: kafka, kbroker, or auto: kafka where its class loads. JobError for a bad option."""
    properties = _from_file(spark, command_config) if command_config else {}
    for option in options:
        name, equals, value = option.partition("=")
        if not name or not equals:
            raise JobError(
                f"--kafka-option {name}: it is NAME=VALUE, such as security.protocol=SASL_SSL",
                EXIT_USAGE,
            )
        properties[name.removeprefix("kafka.")] = value
    has_connector = connector_loads(spark)
    if wanted == "kafka" and not has_connector:
        raise JobError(_without_connector(), EXIT_USAGE)
    kind: Kind = "kafka" if wanted == "kafka" or (wanted == "auto" and has_connector) else "kbroker"
    if kind == "kbroker":
        try:
            from spark_jobs import kbroker_source
        except SourceError as error:
            raise JobError(str(error)) from None
        kbroker_source.register(spark)
    return Endpoint(bootstrap, kind, properties)


def connector_loads(spark: SparkSession) -> bool:
    """Whether the session has Spark's Kafka connector."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(PROVIDER)
    except Py4JJavaError:
        return False
    return True


def _without_connector() -> str:
    return (
        "this Spark has no Kafka connector; give it the jars"
        ' (--jars "$(python -m spark_jobs.connector)"), or take --source kbroker'
    )


def _from_file(spark: SparkSession, path: str) -> dict[str, str]:
    """A Java properties file, as Kafka's own tools take with --command-config."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"--command-config {path}: {error}; name a readable file", EXIT_USAGE) from (
            error
        )
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    properties.load(jvm.java.io.StringReader(text))
    names = [str(name) for name in properties.stringPropertyNames()]
    return {name: str(properties.getProperty(name)) for name in sorted(names)}


class AdminInspector:
    """By the connector's Admin client, in the driver's JVM."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        self._jvm: Any = spark._jvm
        self._properties = properties
        self._admin: Any = None
        self._lock = threading.Lock()

    def describe(self, topic: str) -> TopicState | None:
        with self._lock:
            return self._describe(topic)

    def _describe(self, topic: str) -> TopicState | None:
        from py4j.protocol import Py4JJavaError

        try:
            if self._admin is None:
                self._admin = self._open()
            names = self._jvm.java.util.List.of(topic)
            found = self._get(self._admin.describeTopics(names).allTopicNames()).get(topic)
            partitions = sorted(int(one.partition()) for one in found.partitions())
            spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
            first = self._offsets(topic, partitions, spec.earliest())
            end = self._offsets(topic, partitions, spec.latest())
        except Py4JJavaError as error:
            name, line = java_trouble(error)
            if name == "UnknownTopicOrPartitionException":
                return None
            where = self._properties["bootstrap.servers"]
            if name in _AWAY:
                raise BrokerAway(
                    f"no broker answers at {where} ({line}); is it running, is the address right?"
                ) from None
            raise JobError(f"{topic}: {where}: {name}: {line}; see the client's options") from None
        offsets = {partition: (first[partition], end[partition]) for partition in partitions}
        halves = found.topicId().getMostSignificantBits(), found.topicId().getLeastSignificantBits()
        high, low = (int(half) & (2**64 - 1) for half in halves)
        return TopicState(_id_text(UUID(int=high << 64 | low)), offsets)

    def _open(self) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in self._properties.items():
            properties.setProperty(name, value)
        return self._jvm.org.apache.kafka.clients.admin.Admin.create(properties)

    def _get(self, future: Any) -> Any:
        return future.get(_ASK_TIMEOUT_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _offsets(self, topic: str, partitions: list[int], spec: Any) -> dict[int, int]:
        asked = self._jvm.java.util.HashMap()
        places = {p: self._jvm.org.apache.kafka.common.TopicPartition(topic, p) for p in partitions}
        for place in places.values():
            asked.put(place, spec)
        found = self._get(self._admin.listOffsets(asked).all())
        return {partition: int(found.get(place).offset()) for partition, place in places.items()}

    def close(self) -> None:
        with self._lock:
            admin, self._admin = self._admin, None
            if admin is not None:
                admin.close(self._jvm.java.time.Duration.ofSeconds(5))


# Errors of a client of Java while brokers are away or come back.
_AWAY: Final = frozenset({
    "TimeoutException", "DisconnectException", "LeaderNotAvailableException",
    "NotLeaderOrFollowerException", "BrokerNotAvailableException",
})  # fmt: skip


def java_trouble(error: Any) -> tuple[str, str]:
    """The class and the first line of a Java exception's last cause."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    line = str(cause.getMessage() or "").strip().split("\n", 1)[0]
    return str(cause.getClass().getSimpleName()), line


def _id_text(topic_id: UUID | None) -> str:
    """The same for both inspectors, so that a table may change its source."""
    return str(topic_id) if topic_id is not None and topic_id.int else ""


class PeerInspector:
    """By our own client."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._properties = properties or {}
        self._lock = threading.Lock()

    def describe(self, topic: str) -> TopicState | None:
        from kbroker.errors import ConfigError, ErrorCode, KafkaError, UserError
        from kbroker.peer.client import Client
        from kbroker.peer.client_properties import login_of
        from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
        from kbroker.types import TopicPartition

        try:
            login = login_of("client properties", self._properties)
            with self._lock, Client(self._bootstrap, client_id="kbroker-spark", login=login,
                                    timeout_ms=_ASK_TIMEOUT_S * 1000) as client:  # fmt: skip
                found = client.metadata([topic]).topics.get(topic)
                if found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return None
                if found.error is not ErrorCode.NONE:
                    raise KafkaError(found.error, f"topic '{topic}'")
                places = [TopicPartition(topic, one.index) for one in found.partitions]
                first = client.list_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
                end = client.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
        except ConfigError as error:
            raise JobError(error.message, EXIT_USAGE) from None
        except UserError as error:
            raise BrokerAway(error.message) from None
        except KafkaError as error:
            if error.code.retriable:
                raise BrokerAway(f"{self._bootstrap}: {error}; is the broker running?") from None
            raise JobError(f"{self._bootstrap}: {error}; see the broker's log") from None
        return TopicState(
            _id_text(found.topic_id),
            {place.partition: (first[place].offset, end[place].offset) for place in places},
        )

    def close(self) -> None:
        """Nothing is kept between two questions."""
