"""Delegation tokens: the same requests to Apache Kafka and to ours, and Java's tools and clients.

Both brokers have the same secret and two users. A talk is a list of requests, each by one of them;
what comes back is compared, with times counted from when the token was issued.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbroker.cli.main import main
from kbroker.errors import KafkaError
from kbroker.peer.client import Client
from kbroker.protocol import messages
from kbroker.security.client_login import ClientLogin
from kbroker.security.delegation_token import hmac_of, password_of
from kbroker.testing.plain import PlainBroker
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.clients.agents.driver import eventually
from tests.clients.agents.tools import Tools
from tests.support.kafka_sasl import MECHANISMS, PASSWORD, SETTINGS, USER, SaslKafkaBroker

pytestmark = pytest.mark.client
OTHER = "bob"
SECRET = "a secret of tokens"
DAY_MS = 86_400_000
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
TOKENS = {
    "delegation.token.secret.key": SECRET,
    "delegation.token.max.lifetime.ms": 7 * DAY_MS,
    "delegation.token.expiry.time.ms": DAY_MS,
    "listener.name.secure.plain.sasl.jaas.config": (
        f'{_PLAIN} required user_{USER}="{PASSWORD}" user_{OTHER}="{PASSWORD}";'
    ),
}
CREATE, RENEW, EXPIRE, DESCRIBE = (
    messages.create_delegation_token,
    messages.renew_delegation_token,
    messages.expire_delegation_token,
    messages.describe_delegation_token,
)
KEYS = {
    CREATE: ApiKey.CREATE_DELEGATION_TOKEN,
    RENEW: ApiKey.RENEW_DELEGATION_TOKEN,
    EXPIRE: ApiKey.EXPIRE_DELEGATION_TOKEN,
    DESCRIBE: ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


class Ours(PlainBroker):
    def command(self) -> list[str]:
        users = (f"{each}=[name={USER},password={PASSWORD}]" for each in MECHANISMS[1:])
        return [*super().command(), *(word for user in users for word in ("--add-scram", user))]


def ours_at(port: int) -> Ours:
    return Ours(
        {
            **SETTINGS,
            **TOKENS,
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SECURE://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
            "admin.listeners": "http://127.0.0.1:0",
        }
    )


@pytest.fixture(scope="module")
def ours() -> Iterator[int]:
    port = free_port()
    with ours_at(port):
        yield port


class Theirs(SaslKafkaBroker):
    def settings(self) -> dict[str, str]:
        return {**super().settings(), **{key: str(value) for key, value in TOKENS.items()}}


@pytest.fixture(scope="module")
def kafka() -> Iterator[int]:
    with Theirs() as broker:
        yield broker.secure_port


def ask(port: int, login: ClientLogin, table: Any, **fields: Any) -> Any:
    request = table.Request(**fields)
    with Client(f"127.0.0.1:{port}", login=login) as client:
        return client.cluster.anywhere(
            KEYS[table],
            request.encode,
            lambda reader, version: table.Response.decode(reader.raw(reader.left), version),
        )


class Made(NamedTuple):
    token_id: str
    hmac: bytes
    issued_ms: int


class Talk:
    """Of one side."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.said: list[object] = []
        self.made: list[Made] = []

    def by(self, user: str) -> ClientLogin:
        return ClientLogin("PLAIN", user, PASSWORD)

    def with_token(self, made: Made) -> ClientLogin:
        password = password_of(made.hmac)
        return ClientLogin("SCRAM-SHA-256", made.token_id, password, is_token=True)

    def create(self, login: ClientLogin | str = USER, **fields: Any) -> Made:
        by = self.by(login) if isinstance(login, str) else login
        wanted = {"renewers": [], "max_lifetime_ms": -1, **fields}
        answer = ask(self.port, by, CREATE, **wanted)
        made = Made(answer.token_id, answer.hmac, answer.issue_timestamp_ms)
        self.made.append(made)
        self.said += [
            ("created", answer.error_code),
            (answer.principal_type, answer.principal_name),
            (answer.token_requester_principal_type, answer.token_requester_principal_name),
            answer.max_timestamp_ms - answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms - answer.issue_timestamp_ms,
            len(answer.token_id),
            answer.hmac == (hmac_of(SECRET, answer.token_id) if answer.token_id else b""),
        ]
        if made.token_id:  # another broker's image follows a moment later
            eventually(lambda: self._sees(by, made), "the new token is there")
        return made

    def _sees(self, by: ClientLogin, made: Made) -> bool:
        answer = ask(self.port, by, DESCRIBE, owners=None)
        return any(each.token_id == made.token_id for each in answer.tokens)

    def is_live(self, by: ClientLogin, made: Made) -> bool:
        """Whether it is there, and not over."""
        answer = ask(self.port, by, DESCRIBE, owners=None)
        now_ms = time.time() * 1000
        return any(
            each.token_id == made.token_id and each.expiry_timestamp > now_ms
            for each in answer.tokens
        )

    def change(self, what: Any, hmac: bytes, period_ms: int, user: str = USER) -> int:
        name = "renew_period_ms" if what is RENEW else "expiry_time_period_ms"
        fields = {"hmac": hmac, name: period_ms}
        answer = ask(self.port, self.by(user), what, **fields)
        self.said += [(name, answer.error_code), sign_of(answer.expiry_timestamp_ms)]
        return int(answer.error_code)

    def describe(self, login: ClientLogin | str, owners: list[tuple[str, str]] | None) -> None:
        by = self.by(login) if isinstance(login, str) else login
        asked = None if owners is None else [
            DESCRIBE.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in owners
        ]  # fmt: skip
        answer = ask(self.port, by, DESCRIBE, owners=asked)
        ids = [each.token_id for each in self.made]
        found = sorted(
            (
                ids.index(each.token_id),
                each.hmac == hmac_of(SECRET, each.token_id),
                each.principal_name,
                each.token_requester_principal_name,
                tuple(one.principal_name for one in each.renewers),
                each.max_timestamp - each.issue_timestamp,
            )
            for each in answer.tokens
            if each.token_id in ids  # of this talk
        )
        self.said.append(("described", answer.error_code, found))

    def logs_in(self, login: ClientLogin) -> None:
        try:
            with Client(f"127.0.0.1:{self.port}", login=login) as client:
                client.metadata()
            self.said.append("logged in")
        except KafkaError:
            self.said.append("refused")


def sign_of(number: int) -> int:
    return (number > 0) - (number < 0)


def renewers(*names: str, kind: str = "User") -> list[Any]:
    return [CREATE.CreatableRenewers(principal_type=kind, principal_name=each) for each in names]


Script = Callable[[Talk], None]


def lifetimes(talk: Talk) -> None:
    for lifetime_ms in (-(2**63), -1, 0, 1, DAY_MS, 2 * DAY_MS, 8 * DAY_MS, 2**62):
        if lifetime_ms == 1:
            continue  # it may be over before it is seen
        talk.create(max_lifetime_ms=lifetime_ms)


def of_others(talk: Talk) -> None:
    talk.create(owner_principal_type="User", owner_principal_name=OTHER)
    talk.create(owner_principal_type="User", owner_principal_name="")
    talk.create(owner_principal_type="User", owner_principal_name=USER, renewers=renewers(OTHER))
    for kind in ("Group", "user", ""):
        talk.create(renewers=renewers("x", kind=kind))
    for user in (USER, OTHER):
        for owners in (None, [], [("User", USER)], [("User", OTHER)], [("Group", USER)]):
            talk.describe(user, owners)


def renewals(talk: Talk) -> None:
    made = talk.create(renewers=renewers(OTHER), max_lifetime_ms=2 * DAY_MS)
    for period_ms in (-(2**63), -1, 0, 1_000_000, DAY_MS, 8 * DAY_MS):
        talk.change(RENEW, made.hmac, period_ms)
    talk.change(RENEW, made.hmac, -1, OTHER)
    for hmac in (b"", b"x", made.hmac[:-1], made.hmac + b"x", made.hmac * 1_000):
        talk.change(RENEW, hmac, -1)
        talk.change(EXPIRE, hmac, -1)


def mismatches(talk: Talk) -> None:
    made = talk.create(max_lifetime_ms=2 * DAY_MS)
    talk.change(RENEW, made.hmac, -1, OTHER)
    talk.change(EXPIRE, made.hmac, -1, OTHER)
    talk.change(EXPIRE, made.hmac, 1_000_000, OTHER)


def requesters(talk: Talk) -> None:
    """Who has asked for a token of another may see it, and not change it."""
    made = talk.create(owner_principal_type="User", owner_principal_name=OTHER)
    talk.change(RENEW, made.hmac, -1)
    talk.change(EXPIRE, made.hmac, -1)
    talk.change(RENEW, made.hmac, -1, OTHER)
    talk.change(EXPIRE, made.hmac, -1, OTHER)


def ends(talk: Talk) -> None:
    made = talk.create()
    for period_ms in (8 * DAY_MS, 1_000_000):
        talk.change(EXPIRE, made.hmac, period_ms)
    for table in (EXPIRE, RENEW):
        over = talk.create(renewers=renewers(OTHER))
        talk.change(EXPIRE, over.hmac, 0)
        await_end(talk, over)
        talk.change(table, over.hmac, -1, OTHER)
    talk.change(EXPIRE, made.hmac, -7)
    await_end(talk, made)
    talk.change(EXPIRE, made.hmac, -1)


def await_end(talk: Talk, made: Made) -> None:
    """A change shows a moment later, at the original, where a renewal in between brings it back."""
    by = talk.by(USER)
    eventually(lambda: not talk.is_live(by, made), "the token is over")


def logins(talk: Talk) -> None:
    made = talk.create(renewers=renewers(OTHER))
    login = talk.with_token(made)
    for mechanism in MECHANISMS[1:]:
        talk.logs_in(login._replace(mechanism=mechanism))
    talk.logs_in(login._replace(password="x"))
    talk.logs_in(login._replace(is_token=False))
    talk.logs_in(login._replace(name="x"))
    talk.logs_in(ClientLogin("SCRAM-SHA-256", USER, PASSWORD, is_token=True))
    # A client that came with a token gets none of the four.
    answer = ask(talk.port, login, CREATE, renewers=[], max_lifetime_ms=-1)
    talk.said.append((answer.error_code, answer.principal_name, answer.token_id))
    for table, name in ((RENEW, "renew_period_ms"), (EXPIRE, "expiry_time_period_ms")):
        answer = ask(talk.port, login, table, **{"hmac": made.hmac, name: 1})
        talk.said.append((answer.error_code, answer.expiry_timestamp_ms))
    talk.describe(login, None)
    talk.change(EXPIRE, made.hmac, -1)
    eventually(lambda: not _logs_in(talk, login), "the token is gone")
    talk.logs_in(login)


def _logs_in(talk: Talk, login: ClientLogin) -> bool:
    quiet = Talk(talk.port)
    quiet.logs_in(login)
    return quiet.said == ["logged in"]


SCRIPTS: dict[str, Script] = {
    each.__name__: each
    for each in (lifetimes, of_others, renewals, mismatches, requesters, ends, logins)
}


@pytest.mark.java
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_as_apache_kafka(kafka: int, ours: int, name: str) -> None:
    said = []
    for port in (kafka, ours):
        talk = Talk(port)
        SCRIPTS[name](talk)
        said.append(talk.said)
    assert said[1] == said[0]


# --- Java's tools and clients ---------------------------------------------------------------------


def config(directory: Path, name: str, text: str) -> Path:
    file = directory / f"{name}.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\n{text}\n")
    file.chmod(0o600)
    return file


@pytest.mark.java
@pytest.mark.parametrize("mechanism", MECHANISMS[1:])
def test_kafkas_tools(ours: int, tools: Tools, tmp_path: Path, mechanism: str) -> None:
    login = f'sasl.mechanism=PLAIN\nsasl.jaas.config={_PLAIN} required username="{USER}" '
    own = config(tmp_path, "own", f'{login}password="{PASSWORD}";')
    command = "DelegationTokenCommand"
    to = ("--bootstrap-server", f"127.0.0.1:{ours}", "--command-config", str(own))

    def run(*words: str) -> str:
        done = tools.attempt(command, *to, *words)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        return done.stdout.decode()

    created = run("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, hmac = next(
        re.findall(r"\S+", line)[:2] for line in created.splitlines() if "User:alice" in line
    )
    assert hmac == password_of(hmac_of(SECRET, token_id))
    assert token_id in run("--describe", "--owner-principal", f"User:{USER}")
    assert "Completed renew" in run("--renew", "--hmac", hmac, "--renew-time-period", "-1")
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    text = f'sasl.jaas.config={scram} required username="{token_id}" password="{hmac}"'
    by_token = config(tmp_path, "token", f'sasl.mechanism={mechanism}\n{text} tokenauth="true";')
    with_token = ("--bootstrap-server", f"127.0.0.1:{ours}", "--command-config", str(by_token))
    topic = f"java-{mechanism}"
    made = tools.attempt("TopicCommand", *with_token, "--create", "--topic", topic)
    assert made.returncode == 0, (made.stdout + made.stderr).decode()
    produced = tools.attempt("ConsoleProducer", *with_token, "--topic", topic, stdin=b"by token\n")
    assert produced.returncode == 0, produced
    refused = tools.attempt(command, *with_token, "--create", "--max-life-time-period", "-1")
    assert refused.returncode != 0
    assert "DelegationTokenDisabled" not in (refused.stdout + refused.stderr).decode()
    assert "Completed expire" in run("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
    gone = tools.attempt("TopicCommand", *with_token, "--list")
    assert gone.returncode != 0
    assert "SaslAuthenticationException" in (gone.stdout + gone.stderr).decode()


def test_our_own_commands(ours: int, tmp_path: Path, capfd: Any) -> None:
    login = f'sasl.mechanism=PLAIN\nsasl.jaas.config={_PLAIN} required username="{USER}" '
    own = config(tmp_path, "own", f'{login}password="{PASSWORD}";')

    def run(*words: str, file: Path = own) -> tuple[int, str]:
        status = main([*words, "-b", f"127.0.0.1:{ours}", "--command-config", str(file)])
        captured = capfd.readouterr()
        return status, captured.out + captured.err

    made = tmp_path / "token.properties"
    status, text = run("token", "create", "--file", str(made), "--renewer", "User:bob")
    assert status == 0, text
    found = re.search(r"token_id: (\S+)", text)
    assert found is not None
    token_id = found[1]
    password = password_of(hmac_of(SECRET, token_id))
    assert password not in text and password in made.read_text()
    assert made.stat().st_mode & 0o777 == 0o600
    assert run("topic", "list", file=made)[0] == 0
    status, text = run("token", "create", file=made)
    assert status != 0 and "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in text
    status, text = run("token", "list")
    assert status == 0 and token_id in text and password not in text
    assert run("token", "renew", token_id)[0] == 0
    assert run("token", "expire", token_id, "--after", "1h")[0] == 0
    assert run("token", "expire", token_id)[0] == 0
    status, text = run("token", "renew", token_id)
    assert status != 0 and "DELEGATION_TOKEN_NOT_FOUND" in text
    assert run("topic", "list", file=made)[0] != 0
    status, text = run("token", "create", "--file", str(made))
    assert status != 0 and "cannot write" in text
    status, text = run("token", "create", "--owner", "bob")
    assert status != 0 and "write User:NAME" in text


def test_tokens_outlive_a_restart() -> None:
    port = free_port()
    with ours_at(port) as broker:
        talk = Talk(port)
        made = talk.create()
        broker.restart()
        talk.logs_in(talk.with_token(made))
        assert talk.said[-1] == "logged in"
