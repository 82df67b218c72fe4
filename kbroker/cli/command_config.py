"""`--command-config FILE`: how a command authenticates, as Apache Kafka's tools read it.

    security.protocol=SASL_PLAINTEXT
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
        username="alice" password="hers";

Other keys of such a file mean nothing here and are left alone. Trouble is one line that names the
file, and never a password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin

_PROTOCOL: Final = "security.protocol"
_MECHANISM: Final = "sasl.mechanism"
_JAAS: Final = "sasl.jaas.config"
_PLAINTEXT: Final = "PLAINTEXT"
_SERVED: Final = (_PLAINTEXT, "SASL_PLAINTEXT")


def login_of_file(path: str) -> ClientLogin | None:
    """None: the file asks for no login. ConfigError: what it asks for is not served."""
    from kbroker.config.jaas import parse_login_module
    from kbroker.config.sources import read_file
    from kbroker.security.client_login import MECHANISMS, ClientLogin

    settings = {name: setting.text.strip() for name, setting in read_file(path).items()}
    protocol = settings.get(_PROTOCOL, _PLAINTEXT).upper()
    if protocol not in _SERVED:
        raise ConfigError(
            f"{path}: {_PROTOCOL}={protocol} is not spoken by kbroker's own commands",
            f"use {' or '.join(_SERVED)}",
        )
    if protocol == _PLAINTEXT:
        return None
    mechanism = settings.get(_MECHANISM, "GSSAPI")
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"{path}: {_MECHANISM}={mechanism} is not known", f"use {', '.join(MECHANISMS)}"
        )
    if _JAAS not in settings:
        raise ConfigError(f"{path}: {_JAAS} is not set", "write user and password there")
    module = parse_login_module(f"{path}, {_JAAS}", settings[_JAAS])
    own = module.own_login
    if own is None:
        raise ConfigError(f"{path}: {_JAAS} has no username and password", "add both")
    is_token = module.options.get("tokenauth", "").lower() == "true"
    return ClientLogin(mechanism, *own, is_token=is_token)
