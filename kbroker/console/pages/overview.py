"""The first page: whether all is well, the alarms, and what goes on now.

Checks are those of `kbroker health`, asked with the visitor's client. A broker that gives no answer
costs a line each time, and after CHECKS_MS_MAX the checks that are left are lines, too: the page is
there when something is wrong. Traffic is that of the broker that makes the page: the others' is on
their own consoles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from kbroker.clock import NS_PER_MS
from kbroker.console.asked import Asked
from kbroker.console.page import (
    Cell,
    Column,
    Fact,
    Facts,
    Links,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.console.sections import (
    DENIED,
    alarm,
    figure,
    figures_of,
    no_figures,
    operations_of,
    piece,
    refusal,
    rows_of,
)
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.findings import certificates, cluster_health
from kbroker.findings.checks import FAILING, OK, WARNING, Check
from kbroker.findings.missing_replicas import moving_now

if TYPE_CHECKING:
    from kbroker.findings.cluster_health import Partitions
    from kbroker.findings.pieces import Pause
    from kbroker.metrics.model import Figures
    from kbroker.peer.config_messages import LogDirectory
    from kbroker.peer.messages import ClusterMetadata

T = TypeVar("T")

REFRESH_S: Final = 5
# From here on no check is begun; one that was begun may wait once more for a broker.
CHECKS_MS_MAX: Final = 4_000
# Partitions whose last stable offset is asked for; the page of transactions looks further.
LED_ASKED_MAX: Final = 2_000
# Troubles at the top of the page; the table of checks has all.
NOTICES_MAX: Final = 20
_TONES: Final = {OK: Tone.GOOD, WARNING: Tone.WARN, FAILING: Tone.BAD}
# That of `kbroker health`.
_ORDER: Final = ("brokers", "controller", "certificate", "partitions", "transactions", "disk")
_DAY_S: Final = 86_400

Directories = Mapping[int, Sequence["LogDirectory"]]


class _Late(Exception):
    """The page has asked brokers for as long as it may."""


class _Looks:
    """One check after the other; one that fails, or that is too late, is a line about itself."""

    def __init__(self, asked: Asked) -> None:
        self.checks: list[Check] = []
        self._asked: Final = asked
        self._clock: Final = asked.client.cluster.clock
        self._deadline_ns: Final = self._clock.monotonic_ns() + CHECKS_MS_MAX * NS_PER_MS

    def pause(self) -> None:
        self._asked.pause()
        if self._clock.monotonic_ns() >= self._deadline_ns:
            raise _Late

    def at(self, name: str, look: Callable[[], Iterable[Check]]) -> None:
        """Adds the checks of it, as far as they come."""

        def add() -> None:
            self.checks.extend(look())

        self.value(name, add)

    def value(self, name: str, look: Callable[[], T]) -> T | None:
        """None: there is a check of this name that says why."""
        try:
            self.pause()
            return look()
        except _Late:
            seen = f"not looked at to the end: brokers were asked for {CHECKS_MS_MAX // 1000} s"
            fix = "mend the brokers that give no answer; the other pages look at one thing each"
        except UserError as error:
            seen, fix = f"unknown: {error.cause}", error.fix
        except KafkaError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise  # the visitor has to log in again
            if error.code in DENIED:
                seen, fix = f"unknown: you may not see this ({error.code.name})", ""
            else:
                seen, fix = f"unknown: {error}", "see the brokers' logs"
        self.checks.append(Check(WARNING, name, seen, fix))
        return None


def make(asked: Asked) -> Page:
    try:
        return _made(asked)
    except (KafkaError, UserError) as error:
        if isinstance(error, KafkaError) and error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise  # the visitor has to log in again
        return Page("Overview", [refusal("brokers", error)], refresh_s=REFRESH_S)


def _made(asked: Asked) -> Page:
    client, looks = asked.client, _Looks(asked)
    cluster = client.metadata()
    figures = figures_of(asked, operations_of(asked))
    # Those that any broker can answer first, those that wait for a silent one last.
    partitions = looks.value("partitions", lambda: _partitions(asked, cluster, looks))
    if partitions is not None:
        looks.checks += cluster_health.partitions(partitions, cluster)
    looks.checks += _controller(cluster)
    looks.at("brokers", lambda: cluster_health.brokers(client, cluster, looks.pause))
    until_s = looks.value("certificate", lambda: certificates.not_after_s(client, looks.pause))
    if until_s:
        now_s = asked.now_ms / 1000
        looks.checks += certificates.expiries({each: at - now_s for each, at in until_s.items()})
    directories = looks.value("disk", lambda: client.log_directories(of_all=False))
    if directories is not None:
        looks.checks += cluster_health.disks(directories)
    looks.at("transactions", lambda: _transactions(asked, cluster, looks.pause))
    checks = sorted(looks.checks, key=lambda each: _ORDER.index(each.name))
    sections: list[Section] = [
        *_notices(checks),
        _cluster(cluster, partitions, figures),
        _alarms(partitions, directories, figures),
    ]
    if figures is not None:
        sections.append(_traffic(asked, figures))
    else:
        sections.append(no_figures(asked))
    sections.append(_checks(asked, checks))
    if directories is not None:
        sections.append(_disks(asked, directories))
    sections += _certificates(asked, figures, until_s or {})
    sections.append(Links("why", "Why", [("Why is this broker slow?", to("why", slow=1))]))
    return Page("Overview", sections, refresh_s=REFRESH_S)


def _controller(cluster: ClusterMetadata) -> Iterator[Check]:
    """Only if there is none: the id that clients get is of a broker that takes their requests, not
    of the one that has the office, as in Apache Kafka."""
    check = cluster_health.controller(cluster)
    if check.verdict != OK:
        yield check


def _partitions(asked: Asked, cluster: ClusterMetadata, looks: _Looks) -> Partitions:
    moving = moving_now(asked.client)
    looks.pause()
    return cluster_health.partitions_of(asked.client, cluster, moving, looks.pause)


def _transactions(asked: Asked, cluster: ClusterMetadata, pause: Pause) -> Iterator[Check]:
    led = cluster_health.led_in(cluster, pause)
    some = led[:LED_ASKED_MAX]
    yield from cluster_health.transactions(asked.client, some, pause)
    if len(led) > len(some):
        seen = f"looked at in {len(some):,} of {len(led):,} partitions"
        yield Check(OK, "transactions", seen)


def _notices(checks: Sequence[Check]) -> Iterator[Notice]:
    """The worst first."""
    troubles = [each for each in checks if each.verdict in (FAILING, WARNING)]
    troubles.sort(key=lambda each: each.verdict != FAILING)
    for each in troubles[:NOTICES_MAX]:
        yield Notice(_TONES[each.verdict], f"{each.name}: {each.seen}", each.fix)
    if len(troubles) > NOTICES_MAX:
        more = len(troubles) - NOTICES_MAX
        yield Notice(Tone.WARN, f"and {more:,} more", "see the table of checks")
    if not troubles:
        yield Notice(Tone.GOOD, "nothing is wrong")


def _cluster(
    cluster: ClusterMetadata, partitions: Partitions | None, figures: Figures | None
) -> Facts:
    version = None
    if figures is not None:
        version = next((labels[0] for labels, _ in figures.samples("build_info")), None)
    total, moving = (None, None) if partitions is None else (partitions.total, partitions.moving)
    is_controller = figure(figures, "active_controllers")
    office = None if is_controller is None else "this broker" if is_controller else "another broker"
    return Facts(
        "cluster",
        "Cluster",
        [
            Fact("cluster_id", "Cluster id", Cell(cluster.cluster_id)),
            Fact("brokers", "Brokers", Cell(len(cluster.brokers), to("brokers")), Unit.COUNT),
            Fact("controller", "Controller", Cell(office)),
            Fact("topics", "Topics", Cell(len(cluster.topics), to("topics")), Unit.COUNT),
            Fact("partitions", "Partitions", Cell(total), Unit.COUNT),
            Fact("moving", "On the way to other brokers", Cell(moving), Unit.COUNT),
            Fact("version", "Version of this broker", Cell(version)),
        ],
    )


def _alarms(
    partitions: Partitions | None, directories: Directories | None, figures: Figures | None
) -> Facts:
    """A number that is not known is a dash."""
    missing = headless = below = offline = None
    if partitions is not None:
        missing, headless = partitions.missing, len(partitions.headless)
        below = len(partitions.below)
    if directories is not None:
        some = (each for theirs in directories.values() for each in theirs)
        offline = sum(each.error is not ErrorCode.NONE for each in some)
    counts = (
        ("under_replicated", "Under-replicated partitions", missing),
        ("offline", "Partitions without a leader", headless),
        ("below_min_isr", "Partitions below min.insync.replicas", below),
        ("offline_directories", "Offline log directories", offline),
        ("failing_tasks", "Failing tasks of this broker", figure(figures, "tasks_failing")),
        ("dead_threads", "Dead threads of this broker", figure(figures, "threads_dead")),
        ("late_transactions", "Late transactions here", figure(figures, "late_transactions")),
    )
    items = [Fact(name, title, alarm(value), Unit.COUNT) for name, title, value in counts]
    return Facts("alarms", "Alarms", items)


def _traffic(asked: Asked, figures: Figures) -> Facts:
    """Of this broker, over the last minute."""
    rates = (
        ("messages_in", "Records in", Unit.PER_S, figure(figures, "messages_in", "")),
        ("bytes_in", "Bytes in", Unit.BYTES_PER_S, figure(figures, "bytes_in", "")),
        ("bytes_out", "Bytes out to consumers", Unit.BYTES_PER_S, figure(figures, "bytes_out", "")),
        ("replication_out", "Bytes out to followers", Unit.BYTES_PER_S,
         figure(figures, "replication_bytes_out", "")),
        ("replication_in", "Bytes in from leaders", Unit.BYTES_PER_S,
         figure(figures, "replica_fetcher_bytes")),
        ("handlers_idle", "Request handlers idle", Unit.RATIO, figure(figures, "handler_idle")),
        ("network_idle", "Network threads idle", Unit.RATIO, figure(figures, "network_idle")),
    )  # fmt: skip
    items = [Fact(name, title, Cell(value), unit) for name, title, unit, value in rates]
    return Facts("traffic", f"Traffic of broker {asked.here.node_id}", items)


def _checks(asked: Asked, checks: Sequence[Check]) -> Table:
    columns = (
        Column("verdict", "Verdict"),
        Column("name", "Check"),
        Column("seen", "Seen"),
        Column("fix", "What to do"),
    )
    held = piece(asked, "checks", len(checks), "overview")
    rows = [
        (
            Cell(each.verdict, tone=_TONES.get(each.verdict, Tone.PLAIN)),
            Cell(each.name),
            Cell(each.seen),
            Cell(each.fix or None),
        )
        for each in checks[held.start : held.end]
    ]
    return Table("checks", "Checks", columns, rows, total=held.total, next_path=held.next_path)


def _disks(asked: Asked, directories: Directories) -> Table:
    columns = (
        Column("broker", "Broker"),
        Column("directory", "Log directory"),
        Column("state", "State"),
        Column("logs_bytes", "Logs", Unit.BYTES),
        Column("free_bytes", "Free", Unit.BYTES),
        Column("total_bytes", "Size", Unit.BYTES),
        Column("free", "Free share", Unit.RATIO),
    )
    every = [(node_id, each) for node_id in sorted(directories) for each in directories[node_id]]
    held = piece(asked, "disks", len(every), "overview")
    rows = rows_of(asked, every[held.start : held.end], lambda each: _disk(*each))
    return Table("disks", "Disks", columns, rows, total=held.total, next_path=held.next_path)


def _disk(node_id: int, directory: LogDirectory) -> Sequence[Cell]:
    is_known = directory.error is ErrorCode.NONE and directory.total_bytes > 0
    usable = max(directory.usable_bytes, 0) if is_known else None
    verdict = next((each.verdict for each in cluster_health.disks({node_id: [directory]})), OK)
    online = directory.error is ErrorCode.NONE
    return (
        Cell(node_id, to("brokers", node_id)),
        Cell(directory.path),
        Cell("online" if online else directory.error.name, tone=_TONES[verdict]),
        Cell(sum(each.size_bytes for each in directory.logs)),
        Cell(usable),
        Cell(directory.total_bytes if is_known else None),
        Cell(usable / directory.total_bytes if usable is not None else None),
    )


def _certificates(
    asked: Asked, figures: Figures | None, others: Mapping[int, float]
) -> Iterator[Table]:
    """Of the listeners of this broker, and those that the visitor's client has got (`others`: when
    they expire, in seconds since 1970); nothing without TLS."""
    found: list[tuple[int, str | None, float]] = [
        (asked.here.node_id, labels[0], float(value))
        for labels, value in ([] if figures is None else figures.samples("certificate_expiries"))
        if isinstance(value, int | float)
    ]
    found += [(node_id, None, until_s) for node_id, until_s in others.items()]
    if not found:
        return
    columns = (
        Column("broker", "Broker"),
        Column("listener", "Listener"),
        Column("expires_ms", "Expires", Unit.MOMENT_MS),
        Column("left_ms", "In", Unit.DURATION_MS),
    )
    rows = []
    found.sort(key=lambda each: each[2])
    held = piece(asked, "certificates", len(found), "overview")
    for node_id, listener, until_s in found[held.start : held.end]:
        left_s = until_s - asked.now_ms / 1000
        verdict = certificates.expiry("certificate", "", left_s).verdict
        tone = _TONES[verdict]
        moment = Cell(round(until_s * 1000), tone=tone)
        rows.append((Cell(node_id), Cell(listener), moment, Cell(round(left_s * 1000), tone=tone)))
    yield Table(
        "certificates", "Certificates", columns, rows, total=held.total, next_path=held.next_path
    )
