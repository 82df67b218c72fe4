"""Manual pages and shell completion, from the commands themselves.

`pages` walks the tree of commands and reads what `--help` prints: usage, help, options with their
defaults and variables. So a page cannot differ from its command. The language is that of man(7).
`completion` is the script of a shell, which asks `kbroker` itself for the words that may follow.

Every module of a command is imported. Nothing is read from or written to a disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import click

from kbroker import __version__
from kbroker.cli.generate import SHELLS

SECTION: Final = 1
_PROGRAM: Final = "kbroker"
_VARIABLE: Final = "_KBROKER_COMPLETE"  # the name that click gives it
_VERBATIM: Final = "\b"  # before a paragraph whose lines are kept; click's
_STATUSES: Final = (
    ("0", "done"),
    ("1", "trouble at run time: no broker answers, or a broker has refused"),
    ("2", "wrong usage"),
    ("3", "the configuration is invalid"),
    ("4, 5, 6", "of start: an address, a data directory, or ZooKeeper cannot be used"),
    ("130", "interrupted"),
)


def pages(root: click.Command) -> Iterator[tuple[str, str]]:
    """The name of each command's page, such as `kbroker-topic-create`, and its text."""
    context = click.Context(root, info_name=_PROGRAM, **root.context_settings)
    yield from _pages(context)


def _pages(context: click.Context) -> Iterator[tuple[str, str]]:
    yield _page_name(context), "".join(f"{line}\n" for line in _lines(context))
    for name, command in _commands(context):
        yield from _pages(click.Context(command, info_name=name, parent=context))


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None and not command.hidden:
                yield name, command


def _lines(context: click.Context) -> Iterator[str]:
    command, name = context.command, _page_name(context)
    yield f'.TH "{name.upper()}" "{SECTION}" "" "kbroker {__version__}" "kbroker"'
    yield ".SH NAME"
    yield f"{escaped(name)} \\- {escaped(command.get_short_help_str(limit=200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"\\fB{escaped(context.command_path)}\\fR {escaped(pieces)}"
    yield ".SH DESCRIPTION"
    yield from _paragraphs(command.help or "")
    records = [each.get_help_record(context) for each in command.get_params(context)]
    options = [each for each in records if each is not None]
    if options:
        yield ".SH OPTIONS"
        yield from _definitions(options)
    commands = list(_commands(context))
    if commands:
        yield ".SH COMMANDS"
        yield from _definitions(
            (f"{name}-{each}({SECTION})", one.get_short_help_str(limit=200))
            for each, one in commands
        )
    if context.parent is None:
        yield ".SH EXIT STATUS"
        yield from _definitions(_STATUSES)
    else:
        yield ".SH SEE ALSO"
        yield f"\\fB{escaped(_page_name(context.parent))}\\fR({SECTION})"


def _definitions(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in entries:
        yield ".TP"
        yield f"\\fB{escaped(term)}\\fR"
        yield escaped(text) or "\\&"


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ".PP"
        lines = [line for line in paragraph.split("\n") if line.strip("\n")]
        if lines and lines[0].strip(" ") == _VERBATIM:
            yield ".nf"
            yield from (escaped(line.rstrip()) for line in lines[1:])
            yield ".fi"
        else:
            yield escaped(" ".join(line.strip() for line in lines))


def escaped(text: str) -> str:
    """So that no character is one of the formatter's language."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def completion(root: click.Command, shell: str) -> str:
    """The script that a shell reads once; `shell` is one of SHELLS."""
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(f"{shell} is no shell of {SHELLS}")
    # Not the class's own `source`: that of bash starts bash, for its version.
    return ShellComplete.source(kind(root, {}, _PROGRAM, _VARIABLE)) + "\n"


def shared_files(root: click.Command) -> Iterator[tuple[str, str]]:
    """Paths below share/ of an installation, where `man` and shells look, and texts."""
    for name, text in pages(root):
        yield f"man/man{SECTION}/{name}.{SECTION}", text
    places = {
        "bash": f"bash-completion/completions/{_PROGRAM}",
        "zsh": f"zsh/site-functions/_{_PROGRAM}",
        "fish": f"fish/vendor_completions.d/{_PROGRAM}.fish",
    }
    for shell in SHELLS:
        yield places[shell], completion(root, shell)
