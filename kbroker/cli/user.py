"""`kbroker user add|list|delete`: users who log in with SCRAM.

A running cluster is asked (-b, --command-config). With --data-dir the metadata of a broker that is
stopped is read or written instead, which makes the first user of a broker that lets only users in.
The password is asked for, or read from a file; it is on no command line, where others would see it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kbroker.cli.connect import bootstrap_option, connect, refuse
from kbroker.cli.output import output_option, say, write_rows
from kbroker.errors import ErrorCode, UsageError
from kbroker.limits import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.user_messages import NewPassword, UserScram
    from kbroker.security.scram import ScramMechanism

Command = TypeVar("Command", bound=Callable[..., Any])
_NAMES: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PASSWORD_CHARS_MAX: Final = 4_096

data_dir_option = click.option(
    "--data-dir",
    "data_dir",
    metavar="DIRECTORY",
    help="Ask no broker: the data of one that is stopped; of several in log.dirs, the first.",
)


def mechanism_option(text: str) -> Callable[[Command], Command]:
    return click.option(
        "--mechanism", "mechanisms", type=click.Choice(_NAMES), multiple=True, help=text
    )


@click.group("user")
def command() -> None:
    """Add, list and delete users who log in with SCRAM."""


@command.command("add")
@click.argument("name", metavar="NAME")
@mechanism_option("May be repeated; SCRAM-SHA-512 if left out.")
@click.option(
    "--iterations",
    type=click.IntRange(SCRAM_ITERATIONS_MIN, SCRAM_ITERATIONS_MAX),
    default=SCRAM_ITERATIONS_MIN,
    show_default=True,
    help="How much work a password costs who guesses it.",
)
@click.option("--password-file", metavar="FILE", help="Its first line is the password; - is stdin.")
@data_dir_option
@bootstrap_option
def add(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: str | None,
    data_dir: str | None,
    bootstrap: str,
) -> None:
    """Give a user a password; a user that has one gets this one."""
    from kbroker.peer.user_messages import NewPassword

    wanted = _mechanisms(mechanisms or (_NAMES[-1],))
    password = password_of(password_file)
    if data_dir is not None:
        _add_offline(Path(data_dir).expanduser(), name, wanted, password, iterations)
    else:
        with connect(bootstrap) as client:
            for each in wanted:  # one request names a user once
                _alter(client, [NewPassword(name, each, password, iterations)], [])
    say(f"{name}: has a password for {', '.join(each.value for each in wanted)}")


@command.command("list")
@data_dir_option
@bootstrap_option
@output_option
def list_users(data_dir: str | None, bootstrap: str, output: str) -> None:
    """Who has a password, for which mechanisms, with how many iterations."""
    rows = []
    for each in _users(data_dir, bootstrap):
        for mechanism, iterations in each.iterations.items():
            rows.append({"user": each.name, "mechanism": mechanism, "iterations": iterations})
    write_rows(rows, ("USER", "MECHANISM", "ITERATIONS"), output)


@command.command("delete")
@click.argument("name", metavar="NAME")
@mechanism_option("May be repeated; all that the user has if left out.")
@data_dir_option
@bootstrap_option
def delete(name: str, mechanisms: tuple[str, ...], data_dir: str | None, bootstrap: str) -> None:
    """Take a user's passwords away; connections that are open stay."""
    if data_dir is not None:
        from kbroker.metadata.offline_users import remove_in

        remove_in(Path(data_dir).expanduser(), name, _mechanisms(mechanisms or _NAMES))
    else:
        had = next((each for each in _users(None, bootstrap) if each.name == name), None)
        if had is None:
            raise refuse(ErrorCode.RESOURCE_NOT_FOUND, name, "there is no such user")
        with connect(bootstrap) as client:
            for each in _mechanisms(mechanisms or tuple(had.iterations)):
                _alter(client, [], [(name, each)])
    say(f"{name}: has no password for {', '.join(mechanisms) or 'SCRAM'} any more")


def _users(data_dir: str | None, bootstrap: str) -> list[UserScram]:
    from kbroker.peer.security import Security
    from kbroker.peer.user_messages import UserScram

    if data_dir is None:
        with connect(bootstrap) as client:
            return Security(client).users()
    from kbroker.metadata.offline_users import users_in
    from kbroker.metadata.users import credentials

    users = users_in(Path(data_dir).expanduser())
    found: dict[str, dict[str, int]] = {}
    for mechanism in _mechanisms(_NAMES):
        for name, credential in credentials(users, mechanism):
            found.setdefault(name, {})[mechanism.value] = credential.iterations
    return [UserScram(name, found[name]) for name in sorted(found)]


def _add_offline(
    directory: Path,
    name: str,
    mechanisms: Sequence[ScramMechanism],
    password: str,
    iterations: int,
) -> None:
    from kbroker.metadata.offline_users import FirstUser, add_in
    from kbroker.security.scram import new_credential

    directory.mkdir(parents=True, exist_ok=True)
    add_in(
        directory,
        [FirstUser(name, each, new_credential(each, password, iterations)) for each in mechanisms],
    )


def _mechanisms(names: Sequence[str]) -> list[ScramMechanism]:
    from kbroker.security.scram import ScramMechanism

    return [ScramMechanism(name) for name in dict.fromkeys(names)]


def _alter(
    client: Client, new: Sequence[NewPassword], removed: Sequence[tuple[str, ScramMechanism]]
) -> None:
    from kbroker.peer.security import Security

    for each in Security(client).alter_users(new, removed):
        if each.error is not ErrorCode.NONE:
            raise refuse(each.error, each.name, each.message)


def password_of(file: str | None) -> str:
    """The first line of the file (- is stdin), or what is entered. UsageError: there is none."""
    if file is None and sys.stdin.isatty():
        entered: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        return entered
    if file is None:
        raise UsageError("there is no terminal to ask for the password", "name --password-file")
    try:
        if file == "-":
            line = sys.stdin.readline(_PASSWORD_CHARS_MAX + 1)
        else:
            with open(os.path.expanduser(file), encoding="utf-8") as opened:
                line = opened.readline(_PASSWORD_CHARS_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read {file}: {reason}", "check --password-file") from None
    password = line.rstrip("\r\n")
    if len(password) > _PASSWORD_CHARS_MAX:
        raise UsageError(
            f"the first line has more than {_PASSWORD_CHARS_MAX} characters", "is it a password?"
        )
    if not password:
        raise UsageError("the password is empty", "its first line is the password")
    return password
