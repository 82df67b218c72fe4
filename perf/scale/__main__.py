"""`python -m perf.scale`: what one broker would do on many cores: docs/scale.md.

    python -m perf.scale                  # draws the page's tables from the figures that were kept
    python -m perf.scale --measure        # measures here first, and keeps that; 6 minutes, quiet
    python -m perf.scale --measure --rounds 1 --seconds 0.3 --kept FILE --page FILE

The costs of requests are measured on this machine, each kind of thread by itself; a simulation of
the request's path (path.py) says what more cores and threads would give, and is held against what
this machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from kbroker.generated_part import replaced
from perf.brokers import BrokerError
from perf.cells import CellError
from perf.client import ClientError
from perf.machine import describe_machine
from perf.scale import measured, tables
from perf.tables import json_rows

BEGIN: Final = "<!-- drawn by python -m perf.scale -->"
KEPT: Final = Path(__file__).with_name("figures.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "scale.md"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.scale", description=__doc__)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--cells", default=",".join(measured.CELLS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.6, help="of a block")
    parser.add_argument("--directory", type=Path, default=None, help="for data")
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    if options.measure:
        try:
            kept = _measured(options)
        except (BrokerError, CellError, ClientError, OSError) as error:
            print(f"perf.scale: {error}", file=sys.stderr)
            return 1
        options.kept.write_text(json_rows(kept))
    drawn = tables.drawn(json.loads(options.kept.read_text()))
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(replaced(page, BEGIN, drawn), encoding="utf-8")
    return 0


def _measured(options: argparse.Namespace) -> dict[str, object]:
    cells = tuple(options.cells.split(","))
    cpus = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="kbroker-scale-", dir=options.directory) as scratch:
        found, in_python_us = measured.measure(
            Path(scratch), cells, options.rounds, options.seconds, cpus,
            lambda said: print(said, file=sys.stderr, flush=True),
        )  # fmt: skip
    return {
        "machine": describe_machine(),
        "rounds": options.rounds,
        "block_s": options.seconds,
        "cells": measured.to_json(found),
        "in_python_us": in_python_us,
    }


if __name__ == "__main__":
    sys.exit(main())
