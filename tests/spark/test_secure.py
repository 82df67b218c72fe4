"""What needs Apache Kafka: TLS and SASL, and transactions.

A listener that wants TLS and SCRAM, for the job's options to the connector and its Admin client and
for perf's results; and, in plain text, a producer that aborts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.cli.command_config import login_of_file
from kbroker.cli.main import main
from kbroker.errors import KafkaError
from kbroker.metrics import samples
from kbroker.peer.client import Client
from kbroker.peer.messages import LATEST_TIMESTAMP, NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import PlainBroker
from kbroker.types import TopicPartition
from lab.ports import free_port
from perf import cli, results_table
from perf.results import Results
from perf.results_target import made
from spark_jobs import report
from spark_jobs.errors import EXIT_FAILED, JobError
from spark_jobs.report_model import Report
from tests.clients.agents.driver import eventually
from tests.spark.conftest import Landing
from tests.support import reading
from tests.support.kafka_secure import SecureKafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "orders"
VALUES = [b"order %d" % number for number in range(200)]
# So that a client gives up soon; the properties under test win over the job's own.
SOON = {"default.api.timeout.ms": "4000", "request.timeout.ms": "3000"}
# So that the answer comes in time, however busy the machine.
LATE = {"default.api.timeout.ms": "20000", "request.timeout.ms": "15000"}


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


@pytest.mark.parametrize("source", ["kafka", "kbroker"])
@pytest.mark.parametrize("way", ["options", "file"])
def test_a_topic_lands_over_tls_with_a_password(
    over_tls: Landing, secure: SecureKafkaBroker, tmp_path: Path, way: str, source: str
) -> None:
    settings = secure.client_settings()
    words = by_options(settings) if way == "options" else by_file(settings, tmp_path)
    over_tls.run("--topic", TOPIC, "--source", source, *words)
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


@pytest.mark.parametrize("source", ["kafka", "kbroker"])
def test_a_wrong_password_is_one_line_without_it(
    over_tls: Landing, secure: SecureKafkaBroker, source: str
) -> None:
    wrong = secure.client_settings("not-the-password")
    with pytest.raises(JobError, match=r"(?i)authentication failed") as refused:
        over_tls.run("--topic", TOPIC, "--source", source, *by_options(wrong | LATE))
    assert refused.value.exit_code == EXIT_FAILED
    said = [refused.value.message, *over_tls.said]
    assert not any("not-the-password" in line or "\n" in line for line in said)


def test_results_of_perf_are_published_with_the_same_file(
    secure: SecureKafkaBroker, tmp_path: Path
) -> None:
    """`--results-config` takes what Kafka's own tools take."""
    _, file = by_file(secure.client_settings(), tmp_path)
    said: list[str] = []
    for number in (1, 2):  # the first makes the topic, the second finds it
        with Results(made(secure.secure_bootstrap, file), "tune", said.append) as run:
            run.figure("answer", number, "s")
            run.figure("and", number, "s")
    assert all("2 records" in line for line in said), said
    found = reading.records(secure.bootstrap, results_table.TOPIC)
    rows = [json.loads(one.value or b"") for one in found]
    assert [(row["name"], row["value"], row["sequence"]) for row in rows] == [
        ("answer", 1.0, 0), ("and", 1.0, 1), ("answer", 2.0, 0), ("and", 2.0, 1),
    ]  # fmt: skip
    with Client(secure.bootstrap) as client:
        configs = {one.name: one.value for one in client.topic_configs(results_table.TOPIC)}
    assert configs.items() >= results_table.TOPIC_CONFIGS.items()


def test_results_that_are_refused_are_kept_and_sent_later(
    secure: SecureKafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, file = by_file(secure.client_settings("not-the-password"), tmp_path)
    target = made(secure.secure_bootstrap, file)
    said: list[str] = []
    with Results(target, "tune", said.append, directory=tmp_path) as run:
        run.figure("kept", 3, "s")
    (line,) = said
    assert "uthentication failed" in line and "not-the-password" not in line and "\n" not in line
    by_file(secure.client_settings(), tmp_path)  # mended
    words = ["--results-bootstrap", secure.secure_bootstrap, "--results-config", file]
    assert " ".join(["kbroker perf publish", run.failed, *words]) in line
    assert cli.main(["publish", run.failed, *words]) == 0
    assert "1 records published" in capsys.readouterr().out


def test_plain_text_to_a_secure_listener_says_that_no_broker_answers(over_tls: Landing) -> None:
    with pytest.raises(JobError, match=r"no broker answers at 127\.0\.0\.1"):
        over_tls.run("--topic", TOPIC, "--wait", "1", *by_options(SOON))


@pytest.fixture(scope="module")
def half_aborted(secure: SecureKafkaBroker) -> str:
    """A topic with committed, aborted and committed records, and a transaction that is open."""
    import confluent_kafka

    topic = "transfers"
    for number, commit in enumerate([True, False, True, None]):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": secure.bootstrap, "transactional.id": f"teller-{number}",
             "transaction.timeout.ms": 900_000}
        )  # fmt: skip
        producer.init_transactions(60)
        producer.begin_transaction()
        for value in (b"from", b"to"):
            producer.produce(topic, b"%d %s" % (number, value), partition=0)
        assert producer.flush(60) == 0
        if commit:
            producer.commit_transaction(60)
        elif commit is False:
            producer.abort_transaction(60)
    return topic


@pytest.mark.parametrize("source", ["kafka", "kbroker"])
def test_only_committed_records_land(
    spark: Any, secure: SecureKafkaBroker, half_aborted: str, source: str, tmp_path: Path
) -> None:
    """By both sources the same, batch by batch; and what is open is not gone over."""
    landing = Landing(spark, secure.bootstrap, tmp_path)
    for _ in range(2):
        landing.run("--topic", half_aborted, "--source", source, "--max-records", "4")
        assert [bytes(row.value) for row in landing.rows("plain")] == [
            b"0 from", b"0 to", b"2 from", b"2 to",
        ]  # fmt: skip
    from spark_jobs import tables

    ends = tables.ledger(spark, landing.tables, "plain").ends()[half_aborted][1]
    assert ends == {0: 9}  # two records and a marker of each that has ended


class OfSecureInit(PlainBroker):
    """By a file of `kbroker secure init`, with a metrics topic."""

    def __init__(self, properties: Path) -> None:
        super().__init__()
        self.properties = properties

    def command(self) -> list[str]:
        words = super().command()
        words = words[: words.index("--data-dir")]
        words += ["--override", "admin.listeners=none", "--ready-file", str(self.ready_path)]
        for key, value in self.overrides.items():
            words += ["--override", f"{key}={value}"]
        return [*words, str(self.properties)]


def samples_in(client: Client) -> int:
    try:
        places = [TopicPartition(samples.TOPIC, each) for each in client.partitions(samples.TOPIC)]
    except KafkaError:
        return 0
    found = client.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    return sum(each.offset for each in found.values())


@pytest.fixture(scope="module")
def sasl_ssl_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A kbroker that has no other listener, and has sampled itself; with a client's file."""
    directory = tmp_path_factory.mktemp("secure") / "files"
    bootstrap = f"127.0.0.1:{free_port()}"
    assert main(["secure", "init", str(directory), "--broker", bootstrap]) in (0, None)
    file = directory / "client.properties"
    broker = OfSecureInit(directory / "broker-1.properties")
    broker.overrides |= {"metrics.topic.enable": "true", "metrics.topic.interval.ms": "1000"}
    with broker:
        with Client(bootstrap, login=login_of_file(str(file))) as client:
            eventually(lambda: samples_in(client) > 0, "there are samples")
        yield bootstrap, file


@pytest.mark.parametrize("source", ["kafka", "kbroker"])
def test_a_report_of_a_cluster_that_speaks_sasl_ssl_alone(
    spark: Any, sasl_ssl_alone: tuple[str, Path], source: str, tmp_path: Path
) -> None:
    """The broker writes its samples by its own login, the job reads them by a user's."""
    bootstrap, file = sasl_ssl_alone
    page = tmp_path / "report.html"
    words = ["--tables", str(tmp_path / "tables"), "--out", str(page), "--source", source]
    words += ["--bootstrap-server", bootstrap, "--command-config", str(file)]
    said: list[str] = []
    report.make(spark, report.arguments(words), time.time_ns() // 1_000_000, said.append)
    made_of_it = Report.from_json(page.with_suffix(".json").read_bytes())
    (landed,) = [
        dict(zip(table.columns, row, strict=True))
        for section in made_of_it.sections
        for table in section.tables
        if table.title.startswith("What landed")
        for row in table.rows
        if row[1].text == "metrics"
    ]
    assert landed["rows"].value
    (line,) = [each for each in file.read_text().splitlines() if each.startswith("sasl.jaas")]
    password = line.rpartition('password="')[2].partition('"')[0]
    written = [*said, page.read_text(), page.with_suffix(".json").read_text()]
    assert password and not any(password in each for each in written)
