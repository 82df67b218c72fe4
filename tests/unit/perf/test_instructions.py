"""`python -m perf.instructions`: its table, and its refusals."""

from __future__ import annotations

import pytest

from perf import instructions


def test_a_build_beside_another_one() -> None:
    text = instructions.to_text({"kbroker": {"produce": 7456.0}, "baseline": {"produce": 8000.0}})
    assert text.splitlines()[-1].split() == ["Produce,", "acks=1", "7,456", "8,000", "0.932"]


def test_a_build_alone() -> None:
    text = instructions.to_text({"kbroker": {"fetch": 5038.4}})
    assert text.splitlines()[-1].split()[-1] == "5,038"


def test_an_unknown_request_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        instructions.main(["--requests", "produce,walk"])
    assert "walk: there are produce" in capsys.readouterr().err


def test_without_valgrind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert instructions.main([]) == 1
    assert "valgrind is missing" in capsys.readouterr().err
