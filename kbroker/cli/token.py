"""`kbroker token create|list|renew|expire`: delegation tokens, by which programs act for a user.

`create` writes a file for --command-config, or for any client that reads Java's, with the mode
0600: the token's HMAC, which is its password, is in it and on no terminal. `list` shows no HMAC.
`renew` and `expire` name a token by its id, so that no HMAC is on a command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

import click

from kbroker.cli.connect import bootstrap_option, command_config, connect, refuse
from kbroker.cli.output import output_option, say, write_json, write_rows
from kbroker.errors import ErrorCode, UsageError
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.token_messages import KnownToken
    from kbroker.security.session import Principal

_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LONGEST: Final = -1
_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_PRINCIPAL_HELP: Final = "As User:NAME."
# Of a file for --command-config: not the key of a client's certificate, which is another login.
_KEPT_PREFIXES: Final = ("ssl.truststore.", "ssl.endpoint.")


@click.group("token")
def command() -> None:
    """Create, list, renew and remove delegation tokens."""


@command.command("create")
@click.option("--file", "file", metavar="FILE", help="Write a client's settings, mode 0600.")
@click.option("--owner", metavar="PRINCIPAL", help=f"By default the client. {_PRINCIPAL_HELP}")
@click.option(
    "--renewer", "renewers", metavar="PRINCIPAL", multiple=True,
    help=f"Repeatable. {_PRINCIPAL_HELP}",
)  # fmt: skip
@click.option("--lifetime", metavar="SPAN", help="Such as 7d; as long as is allowed if left out.")
@click.option(
    "--mechanism", type=click.Choice(_MECHANISMS), default=_MECHANISMS[0], show_default=True,
    help="Of the login in FILE.",
)  # fmt: skip
@bootstrap_option
@output_option
def create(
    file: str | None,
    owner: str | None,
    renewers: tuple[str, ...],
    lifetime: str | None,
    mechanism: str,
    bootstrap: str,
    output: str,
) -> None:
    """Create a token. Without --file its HMAC is printed, which is a password."""
    from kbroker.peer.token_messages import decode_create_token, encode_create_token

    lifetime_ms = _span_ms(lifetime)
    of = None if owner is None else _principal(owner)
    who = [_principal(each) for each in renewers]
    with _new_file(file) as written, connect(bootstrap) as client:
        made = client.cluster.anywhere(
            ApiKey.CREATE_DELEGATION_TOKEN,
            lambda version: encode_create_token(version, of, who, lifetime_ms),
            decode_create_token,
        )
        if written is not None:
            written.write(_settings(made, mechanism))
    row = _row(made)
    if file is None:
        from kbroker.security.delegation_token import password_of

        row["hmac"] = password_of(made.hmac)
    else:
        row["file"] = file
    if output == "json":
        write_json(row)
    else:
        for name, value in row.items():
            say(f"{name}: {value}")


@command.command("list")
@click.option("--owner", "owners", metavar="PRINCIPAL", multiple=True, help=_PRINCIPAL_HELP)
@bootstrap_option
@output_option
def list_tokens(owners: tuple[str, ...], bootstrap: str, output: str) -> None:
    """The tokens that you own, have asked for, may renew or may describe."""
    with connect(bootstrap) as client:
        found = _described(client, [_principal(each) for each in owners] or None)
    rows = [_row(each) for each in sorted(found, key=lambda each: each.token.issued_ms)]
    titles = ("TOKEN ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "AT THE LATEST")
    write_rows(rows, titles, output)


@command.command("renew")
@click.argument("token_id", metavar="ID")
@click.option("--period", metavar="SPAN", help="Such as 1d; as long as is allowed if left out.")
@bootstrap_option
def renew(token_id: str, period: str | None, bootstrap: str) -> None:
    """Have a token be valid for longer."""
    from kbroker.findings.moments import shown_moment
    from kbroker.peer.token_messages import decode_renew_token, encode_renew_token

    period_ms = _span_ms(period)
    with connect(bootstrap) as client:
        hmac = _hmac_of(client, token_id)
        expires_ms = client.cluster.anywhere(
            ApiKey.RENEW_DELEGATION_TOKEN,
            lambda version: encode_renew_token(version, hmac, period_ms),
            decode_renew_token,
        )
    say(f"{token_id}: expires {shown_moment(expires_ms)}")


@command.command("expire")
@click.argument("token_id", metavar="ID")
@click.option("--after", metavar="SPAN", help="Such as 1h; at once if left out.")
@bootstrap_option
def expire(token_id: str, after: str | None, bootstrap: str) -> None:
    """Remove a token, or have it expire earlier. Connections that are open stay until then."""
    from kbroker.findings.moments import shown_moment
    from kbroker.peer.token_messages import decode_expire_token, encode_expire_token

    period_ms = _span_ms(after)
    with connect(bootstrap) as client:
        hmac = _hmac_of(client, token_id)
        expires_ms = client.cluster.anywhere(
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            lambda version: encode_expire_token(version, hmac, period_ms),
            decode_expire_token,
        )
    say(f"{token_id}: {'removed' if after is None else f'expires {shown_moment(expires_ms)}'}")


def _described(client: Client, owners: list[Principal] | None) -> list[KnownToken]:
    from kbroker.peer.security import Security

    return Security(client).tokens(owners)


def _hmac_of(client: Client, token_id: str) -> bytes:
    for each in _described(client, None):
        if each.token.token_id == token_id:
            return each.hmac
    error = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    raise refuse(error, token_id, "there is no such token that you may describe")


def _row(known: KnownToken) -> dict[str, object]:
    from kbroker.findings.moments import shown_moment

    token = known.token
    return {
        "token_id": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": ",".join(map(str, token.renewers)),
        "issued": shown_moment(token.issued_ms),
        "expires": shown_moment(token.expires_ms),
        "at_the_latest": shown_moment(token.max_ms),
    }


def _span_ms(text: str | None) -> int:
    from kbroker.findings.moments import parse_span

    return _LONGEST if text is None else parse_span(text)


def _principal(text: str) -> Principal:
    from kbroker.security.session import Principal

    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise UsageError(f"{text!r} is no principal", "write User:NAME")
    return Principal(kind, name)


@contextmanager
def _new_file(file: str | None) -> Iterator[TextIO | None]:
    """A file of our own, opened before there is anything to lose. UsageError: it cannot be."""
    if file is None:
        yield None
        return
    path = os.path.expanduser(file)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", "name another file") from None
    try:
        with open(descriptor, "w", encoding="utf-8") as opened:
            yield opened
    except BaseException:
        os.unlink(path)
        raise


def _settings(made: KnownToken, mechanism: str) -> str:
    """What a client needs: the login, and how this command has reached the brokers."""
    from kbroker.config.sources import file_line, read_file
    from kbroker.security.delegation_token import password_of

    kept: list[str] = []
    if (used := command_config()) is not None:
        kept = [
            f"{file_line(name, setting.text)}\n"  # a certificate has several lines
            for name, setting in read_file(used).items()
            if name == "security.protocol" or name.startswith(_KEPT_PREFIXES)
        ]
    login = (
        f'{_LOGIN} required username="{made.token.token_id}" '
        f'password="{password_of(made.hmac)}" tokenauth="true";'
    )
    return "".join((*kept, f"sasl.mechanism={mechanism}\nsasl.jaas.config={login}\n"))
