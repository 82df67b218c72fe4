"""Share groups at the leaders of their partitions: sessions, share-partitions and waiting fetches.

One object for the handlers of ShareFetch and ShareAcknowledge. A session ends with its connection,
of which the hot path says when it has ended; its records are available to others then. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.config.share_settings import ShareGroupSettings
    from kbroker.engine.share.figures import ShareFigures
    from kbroker.engine.share.leaders import ShareLeaders
    from kbroker.purgatory.purgatory import Purgatory
    from kbroker.purgatory.timer import CallLater
    from kbroker.replica.share.sessions import ShareSession, ShareSessions


class ShareService(NamedTuple):
    """See the module."""

    leaders: ShareLeaders
    sessions: ShareSessions
    waiting: Purgatory  # ShareFetch, under the keys of share-partitions
    settings: Callable[[str], ShareGroupSettings]
    # (request, done): once, when its connection has ended; on a handler, or at once.
    await_end: Callable[[Any, Callable[[ErrorCode], object]], None]
    call_soon: Callable[[Callable[[], object]], None]  # on a handler
    call_later: CallLater
    figures: ShareFigures

    def open_session(self, group_id: str, member_id: str, request: Any) -> ShareSession:
        """For a request that was not answered yet. KafkaError: there are too many."""
        connection: Final = request.connection_id
        opened = self.sessions.open(group_id, member_id, connection)
        if opened.replaced is not None:
            _answer(opened.replaced)
        if opened.is_first:
            try:
                self.await_end(request, lambda _: self._connection_ended(connection))
            except BaseException:
                self._connection_ended(connection)
                raise
        return opened.session

    def end_session(self, session: ShareSession) -> None:
        if self.sessions.close(session):
            self._ended(session)

    def _connection_ended(self, connection: str) -> None:
        for session in self.sessions.close_connection(connection):
            self._ended(session)

    def _ended(self, session: ShareSession) -> None:
        self.leaders.end_session(session)
        _answer(session)
        if not self.sessions.has_group(session.group_id):
            self.leaders.end_group(session.group_id)


def _answer(session: ShareSession) -> None:
    """The request that waits for it."""
    waiting = session.waiting
    if waiting is not None:
        waiting.force_complete()
