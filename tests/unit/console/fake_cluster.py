"""A cluster for pages of the console: answers of a client, and the figures of a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kbroker.clock import ManualClock
from kbroker.console.asked import ROWS_MAX, Asked
from kbroker.console.page import Facts, Form, Notice, Page, Table, Tone, Value
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metrics.model import Figures, Meter
from kbroker.peer.config_messages import ConfigValue, LogDirectory, LogSize
from kbroker.peer.messages import BrokerAddress, ClusterMetadata, PartitionMetadata, TopicMetadata
from kbroker.peer.placement_messages import ReassignedPartition
from kbroker.security.rights import Operation
from kbroker.types import TopicPartition

NOW_MS = 1_700_000_000_000
GB = 1024**3
ALL_RIGHTS = frozenset(Operation)


def part(
    index: int, leader: int = 1, replicas: Sequence[int] = (1,), isr: Sequence[int] | None = None
) -> PartitionMetadata:
    in_sync = tuple(replicas if isr is None else isr)
    return PartitionMetadata(index, ErrorCode.NONE, leader, 0, tuple(replicas), in_sync, ())


def cluster_of(
    brokers: Sequence[int] = (1,), **topics: Sequence[PartitionMetadata]
) -> ClusterMetadata:
    return ClusterMetadata(
        "a-cluster",
        brokers[0],
        {each: BrokerAddress(each, f"host-{each}", 9092, None) for each in brokers},
        {
            name: TopicMetadata(name, ErrorCode.NONE, None, False, tuple(parts))
            for name, parts in topics.items()
        },
    )


def directory(
    path: str = "/data",
    sizes: Mapping[TopicPartition, int] | None = None,
    free: int = 60 * GB,
    error: ErrorCode = ErrorCode.NONE,
) -> LogDirectory:
    logs = [LogSize(where, size, 0, False) for where, size in (sizes or {}).items()]
    return LogDirectory(error, path, logs, 100 * GB, free)


class FakeClient:
    """What it answers may be replaced; an answer that is an error is raised."""

    def __init__(self, answer: ClusterMetadata | KafkaError) -> None:
        self.answer: Any = answer
        self.moving: dict[TopicPartition, ReassignedPartition] = {}
        self.directories: Any = {1: [directory()]}
        self.operations: Any = ALL_RIGHTS
        self.settings: dict[str, dict[str, str]] = {}
        self.not_after_s: dict[int, float] = {}
        brokers = getattr(answer, "brokers", {1: None})
        self.cluster = SimpleNamespace(
            brokers={each: each for each in brokers},
            link=lambda node_id: SimpleNamespace(
                certificate_not_after_s=lambda: self.not_after_s.get(node_id)
            ),
            clock=ManualClock(NOW_MS),
        )

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterMetadata:
        found: ClusterMetadata = _raised(self.answer)
        return found

    def reassignments(self) -> dict[TopicPartition, ReassignedPartition]:
        return self.moving

    def log_directories(self, *, of_all: bool = True, partitions: Any = None) -> Any:
        assert not of_all, "one broker that is silent would fail the page"
        return _raised(self.directories)

    def cluster_operations(self) -> Any:
        return _raised(self.operations)

    def configs(self, resource: Any, keys: Sequence[str] | None = None) -> list[ConfigValue]:
        if resource.name not in self.settings:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        values = self.settings[resource.name]
        return [ConfigValue(key, values.get(key), False, 4, False) for key in keys or ()]


def _raised(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


class FakeHere:
    """Broker 1. `samples` None: its figures must not be asked for."""

    node_id = 1

    def __init__(self, samples: Mapping[str, Any] | None = None, why: Any = None) -> None:
        self._samples = samples
        self._why = why
        self.questions: list[Any] = []
        self.principals: list[tuple[str, str, int]] = []
        self.config: dict[str, Any] = {"authorizer.class.name": ""}

    def figures(self) -> Figures:
        assert self._samples is not None, "the visitor has no right to figures"
        return Figures(NOW_MS, self._samples)

    def connections_by_principal(self, most: int) -> tuple[list[tuple[str, str, int]], int]:
        assert self._samples is not None, "the visitor has no right to figures"
        return self.principals[:most], len(self.principals)

    def why(self, question: Any) -> Any:
        assert self._why is not None, "the visitor has no right to ask why"
        self.questions.append(question)
        return self._why


SAMPLES: Mapping[str, Any] = {
    "messages_in": [(("",), Meter(100, 7.5, 1.0)), (("orders",), Meter(100, 7.0, 1.0))],
    "bytes_in": [(("",), Meter(100, 2048.0, 1.0))],
    "bytes_out": [(("",), Meter(100, 4096.0, 1.0))],
    "handler_idle": [((), 0.9)],
    "tasks_failing": [((), 0)],
    "threads_dead": [((), 0)],
    "active_controllers": [((), 1)],
    "build_info": [(("0.1.0", "3.11.2", "4.3"), 1)],
}


def asked_of(
    client: Any, here: Any = None, path: Mapping[str, str] | None = None, **query: str
) -> Asked:
    return Asked(
        path=path or {},
        query=query,
        client=client,
        here=here or FakeHere(SAMPLES),
        now_ms=NOW_MS,
        may_write=False,
        messages="off",
        pause=lambda: None,
    )


# --- a page ---------------------------------------------------------------------------------------


def rows(page: Page, name: str) -> list[dict[str, Value]]:
    """Of the table of this name."""
    table = table_of(page, name)
    assert len(table.rows) <= ROWS_MAX
    assert all(len(row) == len(table.columns) for row in table.rows)
    return [
        {column.name: cell.value for column, cell in zip(table.columns, row, strict=True)}
        for row in table.rows
    ]


def table_of(page: Page, name: str) -> Table:
    (table,) = (each for each in page.sections if isinstance(each, Table) and each.name == name)
    return table


def facts(page: Page, name: str) -> dict[str, Value]:
    (found,) = (each for each in page.sections if isinstance(each, Facts) and each.name == name)
    return {each.name: each.cell.value for each in found.items}


def notices(page: Page, *tones: Tone) -> list[str]:
    """All of these tones; of all if none is given."""
    return [
        each.what
        for each in page.sections
        if isinstance(each, Notice) and (not tones or each.tone in tones)
    ]


def names(page: Page) -> list[str]:
    """Of sections, but for notices."""
    return [each.name for each in page.sections if not isinstance(each, Notice)]


def forms(page: Page) -> dict[str, Form]:
    return {each.name: each for each in page.sections if isinstance(each, Form)}
