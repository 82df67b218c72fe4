"""Results to the topic `kbroker.perf.results`: queued while measuring, published afterwards.

    with Results(bootstrap, "e2e", say) as results:
        block = bench.run(cell)          # measured
        results.block(block, cell)       # queued: no socket is touched
                                         # published on leaving, or by .publish() between blocks

Nothing is sent beside a measurement. A publication is idempotent with acks=all, and every record
has (run_id, sequence), so what is sent twice is known to be one. If it cannot be published, one
line says why and the records go to a file, which `kbroker perf publish FILE` sends later: figures
that took a quarter of an hour are not lost with a broker.

Without a target everything here does nothing, so callers need no `if`.

Threads: records belong to the caller's thread; sending is done by a thread made at the beginning
(perf/publishing.py). Bounds: RECORDS_MAX queued (more are counted and said, not kept),
PUBLISH_WAIT_S for a publication.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kbroker.metrics import json_record
from perf import results_table
from perf.machine import machine_line, version_line
from perf.publishing import COLUMNS, ResultsError, Sender
from perf.results_target import Target

if TYPE_CHECKING:
    from perf.cells import Block, Cell
    from perf.histogram import Histogram

RECORDS_MAX = 20_000
FILE_BYTES_MAX = 512 << 20

Say = Callable[[str], None]


class Results:
    """One run's records. Use as a context manager; leaving it publishes what is queued."""

    def __init__(
        self,
        target: Target | str | None,
        study: str,
        say: Say,
        *,
        directory: Path | None = None,
        records_max: int = RECORDS_MAX,
    ) -> None:
        self.run_id = str(uuid.uuid4())
        self.failed = ""  # the file that holds what could not be published
        if isinstance(target, str):
            target = Target(target) if target else None
        self._target = target
        self._say = say
        self._directory = directory if directory is not None else Path.cwd()
        self._records_max = records_max
        self._waiting: list[dict[str, Any]] = []
        self._sequence = self._dropped = 0
        self._sender: Sender | None = None
        self._common: dict[str, Any] = {}
        if self._target is not None:
            self._sender = Sender(self._target)
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
        """A study's conclusion, with its evidence."""
        said = {
            "question": question,
            "answer": answer,
            "decided": decided,
            "evidence": json.dumps(json_record.strict(evidence), default=str, allow_nan=False),
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
        if self._target is None or self._sender is None or not self._waiting:
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
            f"{results_table.TOPIC} at {self._target.bootstrap}"
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
            f"kbroker perf publish {path} {self._target.options() if self._target else ''}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What was measured before an error counts as well."""
        try:
            self.publish()
        finally:
            if self._sender is not None:
                self._sender.close()


# --- fields of blocks and cells ---------------------------------------------------------------


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
    if cell.replicas > 1:
        found["replicas"] = cell.replicas
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
        "compiler_cpu_s": block.compiler_cpu_s,
        "collector_cpu_s": block.collector_cpu_s,
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


# --- the file of records that could not be sent -------------------------------------------------


def write_file(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    sent = [json.loads(json_record.encode(COLUMNS, record)) for record in records]
    data = {"topic": results_table.TOPIC, "records": sent}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
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
