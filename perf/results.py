"""Results to the topic `kbroker.perf.results`: queued while measuring, published afterwards.

    with Results(bootstrap, "e2e", say) as results:
        block = bench.run(cell)          # measured
        results.block(block, cell)       # queued: no socket is touched
                                         # published on leaving, or by .publish() between blocks

Nothing is sent beside a measurement. A publication is idempotent with acks=all, and every record
has (run_id, sequence), so what is sent twice is known to be one. If it cannot be published, one
line says why and the records go to a file, which `kbroker perf publish FILE` sends later: figures
that took a quarter of an hour are not lost with a broker.

Without a bootstrap address everything here does nothing, so callers need no `if`.

Threads: records belong to the caller's thread. Sending is done by a thread made at the beginning,
because a comparison moves its own thread into a network without anybody else (perf/network.py),
from where the results' broker cannot be reached. Bounds: RECORDS_MAX queued (more are counted and
said, not kept), PUBLISH_WAIT_S for a publication.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.metrics import json_record
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from perf import results_table
from perf.machine import machine_line, version_line

if TYPE_CHECKING:
    from perf.cells import Block, Cell
    from perf.histogram import Histogram

RECORDS_MAX = 20_000
PUBLISH_WAIT_S = 30
FILE_BYTES_MAX = 512 << 20
MS_PER_HOUR = 3_600_000

Say = Callable[[str], None]
COLUMNS = results_table.columns()


class ResultsError(Exception):
    """Results that cannot be read or sent; one line."""


class Sent(NamedTuple):
    records: int
    note: str = ""  # something to know about the topic


class Results:
    """One run's records. Use as a context manager; leaving it publishes what is queued."""

    def __init__(
        self,
        bootstrap: str | None,
        study: str,
        say: Say,
        *,
        directory: Path | None = None,
        records_max: int = RECORDS_MAX,
    ) -> None:
        self.run_id = str(uuid.uuid4())
        self.failed = ""  # the file that holds what could not be published
        self._bootstrap, self._study, self._say = bootstrap, study, say
        self._directory = directory if directory is not None else Path.cwd()
        self._records_max = records_max
        self._waiting: list[dict[str, Any]] = []
        self._sequence = self._dropped = 0
        self._sender = _Sender(bootstrap) if bootstrap else None
        self._common: dict[str, Any] = {}
        if bootstrap:
            self._common = {
                "schema_version": results_table.SCHEMA_VERSION,
                "run_id": self.run_id,
                "kbroker_version": version_line(),
                "machine": machine_line(),
                "study": study,
            }

    def block(
        self,
        block: Block | None = None,
        of: Cell | None = None,
        /,
        *,
        latency: Histogram | None = None,
        measure: str = "request",
        **fields: Any,
    ) -> None:
        """A measured block: of perf.cells with its cell, or by its fields with a histogram in ns.

        `fields` are columns of perf.results_table; they win over what block and cell say.
        """
        if self._sender is None:
            return
        found: dict[str, Any] = {}
        if of is not None:
            found.update(of_cell(of))
        if block is not None:
            found.update(of_block(block))
        if latency is not None:
            found.update(of_histogram(latency), measure=measure)
        self._add("block", {**found, **fields})

    def verdict(
        self,
        question: str,
        answer: str,
        *,
        decided: bool,
        evidence: Mapping[str, Any],
        **fields: Any,
    ) -> None:
        """What a study concludes, with what it follows from."""
        said = {
            "question": question,
            "answer": answer,
            "decided": decided,
            "evidence": json.dumps(evidence, default=str),
        }
        self._add("verdict", {**said, **fields})

    def figure(self, name: str, value: float, unit: str, **fields: Any) -> None:
        """A single number; `fields` say of which broker, cell, round."""
        self._add("figure", {"name": name, "value": float(value), "unit": unit, **fields})

    def _add(self, kind: str, fields: Mapping[str, Any]) -> None:
        if self._sender is None:
            return
        if len(self._waiting) >= self._records_max:
            self._dropped += 1
            return
        record = {
            **self._common,
            "sequence": self._sequence,
            "event_time_ms": time.time_ns() // 1_000_000,
            "kind": kind,
            **{name: value for name, value in fields.items() if value is not None},
        }
        json_record.encode(COLUMNS, record)  # ValueError here, where the field is named
        self._sequence += 1
        self._waiting.append(record)

    def publish(self) -> bool:
        """Send what is queued; not beside a measurement. False: it is in the file `failed`."""
        if self._dropped:
            self._say(f"results: {self._dropped} records over {self._records_max} were not kept")
            self._dropped = 0
        if self._sender is None or not self._waiting:
            return True
        try:
            sent = self._sender.send(self._waiting)
        except ResultsError as error:
            self._keep(str(error))
            return False
        except BaseException:
            self._keep("interrupted")
            raise
        self._waiting.clear()
        if sent.note:
            self._say(f"results: {sent.note}")
        self._say(
            f"results: {sent.records} records of run {self.run_id} published to "
            f"{results_table.TOPIC} at {self._bootstrap}"
        )
        return True

    def _keep(self, why: str) -> None:
        """To a file; what is there already from this run stays in it."""
        path = self._directory / f"kbroker-results-{self.run_id}.json"
        kept = read_file(path) if path.exists() else []
        try:
            write_file(path, [*kept, *self._waiting])
        except OSError as error:
            self._say(f"results: not published ({why}), and not kept in {path}: {error.strerror}")
            return
        self._waiting.clear()
        self.failed = str(path)
        self._say(
            f"results: not published ({why}); kept: "
            f"kbroker perf publish {path} --results-bootstrap {self._bootstrap}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What was measured before an error counts as well."""
        try:
            self.publish()
        finally:
            if self._sender is not None:
                self._sender.close()


# --- fields of what the harness measures ------------------------------------------------------


def of_cell(cell: Cell) -> dict[str, Any]:
    """A cell's dimensions; what its kind of work has not is left out."""
    from perf.cells import JAVA_PARTITIONS

    java = cell.path == "java"
    sends = cell.kind in ("produce", "e2e")
    found: dict[str, Any] = {
        "cell": cell.key,
        "work": cell.kind,
        "connections": cell.connections,
        "in_flight": cell.in_flight,
        "path": cell.path,
        "rate": cell.rate,
    }
    if cell.kind in ("produce", "fetch", "e2e"):
        found["size_bytes"] = cell.size
        found["partitions"] = JAVA_PARTITIONS if java else cell.connections
    if sends:
        found["acks"] = -1 if java else cell.acks
        found["codec"] = cell.codec
        found["batch_bytes"] = cell.batch_bytes
    return found


def of_block(block: Block) -> dict[str, Any]:
    """A block's figures and its durations."""
    found = {
        "cell": block.cell,
        "broker": block.broker,
        "requests": block.requests,
        "records": block.records,
        "bytes": block.bytes,
        "wall_s": block.wall_s,
        "broker_cpu_s": block.broker_cpu_s,
        "own_cpu_s": block.own_cpu_s,
        "others_cpu": block.guard.others,
        "steal": block.guard.steal,
        "quiet": block.guard.quiet,
        "measure": "end-to-end" if block.end_to_end.total else "request",
        **of_histogram(block.measured),
    }
    if block.ended_ms:
        found["event_time_ms"] = block.ended_ms
    return found


def of_histogram(latency: Histogram) -> dict[str, Any]:
    """Durations in ns as the table has them."""
    return {
        "buckets": latency.to_buckets(),
        "min_ns": int(latency.min),
        "max_ns": int(latency.max),
        "sum_ns": int(latency.sum),
    }


# --- sending ------------------------------------------------------------------------------------


class _Sender:
    """A thread in the network of whoever made it; sends one publication after the other."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._asked: queue.Queue[list[dict[str, Any]] | None] = queue.Queue(1)
        self._answers: queue.Queue[Sent | ResultsError] = queue.Queue(1)
        self._sending = False
        self._thread = threading.Thread(target=self._run, name="perf-results", daemon=True)
        self._thread.start()

    def send(self, records: Sequence[Mapping[str, Any]]) -> Sent:
        self._sending = True
        self._asked.put([dict(record) for record in records])
        answer = self._answers.get()
        self._sending = False
        if isinstance(answer, ResultsError):
            raise answer
        return answer

    def close(self) -> None:
        """The thread ends; one whose caller was interrupted ends with its own time-outs."""
        if not self._sending:
            self._asked.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (records := self._asked.get()) is not None:
            try:
                self._answers.put(send(self._bootstrap, records))
            except ResultsError as error:
                self._answers.put(error)
            except Exception as error:  # the caller waits for an answer
                self._answers.put(ResultsError(f"{type(error).__name__}: {error}"))


def send(bootstrap: str, records: Sequence[Mapping[str, Any]]) -> Sent:
    """Publish records of results, now, on this thread. ResultsError says why not."""
    encoded = [
        Record(
            key=str(record["run_id"]).encode(),
            value=json_record.encode(COLUMNS, record),
            timestamp_ms=record["event_time_ms"],
        )
        for record in records
    ]
    try:
        with Client(
            bootstrap, client_id="kbroker-perf-results", timeout_ms=PUBLISH_WAIT_S * 1000
        ) as client:
            note = _prepare_topic(client)
            return Sent(Producer(client, results_table.TOPIC, acks=-1).send(encoded), note)
    except (KafkaError, UserError) as error:
        raise ResultsError(error.message) from error


def _prepare_topic(client: Client) -> str:
    """The topic with its retention; says if one that is there keeps its records too briefly."""
    topic = NewTopic(results_table.TOPIC, 1, -1, results_table.TOPIC_CONFIGS)
    (result,) = client.create_topics([topic])
    if result.error is ErrorCode.NONE:
        client.partitions(results_table.TOPIC)
        return ""
    if result.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise KafkaError(result.error, f"{results_table.TOPIC}: {result.message or result.error}")
    kept = {one.name: one.value for one in client.topic_configs(results_table.TOPIC)}
    try:
        kept_ms = int(kept.get("retention.ms") or -1)
    except ValueError:
        return ""
    if 0 <= kept_ms < results_table.RETENTION_MS_MIN:
        return (
            f"{results_table.TOPIC} keeps records for {kept_ms / MS_PER_HOUR:g} h only: a report "
            "made later misses them; set retention.ms to 48 hours or more"
        )
    return ""


# --- the file of what could not be sent ---------------------------------------------------------


def write_file(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    data = {"topic": results_table.TOPIC, "records": list(records)}
    text = json.dumps(data, separators=(",", ":"), allow_nan=True)
    try:
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def read_file(path: Path) -> list[dict[str, Any]]:
    """Records as `write_file` left them, each checked. ResultsError names what is wrong."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ResultsError(f"{path} has more than {FILE_BYTES_MAX >> 20} MB")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ResultsError(f"{path} is not JSON") from None
    records = data.get("records") if isinstance(data, dict) else None
    if not isinstance(records, list) or not records:
        raise ResultsError(f"{path} holds no results: a file that `kbroker perf` kept is expected")
    for number, record in enumerate(records):
        if wrong := _wrong(record):
            raise ResultsError(f"{path}: record {number}: {wrong}")
    return records


def _wrong(record: Any) -> str:
    """What is wrong with a record from a file; "" if nothing is."""
    if not isinstance(record, dict):
        return "not an object"
    for name in ("run_id", "sequence", "event_time_ms", "schema_version"):
        if record.get(name) is None:
            return f"no {name}"
    if record["schema_version"] != results_table.SCHEMA_VERSION:
        return f"schema_version {record['schema_version']!r}, not {results_table.SCHEMA_VERSION}"
    try:
        json_record.encode(COLUMNS, record)
    except ValueError as error:
        return str(error)
    return ""
