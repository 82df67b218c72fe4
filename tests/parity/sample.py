"""A few cases of every family, drawn: those that are held with Apache Kafka in every test run.

The commit draws, so that the same commit asks the same and the next one asks something else;
`KBROKER_SEED` draws again what a failure named. A JVM is started for each setup, so the rare ones
are left out, and the cases that change a broker's settings come last, on the ordinary broker. Left
out are those, too, in which sessions run out: how often such a group turns depends on how busy the
machine is, with Apache Kafka as well.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.parity import vectors
from tests.parity.book import DEFAULT_SETUP, Case
from tests.parity.cases import cases_of, families
from tests.parity.sides import COORDINATORS

OF_EACH: Final = 2
_SETUPS: Final = (DEFAULT_SETUP, COORDINATORS)
TIMED: Final = frozenset({"group_timers"})
# All of them with an authorizer.
AUTHORIZED: Final = frozenset({"authorized_acls", "denials", "rights", "token_rights"})
QUOTAS: Final = frozenset({"alter_client_quotas"})  # all of them on a broker of their own
# All of them on brokers with settings or users of their own.
SET_UP: Final = frozenset(
    {
        "group_migration",
        "mutation_quota",
        "share_fetch",
        "share_group_offsets",
        "share_groups",
        "share_rights",
        "share_state",
        "streams_groups",
        "tokens_of_users",
    }
)
LEFT_OUT: Final = TIMED | AUTHORIZED | QUOTAS | SET_UP


def seed() -> str:
    return os.environ.get("KBROKER_SEED") or vectors.commit()


def drawn(seed: str) -> Iterator[tuple[str, Case]]:
    """(family, case) of every family but those of LEFT_OUT."""
    for family in families():
        if family in LEFT_OUT:
            continue
        held = [case for each in cases_of(family) if (case := _held_so(each)) is not None]
        draw = random.Random(f"{seed} {family}")
        yield from ((family, case) for case in draw.sample(held, OF_EACH))


def _held_so(case: Case) -> Case | None:
    if case.setup == "altered":
        return replace(case, setup=DEFAULT_SETUP, alone=True)
    return case if case.setup in _SETUPS else None
