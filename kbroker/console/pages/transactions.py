"""Transactions: the open ones, the oldest first, and which of them hold back consumers of
committed records. One transactional id, and the producers of one partition, on request.
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
    Field,
    Form,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.console.sections import in_order, piece, refusal, rows_of
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.findings.cluster_health import HELD_ASKED_MAX, HeldBack, held_back, led_in
from kbroker.findings.pieces import PIECE
from kbroker.peer.transaction_messages import ANY_DURATION_MS, Filter
from kbroker.peer.transactions import ONGOING, OPEN_STATES, Described, Transactions
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.findings.last_stable import Held

REFRESH_S: Final = 10
# Open transactions that are described; of more, those that are open for longest.
DESCRIBED_MAX: Final = 2_000
# Partitions whose last stable offset is asked for.
LED_ASKED_MAX: Final = 4_000
# Where more are open: for how long, in ms.
_OPEN_FOR_MS: Final = (86_400_000, 3_600_000, 600_000, 60_000, ANY_DURATION_MS)
_ID_CHARS_MAX: Final = 32_767

OPEN_COLUMNS: Final = (
    Column("transactional_id", "Transactional id"),
    Column("state", "State"),
    Column("began_ms", "Began", Unit.MOMENT_MS),
    Column("open_ms", "Open for", Unit.DURATION_MS),
    Column("timeout_ms", "Timeout", Unit.DURATION_MS),
    Column("left_ms", "Until its timeout", Unit.DURATION_MS),
    Column("partitions", "Partitions", Unit.COUNT),
    Column("producer_id", "Producer id"),
    Column("producer_epoch", "Epoch"),
    Column("client_id", "Client id"),
    Column("client_address", "Client address"),
    Column("coordinator", "Coordinator"),
)
HELD_COLUMNS: Final = (
    Column("topic", "Topic"),
    Column("partition", "Partition"),
    Column("last_stable", "Last stable offset"),
    Column("high_watermark", "High watermark"),
    Column("waiting", "Records that wait", Unit.COUNT),
    Column("transactional_id", "Held by"),
    Column("producer_id", "Producer id"),
    Column("verdict", "Verdict"),
)


def make(asked: Asked) -> Page:
    transactional_id = asked.query.get("id", "")
    topic = asked.query.get("topic", "")
    sections: list[Section] = []
    if transactional_id:
        sections += _one(asked, transactional_id)
    if topic:
        sections += _producers(asked, topic)
    sections += _open(asked)
    sections += _held(asked)
    sections += _forms(transactional_id, topic, asked.query.get("partition", ""))
    return Page("Transactions", sections, refresh_s=REFRESH_S)


def _forms(transactional_id: str, topic: str, partition: str) -> Iterator[Form]:
    path = to("transactions")
    yield Form(
        "describe", "A transactional id", path,
        [Field("id", "Transactional id", transactional_id)], "Describe",
    )  # fmt: skip
    yield Form(
        "producers", "Producers of a partition", path,
        [
            Field("topic", "Topic", topic),
            Field("partition", "Partition", partition or "0", kind="number"),
        ],
        "List",
    )  # fmt: skip


# --- open transactions ----------------------------------------------------------------------------


def _open(asked: Asked) -> Iterator[Section]:
    """The oldest first."""
    try:
        found, total = open_transactions(asked)
    except (KafkaError, UserError) as error:
        yield refusal("open transactions", error)
        return
    if total > len(found):
        yield Notice(
            Tone.WARN,
            f"{total:,} transactions are open; these are {len(found):,} of them, with those that"
            " are open for longest",
            "kbroker txn list --state Ongoing lists all",
        )
    held = piece(asked, "open", len(found), "transactions")
    rows = rows_of(asked, found[held.start : held.end], lambda each: _row(each, asked.now_ms))
    yield Table(
        "open", "Open transactions", OPEN_COLUMNS, rows, "no transaction is open",
        total, held.next_path,
    )  # fmt: skip


def open_transactions(asked: Asked) -> tuple[list[Described], int]:
    """Those that the visitor may describe, the oldest first, and how many are open in all."""
    transactions = Transactions(asked.client)
    ids: dict[str, None] = {}
    listed = transactions.list_transactions(Filter(OPEN_STATES))
    total = len(listed)
    if total > DESCRIBED_MAX:
        for open_for_ms in _OPEN_FOR_MS:
            asked.pause()
            some = transactions.list_transactions(Filter(OPEN_STATES, open_for_ms=open_for_ms))
            ids.update(dict.fromkeys(each.transaction.transactional_id for each in some))
            if len(ids) >= DESCRIBED_MAX:
                break
    else:
        ids = dict.fromkeys(each.transaction.transactional_id for each in listed)
    names = list(ids)[:DESCRIBED_MAX]
    found: list[Described] = []
    for start in range(0, len(names), PIECE):
        described = transactions.describe(names[start : start + PIECE])
        found += [
            each
            for each in described.values()
            if not each.transaction.error and each.transaction.state in OPEN_STATES
        ]
        asked.pause()
    found.sort(key=_age)
    return found, max(total, len(found))


def _age(described: Described) -> tuple[bool, int, str]:
    found = described.transaction
    return found.start_ms < 0, found.start_ms, found.transactional_id


def _row(described: Described, now_ms: int) -> Sequence[Cell]:
    found = described.transaction
    has_begun = found.start_ms >= 0
    left_ms = found.start_ms + found.timeout_ms - now_ms if has_begun else None
    is_late = left_ms is not None and left_ms < 0 and found.state == ONGOING
    client = found.client
    return (
        Cell(found.transactional_id, to("transactions", id=found.transactional_id)),
        Cell(found.state),
        Cell(found.start_ms if has_begun else None),
        Cell(max(0, now_ms - found.start_ms) if has_begun else None),
        Cell(found.timeout_ms),
        Cell(left_ms if found.state == ONGOING else None, tone=Tone.BAD if is_late else Tone.PLAIN),
        Cell(len(found.partitions)),
        Cell(found.producer_id),
        Cell(found.epoch),
        Cell(None if client is None else client.client_id),
        Cell(None if client is None else client.host),
        Cell(described.coordinator, to("brokers", described.coordinator)),
    )


# --- what holds consumers -------------------------------------------------------------------------


def _held(asked: Asked) -> Iterator[Section]:
    """The partitions in which most records wait first."""
    try:
        led = led_in(asked.client.metadata(), asked.pause)
        some = led[:LED_ASKED_MAX]
        found = held_back(asked.client, some, asked.pause)
    except (KafkaError, UserError) as error:
        yield refusal("last stable offsets", error)
        return
    if len(led) > len(some):
        yield Notice(
            Tone.QUIET, f"looked at {len(some):,} of {len(led):,} partitions",
            "kbroker explain TOPIC/PARTITION --isolation read_committed looks at one",
        )  # fmt: skip
    yield held_table(asked, found)


def held_table(asked: Asked, found: HeldBack) -> Table:
    known = {each.partition: each for each in found.held}
    waiting = sorted(found.waiting.items(), key=lambda each: (-each[1].waiting, each[0]))
    held = piece(asked, "held", len(waiting), "transactions")

    def row(partition: TopicPartition) -> Sequence[Cell]:
        offsets, one = found.waiting[partition], known.get(partition)
        return (
            Cell(partition.topic, to("topics", partition.topic)),
            Cell(partition.partition),
            Cell(offsets.last_stable),
            Cell(offsets.high_watermark),
            Cell(offsets.waiting),
            *_holder(one),
        )

    names = [name for name, _ in waiting[held.start : held.end]]
    return Table(
        "held", "Partitions that hold back consumers of committed records", HELD_COLUMNS,
        rows_of(asked, names, row),
        "consumers of committed records can read everything", held.total, held.next_path,
    )  # fmt: skip


def _holder(one: Held | None) -> Sequence[Cell]:
    if one is None:
        text = f"not asked: the first {HELD_ASKED_MAX} are"
        return Cell(None), Cell(None), Cell(text, tone=Tone.QUIET)
    name = None if one.transaction is None else one.transaction.transaction.transactional_id
    return (
        Cell(name, "" if name is None else to("transactions", id=name)),
        Cell(None if one.producer is None else one.producer.producer_id),
        Cell(one.verdict, tone=Tone.BAD if one.is_trouble else Tone.PLAIN),
    )


# --- one of them ----------------------------------------------------------------------------------


def _one(asked: Asked, transactional_id: str) -> Iterator[Section]:
    if len(transactional_id) > _ID_CHARS_MAX:
        raise Refused("the transactional id is too long")
    try:
        described = Transactions(asked.client).describe([transactional_id])[transactional_id]
    except (KafkaError, UserError) as error:
        yield refusal("the transactional id", error)
        return
    found = described.transaction
    if found.error is not ErrorCode.NONE:
        yield refusal("the transactional id", KafkaError(found.error))
        return
    row = _row(described, asked.now_ms)
    yield Facts(
        "transaction",
        "Transaction",
        [
            Fact(column.name, column.title, cell._replace(path=""), column.unit)
            for column, cell in zip(OPEN_COLUMNS, row, strict=True)
        ],
    )
    columns = (Column("topic", "Topic"), Column("partition", "Partition"))
    held = piece(asked, "partitions", len(found.partitions), "transactions", id=transactional_id)
    rows = rows_of(
        asked,
        in_order(asked, found.partitions, held, lambda each: each),
        lambda each: (Cell(each.topic, to("topics", each.topic)), Cell(each.partition)),
    )
    yield Table(
        "partitions", "Its partitions", columns, rows, total=held.total, next_path=held.next_path
    )


def _producers(asked: Asked, topic: str) -> Iterator[Section]:
    """Of a partition, as its leader remembers them; with an open transaction first."""
    where = TopicPartition(topic, asked.number("partition", 0, 0, 2**31 - 1))
    title = f"Producers of {where.topic}/{where.partition}"
    try:
        found = Transactions(asked.client).producers_now([where]).get(where)
    except (KafkaError, UserError) as error:
        yield refusal(title, error)
        return
    if found is None:
        yield Notice(Tone.WARN, f"{title}: no leader answers for the partition")
        return
    if found.error is not ErrorCode.NONE:
        yield refusal(title, KafkaError(found.error, found.message or ""))
        return
    columns = (
        Column("producer_id", "Producer id"),
        Column("producer_epoch", "Epoch"),
        Column("open_from", "Open transaction from offset"),
        Column("last_sequence", "Last sequence number"),
        Column("last_batch_ms", "Last batch", Unit.MOMENT_MS),
    )
    producers = found.producers
    held = piece(
        asked, "producers", len(producers), "transactions", topic=topic, partition=where.partition
    )
    open_first = in_order(
        asked, producers, held, lambda each: (each.start_offset < 0, each.producer_id)
    )
    rows = rows_of(
        asked,
        open_first,
        lambda each: (
            Cell(each.producer_id),
            Cell(each.epoch),
            Cell(each.start_offset if each.start_offset >= 0 else None),
            Cell(each.last_sequence),
            Cell(each.last_timestamp_ms if each.last_timestamp_ms >= 0 else None),
        ),
    )
    yield Table("producers", title, columns, rows, total=held.total, next_path=held.next_path)
