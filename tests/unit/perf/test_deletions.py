"""The bars of deletions: by round, of quiet rounds only."""

from __future__ import annotations

import pytest

from perf.deletions import Deletion, arguments, bars
from perf.judge import FAILED, NO_RESULT, PASSED
from perf.tables import bar_lines


def rounds(many_ms: float, few_ms: float, *, quiet: bool = True) -> list[Deletion]:
    return [
        Deletion(of, number, answer_ms + number, 2_500, quiet)
        for number in range(8)
        for of, answer_ms in ((3_000, many_ms), (500, few_ms))
    ]


@pytest.mark.parametrize(
    ("many_ms", "few_ms", "expected"),
    [(105, 100, PASSED), (500, 100, FAILED), (121, 100, NO_RESULT)],
)
def test_the_ratio_is_of_rounds(many_ms: float, few_ms: float, expected: str) -> None:
    every = bars(rounds(many_ms, few_ms), 3_000, 500)
    assert every[0].verdict.startswith(expected)
    assert [bar.verdict for bar in every[1:]] == [PASSED] * 4
    assert "3000 by of 500" in "\n".join(bar_lines(every))


def test_noisy_rounds_decide_nothing() -> None:
    every = bars(rounds(100, 100, quiet=False), 3_000, 500)
    assert all(bar.verdict.startswith(NO_RESULT) for bar in every)


def test_more_than_there_are_cannot_be_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--of", "100,10", "--topics", "11"])
    assert "have to be there" in capsys.readouterr().err
    assert arguments(["--of", "100,10", "--topics", "10"]).few == 10
