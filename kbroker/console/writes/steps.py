"""The two steps of every write: its form is sent for a dry run, then that is applied.

    GET: form; POST step=plan: what would change, and a form; POST step=apply: what has changed

A module of `writes/` makes all of these pages. What cannot be undone asks for the name again in the
second step. The visitor's client asks, so the broker decides whether the visitor may, and notes it
in its audit log. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import Refused
from kbroker.console.page import Field, Form, Links, Notice, Page, Section, Tone
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.peer.messages import TopicResult

STEP: Final = "step"
TYPED: Final = "typed"
VALUE_CHARS_MAX: Final = 10_000
_REFUSED: Final = 409


class Step(StrEnum):
    FORM = "form"
    PLAN = "plan"
    APPLY = "apply"


def step_of(asked: Asked) -> Step:
    """Nothing that was asked by GET goes further than the form."""
    if not asked.may_write:
        raise Refused("the console only reads here", "set admin.console.write=true", status=403)
    if not asked.sent:
        return Step.FORM
    return Step.APPLY if asked.query.get(STEP) == Step.APPLY else Step.PLAN


def sent_text(asked: Asked, name: str, *, required: bool = False) -> str:
    """A field of the form, without blanks around it."""
    text = asked.query.get(name, "").strip()
    if len(text) > VALUE_CHARS_MAX:
        raise Refused(f"{name} has more than {VALUE_CHARS_MAX} characters")
    if required and not text:
        raise Refused(f"{name} is empty", "fill it in")
    return text


def plan_form(path: str, fields: Sequence[Field], submit: str = "Dry run") -> Form:
    """The first form."""
    return Form("plan", "Change", path, fields, submit, writes=True)


def apply_form(path: str, values: Mapping[str, str], submit: str, *, typed: str = "") -> Form:
    """The second one, with the values of the first. `typed`: the name that has to be given again;
    empty: none."""
    fields = [Field(name, name, value, kind="hidden") for name, value in values.items()]
    fields.append(Field(STEP, STEP, Step.APPLY, kind="hidden"))
    if typed:
        fields.append(Field(TYPED, "Type the name again", help="this cannot be undone"))
    return Form("apply", "Apply", path, fields, submit, writes=True)


def check_typed(asked: Asked, name: str) -> None:
    if asked.query.get(TYPED, "") != name:
        raise Refused(
            "the name that was typed is another one", "go back, and type the name as it is"
        )


def refusal(result: TopicResult) -> Notice | None:
    """None: it was done, or would be."""
    if result.error is ErrorCode.NONE:
        return None
    return Notice(Tone.BAD, f"{result.error.name}: {result.message or 'the broker refuses it'}")


def refused_page(title: str, notice: Notice, back: Section) -> Page:
    return Page(title, [notice, back], status=_REFUSED)


def done_page(title: str, what: str, links: Sequence[tuple[str, str]]) -> Page:
    return Page(title, [Notice(Tone.GOOD, what), Links("next", "Next", links)])
