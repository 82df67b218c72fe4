"""What a study reports: tables, and answers in words, for a terminal, a page of docs/, and as JSON.

A study gives data; how they look follows here. Whatever comes from a file is bounded and escaped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from xml.sax.saxutils import escape

from perf import tables
from perf.measurement import Figure
from perf.studies.conclusion import Conclusion
from perf.studies.study import Outcome
from perf.tables import Table, one_line

WIDTH: Final = 100
_INDENT: Final = " " * 4


@dataclass(frozen=True)
class Report:
    """One study's. `about`: what its blocks were, after "7 rounds"."""

    outcome: Outcome
    about: str
    tables: Sequence[Table]
    conclusions: Sequence[Conclusion]
    in_words: Sequence[Conclusion] | None = None  # which conclusions are printed; None: all
    more: Mapping[str, Any] = field(default_factory=dict)  # fields of its JSON
    figures: Sequence[Figure] = ()
    options: str = ""  # of the command, where what they bring has a part of its own on the page
    conclusions_key: str = "conclusions"  # in its JSON

    @property
    def _answers(self) -> Sequence[Conclusion]:
        return self.conclusions if self.in_words is None else self.in_words

    def _machine(self) -> str:
        outcome = self.outcome
        said = {name: one_line(words) for name, words in outcome.machine.items()}
        count = sum(map(len, outcome.blocks.values()))
        return (
            f"{said['when'][:10]} on {said['cpus']} x {said['model']}, Linux {said['kernel']},"
            f" Python {said['python']}, commit {said['commit']}; {outcome.rounds} rounds"
            f" {self.about}, medians; {outcome.noisy} of {count} blocks were noisy and do not count"
            " in the answers."
        )

    @property
    def text(self) -> list[str]:
        """Lines for a terminal."""
        lines = [*textwrap.wrap(f"Measured {self._machine()}", WIDTH), *tables.text(self.tables)]
        for one in self._answers:
            answer = textwrap.wrap(
                one.answer, WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT
            )
            lines += ["", one.question, *answer]
        return lines

    @property
    def page(self) -> str:
        """The measured part of a page, Markdown."""
        lines = [f"*Measured* {escape(self._machine())}", *tables.markdown(self.tables)]
        answers = [f"- {one.question} *{one.answer.rstrip('.')}.*" for one in self._answers]
        return "\n".join([*lines, *(["", "### Answers", "", *answers] if answers else [])])

    @property
    def json(self) -> dict[str, Any]:
        """Everything: blocks with their histograms, and the conclusions with their ratios."""
        said = [one.to_json() for one in self.conclusions]
        return {**self.outcome.to_json(), **self.more, self.conclusions_key: said}
