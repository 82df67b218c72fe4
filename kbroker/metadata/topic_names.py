"""Which names a topic may have, and which names get in each other's way.

Place in the flow: pure functions for the controller's decisions and for handlers that must refuse a
name before anything is created (auto-creation). The rules are the protocol's: a name becomes part
of a directory name, and of a metric name in which '.' and '_' are the same.
"""

from __future__ import annotations

import re
from typing import Final

from kbroker.limits import TOPIC_NAME_CHARS_MAX

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def invalid_topic_name(name: str) -> str | None:
    """Why this cannot be a topic's name, for a person to read; None if it can."""
    if not name:
        return "Topic name is invalid: it is empty"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return (
            f"Topic name is invalid: it has {len(name)} characters, "
            f"the longest allowed has {TOPIC_NAME_CHARS_MAX}"
        )
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name is invalid: {name!r} contains something other than "
            "ASCII letters, digits, '.', '_' and '-'"
        )
    return None


def collision_key(name: str) -> str:
    """Two names with the same key would share their metrics."""
    return name.replace(".", "_")


def has_collision_chars(name: str) -> bool:
    return "." in name or "_" in name
