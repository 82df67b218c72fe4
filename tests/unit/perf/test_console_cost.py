"""What the console costs: figures by their bars, and the batch whose keys change."""

from __future__ import annotations

from kbroker.protocol.record_batch import open_batch
from perf.compacted import keyed_batch
from perf.console_cost import (
    AGAIN,
    ALONE,
    PAGES,
    SEARCHES,
    WITH,
    WITHOUT,
    Beside,
    Found,
    Held,
    Timed,
    bars,
)
from perf.judge import FAILED, NOT_MEASURED, PASSED


def beside(number: int, kind: str, p99_us: float, *, quiet: bool = True) -> Beside:
    return Beside(kind, number, quiet, p99_us, 2 * p99_us, 1.0)


def test_each_figure_meets_its_bar_or_not() -> None:
    rounds = range(6)
    memory = [Held(WITH, n, True, 46.0, 58.0, 50.0, 66.0, 58.0) for n in rounds]
    memory += [Held(WITHOUT, n, True, 46.0, 58.0, 50.0) for n in rounds]
    pages = [Timed("page of topics", n, True, 301.0) for n in rounds]
    pages += [Timed("newest messages", n, True, 199.0) for n in rounds]
    blocks = [beside(n, kind, 100.0) for n in rounds for kind in (ALONE, AGAIN, SEARCHES)]
    blocks += [beside(n, PAGES, 120.0) for n in rounds]
    found = {each.what: each.verdict for each in bars(Found(memory, pages, blocks))}
    assert found == {
        "memory without a visitor, by without a console": PASSED,
        "memory that the first visitor adds": PASSED,
        "page of topics": FAILED,
        "newest messages": PASSED,
        f"p99 of produce beside {SEARCHES}": PASSED,
        f"p99 until the follower has it beside {SEARCHES}": PASSED,
        f"p99 of produce beside {PAGES}": FAILED,
        f"p99 until the follower has it beside {PAGES}": FAILED,
    }


def test_rounds_beside_which_something_ran_decide_nothing() -> None:
    blocks = [beside(n, kind, 100.0, quiet=False) for n in range(6) for kind in (ALONE, SEARCHES)]
    found = {each.what: each.verdict for each in bars(Found([], [], blocks))}
    assert found[f"p99 of produce beside {SEARCHES}"].startswith("no result")
    assert found["memory that the first visitor adds"] == NOT_MEASURED


def test_a_batch_has_the_keys_that_it_was_given() -> None:
    batch = keyed_batch(3, 100, 1_700_000_000_000)
    for keys in ([7, 8, 7], [1, 2, 3]):
        records = list(open_batch(batch.change(keys), 10_000).records())
        assert [int.from_bytes(each.key or b"") for each in records] == keys
        assert {len(each.value or b"") for each in records} == {100}
