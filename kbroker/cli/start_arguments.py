"""The arguments of `kbroker start`: one list of options for the plain parser and for click.

`parse_plain` understands the ordinary forms (`--option value`, `--option=value`, one file) and
answers None for anything else, wrong or merely unusual; click then parses the same list and says
what is wrong, or prints the help. So the ordinary start pays for no argument library, and there is
one description of the options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

PORT_MAX: Final = 65_535
LOG_FORMATS: Final = ("text", "json")


class StartArguments(NamedTuple):
    """What the person who starts a broker asked for."""

    file: str | None = None
    data_dir: str | None = None
    port: int | None = None
    ready_file: str | None = None
    log_format: str | None = None
    overrides: tuple[str, ...] = ()
    add_scram: tuple[str, ...] = ()


class Option(NamedTuple):
    """One option: its flag, the field that it fills, the name of its value, its help."""

    flag: str
    field: str
    metavar: str
    help: str


OPTIONS: Final = (
    Option("--data-dir", "data_dir", "DIRECTORY", "Where the broker keeps its data (log.dirs)."),
    Option("--port", "port", "PORT", "Listen on this port; 0 takes a free one."),
    Option("--override", "overrides", "KEY=VALUE", "Set a configuration key; may be repeated."),
    Option("--ready-file", "ready_file", "FILE", "Write pid and addresses here when ready."),
    Option(
        "--add-scram", "add_scram", "MECHANISM=[name=NAME,password=PASSWORD]",
        "Make this user if it is not there; may be repeated.",
    ),
    Option("--log-format", "log_format", "FORMAT", "text (the default) or json, one a line."),
)  # fmt: skip

# Fields of options that may come more than once.
REPEATED: Final = ("overrides", "add_scram")
_FIELDS: Final = {option.flag: option.field for option in OPTIONS}


def parse_plain(words: Sequence[str]) -> StartArguments | None:
    """The arguments in `words`, or None where click has to look."""
    fields: dict[str, str] = {}
    repeated: dict[str, list[str]] = {field: [] for field in REPEATED}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if "file" in fields:
                return None
            fields["file"] = word
            continue
        flag, equals, value = word.partition("=")
        field = _FIELDS.get(flag)
        if field is None or (not equals and not rest):
            return None
        if not equals:
            value = rest.pop(0)
        if field in repeated:
            repeated[field].append(value)
        elif field in fields:
            return None
        else:
            fields[field] = value
    return _checked(fields, {field: tuple(values) for field, values in repeated.items()})


def _checked(fields: dict[str, str], repeated: dict[str, tuple[str, ...]]) -> StartArguments | None:
    port_text = fields.get("port")
    port = None
    if port_text is not None:
        if not port_text.isascii() or not port_text.isdecimal() or len(port_text) > 5:
            return None
        port = int(port_text)
        if port > PORT_MAX:
            return None
    log_format = fields.get("log_format")
    if log_format is not None and log_format not in LOG_FORMATS:
        return None
    if "" in fields.values():
        return None
    return StartArguments(
        file=fields.get("file"),
        data_dir=fields.get("data_dir"),
        port=port,
        ready_file=fields.get("ready_file"),
        log_format=log_format,
        **repeated,
    )
