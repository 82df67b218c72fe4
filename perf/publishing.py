"""Records of results to the topic `kbroker.perf.results`: idempotent, acks=all, in bounded time.

Two ways there: the project's own client, which speaks plain text and is always at hand; and
librdkafka, where a client's properties ask for TLS or SASL (perf/results_target.py).

`Sender` is a thread in the network of its maker: a comparison moves its own thread into a network
of its own (perf/network.py), from where the results' broker cannot be reached.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from kbroker.errors import KafkaError, UserError
from kbroker.metrics import json_record
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.publisher import Publisher
from kbroker.protocol.record_batch import Record
from perf import results_table
from perf.results_target import Target

COLUMNS = results_table.columns()
CLIENT_ID: Final = "kbroker-perf-results"
PUBLISH_WAIT_S: Final = 30
LOOK_AGAIN_S: Final = 0.1
MS_PER_HOUR: Final = 3_600_000


class ResultsError(Exception):
    """Results that cannot be read or sent; one line."""


class Sent(NamedTuple):
    records: int
    note: str = ""  # something to know about the topic


def send(target: Target, records: Sequence[Mapping[str, Any]]) -> Sent:
    """Publish records of results, now, on this thread. ResultsError says why not."""
    encoded = [
        Record(
            key=str(record["run_id"]).encode(),
            value=json_record.encode(COLUMNS, record),
            timestamp_ms=record["event_time_ms"],
        )
        for record in records
    ]
    return _Librdkafka(target).send(encoded) if target.config else _send_plain(target, encoded)


def _send_plain(target: Target, records: Sequence[Record]) -> Sent:
    topic = NewTopic(results_table.TOPIC, 1, -1, results_table.TOPIC_CONFIGS)
    try:
        with Publisher(
            target.bootstrap, topic, client_id=CLIENT_ID, timeout_ms=PUBLISH_WAIT_S * 1000
        ) as publisher:
            note = "" if publisher.made else _note_of(publisher.client)
            return Sent(publisher.send(records), note)
    except (KafkaError, UserError) as error:
        raise ResultsError(error.message) from error


def _note_of(client: Client) -> str:
    """Says if a topic that is there keeps its records too briefly."""
    kept = {one.name: one.value for one in client.topic_configs(results_table.TOPIC)}
    return _note(kept.get("retention.ms"))


def _note(retention_ms: str | None) -> str:
    try:
        kept_ms = int(retention_ms or -1)
    except ValueError:
        return ""
    if 0 <= kept_ms < results_table.RETENTION_MS_MIN:
        return (
            f"{results_table.TOPIC} keeps records for {kept_ms / MS_PER_HOUR:g} h only: a report "
            "made later misses them; set retention.ms to 48 hours or more"
        )
    return ""


class _Librdkafka:
    """One publication. An error of its threads ends it at once where waiting does not help."""

    def __init__(self, target: Target) -> None:
        import confluent_kafka as ck

        self._ck = ck
        self._target = target
        self._failed = self._seen = ""  # for good; and what else was said on the way
        self._give_up = time.monotonic() + PUBLISH_WAIT_S

    def send(self, records: Sequence[Record]) -> Sent:
        try:
            note = self._prepare_topic()
            self._produce(records)
        except self._ck.KafkaException as error:
            raise ResultsError(self._words(error.args[0])) from None
        return Sent(len(records), note)

    def _config(self, **more: Any) -> dict[str, Any]:
        return {
            "client.id": CLIENT_ID,
            "log_level": 0,
            **self._target.properties,
            "bootstrap.servers": self._target.bootstrap,
            "error_cb": self._report,
            **more,
        }

    def _report(self, error: Any) -> None:
        codes = self._ck.KafkaError
        self._seen = error.str()
        if error.fatal() or error.code() in (codes._AUTHENTICATION, codes._SSL):
            self._failed = error.str()

    def _words(self, error: Any) -> str:
        text = " ".join((self._failed or self._seen or error.str()).split())
        return f"{self._target.bootstrap}: {text}"

    def _check(self) -> None:
        """ResultsError once it cannot come to anything any more."""
        if self._failed or time.monotonic() > self._give_up:
            text = self._failed or self._seen or f"no answer in {PUBLISH_WAIT_S} s"
            raise ResultsError(f"{self._target.bootstrap}: {' '.join(text.split())}")

    def _await(self, admin: Any, future: Future[Any]) -> Any:
        while True:
            try:
                return future.result(LOOK_AGAIN_S)
            except TimeoutError:
                admin.poll(0)  # which reports
                self._check()

    def _prepare_topic(self) -> str:
        from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

        admin = AdminClient(self._config())
        topic = NewTopic(results_table.TOPIC, 1, -1, config=dict(results_table.TOPIC_CONFIGS))
        try:
            self._await(admin, admin.create_topics([topic])[results_table.TOPIC])
            return ""
        except self._ck.KafkaException as error:
            if error.args[0].code() != self._ck.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        about = ConfigResource(ResourceType.TOPIC, results_table.TOPIC)
        kept = self._await(admin, admin.describe_configs([about])[about])
        return _note(kept["retention.ms"].value if "retention.ms" in kept else None)

    def _produce(self, records: Sequence[Record]) -> None:
        # The Java client's partitioner, and so our own: a run stays in one partition.
        producer = self._ck.Producer(
            self._config(**{"enable.idempotence": True, "partitioner": "murmur2_random"})
        )
        for record in records:
            while True:
                try:
                    producer.produce(
                        results_table.TOPIC,
                        record.value,
                        record.key,
                        timestamp=record.timestamp_ms,
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:
                    producer.poll(LOOK_AGAIN_S)
                    self._check()
        while producer.flush(LOOK_AGAIN_S):
            self._check()
        if self._failed:
            self._check()

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failed = self._failed or error.str()


class Sender:
    """A thread in the network of its maker; sends one publication after the other."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._asked: queue.Queue[list[dict[str, Any]] | None] = queue.Queue(1)
        self._answers: queue.Queue[Sent | ResultsError] = queue.Queue(1)
        self._sending = False
        self._thread = threading.Thread(target=self._run, name="perf-results", daemon=True)
        self._thread.start()

    def send(self, records: Sequence[Mapping[str, Any]]) -> Sent:
        self._sending = True
        self._asked.put([dict(record) for record in records])
        answer = self._answers.get()
        self._sending = False
        if isinstance(answer, ResultsError):
            raise answer
        return answer

    def close(self) -> None:
        """The thread ends; one whose caller was interrupted ends with its own time-outs."""
        if not self._sending:
            self._asked.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (records := self._asked.get()) is not None:
            try:
                self._answers.put(send(self._target, records))
            except ResultsError as error:
                self._answers.put(error)
            except Exception as error:  # the caller waits for an answer
                self._answers.put(ResultsError(f"{type(error).__name__}: {error}"))
