"""The start of a broker in a container, by the rules of Apache Kafka's image.

Place in the flow: `kbroker start` asks for `settings_of` where the variable KBROKER_CONTAINER names
a file, as our image sets it; elsewhere this module is not imported. Variables that are settings
follow `sources.py`, in a container and outside of one. What the image adds:

- The file of KBROKER_CONTAINER has settings that hold where no other source has them. Apache
  Kafka's image drops its defaults as soon as one setting is given; these stay.
- `server.properties` below /mnt/shared/config is the file, unless the command names one.
- SSL_KEYSTORE_FILENAME and SSL_TRUSTSTORE_FILENAME name a file below /etc/kafka/secrets. The first
  line of the file that SSL_KEYSTORE_CREDENTIALS, SSL_KEY_CREDENTIALS or SSL_TRUSTSTORE_CREDENTIALS
  names there is the password. KAFKA_OPTS may name a file of login modules.
- Variables of Bitnami's image, which begin with KAFKA_CFG_, are those that begin with KAFKA_.
- `listeners` that are not given have the names and ports of `advertised.listeners`.

`advice_of` is the line for the mistake that most users of such images make: an advertised
`localhost` sends the clients of other containers to themselves.

Pure but for reading those files; the main thread, before the broker starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.config.listeners import ADVERTISED, format_address, parse_endpoint
from kbroker.config.sources import (
    CONTAINER,
    PREFIXES,
    Setting,
    read_environment,
    read_file,
    read_overrides,
)
from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

MOUNTED: Final = Path("/mnt/shared/config/server.properties")
SECRETS: Final = Path("/etc/kafka/secrets")
PASSWORD_BYTES_MAX: Final = 4096

_BITNAMI: Final = "KAFKA_CFG_"
_LISTENERS: Final = "listeners"
_STORES: Final = ("SSL_KEYSTORE", "SSL_TRUSTSTORE")
_PASSWORDS: Final = (*_STORES, "SSL_KEY")
_LOGIN_FILE: Final = re.compile(r"-Djava\.security\.auth\.login\.config==?(\S+)")
_LOGIN_KEY: Final = "kbroker.login.config.file"
_LOOPBACK: Final = re.compile(r"localhost|127(\.\d+){3}|::1")
# A default of the first is none where one of the others is given.
_REPLACED_BY: Final = {"log.dirs": ("log.dir",)}


class ContainerSettings(NamedTuple):
    """The sources of a configuration: the file, and settings of a variable or of the image."""

    file: str | None
    environment: Mapping[str, str]
    defaults: Mapping[str, Setting]


def settings_of(
    environ: Mapping[str, str], file: str | None, overrides: Iterable[str]
) -> ContainerSettings:
    """The sources for the start of a broker in a container. ConfigError: a file that a variable
    names cannot be read."""
    if file is None and MOUNTED.exists():
        file = str(MOUNTED)
    environment = _with_secrets(environ)
    given = read_environment(environment) | read_overrides(overrides)
    if file is not None:
        given = read_file(file) | given
    defaults = {
        name: setting
        for name, setting in read_file(environ[CONTAINER]).items()
        if not any(other in given for other in _REPLACED_BY.get(name, ()))
    }
    if _LISTENERS in given:
        defaults.pop(ADVERTISED, None)
    elif ADVERTISED in given and given[ADVERTISED].text.strip():
        defaults[_LISTENERS] = _bound(given[ADVERTISED])
    return ContainerSettings(file, environment, defaults)


def _bound(advertised: Setting) -> Setting:
    """A listener for each advertised one, on every address."""
    texts = [text.strip() for text in advertised.text.split(",") if text.strip()]
    endpoints = [parse_endpoint(ADVERTISED, text) for text in texts]
    bound = ",".join(f"{name}://{format_address('', port)}" for name, _, port in endpoints)
    return Setting(bound, f"the ports of {ADVERTISED}, {advertised.origin}")


def _with_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, those of the image's own replaced by the settings that they mean."""
    made = dict(environ)
    for name in environ:
        if name.startswith(_BITNAMI):
            made.setdefault(f"{PREFIXES[0]}{name.removeprefix(_BITNAMI)}", made.pop(name))
    for prefix in PREFIXES:
        for store in _STORES:
            name = made.pop(f"{prefix}{store}_FILENAME", "")
            if name:
                path = _there(f"{prefix}{store}_FILENAME", SECRETS / name)
                made.setdefault(f"{prefix}{store}_LOCATION", str(path))
        for secret in _PASSWORDS:
            name = made.pop(f"{prefix}{secret}_CREDENTIALS", "")
            if name:
                password = _first_line(f"{prefix}{secret}_CREDENTIALS", SECRETS / name)
                made.setdefault(f"{prefix}{secret}_PASSWORD", password)
        named = _LOGIN_FILE.search(made.get(f"{prefix}OPTS", ""))
        if named is not None and _LOGIN_KEY not in read_environment(made):
            made[f"{prefix}{_LOGIN_KEY.upper().replace('.', '_')}"] = named[1]
    return made


def _there(variable: str, path: Path) -> Path:
    try:
        is_there = path.is_file()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{variable}: cannot read {path}: {reason}", "check modes") from None
    if not is_there:
        raise ConfigError(f"{variable}: there is no file {path}", "mount it into the container")
    return path


def _first_line(variable: str, path: Path) -> str:
    try:
        with _there(variable, path).open("rb") as file:
            data = file.read(PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{variable}: cannot read {path}: {reason}", "check its mode") from None
    lines = data.splitlines()
    if len(data) > PASSWORD_BYTES_MAX or len(lines) != 1:
        raise ConfigError(
            f"{variable}: {path} is no line with a password of {PASSWORD_BYTES_MAX} bytes at most"
        )
    try:
        return lines[0].decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{variable}: {path} is no UTF-8") from None


def advice_of(config: BrokerConfig) -> str | None:
    """A line if clients outside of this container cannot use what the broker advertises: every
    listener is advertised with a loopback address, and one accepts connections from outside."""
    listeners = config.listeners
    open_to_others = [
        each for each in listeners.listeners if not _LOOPBACK.fullmatch(each.host.lower())
    ]
    advertised = [listeners.advertised_for(name) for name in listeners.names]
    named = [each for each in advertised if each is not None]
    if not open_to_others or len(named) < len(advertised):
        return None
    if any(_LOOPBACK.fullmatch(each.host.lower()) is None for each in named):
        return None
    return (
        f"{ADVERTISED} is {', '.join(map(str, named))} ({config.origin(ADVERTISED)}): only clients"
        " of the machine that publishes the port can use it; clients in other containers are sent"
        " to themselves -> set KAFKA_ADVERTISED_LISTENERS to a name of this container, such as"
        f" {named[0].name}://{_host()}:{named[0].port}"
    )


def _host() -> str:
    import socket

    return socket.gethostname()
