"""`python -m perf.walk`: which units run for one warm request of each kind. docs/walk.md says more.

    python -m perf.walk [--requests produce,fetch] [--json FILE] [--write]

--write keeps the walks in perf/walk/walks.json and renews the generated part of docs/walk.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from kbroker.generated_part import replaced
from lab.jars import ZOOKEEPER
from perf import network
from perf.brokers.base import BrokerError
from perf.brokers.kbroker import ROOT
from perf.machine import describe_machine
from perf.walk import report, tree
from perf.walk.kinds import ALONE, AT_FOLLOWER, KEYS, REPLICATED, Bench
from perf.walk.trace import TraceError

KEPT: Final = Path(__file__).with_name("walks.json")
PAGE: Final = ROOT / "docs" / "walk.md"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.walk", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--requests", default=",".join(KEYS), help="some of them, with commas")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also as JSON")
    parser.add_argument("--write", action="store_true", help="keep them, and renew docs/walk.md")
    asked = parser.parse_args(words)
    keys = asked.requests.split(",")
    if unknown := set(keys) - set(KEYS):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(KEYS)}")
    several = bool({REPLICATED.key, AT_FOLLOWER[0]} & set(keys))
    try:
        if several:
            ZOOKEEPER.fetch()  # from the network, which is out of reach afterwards
        _say(f"building {tree.COPY.relative_to(ROOT)}")
        copy = tree.build()
        network.enter()
        with tempfile.TemporaryDirectory(prefix="kbroker-walk-") as folder:
            root = Path(folder)
            with Bench(root, copy, tree.tracer(root), _say) as bench:
                walks = bench.alone([kind for kind in ALONE if kind.key in keys])
                walks += bench.replicated() if several else []
    except (BrokerError, TraceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    data = report.to_json(walks, describe_machine())
    print(report.to_text(data))
    if asked.json:
        asked.json.write_text(report.written(data), encoding="utf-8")
    if asked.write:
        KEPT.write_text(report.written(report.kept(data)), encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replaced(page, report.BEGIN, report.to_page(data)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
