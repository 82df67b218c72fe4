"""TLS and SASL options pass through the job to the connector and to its Admin client.

Against Apache Kafka, since our own listeners are plain text: a listener that wants TLS and SCRAM.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from spark_jobs.errors import EXIT_FAILED, JobError
from tests.spark.conftest import Landing
from tests.support.kafka_secure import SecureKafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "orders"
VALUES = [b"order %d" % number for number in range(200)]
# So that a client gives up soon; the properties under test win over the job's own.
SOON = {"default.api.timeout.ms": "4000", "request.timeout.ms": "3000"}


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureKafkaBroker]:
    with SecureKafkaBroker() as broker:
        with Client(broker.bootstrap) as client:
            client.create_topics([NewTopic(TOPIC, 2)])
            for partition in (0, 1):
                Producer(client, TOPIC, partition=partition).send(
                    [Record(key=None, value=value) for value in VALUES[partition::2]]
                )
        yield broker


@pytest.fixture
def over_tls(spark: Any, secure: SecureKafkaBroker, tmp_path: Path) -> Landing:
    return Landing(spark, secure.secure_bootstrap, tmp_path)


def by_options(settings: dict[str, str]) -> list[str]:
    return [
        word for key, value in settings.items() for word in ("--kafka-option", f"{key}={value}")
    ]


def by_file(settings: dict[str, str], place: Path) -> list[str]:
    file = place / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return ["--command-config", str(file)]


@pytest.mark.parametrize("way", ["options", "file"])
def test_a_topic_lands_over_tls_with_a_password(
    over_tls: Landing, secure: SecureKafkaBroker, tmp_path: Path, way: str
) -> None:
    settings = secure.client_settings()
    words = by_options(settings) if way == "options" else by_file(settings, tmp_path)
    over_tls.run("--topic", TOPIC, *words)
    rows = over_tls.rows("plain")
    assert [bytes(row.value) for row in rows] == VALUES[0::2] + VALUES[1::2]
    assert not any(secure.password in line for line in over_tls.said)


def test_a_certificate_as_text_needs_no_file_on_workers(
    over_tls: Landing, secure: SecureKafkaBroker
) -> None:
    settings = secure.client_settings()
    del settings["ssl.truststore.location"]
    settings["ssl.truststore.certificates"] = secure.certificate.read_text()
    over_tls.run("--topic", TOPIC, *by_options(settings))
    assert len(over_tls.rows("plain")) == len(VALUES)


def test_a_wrong_password_is_one_line_without_it(
    over_tls: Landing, secure: SecureKafkaBroker
) -> None:
    wrong = secure.client_settings("not-the-password")
    with pytest.raises(JobError, match=r"(?i)authentication failed") as refused:
        over_tls.run("--topic", TOPIC, *by_options(wrong | SOON))
    assert refused.value.exit_code == EXIT_FAILED
    told = [refused.value.message, *over_tls.said]
    assert not any("not-the-password" in line or "\n" in line for line in told)


def test_plain_text_to_a_secure_listener_says_that_nobody_answers(over_tls: Landing) -> None:
    with pytest.raises(JobError, match=r"no broker answers at 127\.0\.0\.1"):
        over_tls.run("--topic", TOPIC, "--wait", "1", *by_options(SOON))
