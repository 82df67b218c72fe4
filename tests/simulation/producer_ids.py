"""Requests for producer ids: a client asks any broker, again until one gives it an id.

No id is given twice, by any broker and under any controller. This is checked where a broker
answers, since an answer that is lost has used up its id.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import decode_init_producer_id, encode_init_producer_id
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey
from tests.simulation.network import CLIENTS, Answer, Lost

if TYPE_CHECKING:
    from tests.simulation.broker import Running
    from tests.simulation.cluster import Cluster

VERSION = 4
# Of a broker's block: so few that brokers ask the controller for the next block over and over.
BLOCK_SIZE = 2
_EXPECTED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class ProducerIds:
    """See the head of this file."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self._cluster = cluster
        self._dice = dice
        self._given: set[int] = set()

    def ask(self, done: Callable[[int | None], None]) -> None:
        """None: there is no id this time."""
        target = self._dice.choice(list(self._cluster.brokers))

        def answered(result: int | Lost | None) -> None:
            done(None if isinstance(result, Lost) else result)

        self._cluster.network.request(
            self._cluster.clients, (CLIENTS, target), self._serve, answered
        )

    def _serve(self, running: Running, answer: Answer) -> None:
        def done(answered: bytes) -> None:
            try:
                found = decode_init_producer_id(Reader(answered, flexible=True), VERSION)
            except KafkaError as refused:
                if refused.code not in _EXPECTED:
                    detail = f"broker {running.node_id} answers {refused.code.name}"
                    self._cluster.safety.fail("a broker that gives no id gives a reason", detail)
                answer(None)
                return
            self._gives(running, found.producer_id)
            answer(found.producer_id)

        running.serve(ApiKey.INIT_PRODUCER_ID, VERSION, encode_init_producer_id(VERSION), done)

    def _gives(self, running: Running, producer_id: int) -> None:
        if producer_id in self._given:
            detail = f"{producer_id}, by broker {running.node_id}"
            self._cluster.safety.fail("a producer id is given once", detail)
        self._given.add(producer_id)
