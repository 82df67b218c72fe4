"""Who logs in where with SASL, as the configuration says it in JAAS text.

Place in the flow: `check_listener_security` has the logins of each SASL listener checked when the
configuration is read, and before a setting at run time is taken; `server/sasl.py` makes mechanisms
of them, and looks at a start whether each can let a client in. As Apache Kafka has it:

- A broker's text is in `listener.name.NAME.MECHANISM.sasl.jaas.config`, with both prefixes. Without
  them it is not used, which is said in a warning.
- Where a listener and mechanism have no text, the file of `kbroker.login.config.file` is read, its
  section `name.KafkaServer` or else `KafkaServer`.

Immutable values; any thread. No password is in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    LoginModule,
    login_section,
    parse_login_file,
    parse_login_module,
)
from kbroker.config.oauth_settings import OAUTHBEARER, oauth_settings, token_file
from kbroker.config.sources import FILE_BYTES_MAX
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity

JAAS: Final = "sasl.jaas.config"
LOGIN_FILE: Final = "kbroker.login.config.file"
BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES: Final = {
    PLAIN: PLAIN_MODULE,
    **dict.fromkeys(SCRAM, SCRAM_MODULE),
    OAUTHBEARER: OAUTHBEARER_MODULE,
}
# Those that this version has.
SERVED: Final = (PLAIN, *SCRAM, OAUTHBEARER)
NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


class Login(NamedTuple):
    """With which a client of ours authenticates: a name and a password, or a file with a token."""

    mechanism: str
    name: str = ""
    password: str = ""
    token_file: str = ""

    def __repr__(self) -> str:
        return f"<Login {self.mechanism} of {self.name!r}>"  # its password is for no log


def login_module(security: ListenerSecurity, mechanism: str) -> LoginModule | None:
    """The login module of a listener's mechanism; None: there is none. ConfigError: it is none of
    this mechanism."""
    if security.is_of_mechanism(mechanism, JAAS):
        key = f"the {JAAS} of {security.name}, {mechanism}"
        module = parse_login_module(key, security.of_mechanism(mechanism, JAAS))
    else:
        key = security[LOGIN_FILE]
        found = _module_of_file(key, security.name, mechanism) if key else None
        if found is None:
            return None
        module = found
    if module.name != _MODULES[mechanism]:
        raise ConfigError(
            f"{key}: {module.name} is no login module of {mechanism}", f"use {_MODULES[mechanism]}"
        )
    return module


def _module_of_file(path: str, listener: str, mechanism: str) -> LoginModule | None:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{LOGIN_FILE}: cannot read {path}: {reason}", "check it") from None
    sections = parse_login_file(path, text)
    names = (f"{listener.lower()}.KafkaServer", "KafkaServer")
    module = login_section(path, sections, names)
    # One section is for all mechanisms of a listener: it may be another's.
    return None if module is None or module.name != _MODULES[mechanism] else module


def check_logins(security: ListenerSecurity) -> None:
    """ConfigError: the logins of a listener are not what they should be."""
    for mechanism in security.mechanisms:
        login_module(security, mechanism)


def check_at_start(security: ListenerSecurity) -> None:
    """ConfigError: a listener has a mechanism that lets no client in."""
    for mechanism in security.mechanisms:
        if mechanism not in SERVED:
            raise ConfigError(
                f"sasl.enabled.mechanisms: {mechanism} is not served by this version",
                f"use {', '.join(SERVED)}",
            )
        if mechanism == OAUTHBEARER:
            module = login_module(security, mechanism)
            oauth_settings(security, NO_OPTIONS if module is None else module.options)
        if mechanism == PLAIN and login_module(security, mechanism) is None:
            key = f"listener.name.{security.name.lower()}.plain.{JAAS}"
            raise ConfigError(
                f"listeners: {security.name} has PLAIN, and no user has a password for it",
                f'set {key} to {PLAIN_MODULE} required user_NAME="PASSWORD";',
            )


def check_sasl(config: BrokerConfig) -> None:
    """ConfigError: a listener lets no client in, or this broker has to log in at others, and
    cannot."""
    for name in config.listeners.names:
        security = config.security_of(name)
        if security.uses_sasl:
            check_at_start(security)
    login_between_brokers(config)


def login_between_brokers(config: BrokerConfig) -> Login | None:
    """With which this broker authenticates at the others; None: it need not. ConfigError: it has
    to, and cannot."""
    name = config.listeners.inter_broker_name
    security = config.security_of(name)
    if not security.uses_sasl:
        return None
    mechanism = config[BETWEEN_BROKERS]
    if mechanism not in security.mechanisms or mechanism not in SERVED:
        raise ConfigError(
            f"{BETWEEN_BROKERS}={mechanism} is no mechanism of {name}, on which brokers talk",
            f"use one of {', '.join(security.mechanisms)}",
        )
    if mechanism == OAUTHBEARER:
        return Login(mechanism, token_file=token_file(security))
    module = login_module(security, mechanism)
    own = None if module is None else module.own_login
    if own is None:
        key = f"listener.name.{name.lower()}.{mechanism.lower()}.{JAAS}"
        raise ConfigError(
            f"brokers authenticate on {name} with {mechanism}, and this one has no login there",
            f"set username and password in {key}",
        )
    return Login(mechanism, *own)


def ignored_texts(config: BrokerConfig) -> list[str]:
    """The names under which JAAS text is set that no mechanism of a listener reads."""
    used = {
        f"listener.name.{name.lower()}.{mechanism.lower()}.{JAAS}"
        for name in config.listeners.names
        for mechanism in _MODULES
    }
    return [name for name in config.set_names() if name.endswith(JAAS) and name not in used]
