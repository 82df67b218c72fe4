"""What a test needs from the machine, and what happens where it is missing.

A test that needs a program or a jar asks here. Where the thing is missing the test is skipped with
one line that names it and how to get it; where KBROKER_REQUIRE=all is set (CI), tests/conftest.py
turns every such skip into a failure, so that a thing that could be had cannot silently stop being
tested. A skip whose reason starts with MACHINE is about something that no set-up can bring (a
kernel without IPv6, say) and stays a skip.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

from lab.jars import Jars

MACHINE = "machine: "


def everything_required() -> bool:
    return os.environ.get("KBROKER_REQUIRE") == "all"


def skip_missing(what: str, how_to_get_it: str) -> NoReturn:
    pytest.skip(f"missing: {what} ({how_to_get_it})")


def skip_on_this_machine(why: str) -> NoReturn:
    pytest.skip(f"{MACHINE}{why}")


def may_skip(reason: str) -> bool:
    """Whether a test may be skipped for this reason where everything is required."""
    return reason.removeprefix("Skipped: ").startswith(MACHINE)


def program(name: str, how_to_get_it: str) -> str:
    """The path of an executable, or a skip."""
    path = shutil.which(name)
    if path is None:
        skip_missing(name, how_to_get_it)
    return path


def kcat() -> str:
    return program("kcat", "`make test` or `apt-get install kcat` installs it")


def java() -> str:
    return program("java", "install a Java runtime, 17 or later")


def jars(wanted: Jars) -> str:
    """The class path of jars that are in the cache, or a skip."""
    if not wanted.present():
        skip_missing(f"the jars of {wanted.name}", "`make setup` fetches them")
    return wanted.class_path
