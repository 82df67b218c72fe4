"""The links of one client: one to each broker that was asked, and the brokers that do not answer.

A link that its broker has closed is replaced by another one for the next request. A broker that
hangs costs the client the whole time of a link's set-up. So for SILENCE_MS after that the same
error is raised at once, and the next try has a fifth of the time; each later one has twice the time
of the last, until one succeeds. A broker whose last response was late has a short try, too. A
connection that is refused costs nothing: it is tried each time.

Bounds: an entry for each address that was asked, until `forget`. Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.address import Address
from kbroker.peer.link import SETUP_TIMEOUT_MS_MAX, Link, open_link

if TYPE_CHECKING:
    from kbroker.security.client_login import ClientLogin

SILENCE_MS: Final = 5_000
# A try that failed sooner than this did not wait for a broker that hangs.
_COSTLY_MS: Final = 500
_PROBE_MS_MIN: Final = 1_000
_PROBE_SHARE: Final = 5
_DOUBLED_MAX: Final = 8  # the whole time long before


class _Silence(NamedTuple):
    """`failures`: costly tries in a row; the next one has twice the time of the last."""

    until_ns: int
    code: ErrorCode
    message: str
    failures: int


class Links:
    """To the brokers of one cluster."""

    def __init__(
        self, client_id: str, timeout_ms: int, clock: Clock, login: ClientLogin | None
    ) -> None:
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._login = login
        self._links: dict[Address, Link] = {}
        self._silent: dict[Address, _Silence] = {}

    def has(self, address: Address) -> bool:
        """Whether there is a link that a request may be sent on."""
        link = self._links.get(address)
        return link is not None and link.usable

    def to(self, address: Address) -> Link:
        """The link that there is, or another one. KafkaError: the broker cannot be reached, or
        refuses the login. UserError: its certificate is not accepted."""
        link = self._links.get(address)
        if link is not None and link.usable:
            return link
        timeout_ms = self._timeout_ms
        began_ns = self._clock.monotonic_ns()
        silence = self._silent.get(address)
        if silence is not None and began_ns < silence.until_ns:
            raise KafkaError(silence.code, silence.message)
        if silence is not None or (link is not None and link.was_late):
            setup_ms = min(timeout_ms, SETUP_TIMEOUT_MS_MAX)
            doubled = 0 if silence is None else silence.failures - 1
            probe_ms = max(setup_ms // _PROBE_SHARE, _PROBE_MS_MIN) << min(doubled, _DOUBLED_MAX)
            timeout_ms = min(timeout_ms, probe_ms)
        if link is not None:
            link.close()
        try:
            opened = open_link(address, self._client_id, timeout_ms, self._clock, self._login)
        except KafkaError as error:
            self._failed(address, error, began_ns)
            raise
        self._silent.pop(address, None)
        self._links[address] = opened
        return opened

    def _failed(self, address: Address, error: KafkaError, began_ns: int) -> None:
        now_ns = self._clock.monotonic_ns()
        if error.code.retriable and now_ns - began_ns >= _COSTLY_MS * NS_PER_MS:
            until_ns = now_ns + SILENCE_MS * NS_PER_MS
            before = self._silent.get(address)
            failures = 1 if before is None else before.failures + 1
            self._silent[address] = _Silence(until_ns, error.code, error.message, failures)
        else:
            self._silent.pop(address, None)
            self._links.pop(address, None)  # the next try has the whole time again

    def forget(self, addresses: Iterable[Address]) -> None:
        """Brokers that are not in the cluster any more."""
        for address in addresses:
            self._silent.pop(address, None)
            link = self._links.pop(address, None)
            if link is not None:
                link.close()

    def close(self) -> None:
        self.forget([*self._links])
        self._silent.clear()
