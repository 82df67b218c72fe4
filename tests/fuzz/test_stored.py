"""What is stored can be read: a thousand batches of tests/fuzz/stored.py.

KBROKER_FUZZ_SEED chooses others.
"""

from __future__ import annotations

import os

import pytest

from tests.fuzz.batches import Pool, make_pool
from tests.fuzz.stored import run

SEED = int(os.environ.get("KBROKER_FUZZ_SEED", "1"))
ROUNDS = 4


@pytest.fixture(scope="module")
def pool() -> Pool:
    return make_pool(SEED)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_every_reader_reads_the_batches_of_every_writer(pool: Pool, number: int) -> None:
    it = run(SEED + number, pool)
    assert not it.complaints, f"seed {SEED + number}"
    assert it.taken > 30 and it.refused > 30
