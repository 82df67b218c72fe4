"""Files that hold secrets and can be read by others than their owner: one warning for all of them.

A broker looks at its file of settings, if a password is in it, at key stores, at the file of login
modules and at that of its bearer token; a command of ours at its --command-config and the like.
Like ssh, they want the mode 0600.

Pure but for `stat`; any thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kbroker.config.definition import RENAMED_KEYS, find_broker_key

# Keys whose values are paths of such files; with a listener's prefix, too.
FILES_OF_SECRETS: Final = frozenset(
    {
        "kbroker.login.config.file",
        "ssl.keystore.location",
        "zookeeper.ssl.keystore.location",
    }
)
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # file:/PATH
_FOR_OTHERS: Final = 0o077


def is_secret(name: str) -> bool:
    """Whether the value of a broker's key is a secret."""
    key = find_broker_key(RENAMED_KEYS.get(name, name))
    return key is not None and key.sensitive


def file_of(name: str, text: str) -> str | None:
    """The path of a file with secrets, if a broker's key has it as its value `text`."""
    key = find_broker_key(name)
    if key is None:
        return None
    if key.name == _TOKEN_URL and text.startswith("file:"):
        from kbroker.config.oauth_settings import path_of  # few have it

        with suppress(ValueError):  # it is no URL, which is said elsewhere
            return path_of(text)
    return text if key.name in FILES_OF_SECRETS else None


def warning_of(paths: Iterable[str]) -> str | None:
    """One line that names those which others can read; None: there are none. A file that is not
    there is no matter of this."""
    open_to_others = []
    for path in dict.fromkeys(paths):
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            continue
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISREG(found.st_mode) and mode & _FOR_OTHERS:
            open_to_others.append(f"{path} ({mode:04o})")
    if not open_to_others:
        return None
    return f"others can read or write files with secrets: {', '.join(open_to_others)} -> chmod 600"
