"""Users, TLS and ACLs of a broker under test: its settings and files, and those of its clients.

    with Broker(users={"alice": "pw"}, tls=True, acls=["alice Write topic:orders"]) as b:
        producer = Producer(b.client_settings("alice"))

Clients come to the listener SECURE: `SASL_PLAINTEXT`, `SSL` or `SASL_SSL`. A second listener,
INSIDE, is for the object that starts the broker; it needs no password, and its principal,
User:ANONYMOUS, is a super user. Each user may log in with PLAIN and both kinds of SCRAM. The
authority and the broker's certificate are made for each broker, and are gone with it.

No password is in the process's arguments. Owner: the thread that made the broker.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from kbroker.security.acls import Acl
    from kbroker.security.new_certificates import Issued

SECURE: Final = "SECURE"
INSIDE: Final = "INSIDE"
HOST: Final = "127.0.0.1"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_MECHANISM: Final = "SCRAM-SHA-256"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MODULES: Final = "org.apache.kafka.common.security"
_HOSTS: Final = ("localhost", HOST, "::1")
_DAYS: Final = 2
_SECRET: Final = 0o600


class Wanted(NamedTuple):
    """`acls` None: no authorizer; every user may do everything."""

    users: Mapping[str, str]
    tls: bool
    acls: Sequence[str] | None

    @property
    def is_any(self) -> bool:
        return bool(self.users) or self.tls or self.acls is not None


class Secured:
    """Of one broker, whose files are in `directory`."""

    def __init__(self, wanted: Wanted, directory: Path) -> None:
        """ValueError: these do not go together, or an ACL is none."""
        if wanted.acls is not None and not wanted.users:
            raise ValueError("ACLs are for users: name users, too")
        self.users: Final = dict(wanted.users)
        self.acls: Final = [acl for text in wanted.acls or () for acl in (parse_acl(text),)]
        self.has_tls: Final = wanted.tls
        self._has_authorizer = wanted.acls is not None
        self._directory = directory
        self._authority: Issued | None = None
        self._has_users = False

    @property
    def protocol(self) -> str:
        if not self.users:
            return "SSL"
        return "SASL_SSL" if self.has_tls else "SASL_PLAINTEXT"

    @property
    def authority_path(self) -> Path:
        """The certificate that clients have to trust."""
        return self._directory / "authority.pem"

    # --- the broker's side ------------------------------------------------------------------------

    def listeners(self, port: int) -> str:
        return f"{SECURE}://{HOST}:{port},{INSIDE}://{HOST}:0"

    def settings(self) -> dict[str, str]:
        found = {
            "listener.security.protocol.map": f"{SECURE}:{self.protocol},{INSIDE}:PLAINTEXT",
            "inter.broker.listener.name": INSIDE,
            "admin.listeners": f"http://{HOST}:0",
        }
        if self.users:
            found["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            found["kbroker.login.config.file"] = str(self._login_path)
        if self.has_tls:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._store_path),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority_path),
                "ssl.client.auth": "requested",
            }
        if self._has_authorizer:
            found["authorizer.class.name"] = AUTHORIZER
            found["super.users"] = "User:ANONYMOUS"
        return found

    def prepare(self, data_dir: Path) -> None:
        """Write its files, and its users into the metadata, before its first start."""
        if self.has_tls and self._authority is None:
            self._make_certificates()
        if self.users and not self._has_users:
            self._has_users = True
            _write(self._login_path, _login_file(self.users))
            _add_users(data_dir, self.users)

    @property
    def _login_path(self) -> Path:
        return self._directory / "login.conf"

    @property
    def _store_path(self) -> Path:
        return self._directory / "broker.pem"

    def _make_certificates(self) -> None:
        from kbroker.clock import SystemClock
        from kbroker.security.new_certificates import issue, new_authority

        now_ms = SystemClock().wall_ms()
        self._authority = new_authority("kbroker.testing", days=_DAYS, now_ms=now_ms)
        self.authority_path.write_bytes(self._authority.certificate)
        made = issue(self._authority, "broker", hosts=_HOSTS, days=_DAYS, now_ms=now_ms)
        _write(self._store_path, made.key_store)

    def client_certificate(self, name: str) -> Path:
        """A key store in PEM of a client CN=`name`; made when it is asked for."""
        if self._authority is None:
            raise ValueError("there are certificates with tls=True, when the broker has started")
        from kbroker.clock import SystemClock
        from kbroker.security.new_certificates import issue

        path = self._directory / f"client-{name.encode().hex()}.pem"
        if not path.exists():
            now_ms = SystemClock().wall_ms()
            made = issue(self._authority, name, hosts=(), days=_DAYS, now_ms=now_ms)
            _write(path, made.key_store)
        return path

    # --- the clients' side ------------------------------------------------------------------------

    def password_of(self, user: str) -> str:
        try:
            return self.users[user]
        except KeyError:
            known = ", ".join(self.users) or "none"
            raise ValueError(f"the broker has no user {user!r}; it has {known}") from None

    def librdkafka(self, user: str | None, mechanism: str, password: str) -> dict[str, str]:
        settings = {"security.protocol": self._protocol_of(user)}
        if self.has_tls:
            settings["ssl.ca.location"] = str(self.authority_path)
        if user is not None:
            settings |= {
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": password,
            }
        return settings

    def java(self, user: str | None, mechanism: str, password: str) -> dict[str, str]:
        settings = {"security.protocol": self._protocol_of(user)}
        if self.has_tls:
            settings["ssl.truststore.type"] = "PEM"
            settings["ssl.truststore.location"] = str(self.authority_path)
        if user is not None:
            settings["sasl.mechanism"] = mechanism
            settings["sasl.jaas.config"] = (
                f"{_module(mechanism)} required username={_quoted(user)}"
                f" password={_quoted(password)};"
            )
        return settings

    def python(self, user: str | None, mechanism: str, password: str) -> dict[str, Any]:
        settings: dict[str, Any] = {"security_protocol": self._protocol_of(user)}
        if self.has_tls:
            settings["ssl_context"] = ssl.create_default_context(cafile=str(self.authority_path))
        if user is not None:
            settings |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
        return settings

    def _protocol_of(self, user: str | None) -> str:
        """A client without a user speaks no SASL, which a broker with users refuses."""
        if user is None:
            return "SSL" if self.has_tls else "PLAINTEXT"
        return self.protocol


def parse_acl(text: str) -> Acl:
    """`[deny] USER OPERATION RESOURCE`, as `alice Read topic:orders`. A name that ends with * is a
    prefix; `topic:*` is every topic. ValueError: it is not of this form."""
    from kbroker.errors import UsageError
    from kbroker.findings.acl_words import check_operation, parse_operation, parse_resource
    from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission

    words = text.split()
    permission = Permission.ALLOW
    if words[:1] == ["deny"]:
        permission, words = Permission.DENY, words[1:]
    if len(words) != 3:
        raise ValueError(f"'{text}' is no ACL; write it as 'alice Read topic:orders'")
    user, operation_text, resource = words
    try:
        operation = parse_operation(operation_text)
        type_, name = parse_resource(resource)
        check_operation(type_, operation)
    except UsageError as error:
        raise ValueError(f"'{text}' is no ACL: {error}") from None
    kind = PatternType.LITERAL
    if name.endswith("*") and name != "*":
        kind, name = PatternType.PREFIXED, name[:-1]
    principal = user if ":" in user else f"User:{user}"
    return Acl(Pattern(type_, kind, name), Entry(principal, "*", operation, permission))


def _add_users(data_dir: Path, users: Mapping[str, str]) -> None:
    from kbroker.limits import SCRAM_ITERATIONS_MIN
    from kbroker.metadata.offline_users import FirstUser, add_in
    from kbroker.security.scram import ScramMechanism, new_credential

    data_dir.mkdir(parents=True, exist_ok=True)
    add_in(
        data_dir,
        [
            FirstUser(name, each, new_credential(each, password, SCRAM_ITERATIONS_MIN))
            for name, password in users.items()
            for each in ScramMechanism
        ],
    )


def _login_file(users: Mapping[str, str]) -> bytes:
    options = " ".join(
        f"{_quoted(f'user_{name}')}={_quoted(password)}" for name, password in users.items()
    )
    return f"KafkaServer {{\n  {_module('PLAIN')} required {options};\n}};\n".encode()


def _module(mechanism: str) -> str:
    name = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return f"{_MODULES}.{name}LoginModule"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _SECRET)
    with open(descriptor, "wb") as file:
        file.write(data)
