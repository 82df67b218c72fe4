"""A run of the frame fuzzer, alone in its file: nothing else of a test run goes on beside it.

A failure names its frame: `python -m tests.fuzz.frames --seed S --number N` sends it again.
KBROKER_FUZZ_SEED replays a run, KBROKER_FUZZ_FRAMES makes it longer.
"""

from __future__ import annotations

import argparse
import os

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from tests.fuzz.frames import Run
from tests.fuzz.target import OVERRIDES
from tests.fuzz.test_frames import SEED, address_of
from tests.support.servers import assert_nothing_unexpected

pytestmark = pytest.mark.alone

FRAMES = int(os.environ.get("KBROKER_FUZZ_FRAMES", "20000"))
# The run waits until no file of a deleted topic is open; the default is a minute, in which nothing
# else of a test run may go on.
FILES_GO_SOON = {"log.segment.delete.delay.ms": 1_000}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_of_hostile_frames() -> None:
    """Judged like the long run, but for the neighbour's p99: that is a measurement, which
    `make fuzz` makes on a machine that does nothing else."""
    options = argparse.Namespace(frames=FRAMES, seed=SEED, rate=0, workers=2, compared_s=0)
    with Broker({**OVERRIDES, **FILES_GO_SOON}) as broker:
        options.metrics = broker.admin
        result = Run(address_of(broker), broker.pid, options).run()
        assert_nothing_unexpected(broker)
        result.log = broker.log_text()
    result.check()
    print(result.text())
    assert not result.failures, result.text()
