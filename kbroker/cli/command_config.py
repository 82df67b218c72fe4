"""`--command-config FILE`: TLS and login of a command, as Apache Kafka's tools read it.

`peer/client_properties.py` lists what the file may have. Trouble is one line that names the file,
and never a password; a file with secrets that others can read is a line, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.peer.client_properties import login_of, tls_of

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin
    from kbroker.security.client_tls import ClientTls


def login_of_file(path: str) -> ClientLogin | None:
    """None: the file asks for no login and no TLS. ConfigError: what it asks for is not served."""
    return login_of_settings(path, settings_of_file(path))


def login_of_settings(path: str, settings: Mapping[str, str]) -> ClientLogin | None:
    """The same of settings that were read from a file, and may have been changed since."""
    login = login_of(path, settings)
    if login is not None:
        _warn(path, settings)
    return login


def tls_of_file(path: str) -> ClientTls:
    """By the keys `ssl.*` of the file, whatever its protocol is: for https."""
    return tls_of(path, settings_of_file(path))


def settings_of_file(path: str) -> dict[str, str]:
    """ConfigError: it cannot be read."""
    from kbroker.config.sources import read_file

    return {name: setting.text.strip() for name, setting in read_file(path).items()}


def _warn(path: str, settings: Mapping[str, str]) -> None:
    """Of files with secrets that others can read: a line on standard error."""
    from kbroker.cli.output import say
    from kbroker.config.secret_files import file_of, is_secret, warning_of

    paths = [path] if any(settings[name] for name in settings if is_secret(name)) else []
    paths += [file for name in settings if (file := file_of(name, settings[name]))]
    if (warning := warning_of(paths)) is not None:
        say(f"warning: {warning}", err=True)
