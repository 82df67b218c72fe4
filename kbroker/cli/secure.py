"""`kbroker secure init DIRECTORY`: brokers with TLS, users and ACLs, in one command.

It makes a certificate authority, a certificate and a `server.properties` for each of one to three
brokers, the first user, and files of clients, and prints what clients need. Nothing is asked, and
no broker runs: users are written into the metadata of a single broker, or into ZooKeeper for
several. Files that hold a secret have the mode 0600, and no secret is printed.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kbroker.cli.numbers import unsigned_of
from kbroker.cli.output import say
from kbroker.errors import UsageError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.cli.files_together import FilesTogether
    from kbroker.cli.secure_files import Node, Plan

BROKERS_MAX: Final = 3
DEFAULT_PORT: Final = 9093
_PORT_MAX: Final = 65_535
_PASSWORD_BYTES: Final = 24
_AUTHORITY_DAYS: Final = 3650
_SECRET: Final = 0o600
_PUBLIC: Final = 0o644


@click.group("secure")
def command() -> None:
    """Make brokers with TLS, users and ACLs."""


@command.command("init")
@click.argument("directory", metavar="DIRECTORY")
@click.option(
    "--broker",
    "brokers",
    metavar="HOST[:PORT]",
    multiple=True,
    help=f"As clients reach it; repeat it for {BROKERS_MAX} at most. localhost:{DEFAULT_PORT} if"
    " left out.",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT,.../PATH", help="Of several brokers; has to run already."
)
@click.option("--user", default="admin", show_default=True, help="The first user; may everything.")
@click.option("--password-file", metavar="FILE", help="Its first line; made up if left out.")
@click.option(
    "--days", type=click.IntRange(1, 3650), default=825, show_default=True,
    help="How long the certificates of brokers are valid.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Leave everything as it is if DIRECTORY has it all.")
def init(
    directory: str,
    brokers: tuple[str, ...],
    zookeeper: str | None,
    user: str,
    password_file: str | None,
    days: int,
    once: bool,
) -> None:
    """Write all that brokers with SASL_SSL and ACLs need into DIRECTORY.

    \b
    kbroker secure init /etc/kbroker --broker kafka.example.com
    kbroker start /etc/kbroker/broker-1.properties
    """
    from kbroker.cli.files_together import settle
    from kbroker.cli.secure_files import BROKER_USER, Plan

    place = Path(os.path.abspath(os.path.expanduser(directory)))
    nodes = _nodes(brokers or (f"localhost:{DEFAULT_PORT}",))
    if len(nodes) > 1 and zookeeper is None:
        raise UsageError(
            f"{len(nodes)} brokers are a cluster, which needs ZooKeeper",
            "add --zookeeper, or name one --broker",
        )
    if user == BROKER_USER or not user or any(not c.isprintable() or c in '";' for c in user):
        raise UsageError(f"'{user}' cannot be the first user's name", "choose another --user")
    if any(c in str(place) for c in ",\n"):
        raise UsageError(f"{place} has a comma, which separates directories", "choose another")
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    if password_file is not None:
        from kbroker.cli.user import password_of

        password = password_of(password_file)
    own, stored = (secrets.token_urlsafe(_PASSWORD_BYTES) for _ in range(2))
    plan = Plan(place, nodes, zookeeper, user, password, own, stored)
    # The last file that is written; others, such as the key of the CA, may be kept elsewhere.
    try:
        if once and plan.librdkafka_file.exists():
            settle(plan.directory)
            say(f"{plan.directory} has everything; nothing is changed")
            return
        _make(plan, days)
    except OSError as error:
        raise UserError(
            f"{error.filename or place}: {error.strerror or error}",
            "name a directory that can be written",
        ) from error
    _print(plan)


def _nodes(texts: Sequence[str]) -> list[Node]:
    from kbroker.cli.secure_files import Node

    if len(texts) > BROKERS_MAX:
        raise UsageError(f"{len(texts)} brokers", f"name {BROKERS_MAX} at most")
    nodes = []
    for number, text in enumerate(texts, start=1):
        host, port = _host_and_port(text)
        port_number = unsigned_of(port, _PORT_MAX)
        if not host or not host.isascii() or port_number is None:
            raise UsageError(f"'{text}' is no HOST or HOST:PORT", "write kafka.example.com:9093")
        nodes.append(Node(number, host, port_number))
    if len({(each.host, each.port) for each in nodes}) < len(nodes):
        raise UsageError("two brokers have one address", "give each a port of its own")
    return nodes


def _host_and_port(text: str) -> tuple[str, str]:
    """`[::1]:9093`, `::1`, `host:9093` or `host`."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":") or str(DEFAULT_PORT)
    if text.count(":") > 1:
        return text, str(DEFAULT_PORT)
    host, _, port = text.partition(":")
    return host, port or str(DEFAULT_PORT)


def _make(plan: Plan, days: int) -> None:
    """All of it, or nothing: what was written is removed if the users cannot be added. The next
    call after a kill removes what was left, and makes all of it."""
    from kbroker.cli.files_together import FilesTogether

    with FilesTogether(plan.directory, [each.name for each in plan.paths]) as files:
        _make_files(plan, days, files)


def _make_files(plan: Plan, days: int, files: FilesTogether) -> None:
    from kbroker.cli import secure_files
    from kbroker.clock import SystemClock
    from kbroker.security.new_certificates import issue, new_authority

    now_ms = SystemClock().wall_ms()
    authority = new_authority("kbroker authority", days=_AUTHORITY_DAYS, now_ms=now_ms)
    files.write(plan.authority, authority.certificate, _PUBLIC)
    files.write(plan.authority_key, authority.key_pem, _SECRET)
    for node in plan.nodes:
        try:
            made = issue(authority, node.name, hosts=node.names, days=days, now_ms=now_ms)
        except ValueError as error:
            raise UsageError(str(error), "check --broker") from None
        files.write(plan.key_store(node), made.key_store, _SECRET)
        settings = secure_files.broker_text(plan, node)
        files.write(plan.properties(node), settings.encode(), _SECRET)
    files.write(plan.password_file, plan.password.encode(), _SECRET)
    files.write(plan.java_file, secure_files.java_text(plan).encode(), _SECRET)
    _add_users(plan)
    # The last file: with all of them there is nothing left to do.
    files.write(plan.librdkafka_file, secure_files.librdkafka_text(plan).encode(), _SECRET)


def _add_users(plan: Plan) -> None:
    from kbroker.cli.secure_files import BROKER_USER
    from kbroker.config import BrokerConfig
    from kbroker.limits import SCRAM_ITERATIONS_MIN
    from kbroker.metadata.offline_users import FirstUser, add, add_in
    from kbroker.security.scram import ScramMechanism, new_credential

    mechanism = ScramMechanism.SHA_512
    users = [
        FirstUser(name, mechanism, new_credential(mechanism, password, SCRAM_ITERATIONS_MIN))
        for name, password in ((plan.user, plan.password), (BROKER_USER, plan.broker_password))
    ]
    config = BrokerConfig.load(str(plan.properties(plan.nodes[0])))  # which checks the file, too
    if plan.zookeeper is None:
        data = Path(config.log_dirs[0])
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        add_in(data, users)
        return
    from kbroker.metadata.store.zookeeper_settings import ZooKeeperSettings
    from kbroker.server.metadata_store import open_zookeeper

    with closing(open_zookeeper(ZooKeeperSettings.of(config))) as tree:
        add(tree, users, with_notices=True)


def _print(plan: Plan) -> None:
    from kbroker.cli.secure_files import client_lines

    say(f"written to {plan.directory}; keep {plan.authority_key.name} from others, best elsewhere")
    for node in plan.nodes:
        say(f"start broker {node.node_id}:  kbroker start {plan.properties(node)}")
    for line in client_lines(plan):
        say(line)
