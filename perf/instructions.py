"""`python -m perf.instructions`: instructions of a broker's process for one warm request.

    python -m perf.instructions [--baseline DIRECTORY] [--requests produce,fetch] [--json FILE]
    python -m perf.instructions --guarded    # an authorizer and quotas on, beside neither

A count does not depend on the machine's speed, nor on other processes: where a bar is below 3 %
of the CPU of a request, this holds it. Both builds serve the same requests under callgrind, one
after the other, each ROUNDS times COUNT requests after WARM; the least round counts, since timers
add to the others. Spinning, and which thread serves, still differ from run to run.

valgrind has to be installed. A start takes half a minute there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from perf import old_reads
from perf.before_after.handlers import APIS
from perf.brokers.base import Broker, BrokerError
from perf.brokers.kbroker import KbrokerBroker
from perf.client import Client
from perf.machine import describe_machine
from perf.requests import Topic
from perf.tables import aligned
from perf.walk.kinds import ALONE, Kind, Line, produces
from perf.wire import frame, request_header


def _frames(key: str, client: Client, topic: Topic) -> Iterator[bytes]:
    for asked in APIS[key](client, topic):
        yield frame(request_header(asked.key, asked.version), asked.body)


WARM, COUNT, ROUNDS = 300, 400, 9
START_WAIT_S: Final = 300.0
# CreateTopics has a kind of its own: here it may make any number of topics.
HANDLERS: Final = {
    "join-group": "JoinGroup of a group's only member",
    "offset-fetch": "OffsetFetch of a partition",
    "describe-configs": "DescribeConfigs of a topic",
    "list-offsets": "ListOffsets of a partition",
}
CONTROL_WAIT_S: Final = 60.0
# A request that waits counts what the timers do; those that make something new grow as they go.
KINDS: Final = (
    {kind.key: kind for kind in ALONE if kind.key != "fetch-waits"}
    | {key: Kind(key, title, partial(_frames, key)) for key, title in HANDLERS.items()}
    | old_reads.KINDS
)
HOT: Final = ("produce", "fetch", *old_reads.KINDS, "commit", "heartbeat", "txn-produce")
# No ACL denies anything, so the same requests succeed, and each right and rate is looked up.
GUARDS: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
# More than the requests need, so that each is charged and none is throttled.
RATES: Final = ("producer_byte_rate=1e12", "consumer_byte_rate=1e12", "request_percentage=1e6")
_TOTAL: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


class CountedBroker(KbrokerBroker):
    """A kbroker under callgrind, which counts nothing until it is asked to."""

    start_wait_s = START_WAIT_S

    def command(self) -> list[str]:
        out = f"--callgrind-out-file={self._counts}"
        return ["valgrind", "--tool=callgrind", "--instr-atstart=no", out, *super().command()]

    @property
    def _counts(self) -> Path:
        return self.directory / "counts"

    def count(self, line: Line, frames: Sequence[bytes]) -> float:
        """Instructions for each of these requests."""
        self._control("--instr=on")
        for each in frames[:5]:  # callgrind translates code once; that is no part of a request
            line.ask(each)
        self._control("--zero")
        for each in frames:
            line.ask(each)
        self._control("--dump")
        self._control("--instr=off")
        dumps = sorted(self.directory.glob("counts.*"), key=lambda path: path.stat().st_mtime_ns)
        text = dumps[-1].read_text(errors="replace")
        for path in dumps:
            path.unlink()
        total = _TOTAL.findall(text)
        if not total:
            raise BrokerError("callgrind has written no total")
        return int(total[-1]) / len(frames)

    def _control(self, what: str) -> None:
        done = subprocess.run(
            ["callgrind_control", what, str(self.pid)], capture_output=True, text=True,
            timeout=CONTROL_WAIT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise BrokerError(f"callgrind_control {what}: {(done.stdout + done.stderr).strip()}")


def counted(
    root: Path, checkout: Path | None, keys: Sequence[str], is_guarded: bool = False
) -> dict[str, float]:
    """The least round of each kind."""
    broker = CountedBroker(root, checkout=checkout, overrides=GUARDS if is_guarded else ())
    with broker, broker.client() as client:
        if is_guarded:
            _set_quotas(broker)
        return {key: _least(broker, client, KINDS[key]) for key in keys}


def _set_quotas(broker: Broker) -> None:
    command = [sys.executable, "-m", "kbroker", "quota", "set", "--bootstrap-server",
               broker.address, "--user-default", "--client-id-default", *RATES]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CONTROL_WAIT_S, check=False
    )
    if done.returncode != 0:
        raise BrokerError(f"quotas are not set: {(done.stdout + done.stderr).strip()}")


def _least(broker: CountedBroker, client: Client, kind: Kind) -> float:
    topic = client.create_topic(f"count-{kind.key}", 1)
    line = Line(broker)
    try:
        line.ask(next(produces(1)(client, topic)))
        frames = kind.frames(client, topic)
        for _ in range(WARM):
            line.ask(next(frames))
        rounds = [broker.count(line, [next(frames) for _ in range(COUNT)]) for _ in range(ROUNDS)]
    finally:
        line.close()
    print(f"{broker.name} {kind.key}: {', '.join(f'{one:,.0f}' for one in rounds)}",
          file=sys.stderr, flush=True)  # fmt: skip
    return min(rounds)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.instructions", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument("--baseline", type=Path, metavar="DIRECTORY", help="another build, beside")
    beside.add_argument(
        "--guarded", action="store_true", help="with an authorizer and quotas, beside neither"
    )
    parser.add_argument("--requests", default=",".join(HOT), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also as JSON")
    asked = parser.parse_args(words)
    keys = asked.requests.split(",")
    if unknown := set(keys) - set(KINDS):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(KINDS)}")
    if shutil.which("callgrind_control") is None:
        print("error: valgrind is missing -> apt-get install valgrind", file=sys.stderr)
        return 1
    began_s = time.monotonic()
    builds = [("kbroker", None, asked.guarded)]
    if asked.guarded:
        builds.append(("baseline", None, False))
    elif asked.baseline:
        builds.append(("baseline", asked.baseline, False))
    with tempfile.TemporaryDirectory(prefix="kbroker-counts-") as folder:
        try:
            found = {
                name: counted(Path(folder) / name, checkout, keys, is_guarded)
                for name, checkout, is_guarded in builds
            }
        except (BrokerError, OSError, subprocess.SubprocessError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    data = {"machine": describe_machine(), "took_s": time.monotonic() - began_s, "found": found}
    print(to_text(found))
    if asked.json:
        asked.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


def to_text(found: Mapping[str, Mapping[str, float]]) -> str:
    own, before = found["kbroker"], found.get("baseline")
    rows: list[list[str]] = []
    for key, count in own.items():
        row = [KINDS[key].title, f"{count:,.0f}"]
        if before is not None:
            row += [f"{before[key]:,.0f}", f"{count / before[key]:.3f}"]
        rows.append(row)
    head = ["request", "instructions", *(["baseline", "ratio"] if before is not None else [])]
    return "\n".join(aligned(head, rows))


if __name__ == "__main__":
    sys.exit(main())
