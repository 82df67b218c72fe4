"""A copier by confluent-kafka, that is librdkafka: see the package."""

from __future__ import annotations

import sys
from typing import Any, Final

import confluent_kafka

from tests.exactly_once.copiers import COMMITTED, ENDED_BY_AN_ERROR, OFFSETS, SENT, TAKEN, step

RECORDS_MAX: Final = 50
POLL_S: Final = 0.1
TIMEOUT_S: Final = 60.0
SESSION_MS: Final = 2_000


class Copier:
    def __init__(self, bootstrap: str, id: str, group: str, source: str, target: str) -> None:
        self._target = target
        common = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            # Else librdkafka 2.16 drops its brokers once none answers, and sends TxnOffsetCommit to
            # the one that it has dropped: it waits for ever, with Apache Kafka, too.
            "metadata.recovery.strategy": "none",
        }
        self._consumer = confluent_kafka.Consumer(
            {
                **common,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": SESSION_MS // 4,
            }
        )
        self._consumer.subscribe([source])
        self._producer = confluent_kafka.Producer(
            {
                **common,
                "transactional.id": id,
                "transaction.timeout.ms": 10_000,
                "delivery.timeout.ms": 10_000,
                "linger.ms": 0,
            }
        )

    def run(self) -> None:
        self._again(lambda: self._producer.init_transactions(TIMEOUT_S))
        while True:
            records = self._consumer.consume(RECORDS_MAX, POLL_S)
            taken = [each for each in records if each.error() is None]
            if taken and self._copied(taken):
                step(COMMITTED)

    def _copied(self, taken: list[Any]) -> bool:
        self._producer.begin_transaction()
        step(TAKEN)
        try:
            for each in taken:
                self._producer.produce(self._target, each.value(), partition=each.partition())
            self._producer.flush(TIMEOUT_S)
            step(SENT)
            offsets = self._consumer.position(self._consumer.assignment())
            known = [each for each in offsets if each.offset >= 0]
            group = self._consumer.consumer_group_metadata()
            self._again(lambda: self._producer.send_offsets_to_transaction(known, group, TIMEOUT_S))
            step(OFFSETS)
            self._again(lambda: self._producer.commit_transaction(TIMEOUT_S))
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._again(lambda: self._producer.abort_transaction(TIMEOUT_S))
            self._go_back()
            return False
        return True

    def _go_back(self) -> None:
        assigned = self._consumer.assignment()
        for each in self._consumer.committed(assigned, TIMEOUT_S):
            first = confluent_kafka.OFFSET_BEGINNING
            each.offset = each.offset if each.offset >= 0 else first
            self._consumer.seek(each)

    @staticmethod
    def _again(call: Any) -> None:
        """Until it succeeds or its error says that another try is of no use."""
        while True:
            try:
                call()
                return
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise


def main() -> int:
    copier = Copier(*sys.argv[1:])
    try:
        copier.run()
    except confluent_kafka.KafkaException as error:
        print(error, file=sys.stderr)
    return ENDED_BY_AN_ERROR


if __name__ == "__main__":
    sys.exit(main())
