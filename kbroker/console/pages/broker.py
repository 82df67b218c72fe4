"""One broker: where it listens, its disks and replicas, what is on its way; its connections and
the clients that it throttles, if it is the broker that makes the page: no other one knows those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import Asked, Refused
from kbroker.console.page import (
    Cell,
    Column,
    Fact,
    Facts,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.console.pages.brokers import counted, directories_of, moves_table
from kbroker.console.sections import (
    figure,
    figures_of,
    in_order,
    no_figures,
    operations_of,
    piece,
    refusal,
    rows_of,
)
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.findings.missing_replicas import moving_now
from kbroker.peer.config_messages import BROKER_RESOURCE, LogSize, Resource
from kbroker.security.rights import Operation

if TYPE_CHECKING:
    from kbroker.metrics.model import Figures
    from kbroker.peer.config_messages import LogDirectory
    from kbroker.peer.messages import BrokerAddress, ClusterMetadata, PartitionMetadata
    from kbroker.types import TopicPartition

REFRESH_S: Final = 10
PRINCIPALS_MAX: Final = 50
_DIGITS_MAX: Final = 10
_SETTINGS: Final = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
)


def make(asked: Asked) -> Page:
    node_id = _number(asked.path.get("broker", ""))
    cluster = asked.client.metadata()
    moving = moving_now(asked.client)
    counts, leaders = counted(asked, cluster, moving)
    if node_id not in cluster.brokers and node_id not in counts.replicas:
        raise Refused(f"there is no broker {node_id}", "see the list of brokers", 404)
    directories, trouble = directories_of(asked)
    theirs = None if directories is None else directories.get(node_id)
    here = {
        name: each
        for name, each in moving.items()
        if node_id in each.adding or node_id in each.removing
    }
    address = cluster.brokers.get(node_id)
    facts = Facts(
        "broker",
        f"Broker {node_id}",
        [
            Fact("address", "Address", Cell(None if address is None else _joined(address))),
            Fact("rack", "Rack", Cell(None if address is None else address.rack)),
            Fact("leads", "Leads", Cell(counts.leads.get(node_id, 0)), Unit.COUNT),
            Fact("replicas", "Replicas", Cell(counts.replicas.get(node_id, 0)), Unit.COUNT),
            Fact("missing", "Not in sync", Cell(counts.missing.get(node_id, 0)), Unit.COUNT),
            Fact("coming", "On the way here", Cell(counts.coming.get(node_id, 0)), Unit.COUNT),
        ],
    )
    sections: list[Section] = [*trouble]
    if address is None:
        sections.append(
            Notice(Tone.BAD, f"broker {node_id} is not registered: it is down", "start it")
        )
    elif directories is not None and theirs is None:
        sections.append(Notice(Tone.BAD, f"broker {node_id} does not answer", "see its log"))
    sections.append(facts)
    if address is not None:
        sections += _listeners(asked, node_id)
    if theirs is not None:
        sections.append(_disks(theirs))
    sections.append(moves_table(asked, here, directories or {}, leaders, "brokers", node_id))
    sections += _clients(asked, node_id)
    if theirs is not None:
        sections.append(_replicas(asked, node_id, theirs, cluster))
    trail = (("Brokers", to("brokers")),)
    return Page(f"Broker {node_id}", sections, trail, refresh_s=REFRESH_S)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise Refused("a broker has a number", "see the list of brokers", 404)
    return int(text)


def _joined(address: BrokerAddress) -> str:
    return f"{address.host}:{address.port}"


def _listeners(asked: Asked, node_id: int) -> Iterator[Section]:
    try:
        found = asked.client.configs(Resource(BROKER_RESOURCE, str(node_id)), _SETTINGS)
    except (KafkaError, UserError) as error:
        yield refusal("listeners", error)
        return
    values = {each.name: each.value for each in found}
    rows = [
        [Cell(key), Cell(part.strip())]
        for key in _SETTINGS
        for part in (values.get(key) or "").split(",")
        if part.strip()
    ]
    columns = (Column("setting", "Setting"), Column("value", "Value"))
    yield Table("listeners", "Listeners", columns, rows)


def _disks(directories: Sequence[LogDirectory]) -> Table:
    columns = (
        Column("directory", "Log directory"),
        Column("state", "State"),
        Column("logs", "Logs", Unit.COUNT),
        Column("logs_bytes", "Their size", Unit.BYTES),
        Column("free_bytes", "Free", Unit.BYTES),
        Column("total_bytes", "Size of the disk", Unit.BYTES),
    )
    rows = []
    for each in directories:
        online = each.error is ErrorCode.NONE
        is_known = online and each.total_bytes > 0
        rows.append(
            [
                Cell(each.path),
                Cell(
                    "online" if online else each.error.name,
                    tone=Tone.GOOD if online else Tone.BAD,
                ),
                Cell(len(each.logs)),
                Cell(sum(log.size_bytes for log in each.logs)),
                Cell(max(each.usable_bytes, 0) if is_known else None),
                Cell(each.total_bytes if is_known else None),
            ]
        )
    return Table("disks", "Disks", columns, rows)


# --- clients --------------------------------------------------------------------------------------


def _clients(asked: Asked, node_id: int) -> Iterator[Section]:
    if node_id != asked.here.node_id:
        yield Notice(
            Tone.QUIET,
            f"connections and throttled clients of broker {node_id} are known to it alone",
            "open its own console, at its admin port",
        )
        return
    operations = operations_of(asked)
    figures = figures_of(asked, operations)
    if figures is None:
        yield no_figures(asked)
        return
    yield _connections(figures)
    yield _principals(asked)
    yield from _ends(figures)
    if Operation.DESCRIBE_CONFIGS in operations:
        yield _throttled(figures)
    else:
        yield Notice(
            Tone.QUIET,
            "throttled clients: you may not see them",
            "they need DescribeConfigs on the cluster, as quotas do",
        )


def _connections(figures: Figures) -> Table:
    """By listener. The software of clients is counted nowhere."""
    columns = (
        Column("listener", "Listener"),
        Column("open", "Open", Unit.COUNT),
        Column("opened", "Opened since the start", Unit.COUNT),
        Column("refused", "Refused", Unit.COUNT),
        Column("logins", "Logins", Unit.COUNT),
        Column("logins_failed", "Failed logins", Unit.COUNT),
    )
    opened: dict[str, int] = {}
    for (listener, _thread), value in figures.samples("connections"):
        if isinstance(value, int):
            opened[listener] = opened.get(listener, 0) + value
    rows = [
        [
            Cell(listener),
            Cell(count),
            Cell(figure(figures, "connections_opened", listener)),
            Cell(figure(figures, "connections_refused", listener)),
            Cell(figure(figures, "authentications", listener)),
            Cell(figure(figures, "authentications_failed", listener)),
        ]
        for listener, count in sorted(opened.items())
    ]
    return Table("connections", "Connections", columns, rows)


def _principals(asked: Asked) -> Table:
    """Those with most connections."""
    found, total = asked.here.connections_by_principal(PRINCIPALS_MAX)
    columns = (
        Column("principal", "Principal"),
        Column("listener", "Listener"),
        Column("open", "Open", Unit.COUNT),
    )
    rows = [[Cell(principal), Cell(listener), Cell(count)] for listener, principal, count in found]
    return Table("principals", "Connections by principal", columns, rows, total=total)


def _ends(figures: Figures) -> Iterator[Table]:
    rows = [
        [Cell(cause), Cell(value)]
        for (cause,), value in figures.samples("connections_cut")
        if isinstance(value, int) and value
    ]
    if rows:
        columns = (Column("cause", "Cause"), Column("count", "Connections", Unit.COUNT))
        yield Table("cut", "Connections that this broker has ended", columns, rows)


def _throttled(figures: Figures) -> Table:
    """Those of the quotas that were used last; the longest wait first."""
    columns = (
        Column("quota", "Quota"),
        Column("user", "User"),
        Column("client_id", "Client id"),
        Column("delay_ms", "Average delay", Unit.DURATION_MS),
        Column("used", "Used a second", Unit.COUNT),
    )
    used = {
        labels: value
        for key in ("quota_byte_rate", "quota_request_time", "quota_mutation_rate")
        for labels, value in figures.samples(key)
        if isinstance(value, int | float)
    }
    waits = [
        (labels, value)
        for labels, value in figures.samples("quota_throttle_time")
        if isinstance(value, int | float) and len(labels) == len(columns) - 2
    ]
    rows = [
        [
            Cell(labels[0]),
            Cell(labels[1] or None),
            Cell(labels[2] or None),
            Cell(value, tone=Tone.WARN),
            Cell(used.get(labels)),
        ]
        for labels, value in sorted(waits, key=lambda each: -each[1])
    ]
    return Table("throttled", "Throttled clients", columns, rows)


# --- replicas -------------------------------------------------------------------------------------


def _replicas(
    asked: Asked, node_id: int, directories: Sequence[LogDirectory], cluster: ClusterMetadata
) -> Table:
    """The largest first."""
    columns = (
        Column("topic", "Topic"),
        Column("partition", "Partition"),
        Column("role", "Role"),
        Column("size_bytes", "Size", Unit.BYTES),
        Column("lag", "Lag in offsets", Unit.COUNT),
        Column("directory", "Log directory"),
    )
    held = piece(asked, "replicas", sum(len(each.logs) for each in directories), "brokers", node_id)
    every = ((log, each.path) for each in directories for log in each.logs)
    largest = in_order(asked, every, held, lambda each: (-each[0].size_bytes, each[0].partition))

    def row(found: tuple[LogSize, str]) -> Sequence[Cell]:
        log, path = found
        role = "moves here" if log.future else _role(log.partition, node_id, cluster)
        return (
            Cell(log.partition.topic, to("topics", log.partition.topic)),
            Cell(log.partition.partition),
            Cell(role, tone=Tone.WARN if role == "not in sync" else Tone.PLAIN),
            Cell(log.size_bytes),
            Cell(log.offset_lag if log.offset_lag >= 0 else None),
            Cell(path),
        )

    rows = rows_of(asked, largest, row)
    return Table("replicas", "Replicas", columns, rows, total=held.total, next_path=held.next_path)


def _role(where: TopicPartition, node_id: int, cluster: ClusterMetadata) -> str | None:
    topic = cluster.topics.get(where.topic)
    found = _partition(() if topic is None else topic.partitions, where.partition)
    if found is None:
        return None
    if found.leader == node_id:
        return "leader"
    return "in sync" if node_id in found.isr else "not in sync"


def _partition(partitions: Sequence[PartitionMetadata], index: int) -> PartitionMetadata | None:
    """Partitions come in the order of their numbers; not from every broker."""
    if index < len(partitions) and partitions[index].index == index:
        return partitions[index]
    return next((each for each in partitions if each.index == index), None)
