"""Share groups at the leaders of their partitions: sessions, share-partitions and waiting fetches.

One object for the handlers of ShareFetch and ShareAcknowledge. A session ends with its connection,
after all requests that came over it have been answered: what they acknowledge is applied, and then
its records are available to others. From the moment when the client sends no more none of them
waits, or gets records: it could not acknowledge them. The hot path says when. Requests of other
APIs may wait for long; after SHARE_SESSION_LEFT_MS_MAX the session ends all the same. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.limits import SHARE_SESSION_LEFT_MS_MAX

if TYPE_CHECKING:
    from kbroker.config.share_settings import ShareGroupSettings
    from kbroker.engine.share.figures import ShareFigures
    from kbroker.engine.share.leaders import ShareLeaders
    from kbroker.failures import Failures
    from kbroker.purgatory.purgatory import Purgatory
    from kbroker.purgatory.timer import CallLater
    from kbroker.replica.share.sessions import Change, ShareSession, ShareSessions


class ShareService(NamedTuple):
    """See the module."""

    leaders: ShareLeaders
    sessions: ShareSessions
    waiting: Purgatory  # ShareFetch, under the keys of share-partitions
    settings: Callable[[str], ShareGroupSettings]
    # (request, sends_no_more, done): once, when its connection has ended and all requests of it are
    # answered, or when its client sends no more; on a handler, or at once.
    await_end: Callable[[Any, bool, Callable[[ErrorCode], object]], None]
    call_soon: Callable[[Callable[[], object]], None]  # on a handler
    call_later: CallLater
    figures: ShareFigures
    failures: Failures

    def open_session(
        self, group_id: str, member_id: str, request: Any, change: Change
    ) -> ShareSession:
        """For a request that was not answered yet. KafkaError: there are too many, and nothing is
        changed."""
        connection: Final = request.connection_id
        self._await_ends(request, connection)
        opened = self.sessions.open(group_id, member_id, connection, change)
        try:
            if opened.sends_no_more:
                self._end_later(connection)
        finally:  # whatever fails here leaves no session without an end
            if opened.replaced is not None:
                self._try("the answer to a fetch that was replaced", _answer, opened.replaced)
            if opened.evicted is not None:
                self._ended(opened.evicted)
        return opened.session

    def _await_ends(self, request: Any, connection: str) -> None:
        """Of the connection, and of its client's requests; once each, for they are kept until the
        connection ends. KafkaError: one cannot be awaited; the next request tries it again."""
        if self.sessions.meet(connection):
            try:
                self.await_end(request, False, lambda _: self._connection_ended(connection))
            except BaseException:
                self._connection_ended(connection)
                raise
        if not self.sessions.awaits_last_request(connection):
            self.await_end(request, True, lambda _: self._sends_no_more(connection))
            self.sessions.last_request_awaited(connection)

    def end_session(self, session: ShareSession) -> None:
        if self.sessions.close(session):
            self._ended(session)

    def _sends_no_more(self, connection: str) -> None:
        waiting = self.sessions.sends_no_more(connection)
        try:
            if self.sessions.has_sessions(connection):
                self._end_later(connection)
        finally:
            for each in waiting:
                self._try("the answer to a fetch of a client that left", each.force_complete)

    def _end_later(self, connection: str) -> None:
        ends = partial(self._connection_ended, connection)
        self.call_later(SHARE_SESSION_LEFT_MS_MAX, partial(self.call_soon, ends))

    def _connection_ended(self, connection: str) -> None:
        for session in self.sessions.close_connection(connection):
            self._ended(session)

    def _ended(self, session: ShareSession) -> None:
        """The sessions know it no more, so each step is done, whatever fails before."""
        self._try("the end of a session", self.leaders.end_session, session)
        self._try("the answer to a fetch of a session that has ended", _answer, session)
        self._try("the end of a group without sessions", self._end_group, session.group_id)

    def _end_group(self, group_id: str) -> None:
        is_used = partial(self.sessions.has_group, group_id)
        if not is_used():
            self.leaders.end_group(group_id, is_used)

    def _try(self, what: str, step: Callable[..., object], *of: object) -> None:
        try:
            step(*of)
        except Exception as error:
            self.failures.note(what, error)


def _answer(session: ShareSession) -> None:
    """The request that waits for it."""
    waiting = session.waiting
    if waiting is not None:
        waiting.force_complete()
