"""Transactions as Apache Kafka 4.3.0 writes them to its files: the vectors of our formats.

    python -m tests.support.kafka_transactions      have Apache Kafka write them anew

A partition with transactions of all outcomes, by clients of both kinds, and the records of
`__transaction_state` at each level of transaction.version. The files are read after a stop in
order. Nothing here needs Java but the command.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kbroker.types import ApiKey
from lab.jars import KAFKA_VERSION
from tests.support.source_tree import ROOT

FILE: Final = ROOT / "tests/vectors" / f"kafka_{KAFKA_VERSION.replace('.', '_')}_transactions.json"
LEVELS: Final = (0, 1, 2)
TOPIC: Final = "t"


@dataclass(frozen=True)
class Files:
    """Of the partition: its only segment, and the state of its producers at the stop."""

    log: bytes
    aborted_index: bytes
    snapshot: bytes


def partition_files() -> Files:
    found = json.loads(FILE.read_text())["partition"]
    return Files(*(bytes.fromhex(found[name]) for name in ("log", "aborted_index", "snapshot")))


def state_log(level: int) -> bytes:
    """The batches of `__transaction_state`, whose partitions are one after the other."""
    return bytes.fromhex(json.loads(FILE.read_text())["state"][str(level)])


def main() -> None:
    state = {}
    partition: dict[str, str] = {}
    for level in LEVELS:
        with tempfile.TemporaryDirectory() as place:
            state[str(level)], partition = _written(level, Path(place) / "data")
    document = {"kafka": KAFKA_VERSION, "partition": partition, "state": state}
    FILE.write_text(json.dumps(document, indent=1) + "\n")


def _written(level: int, data: Path) -> tuple[str, dict[str, str]]:
    """Of a broker at this level."""
    from tests.support.kafka import KafkaBroker

    class Leveled(KafkaBroker):
        def format_arguments(self) -> tuple[str, ...]:
            return ("--feature", f"transaction.version={level}")

    settings = {"transaction.state.log.num.partitions": 1}
    with Leveled(settings, data) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        _tell_the_story((host, int(port)), level)
        broker.stop()
    (log,) = data.glob(f"{TOPIC}-*-0/*.log")
    snapshot = max(log.parent.glob("*.snapshot"))
    (states,) = data.glob("__transaction_state-0/*.log")
    files = {"log": log, "aborted_index": log.with_suffix(".txnindex"), "snapshot": snapshot}
    return states.read_bytes().hex(), {n: each.read_bytes().hex() for n, each in files.items()}


def _tell_the_story(address: tuple[str, int], level: int) -> None:
    """Overlapping transactions: committed and aborted, by EndTxn 4 and 5, empty, and open."""
    from tests.parity.cases._transactions import END_AND_RAISE, Producer
    from tests.parity.data import batch, stored
    from tests.parity.requests import build
    from tests.parity.talk import Talk

    talk = Talk(address, "")
    find = build(ApiKey.FIND_COORDINATOR, 6, key_type=1, coordinator_keys=["a"])
    talk.until(lambda: talk.quietly(find).coordinators[0].error_code.value == 0)
    # The records are old, the markers are not: one segment all the same.
    name = talk.topic(TOPIC, partitions=2, configs={"segment.ms": str(2**63 - 1)})
    last = END_AND_RAISE if level == max(LEVELS) else END_AND_RAISE - 1
    one, two, three = (Producer(talk, each) for each in ("one", "two", "three"))
    one.begin(name, 0, 1)
    one.write(name, 0, b"a", b"b")
    two.begin(name)
    two.write(name)
    stored(talk, name, batch(b"plain"))
    one.write(name)
    one.commit()
    two.abort()
    two.begin(name)
    two.write(name)
    two.abort(last)
    one.begin(name)
    one.abort(last)
    one.begin(name)
    one.write(name)
    one.commit(last)
    one.renew()
    three.begin(name)
    three.write(name)
    three.write(name)
    talk.close()


if __name__ == "__main__":
    main()
