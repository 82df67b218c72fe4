"""A run of the frame fuzzer by a listener with TLS and a login, and of clients without them.

KBROKER_FUZZ_SEED replays a run.
"""

from __future__ import annotations

import argparse

import pytest

from tests.fuzz.frames import Run
from tests.fuzz.target import OVERRIDES
from tests.fuzz.test_frames import SEED
from tests.fuzz.test_run import FILES_GO_SOON
from tests.fuzz.way import FuzzedBroker
from tests.support.servers import assert_nothing_unexpected


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hostile_frames_after_a_login_over_tls_and_without_one() -> None:
    options = argparse.Namespace(frames=3_000, seed=SEED, rate=0, workers=2, judged=False)
    with FuzzedBroker("sasl_ssl", {**OVERRIDES, **FILES_GO_SOON}) as broker:
        options.metrics, options.way = broker.admin, broker.way
        options.fuzzed = broker.fuzzed_address
        result = Run(broker.address, broker.pid, options).run()
        assert_nothing_unexpected(broker)
        result.log = broker.log_text()
    result.check()
    assert result.strangers.frames > 500
    assert not result.failures, result.text()
