"""What is printed for people: text of others does nothing to a terminal and forges no line."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

import kbroker.cli
from kbroker.cli import group, main, output, top

HOSTILE = "g\x1b]0;title\x07\x1b[2J\nerror: forged\u202e\x9b1m"
SEEN = r"g\x1b]0;title\x07\x1b[2J\nerror: forged\u202e\x9b1m"


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"group {HOSTILE}")
    output.say(f"error: {HOSTILE}", err=True)
    output.say("größe")
    assert capsys.readouterr() == (f"group {SEEN}\ngröße\n", f"error: {SEEN}\n")


def test_a_line_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, except on a terminal."""
    output.say_to_programs(f"group\t{HOSTILE}")
    assert capsys.readouterr().out == f"group\t{HOSTILE}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.say_to_programs(f"group\t{HOSTILE}")
    assert capsys.readouterr().out == f"group\t{SEEN}\n"


def test_a_table_is_as_wide_as_its_visible_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("GROUP", "STATE"), [[HOSTILE, "Stable"]])
    head, line = capsys.readouterr().out.splitlines()
    assert line == f"{SEEN}  Stable"
    assert head.index("STATE") == line.index("Stable")


def test_json_has_the_text_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_json({"group": HOSTILE})
    assert json.loads(capsys.readouterr().out) == {"group": HOSTILE}


def test_a_group_of_hostile_members(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("member_id", "instance_id", "client_id", "host")
    member = dict.fromkeys(names, HOSTILE) | {"partitions": [f"{HOSTILE}-0"]}
    row = {"topic": HOSTILE, "partition": 0, "committed": 1, "end": 2, "lag": 1} | member
    described = {"group": HOSTILE, "state": "Stable", "protocol": HOSTILE, "coordinator": 1}
    described |= {"lag": 1, "members": [member], "partitions": [row]}
    group._print(described, members=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)


def test_the_message_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.report(f"no group '{HOSTILE}'", 1) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()


def test_a_drawn_table_has_nothing_for_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = pytest.importorskip("rich.console")
    monkeypatch.setattr(top, "headline", lambda frame: HOSTILE)
    monkeypatch.setattr(top, "tables", lambda frame, rows: [(("GROUP",), [[HOSTILE]], "")])
    drawn = io.StringIO()
    console.Console(file=drawn, width=200).print(top.draw({"error": ""}, 3))
    assert all(line.isprintable() for line in drawn.getvalue().splitlines())


def test_nothing_else_prints_for_people() -> None:
    """What is not `say`: empty lines, JSON, and files that kbroker has written itself."""
    own = ("output.py", "generate.py", "version.py")
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(Path(kbroker.cli.__path__[0]).glob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if path.name not in own
        and re.search(r"\bclick\.(secho|echo)\((?!\))|\bprint\(", line)
        and "json.dumps" not in line
        and "as_json(" not in line
    ]
    assert found == [
        "main.py: print(f\"error: {escaped(' '.join(message.split()))}\", file=sys.stderr)"
    ]
