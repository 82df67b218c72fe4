"""Imports of Spark's jobs, of perf and of lab point one way: jobs, perf, lab, kbroker.

The jobs know tables, not the broker: they may import what `kbroker.metrics` says of samples,
`perf.results_table` of results, and perf's few statistics and verdicts, which is what the archive
for executors holds (spark_jobs/package.py). Only what does a connector's work where there is none
speaks to a broker itself, through `kbroker.peer`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from spark_jobs import package
from tests.support.source_tree import ROOT, Import, imports, relative, source_files

TABLES: Final = package.CONTENTS
# With a broker: the data source, the place where streams begin, the publisher of progress.
WIRE: Final = (
    *TABLES, "kbroker.compression", "kbroker.peer", "kbroker.protocol", "kbroker.types",
)  # fmt: skip
SPEAKERS: Final = frozenset(
    f"spark_jobs/{name}.py" for name in ("kbroker_source", "source", "progress")
)
# Only where the connector's jars are fetched, which no executor does.
FETCHER: Final = ("spark_jobs/connector.py", "lab.maven")
OURS: Final = ("kbroker", "lab", "perf", "spark_jobs", "tests")


def reached(wanted: Import) -> str:
    """`from perf import results_table` reaches perf.results_table."""
    return f"{wanted.module}.{wanted.name}" if wanted.module in OURS else wanted.module


def allowed(file: str, module: str) -> bool:
    """May this file of spark_jobs import this module?"""
    if module.split(".")[0] not in OURS:
        return True
    if (file, module) == FETCHER:
        return True
    may = WIRE if file in SPEAKERS else TABLES
    return any(module == name or module.startswith(f"{name}.") for name in may)


def arrows(folder: str) -> list[tuple[Path, Import]]:
    files = source_files(folder, suffixes=(".py",))
    return [(path, wanted) for path in files for wanted in imports(path)]


def test_jobs_know_tables_only() -> None:
    found = arrows("spark_jobs")
    assert len(found) > 10
    wrong = [
        f"{relative(path)}:{wanted.line}: {reached(wanted)}"
        for path, wanted in found
        if not allowed(relative(path), reached(wanted))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("folder", "above"),
    [("perf", ("spark_jobs", "tests")), ("lab", ("perf", "spark_jobs", "tests"))],
)
def test_an_arrow_does_not_point_up(folder: str, above: tuple[str, ...]) -> None:
    wrong = [
        f"{relative(path)}:{wanted.line}: {reached(wanted)}"
        for path, wanted in arrows(folder)
        if wanted.module.split(".")[0] in above
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "module", "may"),
    [
        ("spark_jobs/stream.py", "kbroker.metrics.samples", True),
        ("spark_jobs/stream.py", "kbroker.metricsx", False),
        ("spark_jobs/stream.py", "kbroker.peer.client", False),
        ("spark_jobs/stream.py", "perf.histogram", False),
        ("spark_jobs/stream.py", "tests.support.spark", False),
        ("spark_jobs/stream.py", "pyspark.sql", True),
        ("spark_jobs/kbroker_source.py", "kbroker.peer.client", True),
        ("spark_jobs/kbroker_source.py", "kbroker.server.broker", False),
    ],
)
def test_the_rule_itself(file: str, module: str, may: bool) -> None:
    assert allowed(file, module) is may


def test_of_kbroker_lab_knows_the_parts_that_tests_are_given() -> None:
    inside = {
        reached(wanted) for _, wanted in arrows("lab") if wanted.module.split(".")[0] == "kbroker"
    }
    assert inside and all(module.startswith("kbroker.testing.") for module in inside)


def test_tables_are_read_without_spark_numpy_or_the_broker() -> None:
    """What the archive for executors holds, and what a machine without the extras can say."""
    heavy = [
        "pyspark",
        "numpy",
        "pyarrow",
        "click",
        "uvloop",
        "kio",
        "kbroker._log",
        "kbroker.peer",
    ]
    script = (
        "import sys, spark_jobs.schema, perf.results_table\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
