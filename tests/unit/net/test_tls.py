"""TLS as a listener's transport, over the network core alone: real records, hostile ones, too."""

from __future__ import annotations

import random
import socket
import ssl
import struct
from pathlib import Path

import pytest

from kbroker.net._tls_context import TlsContext
from tests.support.certificates import Authority, Certificate, client_context, openssl
from tests.support.record_batches import build_batch
from tests.unit.engine.wire import Ask, fetch, fetch_frame, fetched_in, produce_one
from tests.unit.net.harness import Gate, cold_frame, eventually
from tests.unit.net.over_tls import VERSIONS, MakeRig, Over, TlsClient, tls_context
from tests.unit.net.test_transport import fill


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_cut_anywhere(over: Over, version: str) -> None:
    dice = random.Random(version)
    sizes = (0, 1, 100, 16_384, 40_000)
    bodies = [dice.randbytes(dice.choice(sizes)) for _ in range(30)]
    stream = b"".join(cold_frame(body, i) for i, body in enumerate(bodies))
    client = over.client(version=version)
    assert client.tls.version() == version
    answers: list[tuple[int, bytes]] = []
    while stream:
        cut = dice.choice((1, 3, 4, 5, 1_000, 70_000))
        client.send(stream[:cut])
        stream = stream[cut:]
        while len(answers) < over.rig.total("responses"):
            answers.append(client.receive_cold())
    while len(answers) < len(bodies):
        answers.append(client.receive_cold())
    assert answers == list(enumerate(bodies))


def test_many_small_records_that_come_together_are_all_read(over: Over) -> None:
    client = over.client()
    for i in range(500):  # a record each; the broker reads many of them ahead
        client.send(cold_frame(b"%d" % i, i))
    assert [client.receive_cold() for _ in range(500)] == [(i, b"%d" % i) for i in range(500)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("inline", [0, 1 << 30], ids=["ranges", "in memory"])
def test_produce_and_fetch(
    make_rig: MakeRig, authority: Authority, broker: Certificate, inline: int, version: str
) -> None:
    over = Over(make_rig, authority, tls_context(broker), hot={"inline_range_bytes": inline})
    topic = over.rig.create("t")
    client = over.client(version=version)
    batches = [build_batch([b"%d" % at * 1000]) for at in range(5)]
    assert [produce_one(client, topic, batch).error for batch in batches] == [0] * 5
    found = topic.logs[0].read(0, 1 << 30)
    assert fetch(client, 12, [Ask(topic)]).only.records == found


def test_long_answers(over: Over) -> None:
    topic = over.rig.create("t")
    wanted = fill(topic, 40, 50_000)
    answer = fetch(over.client(), 12, [Ask(topic, max_bytes=50 << 20)])
    assert answer.only.records == wanted


def test_a_peer_that_reads_slowly_gets_the_same_bytes(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    over = Over(make_rig, authority, tls_context(broker), send_buffer_bytes=8192)
    topic = over.rig.create("t", partitions=1)
    wanted = fill(topic, 20, 50_000)
    slow = over.client(receive_bytes=8192)
    neighbour = over.client()
    slow.send(fetch_frame(12, [Ask(topic, max_bytes=50 << 20)], correlation_id=5) * 3)
    head = slow.read(4 + 30_000)
    neighbour.send(cold_frame(b"meanwhile", 1))
    assert neighbour.receive_cold() == (1, b"meanwhile")
    (size,) = struct.unpack(">i", head[:4])
    first = fetched_in(12, head[4:] + slow.read(size - 30_000))
    assert first.only.records == wanted
    for _ in range(2):
        assert fetched_in(12, slow.receive()).only.records == wanted


def test_many_handshakes_at_once_all_end(over: Over) -> None:
    context = client_context(over.authority)
    plain = [over.plain() for _ in range(30)]
    for at, each in enumerate(reversed(plain)):
        tls = context.wrap_socket(each.socket, server_hostname="localhost")
        each.socket = tls
        each.send(cold_frame(b"x", at))
        assert each.receive_cold() == (at, b"x")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_resumed(over: Over, version: str) -> None:
    context = client_context(over.authority)
    if version == "TLSv1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    first = over.rig.connected(TlsClient(over.rig.port, context))
    first.send(cold_frame(b"x", 1))
    assert first.receive_cold() == (1, b"x")
    session = first.tls.session
    with socket.create_connection(("127.0.0.1", over.rig.port)) as opened:
        tls = context.wrap_socket(opened, server_hostname="localhost", session=session)
        assert tls.session_reused
        tls.close()


# --- what the listener asks for -------------------------------------------------------------------


def test_versions(make_rig: MakeRig, authority: Authority, broker: Certificate) -> None:
    over = Over(make_rig, authority, tls_context(broker, versions=("TLSv1.3",)))
    with pytest.raises(ssl.SSLError):
        over.client(version="TLSv1.2")
    assert over.failure()[0] == "unsupported protocol"
    assert over.client().tls.version() == "TLSv1.3"


def test_cipher_suites(make_rig: MakeRig, authority: Authority, broker: Certificate) -> None:
    context = tls_context(broker)
    context.use_suites(["ECDHE-ECDSA-AES128-GCM-SHA256"], ["TLS_CHACHA20_POLY1305_SHA256"])
    over = Over(make_rig, authority, context)
    chosen = [over.client(version=version).tls.cipher() for version in VERSIONS]
    assert [each[0] for each in chosen if each] == [
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_must_have_a_certificate(
    make_rig: MakeRig, authority: Authority, broker: Certificate, other: Certificate, version: str
) -> None:
    trusted = authority.certificate.read_bytes()
    context = tls_context(broker, client_auth="required", trusted=trusted)
    over = Over(make_rig, authority, context)
    served = over.client(certificate=other, version=version)
    served.send(cold_frame(b"x", 1))
    assert served.receive_cold() == (1, b"x")
    with pytest.raises(ssl.SSLError):  # of TLS 1.3 the first read has the alert
        refused = over.client(version=version)
        refused.send(cold_frame(b"x", 1))
        refused.receive()
    assert over.failure()[0] == "peer did not return a certificate"


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_certificate_of_another_authority_is_refused(
    make_rig: MakeRig,
    authority: Authority,
    broker: Certificate,
    tmp_path: Path,
    client_auth: str,
) -> None:
    stranger = Authority(tmp_path, "stranger").issue("client")
    trusted = authority.certificate.read_bytes()
    over = Over(make_rig, authority, tls_context(broker, client_auth=client_auth, trusted=trusted))
    with pytest.raises(ssl.SSLError):
        refused = over.client(certificate=stranger)
        refused.send(cold_frame(b"x", 1))
        refused.receive()
    reason, why, count, host = over.failure()
    assert (reason, count, host) == ("certificate verify failed", 1, "127.0.0.1")
    assert "issuer" in why
    if client_auth == "requested":
        anonymous = over.client()
        anonymous.send(cold_frame(b"x", 1))
        assert anonymous.receive_cold() == (1, b"x")


def test_a_broker_s_certificate_is_none_of_a_client(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    server_only = authority.issue("server-only", usage="serverAuth")
    trusted = authority.certificate.read_bytes()
    over = Over(make_rig, authority, tls_context(broker, client_auth="required", trusted=trusted))
    with pytest.raises(ssl.SSLError):
        refused = over.client(certificate=server_only)
        refused.send(cold_frame(b"x", 1))
        refused.receive()
    assert "purpose" in over.failure()[1]


def test_connections_keep_their_certificate_and_later_ones_get_the_next(
    over: Over, other: Certificate
) -> None:
    def owner(client: TlsClient) -> object:
        found = client.tls.getpeercert()
        assert found is not None
        return found["subject"]

    before = over.client()
    over.transport.replace(tls_context(other))
    after = over.client()
    assert owner(before) == ((("commonName", "broker"),),)
    assert owner(after) == ((("commonName", "other"),),)
    for client in (before, after):
        client.send(cold_frame(b"x", 1))
        assert client.receive_cold() == (1, b"x")


# --- the end --------------------------------------------------------------------------------------


def test_an_end_without_notice_ends_the_channel_after_its_answers(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    gate = Gate()
    over = Over(make_rig, authority, tls_context(broker), dispatch=gate)
    client = over.client()
    client.send(cold_frame(b"last", 1))
    gate.wait_for(1)
    socket.socket.shutdown(client.tls, socket.SHUT_WR)  # of TCP alone
    eventually(lambda: over.rig.total("connections") == 1)
    gate.release()
    assert client.receive_cold() == (1, b"last")
    assert client.ended()


def test_a_stop_sends_answers_and_the_end(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    gate = Gate()
    over = Over(make_rig, authority, tls_context(broker), dispatch=gate)
    idle, waiting = over.client(), over.client()
    waiting.send(cold_frame(b"x" * 5_000, 9))
    gate.wait_for(1)
    gate.release()
    over.rig.stop()
    assert waiting.receive_cold() == (9, b"x" * 5_000)
    for client in (idle, waiting):
        assert client.ended()


def test_a_reset_while_an_answer_is_on_its_way(
    make_rig: MakeRig, authority: Authority, broker: Certificate
) -> None:
    over = Over(make_rig, authority, tls_context(broker), send_buffer_bytes=8192)
    client = over.client(receive_bytes=8192)
    client.send(cold_frame(b"a" * 500_000, 1))
    client.socket.recv(1)
    client.reset()
    eventually(lambda: over.rig.total("connections") == 0)
    assert over.rig.total("requests") == 1


# --- contexts -------------------------------------------------------------------------------------


def test_the_facts_of_a_certificate(authority: Authority, broker: Certificate) -> None:
    context = tls_context(broker)
    expected = ssl.PEM_cert_to_DER_cert(broker.chain.read_text())
    assert context.der == expected
    assert context.subject.endswith(b"\x06broker")
    (until,) = [
        ssl.cert_time_to_seconds(found["notAfter"])
        for found in [ssl._ssl._test_decode_cert(str(broker.chain))]  # type: ignore[attr-defined]
    ]
    assert context.not_after == until


def test_an_encrypted_key(authority: Authority, broker: Certificate, tmp_path: Path) -> None:
    key = openssl("pkcs8", "-topk8", "-in", broker.key, "-passout", "pass:secret", "-v2", "aes256")
    context = TlsContext()
    context.use_certificates(broker.chain.read_bytes())
    for wrong in (b"", b"other", b"secret\0"):
        with pytest.raises(ValueError, match="key") as caught:
            context.use_key(key, wrong)
        assert "secret" not in str(caught.value)
    context.use_key(key, b"secret")


@pytest.mark.parametrize(
    ("chain", "key", "reason"),
    [
        (b"", None, "no certificate in it"),
        (b"x" * 1000, None, "no certificate in it"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None, "1 in it does"),
        (None, b"", "cannot be read"),
        (None, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cannot be read"),
    ],
)
def test_texts_that_are_refused(
    broker: Certificate, chain: bytes | None, key: bytes | None, reason: str
) -> None:
    context = TlsContext()
    with pytest.raises(ValueError, match=reason):
        context.use_certificates(broker.chain.read_bytes() if chain is None else chain)
        context.use_key(broker.key.read_bytes() if key is None else key, b"")


def test_a_key_of_another_certificate(broker: Certificate, other: Certificate) -> None:
    context = TlsContext()
    context.use_certificates(broker.chain.read_bytes())
    with pytest.raises(ValueError, match="not the certificate's"):
        context.use_key(other.key.read_bytes(), b"")


def test_a_key_that_is_too_short(authority: Authority) -> None:
    weak = authority.issue("weak", key=("-newkey", "rsa:1024"))
    with pytest.raises(ValueError, match="key too small"):
        TlsContext().use_certificates(weak.chain.read_bytes())


def test_unknown_suites() -> None:
    with pytest.raises(ValueError, match="none of them"):
        TlsContext().use_suites(["ECDHE-NONE"], [])
    with pytest.raises(ValueError, match="not all of them"):
        TlsContext().use_suites([], ["TLS_NONE"])
