"""`kbroker explain TOPIC/PARTITION/OFFSET`: one record, where it lies, and who may read it.

The leader is asked where its log begins and ends, and for the batch. Where its data directory is on
this machine the segment and the position in it are printed too. Exits with 0 if every consumer may
read the record, else with 1 and the reason. With `--isolation read_committed` a whole partition is
explained: see `explain_committed.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.output import output_option, say, write_json
from kbroker.errors import ErrorCode, KafkaError, UsageError, UserError
from kbroker.findings.moments import shown_moment
from kbroker.peer.partitions import Chosen, existing

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.protocol.record_batch import RecordBatch
    from kbroker.types import TopicPartition

TO_ALL: Final = "to every consumer"
_FETCH_WAIT_MS: Final = 100
_FETCH_TRIES: Final = 5
_DIGITS_MAX: Final = 19  # of an int64


class Bounds(NamedTuple):
    """Of the leader's log. Consumers that want committed records alone read up to the last stable
    offset, all others up to the high watermark."""

    start: int
    last_stable: int
    high_watermark: int


class Fetched(NamedTuple):
    """The first batch at or after the offset; None and why there is none."""

    batch: RecordBatch | None
    trouble: str = ""
    aborted: bool = False


@click.command("explain")
@click.argument("record", metavar="TOPIC/PARTITION[/OFFSET]")
@click.option(
    "--isolation", type=click.Choice(["read_committed"]), default=None,
    help="Of a partition: which transaction such consumers wait for.",
)  # fmt: skip
@bootstrap_option
@output_option
def command(record: str, isolation: str | None, bootstrap: str, output: str) -> int:
    """Show where a record lies and what it is part of, who may read it, and why others may not."""
    if isolation is not None:
        return _explain_partition(record, bootstrap, output)
    topic, partition, offset = parse_record(record)
    with connect(bootstrap) as client:
        (where,) = existing(client, [Chosen(topic, (partition,))])
        facts = _explain(client, where, offset)
    if output == "json":
        write_json(facts)
    else:
        _print(facts)
    return 0 if facts["visible"] == TO_ALL else 1


def _explain_partition(text: str, bootstrap: str, output: str) -> int:
    from kbroker.cli.explain_committed import ALL_READABLE, explain

    topic, *numbers = text.split("/")
    if not topic or len(numbers) != 1 or not _is_number(numbers[0]):
        raise UsageError(f"'{text}' names no partition", "write TOPIC/PARTITION, as words/0")
    with connect(bootstrap) as client:
        facts = explain(client, topic, int(numbers[0]))
    if output == "json":
        write_json(facts)
    else:
        from kbroker.cli.txn import UNKNOWN_CLIENT

        unknown = {"client": UNKNOWN_CLIENT} if facts.get("client", "") is None else {}
        _print(facts | unknown, "partition")
    return 0 if facts["verdict"] == ALL_READABLE else 1


def parse_record(text: str) -> tuple[str, int, int]:
    topic, *numbers = text.split("/")
    if not topic or len(numbers) != 2 or not all(map(_is_number, numbers)):
        raise UsageError(f"'{text}' names no record", "write TOPIC/PARTITION/OFFSET, as words/0/42")
    return topic, int(numbers[0]), int(numbers[1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


# --- What is asked --------------------------------------------------------------------------------


def _explain(client: Client, where: TopicPartition, offset: int) -> dict[str, Any]:
    cluster_id, leader = _leader(client, where)
    facts: dict[str, Any] = {
        "record": f"{where.topic}/{where.partition}/{offset}",
        "leader": leader,
    }
    if leader["broker"] < 0:
        return {**facts, "visible": "to no consumer now: the partition has no leader"}
    bounds = _bounds(client, where)
    inside = bounds.start <= offset < bounds.high_watermark
    fetched = _fetch(client, where, offset, bounds) if inside else Fetched(None)
    facts["log"] = bounds._asdict()
    directory = _directory(client, where, leader["broker"], cluster_id)
    if directory is not None:
        facts["segment"] = _segment(directory, offset)
    batch = fetched.batch
    if batch is not None and batch.base_offset <= offset:
        facts |= _batch(batch, offset)
    facts["visible"] = _visible(offset, bounds, fetched, _is_compacted(client, where.topic))
    return facts


def _leader(client: Client, where: TopicPartition) -> tuple[str | None, dict[str, Any]]:
    found = client.metadata([where.topic])
    topic = found.topics.get(where.topic)
    partitions = () if topic is None else topic.partitions
    for here in partitions:
        if here.index == where.partition:
            return found.cluster_id, {
                "broker": here.leader,
                "epoch": here.leader_epoch,
                "replicas": list(here.replicas),
                "in_sync": list(here.isr),
            }
    raise refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(where), None)


def _bounds(client: Client, where: TopicPartition) -> Bounds:
    """Asked one after the other, while others write: what may only rise is asked first."""
    from kbroker.peer.isolation import READ_COMMITTED, READ_UNCOMMITTED
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    def ask(timestamp_ms: int, isolation: int) -> int:
        answer = client.list_offsets({where: timestamp_ms}, isolation=isolation)[where]
        if answer.error is not ErrorCode.NONE:
            raise refuse(answer.error, str(where), None)
        return answer.offset

    high_watermark = ask(LATEST_TIMESTAMP, READ_UNCOMMITTED)
    last_stable = min(high_watermark, ask(LATEST_TIMESTAMP, READ_COMMITTED))
    return Bounds(ask(EARLIEST_TIMESTAMP, READ_UNCOMMITTED), last_stable, high_watermark)


def _fetch(client: Client, where: TopicPartition, offset: int, bounds: Bounds) -> Fetched:
    from kbroker.peer.isolation import READ_COMMITTED, READ_UNCOMMITTED, Aborted
    from kbroker.protocol.record_batch import decode_batches
    from kbroker.protocol.wire import ProtocolError

    isolation = READ_COMMITTED if offset < bounds.last_stable else READ_UNCOMMITTED
    answer = None
    for _ in range(_FETCH_TRIES):
        answer = client.fetch(
            {where: offset}, max_wait_ms=_FETCH_WAIT_MS, partition_max_bytes=1, isolation=isolation
        ).get(where)
        if answer is not None:
            break
    if answer is None:
        return Fetched(
            None, "its leader does not answer, or cannot read it: an election, a disk, or damage"
        )
    if answer.error is not ErrorCode.NONE:
        return Fetched(None, f"its leader says {answer.error.name}")
    aborted = Aborted(answer.aborted)
    try:
        for batch in decode_batches(answer.records):
            lost = aborted.holds(batch)
            if batch.last_offset >= offset:
                return Fetched(batch, aborted=lost)
    except ProtocolError as error:
        return Fetched(None, f"its batch is damaged, for consumers that check it: {error}")
    return Fetched(None, "no batch is there")


def _is_compacted(client: Client, topic: str) -> bool:
    found = {each.name: each.value or "" for each in client.topic_configs(topic)}
    return "compact" in found.get("cleanup.policy", "")


def _directory(
    client: Client, where: TopicPartition, leader: int, cluster_id: str | None
) -> Path | None:
    """The log's directory, where the leader's disks are this machine's."""
    from kbroker.metadata import meta_properties

    try:
        for directory in client.log_directories(of_all=False).get(leader, []):
            if any(log.partition == where and not log.future for log in directory.logs):
                here = meta_properties.load(Path(directory.path))
                is_its = here is not None and (here.cluster_id, here.node_id) == (
                    cluster_id, leader
                )  # fmt: skip
                return Path(directory.path) / str(where) if is_its else None
    except (OSError, KafkaError, UserError):
        pass  # what is here is not for us to read, or no broker says where it is
    return None


def _segment(directory: Path, offset: int) -> dict[str, Any]:
    """Read as it lies there: beside a broker that goes on writing."""
    from kbroker.log.looking.dump import SegmentFile, base_offset_of

    try:
        files = [path for path in directory.glob("*.log") if base_offset_of(path) <= offset]
        if not files:
            return {"file": None, "position": None}
        path = max(files, key=base_offset_of)
        with SegmentFile(path) as segment:
            return {"file": str(path), "position": segment.position_of(offset)}
    except (OSError, ValueError) as error:
        return {"file": None, "position": None, "trouble": str(error)}


# --- What is said ---------------------------------------------------------------------------------


def _batch(batch: RecordBatch, offset: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "batch": {
            "first": batch.base_offset,
            "last": batch.last_offset,
            "records": len(batch.records),
            "codec": batch.codec.name.lower(),
            "epoch": batch.leader_epoch,
            "time": shown_moment(batch.max_timestamp_ms),
            "time_of": "append" if batch.log_append_time else "creation",
        }
    }
    if batch.producer_id >= 0:
        facts["producer"] = {
            "id": batch.producer_id,
            "epoch": batch.producer_epoch,
            "sequence": batch.base_sequence,
            "transactional": batch.transactional,
        }
    for record in batch.records:
        if record.offset == offset and not batch.control:
            facts["content"] = {
                "time": shown_moment(record.timestamp_ms),
                "key_bytes": None if record.key is None else len(record.key),
                "value_bytes": None if record.value is None else len(record.value),
                "headers": len(record.headers),
            }
    return facts


def _visible(offset: int, bounds: Bounds, fetched: Fetched, is_compacted: bool) -> str:
    """To which consumers, or why not; the first reason that holds."""
    batch = fetched.batch
    if offset < bounds.start:
        return f"to no consumer: records below {bounds.start} were deleted"
    if offset >= bounds.high_watermark:
        return (
            f"to no consumer yet: the high watermark is {bounds.high_watermark};"
            " it is not written, or not by every replica in sync"
        )
    if batch is None:
        return f"to no consumer: {fetched.trouble}"
    if all(record.offset != offset for record in batch.records):
        why = "it was compacted" if is_compacted else "no batch has it; see dump-log --verify"
        return f"to no consumer: {why}; {_next_record(batch, offset)}"
    if batch.control:
        return "to no application: it is the marker of a transaction's end"
    if offset >= bounds.last_stable:
        return (
            "to consumers that read uncommitted records too: a transaction that began at"
            f" {bounds.last_stable} is open"
        )
    if fetched.aborted:
        return "to consumers that read uncommitted records too: its transaction was aborted"
    return TO_ALL


def _next_record(batch: RecordBatch, offset: int) -> str:
    later = [record.offset for record in batch.records if record.offset > offset]
    return f"the next record is at {later[0]}" if later else "the next record is after its batch"


def _print(facts: dict[str, Any], subject: str = "record") -> None:
    say(facts[subject])
    width = max(10, *(len(name) + 2 for name in facts))
    for name, value in facts.items():
        title = f"{name.replace('_', ' '):{width}}"
        if isinstance(value, dict):
            words = (f"{each.replace('_', ' ')} {_word(what)}" for each, what in value.items())
            say(f"  {title}{', '.join(words)}")
        elif name != subject:
            say(f"  {title}{value}")


def _word(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
