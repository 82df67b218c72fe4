"""The broker's figures: the observer and the metrics topic, made when they are first needed.

Both need modules that a start does not import. The observer is made half a second after the start,
or earlier when figures are asked for; the metrics topic only if `metrics.topic.enable` is set.

`figures` may be called from any thread; one lock: only one observer is made. The lifecycle's
thread schedules, starts and stops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kbroker._net import give_back_memory
from kbroker.clock import Clock
from kbroker.observe.impaired import ImpairedPartitions
from kbroker.scheduler import Scheduler

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metrics.model import Figures
    from kbroker.observe.metrics_topic import MetricsTopic
    from kbroker.observe.observer import Observer, Parts
    from kbroker.observe.why.facts import Question
    from kbroker.own_thread import OwnThread

OBSERVER_DELAY_MS: Final = 500


class Observation:
    def __init__(
        self,
        parts: Callable[[], Parts],
        config: Callable[[], BrokerConfig],
        clock: Clock,
        scheduler: Scheduler,
        own_address: Callable[[], str],
    ) -> None:
        """`own_address`: where the metrics topic's client finds this broker."""
        self._parts, self._config, self._clock = parts, config, clock
        self._scheduler, self._own_address = scheduler, own_address
        self._lock = threading.Lock()
        self._observer: Observer | None = None
        self._metrics_topic: MetricsTopic | None = None
        self.impaired: Final = ImpairedPartitions(clock)

    def schedule(self) -> None:
        # Not at once: a client's first requests do not wait for the imports that this needs.
        self._scheduler.schedule("observer", self._begin, None, delay_ms=OBSERVER_DELAY_MS)

    def stop(self) -> None:
        if self._observer is not None:
            self._observer.stop()

    def start_metrics_topic(self) -> None:
        if not self._config()["metrics.topic.enable"]:
            return
        from kbroker.observe.metrics_topic import metrics_topic_of  # for those who want it

        self._metrics_topic = metrics_topic_of(
            self._observed(), self._config(), self._clock, self._own_address()
        )
        self._metrics_topic.start()

    def stop_metrics_topic(self) -> None:
        if self._metrics_topic is not None:
            self._metrics_topic.stop()

    @property
    def metrics_thread(self) -> OwnThread | None:
        return None if self._metrics_topic is None else self._metrics_topic.thread

    def figures(self, *, every_partition: bool | None = None) -> Figures:
        """What was measured just now; parts that are not up yet are left out."""
        return self._observed().figures(every_partition=every_partition)

    def connections_by_principal(self, most: int) -> tuple[list[tuple[str, str, int]], int]:
        """(listener, principal, open connections), most connections first, and of how many these
        are the first."""
        return self._parts().server.connections_by_principal(most)

    def why(self, question: Question) -> dict[str, Any]:
        """What is in the way of the subject, as a document; while the broker runs. Any thread that
        may take some milliseconds."""
        from kbroker.observe.why.answer import document
        from kbroker.observe.why.gathering import Gathering

        load = self._observed().load
        gathering = Gathering(self._parts(), self._clock, load, self.impaired)
        return document(question, gathering.facts(question))

    def _begin(self) -> None:
        self._observed()
        give_back_memory()  # of the modules compiled for it, if that came after the warm-up's

    def _observed(self) -> Observer:
        with self._lock:
            if self._observer is None:
                from kbroker.observe.observer import Observer

                observer = Observer(
                    self._parts(),
                    self._clock,
                    every_partition=self._config()["metrics.partitions.enable"],
                )
                observer.start()
                self._observer = observer
            return self._observer
