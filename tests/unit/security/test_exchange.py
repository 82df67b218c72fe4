"""The table of the SASL exchange, every cell of it, against a second way to write it down."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import InvariantError
from kbroker.generated_part import END, replaced
from kbroker.security import draw_exchange
from kbroker.security.exchange import TABLE, Do, Event, Exchange, State

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
HANDSHAKES = (Event.HANDSHAKE_0, Event.HANDSHAKE_1, Event.HANDSHAKE_REFUSED)
TOKENS = (Event.TOKEN_ANSWERED, Event.TOKEN_ACCEPTED, Event.TOKEN_DENIED)
BEFORE = (State.INITIAL, State.VERSIONED)


def expected(state: State, event: Event) -> tuple[Do, State]:
    """In words: what Apache Kafka does."""
    if state is State.OVER:
        return Do.NEVER, State.OVER
    if event in TOKENS:
        if state in BEFORE:  # SaslAuthenticate is another request there
            return Do.NEVER, State.OVER
        if event is Event.TOKEN_ANSWERED:
            return Do.ANSWER, state
        if event is Event.TOKEN_ACCEPTED:
            return Do.OPEN, State.OVER
        return (Do.REFUSE if state is State.REQUESTS else Do.END_LATE), State.OVER
    if state is State.TOKENS:  # a frame is a token there, whatever it looks like
        return Do.NEVER, State.OVER
    if event is Event.NO_REQUEST:
        return Do.END, State.OVER
    if state is State.REQUESTS:
        return Do.REFUSE, State.OVER
    if event in HANDSHAKES:
        if event is Event.HANDSHAKE_REFUSED:
            return Do.REFUSE, State.OVER
        return Do.ANSWER, State.REQUESTS if event is Event.HANDSHAKE_1 else State.TOKENS
    if event is Event.OTHER_REQUEST or state is State.VERSIONED:
        return Do.END, State.OVER
    return Do.ANSWER, State.VERSIONED if event is Event.API_VERSIONS else State.INITIAL


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_cell(state: State, event: Event) -> None:
    exchange = Exchange()
    exchange.state = state
    do, to = expected(state, event)
    if do is Do.NEVER:
        with pytest.raises(InvariantError, match=f"{event.name} in {state.name}"):
            exchange.fire(event)
        assert exchange.state is state
    else:
        assert exchange.fire(event) is do
        assert exchange.state is to


def test_the_table_is_complete() -> None:
    assert len(TABLE) == len(State) * len(Event)


def test_an_exchange_opens_only_after_a_mechanism_accepted() -> None:
    for (state, event), cell in TABLE.items():
        assert (cell.do is Do.OPEN) == (event is Event.TOKEN_ACCEPTED and state not in BEFORE) or (
            state is State.OVER
        )


def test_the_committed_page_is_the_generated_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert replaced(page, draw_exchange.BEGIN, draw_exchange.generated()) == page, (
        "run: python -m kbroker.security.draw_exchange docs/security.md"
    )


def test_writing_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{draw_exchange.BEGIN}\nold\n{END}\nafter\n")
    assert draw_exchange.main([str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert draw_exchange.main([]) == 0
    assert capsys.readouterr().out.strip() in text
