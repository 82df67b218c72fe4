"""The facts in which causes are found: plain values of one moment, which never change.

Place in the flow: `gathering.py` reads them from a running broker, `causes.py` finds the causes.
Each list has a bound, and `left_out` counts the partitions beyond it, of which the ones without a
leader and with too few replicas in sync come first. Times are ms of the wall clock; None: not
known.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kbroker.types import TopicPartition

PARTITIONS_MAX: Final = 1_000
HELD_MAX: Final = 100  # partitions whose open transaction is looked up
TOPICS_MAX: Final = 100  # of a group
MEMBERS_MAX: Final = 100
DENIALS_MAX: Final = 20
THROTTLES_MAX: Final = 20
WRITES_MAX: Final = 20
WRITE_MS_MIN: Final = 1_000  # a write that has taken so long hangs
APIS_MAX: Final = 3
NO_BROKER: Final = -1


class About(Enum):
    """The subject of a question."""

    CONSUMER = "consumer"
    PRODUCE = "produce"
    PARTITION = "partition"
    SLOW = "slow"


class Question(NamedTuple):
    """`name` is a group's or a topic's. The rest narrows the question down: to a principal
    (TYPE:NAME) at a host, a client id, a batch of so many bytes."""

    about: About
    name: str = ""
    partition: int = -1
    principal: str | None = None
    host: str | None = None
    client_id: str | None = None
    batch_bytes: int | None = None


class Holder(NamedTuple):
    """The transaction that holds a partition's last stable offset. `transactional_id` None: its
    coordinator is another broker."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    transactional_id: str | None = None
    state: str = ""
    since_ms: int | None = None
    client: str = ""


class Log(NamedTuple):
    """The log of a partition that this broker leads."""

    start: int
    end: int
    high_watermark: int
    last_stable: int
    holder: Holder | None = None


class Partition(NamedTuple):
    """`away` are replicas whose brokers are not registered; `since_ms` is when leader or in-sync
    replicas became what they are. `log` None: another broker leads, or the log cannot be used.
    `committed`: the offset of the group in question."""

    name: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    min_in_sync: int = 1
    away: tuple[int, ...] = ()
    since_ms: int | None = None
    log: Log | None = None
    committed: int | None = None


class Member(NamedTuple):
    member_id: str
    client_id: str = ""
    host: str = ""


class Group(NamedTuple):
    """`coordinator` is NO_BROKER where the partition of its records has no leader; the rest is
    known to the coordinator only. `trouble` is the error that it answers with, as while it loads.
    `state` "": there is no such group. `awaited` are members without which a rebalance does not go
    on; `departed` is the last one that went, with why."""

    name: str
    records: TopicPartition | None = None  # of __consumer_offsets; None: there is no such topic
    coordinator: int = NO_BROKER
    trouble: str = ""
    state: str = ""
    members: int = 0
    since_ms: int | None = None
    awaited: tuple[Member, ...] = ()
    departed: str = ""


class Denial(NamedTuple):
    """`rule` is in the words of the authorizer's log. `lately`: it was refused just now, else it
    would be."""

    principal: str
    host: str
    operation: str
    resource: str  # topic:orders
    rule: str
    lately: bool = False


class TooLarge(NamedTuple):
    """A batch of `size` bytes where `setting`, from `source`, allows `most`."""

    size: int
    most: int
    setting: str
    source: str


class Throttle(NamedTuple):
    """A quota that is exceeded. `kind` is produce, fetch, request or mutation; an entity without
    the part has None, the default entity ""."""

    kind: str
    user: str | None
    client_id: str | None
    most: float
    used: float
    delayed: int = 0  # answers with a delay
    delay_ms: int = 0  # all of them together


class Directory(NamedTuple):
    path: str
    trouble: str = ""  # it cannot be used, and why
    free_bytes: int | None = None
    total_bytes: int | None = None


class Write(NamedTuple):
    """A write of a log in `directory` that has not ended, after so long."""

    name: TopicPartition
    directory: str
    ms: int


class Api(NamedTuple):
    """Requests of one kind, over the last minute; `local_ms` is what handlers work at one."""

    name: str
    per_s: float
    local_ms: float


class Load(NamedTuple):
    """Shares of time over the last minute; of flushes the median in ms, of requests the 99th
    percentile where there are enough of them."""

    handlers_idle: float = 1.0
    network_idle: float = 1.0
    busiest: tuple[Api, ...] = ()
    flush_ms: float = 0.0
    append_ms: float = 0.0  # LocalTimeMs of Produce
    followers_ms: float = 0.0  # RemoteTimeMs of Produce


class Facts(NamedTuple):
    """`missing` are topics that are not there, `writes` those that hang, `troubles` (part of the
    broker, what is wrong) but for directories."""

    about: About
    node_id: int
    now_ms: int
    partitions: tuple[Partition, ...] = ()
    left_out: int = 0
    missing: tuple[str, ...] = ()
    topics_are_created: bool = False
    group: Group | None = None
    denials: tuple[Denial, ...] = ()
    too_large: TooLarge | None = None
    throttles: tuple[Throttle, ...] = ()
    directories: tuple[Directory, ...] = ()
    writes: tuple[Write, ...] = ()
    troubles: tuple[tuple[str, str], ...] = ()
    load: Load = Load()
