"""Operations on resources, and the rights to them that an API needs.

Place in the flow: each row of the registry (`handlers/registry.py`) names the rights of its API
(`handlers/rights.py`); dispatch calls the authorizer before it calls the handler. Operations and
types of resources have the numbers that Kafka's ACLs have on the wire.

Immutable; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.security.session import Session
    from kbroker.types import ApiKey


class Operation(IntEnum):
    """ANY is for filters only; an ACL of ALL is for every operation."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


# Those that each type of resource has.
OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        ),
    }
)

# The name of the one resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"

# As Apache Kafka's log and its nodes of ZooKeeper have them.
RESOURCE_NAMES: Final[Mapping[ResourceType, str]] = MappingProxyType(
    {
        ResourceType.TOPIC: "Topic",
        ResourceType.GROUP: "Group",
        ResourceType.CLUSTER: "Cluster",
        ResourceType.TRANSACTIONAL_ID: "TransactionalId",
        ResourceType.DELEGATION_TOKEN: "DelegationToken",
        ResourceType.USER: "User",
    }
)

# The error code if a right on a resource of this type is missing.
DENIED: Final[Mapping[ResourceType, ErrorCode]] = MappingProxyType(
    {
        ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)

# The names of the resources in a decoded request; a topic may be named by its id. Empty if the
# request does not need the right.
Names = Callable[[Any], Iterable[str | UUID]]


class Right(NamedTuple):
    """An operation on the resources that a request names.

    `whole`: a request without this right fails as a whole; the dispatch checks it. If another right
    is missing, the response has an error for the resource or leaves it out; checking that is for
    the API's handler. `instead` is a right that makes this one unnecessary; it is checked first,
    and its lack is not logged.
    """

    operation: Operation
    type: ResourceType
    names: Names
    whole: bool = False
    instead: Right | None = None


# The words of Apache Kafka for these errors, where a response has a message.
DENIED_WORDS: Final[Mapping[ResourceType, str]] = MappingProxyType(
    {
        ResourceType.TOPIC: "Topic authorization failed.",
        ResourceType.GROUP: "Group authorization failed.",
        ResourceType.CLUSTER: "Cluster authorization failed.",
    }
)


class Resource(NamedTuple):
    """A topic is asked for by its name, not by its id."""

    type: ResourceType
    name: str


class Authorizer(Protocol):
    """Any thread may call it."""

    def authorize(
        self,
        session: Session,
        operation: Operation,
        resources: Sequence[Resource],
        request: ApiKey,
        *,
        quiet: bool = False,
    ) -> Collection[Resource]:
        """Return the resources on which the session's principal may not do this.

        `request` is the API that asks, for the log; `quiet`: denials are not logged.
        """

    def operations(self, session: Session, type_: ResourceType) -> Callable[[str], int]:
        """A look-up for the request at hand: the bits of the operations that the principal may do
        on the resource of this name. Denials are not logged."""

    def authorize_by_type(
        self, session: Session, operation: Operation, type_: ResourceType, request: ApiKey
    ) -> bool:
        """Whether the principal may do this on some resource of the type (KIP-679)."""
