"""docs/cluster.md and deploy/kbroker.service: their commands are there, with those options."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from kbroker.cli.commands import root
from kbroker.config.definition import TOPIC_KEYS, find_broker_key
from tests.support.source_tree import ROOT

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
UNIT = (ROOT / "deploy" / "kbroker.service").read_text(encoding="utf-8")
# A command may stand in a line of a shell's; `until kbroker ...; do sleep 1; done` does.
COMMANDS = [
    *re.findall(r"^\$ (?:until )?kbroker ([^;\n]+)", PAGE, re.M),
    *re.findall(r"^ExecStart=\S+/kbroker (.+)$", UNIT, re.M),
]
NAMED = {
    *re.findall(r"\bKBROKER_([A-Z_]+)=", PAGE),
    *re.findall(r"`((?:broker|zookeeper|node|follower|leader)\.[a-z.]+\.?[a-z]+)`", PAGE),
}


def test_there_are_commands_and_keys_to_look_at() -> None:
    assert len(COMMANDS) >= 6
    assert len(NAMED) >= 6


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_is_there_with_its_options(words: str) -> None:
    """Click takes every word; nothing is run."""
    arguments = shlex.split(words)
    command: click.Command = root()
    context = click.Context(command, info_name="kbroker")
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments.pop(0))
        assert found is not None, words
        command = found
        context = click.Context(command, parent=context, info_name=command.name)
    command.parse_args(context, arguments)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_setting_is_known(name: str) -> None:
    key = name.lower().replace("_", ".")
    assert key in TOPIC_KEYS or find_broker_key(key) is not None
