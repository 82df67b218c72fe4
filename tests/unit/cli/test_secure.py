"""`kbroker secure init` that is killed: the next one makes all files, or finds all of them."""

from __future__ import annotations

import fcntl
import shutil
import ssl
from pathlib import Path

import pytest

from kbroker.cli.files_together import LIST_FILE, FilesTogether
from kbroker.cli.main import main
from kbroker.errors import UsageError
from kbroker.metadata.offline_users import users_in
from kbroker.security.scram import ScramMechanism, new_credential, parse_credential
from tests.support.killed_calls import is_killed_at


def words(directory: Path, *more: str) -> list[str]:
    return ["secure", "init", str(directory), "--once", *more]


def assert_whole(directory: Path) -> None:
    """One authority, its certificates, and users with the passwords of the files."""
    names = {each.name for each in directory.iterdir()}
    assert names == {
        "ca.pem", "ca.key", "broker-1.pem", "broker-1.properties", "user.password",
        "client.properties", "librdkafka.conf", "data-1",
    }  # fmt: skip
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    context.load_cert_chain(directory / "broker-1.pem")
    broker, client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(directory / "broker-1.pem")
    sides = (
        context.wrap_bio(client, broker, server_hostname="localhost"),
        server_context.wrap_bio(broker, client, server_side=True),
    )
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert sides[0].version() == "TLSv1.3"
    password = (directory / "user.password").read_text()
    assert f"sasl.password={password}\n" in (directory / "librdkafka.conf").read_text()
    mechanism = ScramMechanism.SHA_512
    text = users_in(directory / "data-1")["admin"][mechanism.value]
    stored = parse_credential(mechanism, text)
    assert new_credential(mechanism, password, stored.iterations, stored.salt) == stored


def test_killed_at_every_step(memory_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, last = memory_path / "made", 0
    while is_killed_at(last, lambda: main(words(directory))):
        assert main(words(directory)) == 0
        assert_whole(directory)
        shutil.rmtree(directory)
        last += 1
    assert last > 20
    assert_whole(directory)
    capsys.readouterr()


def test_files_of_others_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_text("mine")
    assert main(words(tmp_path)) == 2
    assert "ca.pem is there already" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["ca.pem"]


def test_two_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / LIST_FILE).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert main(words(tmp_path)) == 2
    assert "another command writes to" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file", "file/x", "/proc/none"])
def test_a_place_that_is_no_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "file").touch()
    assert main(words(tmp_path / place)) == 1
    assert "-> name a directory that can be written" in capsys.readouterr().err


def test_files_that_failed_are_removed(tmp_path: Path) -> None:
    with pytest.raises(UsageError), FilesTogether(tmp_path, ["a", "b"]) as files:
        files.write(tmp_path / "a", b"1", 0o600)
        raise UsageError("no", "fix")
    assert list(tmp_path.iterdir()) == []
