"""A byte rots under a broker that serves, and the scrub finds it."""

from __future__ import annotations

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import broker_settings
from tests.system.conftest import MakeBroker
from tests.system.test_metrics import scrape
from tests.unit.net.harness import eventually

WAIT_S = 30.0
DAMAGED, READ = "kbroker_log_scrub_damaged_batches", "kbroker_log_scrub_read_bytes_total"


def test_what_rots_under_a_broker_is_found_and_said(make_broker: MakeBroker) -> None:
    broker = make_broker({"log.initial.task.delay.ms": 0}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = NewTopic("words", 1, 1, config={"segment.bytes": str(1 << 20)})
    admin.create_topics([wanted])["words"].result(WAIT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(3_000):
        producer.produce("words", b"%d " % number + b"." * 1_000)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0

    broker_settings.change(broker.bootstrap, "log.scrub.interval.ms", 1_000)
    eventually(lambda: scrape(broker)[READ][""] > 2 << 20, "a look at every full segment")
    assert scrape(broker)[DAMAGED][""] == 0

    first = min((broker.data_dir / "words-0").glob("*.log"))
    with first.open("r+b") as file:
        file.seek(500_000)
        byte = file.read(1)
        file.seek(500_000)
        file.write(bytes([byte[0] ^ 1]))
    eventually(lambda: scrape(broker)[DAMAGED][""] == 1, "the batch that rots")
    assert f"{first} has rotted at offset " in broker.log_text()
    assert broker.log_text().count("has rotted") == 1
