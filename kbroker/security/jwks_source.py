"""The keys of one address, kept and fetched again, so that no login waits for their server.

    a login -> `now`: the keys as they were fetched last
    refresh time, or a kid that is not there -> a thread of its own fetches them

The keys are fetched at the start and every `refresh_ms`. A token of a key that is not there has
them fetched at once, but not within the back-off after the last attempt, which doubles as long as
attempts fail or bring nothing new. Keys that cannot be fetched stay those that are known, and a
line says so; where the server has withdrawn all of them, none is known any more. One attempt is
under way at a time; after JWKS_FETCH_MS_MAX it is interrupted.

`now` and `missing` on any thread, without waiting; the lock is a leaf.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker.failures import Failures
from kbroker.limits import JWKS_FETCH_MS_MAX, JWKS_REFRESH_MS_MIN
from kbroker.log_lines import LogLines
from kbroker.security.jwks import NO_KEYS, KeySet, NoKeysError, parse_key_set
from kbroker.security.jwks_fetch import JwksError, JwksFetch
from kbroker.security.jws import TokenError

if TYPE_CHECKING:
    from ssl import SSLContext

    from kbroker.clock import Clock
    from kbroker.purgatory.timer import CallLater

lines: Final = LogLines(logging.getLogger("kbroker.security"))
failures: Final = Failures("keys of tokens")


class JwksSource:
    """See the head of this file."""

    def __init__(
        self,
        url: str,
        refresh_ms: int,
        backoff_ms: int,
        backoff_max_ms: int,
        run: Callable[[str, Callable[[], None]], None] | None = None,
        context: Callable[[], SSLContext] | None = None,
    ) -> None:
        """`run` has a call made on a thread of this name. `context`: as of `JwksFetch`."""
        self.url: Final = url
        self._refresh_ms = max(JWKS_REFRESH_MS_MIN, refresh_ms)
        self._backoff_ms, self._backoff_max_ms = max(1, backoff_ms), max(1, backoff_max_ms)
        self._run = run or _on_a_thread
        self._context = context
        self._lock = threading.Lock()
        self._keys: KeySet | None = None
        self._clock: Clock | None = None
        self._call_later: CallLater | None = None
        self._fetch: JwksFetch | None = None
        self._next_ms = 0  # a missing key has nothing fetched before
        self._pause_ms = self._backoff_ms

    def start(self, clock: Clock, call_later: CallLater) -> None:
        """Once; keys are fetched from now on."""
        self._clock, self._call_later = clock, call_later
        self._refresh()

    def now(self) -> KeySet | None:
        """None: none could be fetched yet."""
        return self._keys

    def missing(self, key_id: str | None) -> None:
        """A token names a key that is not there: the server may have new ones."""
        if self._clock is None:
            return
        with self._lock:
            due = self._clock.monotonic_ms() >= self._next_ms
        if due:
            self._begin()

    def fetch_now(self) -> None:
        """On this thread, for a file at the start. JwksError, TokenError."""
        self._keys = parse_key_set(JwksFetch(self.url).read())

    def _refresh(self) -> None:
        """On the timer."""
        if self._call_later is None:
            return
        self._begin()
        self._call_later(self._refresh_ms, self._refresh)

    def _begin(self) -> None:
        clock, call_later = self._clock, self._call_later
        if clock is None or call_later is None:
            return
        with self._lock:
            if self._fetch is not None:
                return
            fetch = self._fetch = JwksFetch(self.url, self._context)
            self._next_ms = clock.monotonic_ms() + self._pause_ms
        try:
            call_later(JWKS_FETCH_MS_MAX, fetch.interrupt)
            self._run("kbroker-jwks", lambda: self._do(fetch))
        except Exception as error:  # there is no room for a thread, or the timer has died
            self._ended(None, f"no thread could be started: {error}")

    def _do(self, fetch: JwksFetch) -> None:
        keys: KeySet | None = None
        trouble = ""
        try:
            keys = parse_key_set(fetch.read())
        except NoKeysError as error:
            keys, trouble = NO_KEYS, str(error)
        except (JwksError, TokenError) as error:
            trouble = str(error)
        except Exception as error:
            failures.note("fetching keys", error)
            trouble = type(error).__name__
        self._ended(keys, trouble)

    def _ended(self, keys: KeySet | None, trouble: str) -> None:
        with self._lock:
            self._fetch = None
            is_new = keys is not None and _ids(keys) != _ids(self._keys)
            if keys is not None:
                self._keys = keys
            self._pause_ms = (
                self._backoff_ms if is_new else min(2 * self._pause_ms, self._backoff_max_ms)
            )
            if self._clock is not None:
                self._next_ms = self._clock.monotonic_ms() + self._pause_ms
        if trouble:
            kept = "those that are known stay"
            if self._keys is None:
                kept = "there are none yet"
            elif not self._keys.keys:
                kept = "and no token is accepted"
            lines.write(
                logging.WARNING, self.url, "keys of tokens cannot be fetched from %s, %s: %s",
                self.url, kept, trouble,
            )  # fmt: skip


def _ids(keys: KeySet | None) -> list[str | None]:
    return [] if keys is None else [each.key_id for each in keys.keys]


def _on_a_thread(name: str, call: Callable[[], None]) -> None:
    threading.Thread(target=call, name=name, daemon=True).start()
