"""Creation of topics that a request names before they exist.

Place in the flow: a Metadata request that may create topics names one that does not exist. The
handler answers at once that it is unknown, as Apache Kafka does, and asks the controller to
create it with the broker's defaults; the client comes again after its back-off and finds it.

Several clients that name the same topic cause one creation: names under way are remembered until
the controller has answered. A creation that fails (no broker for the replication factor) is one
line in the log; the next request tries again. Internal topics are never made like this: they need
their coordinator's settings.

One lock, a leaf, around the set of names; the controller is called without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.log_lines import LogLines

if TYPE_CHECKING:
    from kbroker.handlers.mutations import Charge
    from kbroker.handlers.topic_creation import TopicCreator
    from kbroker.metadata.controller.decisions import TopicResult

lines: Final = LogLines(logging.getLogger("kbroker.request"))

Noted = Callable[[Sequence["TopicResult"]], object]

# Names under way at once. Full: not created now; the client asks again anyway.
CREATIONS_MAX: Final = 1_000


class AutoTopicCreation:
    """The names whose creation is under way."""

    __slots__ = ("_lock", "_under_way")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    @property
    def under_way(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._under_way)

    def create(
        self,
        creator: TopicCreator,
        names: Iterable[str],
        noted: Noted | None = None,
        charge: Charge | None = None,
    ) -> None:
        """Have these topics created with the broker's defaults; returns at once. `noted` gets what
        becomes of those that no request before has named, and `charge` is asked for them."""
        from kbroker.metadata.controller.decisions import NewTopic

        with self._lock:
            room = CREATIONS_MAX - len(self._under_way)
            wanted = [name for name in dict.fromkeys(names) if name not in self._under_way][:room]
            self._under_way.update(wanted)
        if not wanted:
            return

        def done(results: Sequence[TopicResult]) -> None:
            self._forget(wanted)
            if noted is not None:
                noted(results)
            for result in results:
                if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    lines.write(
                        logging.WARNING,
                        f"not created {result.error.name}",
                        "topic %s was not auto-created: %s %s",
                        result.name,
                        result.error.name,
                        result.message or "",
                    )

        try:
            creator.create_topics([NewTopic(name) for name in wanted], False, done, charge)
        except BaseException:
            self._forget(wanted)
            raise

    def _forget(self, names: Iterable[str]) -> None:
        with self._lock:
            self._under_way.difference_update(names)
