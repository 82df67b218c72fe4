"""The smallest application that is worth a test: it files orders and adds them up."""

from __future__ import annotations

import json

from confluent_kafka import Consumer, KafkaException, Producer


class Orders:
    """Orders in a topic, one record for each, keyed by customer."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._bootstrap = bootstrap
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "client.id": "orders", "enable.idempotence": True}
        )

    def place(self, customer: str, cents: int) -> None:
        """Returns when the order is safe; KafkaException if it is not."""
        refused: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                refused.append(error)

        self._producer.produce(
            self._topic, json.dumps({"cents": cents}), key=customer, on_delivery=delivered
        )
        self._producer.flush(30)
        if refused:
            raise KafkaException(refused[0])

    def totals(self, group: str, count: int) -> dict[str, int]:
        """What each customer owes, from the first `count` orders."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": group,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self._topic])
        owed: dict[str, int] = {}
        try:
            for _ in range(count):
                record = consumer.poll(30)
                if record is None:
                    raise TimeoutError("an order has not come")
                if record.error():
                    raise KafkaException(record.error())
                customer = record.key().decode()
                owed[customer] = owed.get(customer, 0) + json.loads(record.value())["cents"]
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return owed
