"""A question as the admin port gets it: `?consumer=GROUP`, `?produce=TOPIC`, `?partition=TOPIC/0`
or `?slow`, with `principal`, `host`, `client-id` and `batch-bytes` beside it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.observe.why.facts import About, Question
from kbroker.security.authorizer import parse_principal

PRINCIPAL: Final = "principal"
HOST: Final = "host"
CLIENT_ID: Final = "client-id"
BATCH_BYTES: Final = "batch-bytes"
_BESIDE: Final = (PRINCIPAL, HOST, CLIENT_ID, BATCH_BYTES)
_DIGITS_MAX: Final = 9


def parse(query: Mapping[str, str]) -> Question:
    """ValueError, with a line for the client: this is no question."""
    subjects = {each.value: each for each in About}
    named = [key for key in query if key in subjects]
    unknown = sorted(set(query) - subjects.keys() - {*_BESIDE})
    if len(named) != 1 or unknown:
        raise ValueError(
            "ask with one of consumer=GROUP, produce=TOPIC, partition=TOPIC/0 and slow, and with "
            f"{', '.join(_BESIDE)} if need be"
        )
    about = subjects[named[0]]
    name, partition = query[about.value], -1
    if about is About.PARTITION:
        name, slash, digits = name.rpartition("/")
        if not slash or not _is_number(digits):
            raise ValueError("write partition=TOPIC/0")
        partition = int(digits)
    if not name and about is not About.SLOW:
        raise ValueError(f"name what {about.value} is about")
    principal = query.get(PRINCIPAL)
    if principal is not None:
        parse_principal(principal)
    size = query.get(BATCH_BYTES)
    if size is not None and not _is_number(size):
        raise ValueError(f"{BATCH_BYTES} is a number")
    return Question(
        about, name, partition, principal, query.get(HOST), query.get(CLIENT_ID),
        None if size is None else int(size),
    )  # fmt: skip


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
