"""FindCoordinator (10): which broker looks after a group or a transactional id.

A group's coordinator is the leader of its partition of `__consumer_offsets`. If that topic does not
exist yet, the first request for a group has it made and is answered COORDINATOR_NOT_AVAILABLE,
which means "later" and which every client retries. The same is answered while the partition has no
leader.

The same holds for a transactional id and `__transaction_state`. Where transactions are not served,
a transactional id is refused for good, with the reason (`transactions.py`).

From v6 on brokers ask for the coordinator of a share-partition, `group:topic id:partition`: it is
the leader of its partition of `__share_group_state`. Where share groups are not served there is
none: COORDINATOR_NOT_AVAILABLE.

Up to v3 a request asks for one key, from v4 for several, each with its own error.
Any handler thread; holds no lock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied, may_on_cluster
from kbroker.handlers.group_protocols import SHARE as SHARE_GROUPS
from kbroker.handlers.group_protocols import is_served
from kbroker.handlers.repeats import NAMED_TOO_OFTEN, answers_of
from kbroker.handlers.services import brokers_as_seen
from kbroker.handlers.topic_creation import topic_creator
from kbroker.handlers.transactions import NO_TRANSACTIONS, refusal
from kbroker.metadata.features import TRANSACTION_VERSION, brokers_without
from kbroker.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from kbroker.protocol import messages
from kbroker.security.rights import DENIED, DENIED_WORDS, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.protocol.messages.find_coordinator import Coordinator, Request, Response

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2

_RESOURCES: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_SINCE_BATCH: Final = 4
_SINCE_SHARE: Final = 6

# A topic id is 16 bytes in URL-safe Base64, without its padding.
_SHARE_KEY: Final = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}:-?[0-9]{1,10}", re.ASCII)


class Found(NamedTuple):
    """What is known of one key's coordinator: where it is, or an error."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    node_id: int = -1
    host: str = ""
    port: int = -1


_NOT_AVAILABLE: Final = Found(
    ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group coordinator is not available"
)
_NO_SHARES: Final = Found(
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED_WORDS[ResourceType.CLUSTER]
)


def handle(services: Services, call: Call[Request]) -> None:
    key_type = call.message.key_type
    is_transactions = key_type == TRANSACTION and services.transactions is not None
    is_share = key_type == SHARE and call.version >= _SINCE_SHARE
    topic = TRANSACTIONS_TOPIC if is_transactions else OFFSETS_TOPIC
    if is_share:
        topic = SHARE_STATE_TOPIC
    coordinators = _Coordinators(services, call.request, topic)
    has_shares = is_share and services.share is not None and is_served(services, SHARE_GROUPS)

    hidden = _hidden(services, call)
    no_shares = is_share and not may_on_cluster(services, call, Operation.CLUSTER_ACTION)

    def found(key: str) -> Found:
        if no_shares:
            return _NO_SHARES
        if key in hidden:
            return Found(DENIED[_RESOURCES[key_type]])
        if key_type == GROUP or is_transactions:
            return coordinators.find(key)
        if has_shares and _is_share_key(key):
            return coordinators.find(key)
        return _refuse(key_type, key, call.request)

    call.answer(_response(call, found))


def _hidden(services: Services, call: Call[Request]) -> frozenset[str]:
    """The keys of groups, or of transactional ids, that the client may not describe."""
    request = call.message
    type_ = _RESOURCES.get(request.key_type)
    if type_ is None:
        return frozenset()
    keys = request.coordinator_keys if call.version >= _SINCE_BATCH else [request.key]
    return denied(services, call, Operation.DESCRIBE, type_, keys)


class _Coordinators:
    """The leaders of an internal topic, as the brokers are seen over this connection."""

    def __init__(self, services: Services, request: ColdRequest, name: str) -> None:
        self._services = services
        self._brokers = brokers_as_seen(services, request, services.controller.image)
        self._name = name
        topic = services.controller.image.topic(name)
        self._homes = () if topic is None else topic.partitions
        self._found: dict[int, Found] = {}  # by leader

    def find(self, key: str) -> Found:
        if not self._homes:
            self._create()
            return _NOT_AVAILABLE
        leader = self._homes[partition_for(key, len(self._homes))].leader
        found = self._found.get(leader)
        if found is None:
            found = _NOT_AVAILABLE
            if leader in self._brokers:
                host, port, _ = self._brokers[leader]
                found = Found(node_id=leader, host=host, port=port)
            self._found[leader] = found
        return found

    def _create(self) -> None:
        services, creator = self._services, topic_creator(self._services)
        if self._name == OFFSETS_TOPIC:
            services.offsets_topic.ensure(creator, services.config)
        elif self._name == SHARE_STATE_TOPIC:
            if services.share is not None:
                brokers = max(1, len(services.controller.image.brokers))
                services.share.create_topic(creator, services.config, brokers)
        elif services.transactions is not None:
            image = services.controller.image
            # A broker of an earlier kbroker would serve aborted records as committed ones. Until it
            # is replaced, transactional ids have no coordinator.
            if not brokers_without(image, TRANSACTION_VERSION):
                brokers = max(1, len(image.brokers))
                services.transactions.create_topic(creator, services.config, brokers)


def _refuse(key_type: int, key: str, request: ColdRequest) -> Found:
    version = request.api_version
    if key_type == TRANSACTION:
        return Found(refusal(request), NO_TRANSACTIONS)
    if key_type == SHARE and version >= _SINCE_SHARE and _is_share_key(key):
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if key_type == SHARE and version >= _SINCE_BATCH:
        return Found(ErrorCode.INVALID_REQUEST)
    return Found(ErrorCode.INVALID_REQUEST, f"{key_type} is no type of coordinator in this version")


def _is_share_key(key: str) -> bool:
    """Whether it is a share group's share of a partition: `group:topic id:partition`."""
    return _SHARE_KEY.fullmatch(key) is not None


def _response(call: Call[Request], find: Callable[[str], Found]) -> Response:
    table = messages.find_coordinator
    request = call.message
    if call.version >= _SINCE_BATCH:
        too_often = Found(ErrorCode.INVALID_REQUEST, NAMED_TOO_OFTEN)
        coordinators = answers_of(
            call,
            request.coordinator_keys,
            lambda key: _coordinator(key, find(key)),
            lambda key: _coordinator(key, too_often),
        )
        return table.Response(coordinators=coordinators)
    found = find(request.key)
    return table.Response(
        error_code=found.code,
        # The one text that Apache Kafka has for "no error" in these versions.
        error_message=found.message or found.code.name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(key: str, found: Found) -> Coordinator:
    return messages.find_coordinator.Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.code,
        error_message=found.message,
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    return _response(call, lambda _: Found(code, message or ""))
