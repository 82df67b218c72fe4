"""Where results go: `--results-bootstrap HOST:PORT`, and for TLS and SASL `--results-config FILE`.

The file is the client properties that Kafka's own tools take (--command-config). Without one the
project's own client publishes, in plain text; with one it is librdkafka, and the Java client's
names are put into librdkafka's words here (`translated`). A name that neither of them knows is
refused by librdkafka, in one line, rather than left out: a secret that is silently not used is
found out too late. All of it is judged before anything is measured.

Only click and the standard library are imported here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import click

Function = Callable[..., Any]

_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_JAAS: Final = re.compile(r"\s*[\w.]*?(\w+)\s+required\b(.*);\s*", re.DOTALL)
_JAAS_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
# The Java client's name -> librdkafka's, of stores in PEM; a file of a key store holds both parts.
_PEM: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
}


@dataclass(frozen=True)
class Target:
    """A broker for results. `properties` are librdkafka's, read from the file `config`."""

    bootstrap: str
    config: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def options(self) -> str:
        """The words of a command line that name it."""
        config = f" --results-config {self.config}" if self.config else ""
        return f"--results-bootstrap {self.bootstrap}{config}"


def results_options(function: Function) -> Function:
    """The two options of every verb; it gets them as `target`, a Target or None."""

    @click.option(
        "--results-bootstrap",
        metavar="HOST:PORT",
        help="then publish what was measured there, to kbroker.perf.results",
    )
    @click.option(
        "--results-config",
        metavar="FILE",
        help="for TLS and SASL: client properties, as Kafka's own tools take them",
    )
    @functools.wraps(function)
    def with_target(
        *words: Any, results_bootstrap: str | None, results_config: str | None, **options: Any
    ) -> Any:
        return function(*words, target=made(results_bootstrap, results_config), **options)

    return with_target


def made(bootstrap: str | None, config: str | None) -> Target | None:
    """From the two options; click's errors say what is wrong with them."""
    if not bootstrap:
        if config:
            raise click.UsageError("--results-config goes with --results-bootstrap")
        return None
    for one in bootstrap.split(","):
        host, _, port = one.rpartition(":")
        if not host or not port.isdecimal():
            raise click.BadParameter(f"--results-bootstrap: {one!r} is not HOST:PORT")
    if not config:
        return Target(bootstrap)
    return Target(bootstrap, config, read(config))


def read(path: str) -> dict[str, str]:
    """librdkafka's properties from a client's file. click's errors say what is wrong with it."""
    from importlib.util import find_spec

    from kbroker.config.sources import read_file
    from kbroker.errors import UserError

    if find_spec("confluent_kafka") is None:
        raise click.UsageError(
            "--results-config needs librdkafka (confluent-kafka): pip install 'kbroker[perf]'"
        )
    try:
        java = {name: setting.text for name, setting in read_file(path).items()}
        return translated(java)
    except (UserError, ValueError) as error:
        said = error.message if isinstance(error, UserError) else f"{path}: {error}"
        raise click.BadParameter(f"--results-config: {said}") from None


def translated(java: Mapping[str, str]) -> dict[str, str]:
    """A Java client's properties as librdkafka's. ValueError, without any value, for a property
    that has none."""
    found = dict(java)
    found.pop("bootstrap.servers", None)
    found.pop("ssl.truststore.password", None)  # PEM has none
    _stores(found)
    if "sasl.jaas.config" in found:
        found |= _login(found.pop("sasl.jaas.config"))
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _stores(found: dict[str, str]) -> None:
    for store in ("truststore", "keystore"):
        prefix = f"ssl.{store}."
        kind = found.pop(f"{prefix}type", "JKS").upper()
        if kind == "PKCS12" and store == "keystore":
            continue  # which librdkafka reads under the same names
        for name in [name for name in found if name.startswith(prefix)]:
            if kind != "PEM" or name not in _PEM:
                raise ValueError(
                    f"{name} of a {kind} store: librdkafka reads PEM (ssl.{store}.type=PEM; "
                    "keytool -exportcert -rfc writes a certificate so)"
                )
            text = found.pop(name)
            found.update({other: text for other in _PEM[name]})


def _login(text: str) -> dict[str, str]:
    entry = _JAAS.fullmatch(text)
    module = entry[1] if entry else ""
    given = {
        name: re.sub(r"\\(.)", r"\1", double or single)
        for name, double, single in _JAAS_OPTION.findall(entry[2] if entry else "")
    }
    if module not in _LOGIN_MODULES or not {"username", "password"} <= set(given):
        raise ValueError(
            f"sasl.jaas.config: {' or '.join(_LOGIN_MODULES)} with username and password is "
            "understood; or set sasl.username and sasl.password"
        )
    return {"sasl.username": given["username"], "sasl.password": given["password"]}
