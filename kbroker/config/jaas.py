"""JAAS text as Apache Kafka's configuration has it: login modules and their options.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="secret" user_alice="hers";

A file of java.security.auth.login.config has such lists in sections: `KafkaServer { ... };`.
Values are words, or texts in quotes with Java's escapes; `//` and `/* */` are comments.

Only three login modules mean anything here, by their exact names; others are refused by name,
since a module that a client could choose was how brokers were taken over (CVE-2023-25194).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from kbroker.errors import ConfigError
from kbroker.limits import JAAS_TEXT_BYTES_MAX

_PACKAGE: Final = "org.apache.kafka.common.security"
PLAIN_MODULE: Final = f"{_PACKAGE}.plain.PlainLoginModule"
SCRAM_MODULE: Final = f"{_PACKAGE}.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule"
MODULES: Final = (PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE)

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_USER: Final = "user_"
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
    | (?P<mark>[;={}])
    | (?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<word>[\w.$:@+-]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<LoginModule {self.name}>"  # its options are passwords

    @property
    def own_login(self) -> tuple[str, str] | None:
        """The name and password with which this broker, or this client, logs in elsewhere."""
        name, password = self.options.get("username"), self.options.get("password")
        return None if name is None or password is None else (name, password)

    @property
    def users(self) -> Mapping[str, str]:
        """Passwords by user, of those that a listener lets in with PLAIN."""
        return {
            key.removeprefix(_USER): value
            for key, value in self.options.items()
            if key.startswith(_USER) and len(key) > len(_USER)
        }


class _Token(NamedTuple):
    text: str
    is_mark: bool


class _Tokens:
    """One token of look-ahead, and errors that name the key."""

    def __init__(self, key: str, text: str) -> None:
        self._key = key
        if len(text) > JAAS_TEXT_BYTES_MAX:
            raise self.error(f"has more than {JAAS_TEXT_BYTES_MAX} characters")
        self._left = iter(self._split(text))
        self.next = next(self._left, None)

    def error(self, what: str) -> ConfigError:
        # No text of it: it has passwords.
        return ConfigError(
            f"{self._key}: the JAAS text {what}",
            'write MODULE required username="NAME" password="PASSWORD";',
        )

    def _split(self, text: str) -> Iterator[_Token]:
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(f"cannot be read from character {at} on")
            at = match.end()
            if match["mark"] is not None:
                yield _Token(match["mark"], True)
            elif match["word"] is not None:
                yield _Token(match["word"], False)
            elif match["quoted"] is not None:
                yield _Token(_ESCAPE.sub(_unescape, match["quoted"][1:-1]), False)

    def take(self, wanted: str) -> str:
        token, self.next = self.next, next(self._left, None)
        if token is None or token.is_mark:
            raise self.error(f"lacks {wanted}")
        return token.text

    def take_mark(self, mark: str) -> None:
        token, self.next = self.next, next(self._left, None)
        if token != _Token(mark, True):
            raise self.error(f"lacks a {mark!r}")

    def is_at(self, mark: str) -> bool:
        return self.next == _Token(mark, True)


def parse_login_module(key: str, text: str) -> LoginModule:
    """The one login module of a configuration value. ConfigError: it is none, or not one of ours.
    The error names the key, and quotes nothing but the module's name."""
    tokens = _Tokens(key, text)
    modules = []
    while tokens.next is not None:
        modules.append(_module(key, tokens))
    if len(modules) != 1:
        raise tokens.error(f"has {len(modules)} login modules instead of one")
    return modules[0]


def parse_login_file(path: str, text: str) -> Mapping[str, Sequence[LoginModule]]:
    """The sections of a file by name. ConfigError as above."""
    tokens = _Tokens(path, text)
    sections: dict[str, Sequence[LoginModule]] = {}
    while tokens.next is not None:
        name = tokens.take("the name of a section")
        tokens.take_mark("{")
        modules: list[LoginModule] = []
        while not tokens.is_at("}"):
            modules.append(_module(f"{path}, {name}", tokens, only_ours=False))
        tokens.take_mark("}")
        tokens.take_mark(";")
        if name in sections:
            raise tokens.error(f"has the section {name} twice")
        sections[name] = tuple(modules)
    return MappingProxyType(sections)


def login_section(
    path: str, sections: Mapping[str, Sequence[LoginModule]], names: Sequence[str]
) -> LoginModule | None:
    """The login module of the first of these sections that is there."""
    for name in names:
        modules = sections.get(name)
        if modules is None:
            continue
        if len(modules) != 1:
            raise ConfigError(
                f"{path}: section {name} has {len(modules)} login modules", "keep one"
            )
        check_module(f"{path}, {name}", modules[0].name)
        return modules[0]
    return None


def check_module(key: str, name: str) -> None:
    if name not in MODULES:
        raise ConfigError(
            f"{key}: the login module {name!r} is not known here",
            "use the PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule of Apache Kafka",
        )


def _module(key: str, tokens: _Tokens, *, only_ours: bool = True) -> LoginModule:
    name = tokens.take("a login module")
    if only_ours:
        check_module(key, name)
    if tokens.take("a control flag").lower() not in _FLAGS:
        raise tokens.error("has no control flag, such as required, after its login module")
    options: dict[str, str] = {}
    while not tokens.is_at(";"):
        option = tokens.take("a ';' at the end of a login module")
        tokens.take_mark("=")
        options[option] = tokens.take(f"a value of {option!r}")
    tokens.take_mark(";")
    return LoginModule(name, MappingProxyType(options))


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return _ESCAPED.get(escape, escape)
