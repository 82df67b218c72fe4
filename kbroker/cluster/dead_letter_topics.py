"""Dead-letter topics of share groups (KIP-1191): which may be used, and writes to their leaders.

Place in the flow: `DeadLetters` has a batch of copies; this finds the partition that takes it, by
the published image, and sends it with Produce, acks=all, to the leader of that, with the broker's
own login. This broker is no exception where it leads the partition itself: the records pass all
checks of any produce, and are compressed again where the topic says so.

A topic may be used if its name begins with errors.deadletterqueue.topic.name.prefix and it has
errors.deadletterqueue.group.enable=true: who may write to another topic is for its owner to say,
and a group's members would write to it. Copies of records of partition n are in partition n, modulo
the number of partitions.

Any thread may call; requests are sent on the control loop, which starts with the first one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kbroker.cluster.latest_offsets import Peers
from kbroker.config.topic import TopicConfig
from kbroker.coordinator.runtime.topic_creation import TopicCreation
from kbroker.engine.share.dead_letters import Destination, Refused
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import NO_LEADER
from kbroker.peer.own_login import LoginOf, no_login
from kbroker.protocol.wire import ProtocolError
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kbroker.config import BrokerConfig
    from kbroker.failures import Failures
    from kbroker.handlers.topic_creation import TopicCreator
    from kbroker.metadata.image import BrokerImage, ClusterImage

# The leader waits so long for its followers.
WRITE_TIMEOUT_MS: Final = 10_000
REQUEST_TIMEOUT_MS: Final = 15_000
# A broker that was killed is in the image until its session ends: no need to wait for it.
READY_TIMEOUT_MS: Final = 1_000
CLIENT_ID: Final = "kbroker-dead-letters"
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
ENABLED: Final = "errors.deadletterqueue.group.enable"
_VERSIONS: Final = (3, 9)
_ACKS_ALL: Final = -1

Submit = Callable[[Coroutine[Any, Any, None]], "Future[None]"]


class DeadLetterTopics:
    """See the head of this file; the `Topics` of DeadLetters."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        config: Callable[[], BrokerConfig],
        create: Callable[[str], object],
        submit: Submit,
        failures: Failures,
        peers: Callable[[], Peers] | None = None,
        login: LoginOf = no_login,
    ) -> None:
        """`create` has a topic created, and returns at once. `peers` makes the client, on the
        loop."""
        self._image: Final = image
        self._config: Final = config
        self._create: Final = create
        self._submit: Final = submit
        self._failures: Final = failures
        self._make_peers: Final = peers or partial(_network_client, login)
        self._peers: Peers | None = None

    def destination(self, topic: str, partition: int) -> Destination | Refused:
        config, found = self._config(), self._image().topics.get(topic)
        prefix: str = config[PREFIX]
        if topic.startswith("__") or (found is not None and found.internal):
            return Refused(f"topic {topic} is internal")
        if not topic.startswith(prefix):
            return Refused(f"the name of topic {topic} does not begin with {prefix} ({PREFIX})")
        if found is None or not found.partitions:
            if not config[AUTO_CREATE]:
                return Refused(f"there is no topic {topic}")
            self._create(topic)
            return Refused(f"topic {topic} is being created", waits=True)
        own = TopicConfig(config, found.configs)
        if not own[ENABLED]:
            return Refused(f"topic {topic} does not have {ENABLED}=true")
        place = TopicPartition(topic, partition % len(found.partitions))
        if found.partitions[place.partition].leader == NO_LEADER:
            return Refused(f"partition {place} has no leader", waits=True)
        return Destination(place, own["max.message.bytes"])

    def write(
        self, place: TopicPartition, batch: bytes, done: Callable[[ErrorCode], object]
    ) -> None:
        image = self._image()
        found = image.partition(place.topic, place.partition)
        broker = None if found is None else image.brokers.get(found.leader)
        if broker is None or broker.port < 0:
            done(ErrorCode.LEADER_NOT_AVAILABLE)
            return
        work = self._write(broker, place, batch, done)
        try:
            self._submit(work)
        except BaseException:  # without the loop nothing is written; the caller notes it
            work.close()
            raise

    async def _write(
        self,
        broker: BrokerImage,
        place: TopicPartition,
        batch: bytes,
        done: Callable[[ErrorCode], object],
    ) -> None:
        code = ErrorCode.NETWORK_EXCEPTION
        try:
            code = await self._call(broker, place, batch)
        except ProtocolError as error:
            self._failures.note("reading what a dead-letter topic's leader answered", error)
        except KafkaError as error:
            code = error.code
        except Exception as error:  # nothing looks at the result of this task
            self._failures.note("writing to a dead-letter topic", error)
        finally:
            done(code)

    async def _call(self, broker: BrokerImage, place: TopicPartition, batch: bytes) -> ErrorCode:
        from kbroker.peer import messages
        from kbroker.peer.address import Address

        if self._peers is None:
            self._peers = self._make_peers()
        address = Address(broker.host, broker.port)
        await self._peers.wait_ready(address, timeout_ms=READY_TIMEOUT_MS, fail_fast=True)
        version = self._peers.version(address, ApiKey.PRODUCE, *_VERSIONS)
        body = messages.encode_produce(
            version, {place: batch}, acks=_ACKS_ALL, timeout_ms=WRITE_TIMEOUT_MS
        )
        reader = await self._peers.call(address, ApiKey.PRODUCE, version, body)
        answered = messages.decode_produce(reader, version).get(place)
        return ErrorCode.UNKNOWN_SERVER_ERROR if answered is None else answered.error


class TopicsCreation:
    """Creates dead-letter topics with the broker's defaults, one at a time: who needs another one
    asks again."""

    def __init__(self) -> None:
        self._creation: Final = TopicCreation(
            logging.getLogger("kbroker.share"), "a dead-letter topic cannot be created yet: %s"
        )

    def begin(self, controller: TopicCreator, topic: str) -> None:
        """Returns at once."""
        from kbroker.metadata.controller.decisions import NewTopic

        self._creation.begin(controller, lambda: NewTopic(topic, configs={ENABLED: "true"}))


def _network_client(login: LoginOf) -> Peers:
    from kbroker.peer.connection import NetworkClientOptions
    from kbroker.peer.network_client import NetworkClient

    return NetworkClient(
        NetworkClientOptions(
            client_id=CLIENT_ID, request_timeout_ms=REQUEST_TIMEOUT_MS, login=login()
        )
    )
