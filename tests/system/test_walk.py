"""A broker whose calls are noted serves every kind of request that is walked.

Its compiled units are those of every other test, which note nothing: what is seen is its Python.
`make walk` compiles them once more, which takes minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.walk import tree
from perf.walk.kinds import ALONE, Bench
from tests.support.source_tree import ROOT

pytestmark = pytest.mark.timeout(120)


def test_a_traced_broker_answers_every_kind(tmp_path: Path) -> None:
    with Bench(tmp_path, ROOT, tree.tracer(tmp_path), print, times=3) as bench:
        walks = bench.alone([*ALONE])
    units = {walk.key: {unit.name for unit in walk.units} for walk in walks}
    assert list(units) == [kind.key for kind in ALONE]
    assert {"handlers.topics", "metadata.controller.topic_changes"} <= units["create-topics"]
    assert "handlers.offset_commit" in units["first-commit"]
    assert "engine.waiting.deadlines" in units["fetch-waits"]
    for hot in ("produce", "fetch", "commit", "heartbeat", "txn-produce", "end-txn"):
        assert not {name for name in units[hot] if name.startswith("handlers.")}, hot
