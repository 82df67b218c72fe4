"""What every run of the tests can bear of the scenarios: one library, few kills.

`make exactly-once` runs them whole. KBROKER_TEST_REFERENCE=kafka runs the same against Apache
Kafka.
"""

from __future__ import annotations

import random

import pytest

from tests.clients.agents.programs import LIBRARIES
from tests.exactly_once.copiers import COMMITTED, OFFSETS, SENT
from tests.exactly_once.copying import BROKER, COMMITTING, COPIER, Kill
from tests.exactly_once.scenarios import copies, dead, resumed

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]

SEED = 20261129
KILLS = (
    Kill(COPIER, SENT), Kill(BROKER, OFFSETS), Kill(COPIER, COMMITTING), Kill(BROKER, COMMITTING),
    Kill(COPIER, COMMITTED), Kill(BROKER, SENT),
)  # fmt: skip


def test_each_record_is_copied_once_under_kills() -> None:
    assert copies.run("confluent-kafka", random.Random(SEED), print, kills=KILLS) == []


def test_a_producer_that_dies_for_good_holds_no_reader_for_long() -> None:
    librdkafka = [each for each in LIBRARIES if each.name == "confluent-kafka"]
    assert dead.run(print, librdkafka) == []


@pytest.mark.java
def test_another_process_ends_an_open_transaction() -> None:
    dice = random.Random(SEED)
    assert resumed.run(dice, print, len(resumed.OUTCOMES), kills=False) == []
