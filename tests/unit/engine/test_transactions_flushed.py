"""`flush.messages` of `__transaction_state` and of a transaction's topic: synced, then answered.

In C and in Python, with the same answers.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from kbroker.testing.file_faults import Fault, FileFaults
from tests.unit.engine.coordinated import ORDERS, Coordinated, error_of_end
from tests.unit.net.harness import running


@pytest.fixture
def both(tmp_path: Path) -> Iterator[list[Coordinated]]:
    """In C, and in Python."""
    with ExitStack() as stack:
        rigs = [stack.enter_context(running(tmp_path / name)) for name in ("c", "python")]
        yield [Coordinated(rig, in_c=in_c) for rig, in_c in zip(rigs, (True, False), strict=True)]


def logs_of(each: Coordinated, topic: str) -> list[Any]:
    logs: list[Any] = each.topics[topic].logs
    for log in logs:
        log.configure(flush_messages=1)
    return logs


def on_the_disk(logs: list[Any]) -> bool:
    ends = [(log.recovery_point, log.high_watermark, log.log_end_offset) for log in logs]
    return all(len(set(each)) == 1 for each in ends)


@pytest.mark.parametrize(("add", "produce", "end"), [(3, 11, 4), (None, 12, 5)])
@pytest.mark.parametrize("topics", [[TRANSACTIONS_TOPIC], [TRANSACTIONS_TOPIC, "orders"]])
def test_each_answer_of_a_transaction_is_on_the_disk(
    both: list[Coordinated], add: int | None, produce: int, end: int, topics: list[str]
) -> None:
    talks: list[list[object]] = [[], []]
    for each, talk in zip(both, talks, strict=True):
        logs = [log for topic in topics for log in logs_of(each, topic)]
        pair = each.init()
        assert on_the_disk(logs)
        for number in range(3):
            if add is not None:
                talk.append(each.add(add, pair))
                assert on_the_disk(logs)
            sequences = {} if end == 5 else {"orders": 2 * number}
            found = each.produce(produce, pair, ORDERS, sequences=sequences)
            talk.append([(p.error, p.base_offset) for p in found])
            assert on_the_disk(logs)
            talk.append(each.end(end, pair, committed=number != 1))
            each.run_later()
            assert on_the_disk(logs)
            talk.append(each.image())
            if end == 5:
                pair = pair._replace(epoch=pair.epoch + 1)
        image = each.image()
        assert image is not None and image.state is State.COMPLETE_COMMIT
    assert talks[0] == talks[1]
    assert both[0].everything() == both[1].everything()
    # A marker in a topic that is to be on the disk is Python's.
    assert both[0].in_python == [] or "orders" in topics


def test_an_outcome_whose_flush_fails_is_not_answered_as_done(both: list[Coordinated]) -> None:
    """Its log is offline then, and the id's coordinator another broker."""
    for each in both:
        logs_of(each, TRANSACTIONS_TOPIC)
        pair = each.init()
        each.add(3, pair)
        with FileFaults(Fault(("sync",), TRANSACTIONS_TOPIC, error=errno.EIO)):
            code = error_of_end(each.end(4, pair))
        assert code is ErrorCode.NOT_COORDINATOR
        image = each.image()
        assert image is not None and image.state is State.ONGOING
