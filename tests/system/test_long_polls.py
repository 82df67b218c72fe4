"""The stress of long_polls.py, as long as a test run can afford; longer by hand and sanitized."""

from __future__ import annotations

import os
from typing import Final

import pytest

from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from tests.system.conftest import MakeBroker
from tests.system.long_polls import Stress, address_of

pytestmark = pytest.mark.client

# A sanitizer makes every step slower, and is there to see more of them.
SECONDS: Final = 30.0 if os.environ.get("KBROKER_SANITIZED") else 8.0
PARTITIONS: Final = 120


def test_every_fetch_is_woken_by_its_own_records(make_broker: MakeBroker) -> None:
    broker = make_broker(KEEPS_WHAT_IS_OLD).start()  # whose records are of 1970
    problems = Stress(address_of(broker.bootstrap), partitions=PARTITIONS).run(SECONDS)
    assert problems == []
    assert broker.stop() == 0
