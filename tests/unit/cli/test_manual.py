"""Manual pages and completion: a page for each command with each of its options, and no more."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kbroker.cli import manual
from kbroker.cli.commands import root
from kbroker.cli.main import main
from tests.support import requirements

PAGES = dict(manual.pages(root()))


def commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from commands(click.Context(command, info_name=name, parent=context))


ALL = {
    each.command_path.replace(" ", "-"): each
    for each in commands(click.Context(root(), info_name="kbroker"))
}


def test_every_command_has_a_page() -> None:
    assert PAGES.keys() == ALL.keys()
    assert {"kbroker", "kbroker-start", "kbroker-topic-create"} <= PAGES.keys()


@pytest.mark.parametrize("name", ALL)
def test_a_page_has_every_option(name: str) -> None:
    text = PAGES[name]
    for param in ALL[name].command.params:
        if isinstance(param, click.Option) and not param.hidden:
            for flag in (*param.opts, *param.secondary_opts):
                assert manual.escaped(flag) in text, flag


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (".TH x", "\\&.TH x"),
        ("'quoted", "\\&'quoted"),
        ("a\\b --c", "a\\eb \\-\\-c"),
    ],
)
def test_text_is_no_request_of_the_formatter(text: str, made: str) -> None:
    assert manual.escaped(text) == made


def test_lines_that_are_kept() -> None:
    text = "First\nline.\n\n\b\nkbroker a\nkbroker b"
    assert list(manual._paragraphs(text)) == [
        "First line.", ".PP", ".nf", "kbroker a", "kbroker b", ".fi"
    ]  # fmt: skip


def test_the_formatter_has_no_complaint(tmp_path: Path) -> None:
    groff = requirements.program("groff", "`apt-get install groff-base` installs it")
    assert main(["generate", "man-pages", str(tmp_path)]) == 0
    pages = sorted((tmp_path / "man1").iterdir())
    assert len(pages) == len(PAGES)
    ran = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-z", *map(str, pages)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0 and ran.stderr == ""


def test_pages_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["generate", "man-pages", str(tmp_path / "file")]) == 1
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted", "unwanted"),
    [
        ("kbroker to", {"topic", "top", "token"}, "start"),
        ("kbroker topic cr", {"create"}, "delete"),
        ("kbroker topic create --part", {"--partitions"}, "--replication-factor"),
        ("kbroker generate completion f", {"fish"}, "bash"),
    ],
)
def test_words_that_complete(
    words: str,
    wanted: set[str],
    unwanted: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As the script for bash asks for them."""
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    monkeypatch.setenv("_KBROKER_COMPLETE", "bash_complete")
    with pytest.raises(SystemExit):
        main([])
    found = {line.partition(",")[2] for line in capsys.readouterr().out.splitlines()}
    assert wanted <= found and unwanted not in found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_KBROKER_COMPLETE={shell}_complete" in script
    if program := shutil.which(shell):
        checked = subprocess.run([program, "-n"], input=script, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr


def test_where_an_installation_has_them() -> None:
    files = dict(manual.shared_files(root()))
    assert {
        "man/man1/kbroker.1",
        "bash-completion/completions/kbroker",
        "zsh/site-functions/_kbroker",
        "fish/vendor_completions.d/kbroker.fish",
    } <= files.keys()
    assert all(re.fullmatch(r"[\w./-]+", path) for path in files)
