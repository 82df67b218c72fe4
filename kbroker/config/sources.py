"""Where settings come from: a properties file, the environment, `--override key=value`.

Each function turns its source into `name -> (text, origin)`; the origin is what an error line or
`config explain` shows. Names and values are not judged here, with one exception: environment
variables that the container images, Java's tools and orchestrators set beside the configuration.

The environment follows the rule of Apache Kafka's image for the prefixes KBROKER_ and KAFKA_:
without the prefix and in small letters, ___ becomes -, __ becomes _, _ becomes a dot.
Where both prefixes name one key, KBROKER_ wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kbroker.config import properties
from kbroker.errors import ConfigError, UsageError

PREFIXES: Final = ("KAFKA_", "KBROKER_")  # the later one wins
FILE_BYTES_MAX: Final = 1_048_576  # a configuration is a few KB; anything larger is another file
# Names a file of settings, in our image: config/container.py.
CONTAINER: Final = "KBROKER_CONTAINER"

# Set beside the configuration by images, tools and our own build and tests; never keys.
_NOT_KEYS: Final = frozenset(
    {
        "BIG_BYTES",
        "BOOTSTRAP",
        "CACHE",
        "CLUSTER_ID",
        "COMMAND_CONFIG",
        "CONTAINER",
        "DEBUG",
        "GC_LOG_OPTS",
        "HEAP_OPTS",
        "HOME",
        "JMX_HOSTNAME",
        "JMX_OPTS",
        "JMX_PORT",
        "JVM_PERFORMANCE_OPTS",
        "LOG4J_CMD_OPTS",
        "LOG4J_LOGGERS",
        "LOG4J_OPTS",
        "LOG4J_ROOT_LOGLEVEL",
        "MODE",
        "OPTS",
        "REQUIRE",
        "SANITIZE",
        "TOOLS_LOG4J_LOGLEVEL",
        "VERSION",
    }
)
_TEST_PREFIX: Final = "TEST_"
# Orchestrators announce a service called "kafka" with variables that look like keys.
_SERVICE_LINK: Final = re.compile(r"(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP)(_.*)?)?)")


class Setting(NamedTuple):
    """The text that was given for a key, and its origin."""

    text: str
    origin: str


def read_file(path: str) -> dict[str, Setting]:
    """The settings of a properties file, with all of the format's escapes."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read {path}: {reason}", "check the path") from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {FILE_BYTES_MAX} bytes", "check the path")
    try:
        # Like Java: Latin-1, with \\uXXXX for everything else.
        values = properties.loads(content.decode("latin-1"))
    except ValueError as error:
        raise ConfigError(f"{path} is no properties file: {error}") from None
    return {name: Setting(text, path) for name, text in values.items()}


def file_line(name: str, text: str) -> str:
    """A setting as `read_file` reads it, in one line without its end."""
    return properties.dumped(name, text)


def read_environment(environ: Mapping[str, str]) -> dict[str, Setting]:
    """The settings among the environment's variables."""
    settings: dict[str, Setting] = {}
    for prefix in PREFIXES:
        for variable, text in sorted(environ.items()):
            if not variable.startswith(prefix):
                continue
            rest = variable[len(prefix) :]
            if rest and not _is_no_key(rest):
                settings[environment_key(rest)] = Setting(text, f"environment, {variable}")
    return settings


def _is_no_key(rest: str) -> bool:
    return (
        rest in _NOT_KEYS
        or rest.startswith(_TEST_PREFIX)
        or _SERVICE_LINK.fullmatch(rest) is not None
    )


def environment_key(rest: str) -> str:
    """The key that a variable's name without its prefix means."""
    return rest.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def read_overrides(overrides: Iterable[str]) -> dict[str, Setting]:
    """The settings of `--override key=value` arguments; a later one wins."""
    settings: dict[str, Setting] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--override {override!r} is no setting", "write key=value")
        settings[name.strip()] = Setting(text, "--override")
    return settings
