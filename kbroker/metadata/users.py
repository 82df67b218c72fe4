"""SCRAM credentials out of the published image, for logins.

Place in the flow: `security/scram_server.py` asks for the credential of each name that logs in. A
credential is read from its stored form when it is asked for first, so that an image of many users
costs nothing by itself. A stored form that is none logs no user in, and is logged.

The credential of a delegation token follows from the secret of the cluster's tokens: its password
is the HMAC of its id, and its salt is that of a name which is not there, so that an id which is not
there looks the same. It is made when the token logs in first.

The image of a broker that the controller has not reached yet has the users of the store, since the
controller may have to log in first.

Any thread; holds no lock.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from kbroker.limits import SCRAM_CREDENTIALS_KEPT_MAX, SCRAM_ITERATIONS_MIN
from kbroker.log_lines import LogLines
from kbroker.metadata.image import EVERY_USER, NO_CONFIGS
from kbroker.security.delegation_token import USER, hmac_of, password_of
from kbroker.security.fake_credential import fake_credential, salt_form
from kbroker.security.scram import (
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
    parse_credential,
)
from kbroker.security.scram_server import TokenCredential

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage

lines: Final = LogLines(logging.getLogger("kbroker.security"))

# Read once, so that a login of a name that is there takes no longer than one of another.
_parsed: Final = lru_cache(SCRAM_CREDENTIALS_KEPT_MAX)(parse_credential)
# Users that are looked at to find the usual form.
_SAMPLE: Final = 100
# Iterations, and the form of the salt; and those where there are no users.
_Usual = tuple[int, int]
_OURS: Final[_Usual] = (SCRAM_ITERATIONS_MIN, SALT_BYTES)


class ImageUsers:
    """See the head of this file."""

    def __init__(
        self, image: Callable[[], ClusterImage], secret: bytes, token_secret: str | None = None
    ) -> None:
        """`secret`: the same at all brokers, over restarts, and not known to clients.
        `token_secret`: of delegation tokens; None: none logs in."""
        self._image, self._secret, self._token_secret = image, secret, token_secret
        self._of_token = lru_cache(SCRAM_CREDENTIALS_KEPT_MAX)(self._make_of_token)
        # What was found last: of which users, and what is usual for them by mechanism.
        self._found: tuple[Mapping[str, Mapping[str, str]], dict[ScramMechanism, _Usual]] = ({}, {})

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        settings = self._image().users.get(name, NO_CONFIGS) if name != EVERY_USER else NO_CONFIGS
        text = settings.get(mechanism.value)
        return None if text is None else _credential(mechanism, name, text)

    def fake(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        return fake_credential(mechanism, self._secret, name, *self._usual(mechanism))

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        token = self._image().tokens.get(token_id) if self._token_secret else None
        if token is None or token.owner.type != USER:
            return None
        fake = self.fake(mechanism, token_id)
        credential = self._of_token(mechanism, token_id, fake.salt, fake.iterations)
        return TokenCredential(credential, token.owner.name, token.until_ms)

    def _make_of_token(
        self, mechanism: ScramMechanism, token_id: str, salt: bytes, iterations: int
    ) -> ScramCredential:
        password = password_of(hmac_of(self._token_secret or "", token_id))
        salted_password = mechanism.salted(password, salt, iterations)
        return credential_of_salted(mechanism, salt, salted_password, iterations)

    def _usual(self, mechanism: ScramMechanism) -> _Usual:
        """What most users have: anything else would show that a name is not there."""
        users = self._image().users
        known, usual = self._found
        if known is not users:
            usual = {}
        if mechanism not in usual:
            found = Counter(
                (each.iterations, salt_form(each.salt))
                for _, each in islice(credentials(users, mechanism), _SAMPLE)
                if each.iterations >= SCRAM_ITERATIONS_MIN
            )
            most = found.most_common(1)
            usual = {**usual, mechanism: most[0][0] if most else _OURS}
            self._found = users, usual
        return usual[mechanism]


def credentials(
    users: Mapping[str, Mapping[str, str]], mechanism: ScramMechanism
) -> Iterator[tuple[str, ScramCredential]]:
    """Of all users who have one."""
    for name, settings in users.items():
        text = settings.get(mechanism.value)
        credential = None if text is None else _credential(mechanism, name, text)
        if credential is not None:
            yield name, credential


def _credential(mechanism: ScramMechanism, name: str, text: str) -> ScramCredential | None:
    try:
        return _parsed(mechanism, text)
    except ValueError as error:
        lines.write(
            logging.ERROR, "credential", "the %s credential of user %s: %s",
            mechanism.value, name, str(error),
        )  # fmt: skip
        return None
