"""`kbroker user` on the data of a stopped broker, `--add-scram`, and `--command-config` files."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path

import pytest

from kbroker.cli.command_config import login_of_file
from kbroker.cli.first_users import add_first_users
from kbroker.cli.main import main
from kbroker.cli.scram_arguments import parse_add_scram
from kbroker.cli.start_arguments import parse_plain
from kbroker.config import BrokerConfig
from kbroker.errors import ConfigError, UsageError
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.offline_users import users_in
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.users import ImageUsers
from kbroker.security.client_login import ClientLogin
from kbroker.security.scram import ScramMechanism, new_credential
from kbroker.security.scram_client import ScramClient
from kbroker.security.scram_server import ScramServer

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def logs_in(directory: Path, name: str, password: str, mechanism: ScramMechanism) -> bool:
    image = ClusterImage().with_users(users_in(directory))
    server = ScramServer(mechanism, ImageUsers(lambda: image, b"x"))
    client = ScramClient(mechanism, name, password)
    try:
        client.check(server.evaluate(client.final(server.evaluate(client.first()))))
    except Exception:
        return False
    return server.login is not None


def run(monkeypatch: pytest.MonkeyPatch, *words: str, password: str = "") -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(password + "\n"))
    return main(["user", *words])


def test_the_first_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    at = ("--data-dir", str(data))
    assert run(monkeypatch, "add", "admin", "--password-file", "-", *at, password="pw") == 0
    assert capsys.readouterr().out == "admin: has a password for SCRAM-SHA-512\n"
    assert logs_in(data, "admin", "pw", SHA_512) and not logs_in(data, "admin", "pw", SHA_256)
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512", "--iterations", "5000")
    assert run(monkeypatch, "add", "bob", "--password-file", "-", *both, *at, password="bs") == 0
    assert logs_in(data, "bob", "bs", SHA_256) and logs_in(data, "bob", "bs", SHA_512)
    capsys.readouterr()
    assert run(monkeypatch, "list", "-o", "json", *at) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"user": "admin", "mechanism": "SCRAM-SHA-512", "iterations": 4096},
        {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 5000},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 5000},
    ]
    assert run(monkeypatch, "delete", "bob", "--mechanism", "SCRAM-SHA-256", *at) == 0
    assert not logs_in(data, "bob", "bs", SHA_256) and logs_in(data, "bob", "bs", SHA_512)
    assert run(monkeypatch, "delete", "bob", *at) == 0
    assert users_in(data).keys() == {"admin"}
    assert run(monkeypatch, "delete", "bob", *at) != 0
    assert "no such credential" in capsys.readouterr().err


def test_a_running_broker_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    with closing(EmbeddedStore.open(tmp_path)):
        assert run(monkeypatch, "list", "--data-dir", str(tmp_path)) == 5
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("password", ["", "\r"])
def test_an_empty_password_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    words = ("add", "a", "--password-file", "-", "--data-dir", str(tmp_path))
    assert run(monkeypatch, *words, password=password) == 2


def test_a_password_has_to_come_from_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "add", "a", "--data-dir", str(tmp_path)) == 2
    assert "--password-file" in capsys.readouterr().err
    words = ("add", "a", "--password-file", "/there/is/none", "--data-dir", str(tmp_path))
    assert run(monkeypatch, *words) == 2


def test_a_password_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pw"
    file.write_text("first line\nsecond\n")
    words = ("add", "a", "--password-file", str(file), "--data-dir", str(tmp_path / "data"))
    assert run(monkeypatch, *words) == 0
    assert logs_in(tmp_path / "data", "a", "first line", SHA_512)


# --- --add-scram ----------------------------------------------------------------------------------


def test_add_scram(tmp_path: Path) -> None:
    config = BrokerConfig.load(None, {}, [f"log.dirs={tmp_path / 'data'}"])
    add_first_users(config, ["SCRAM-SHA-256=[name=admin,password=pw]"])
    assert logs_in(tmp_path / "data", "admin", "pw", SHA_256)
    add_first_users(
        config,
        ["SCRAM-SHA-256=[name=admin,password=other]", "SCRAM-SHA-512=[name=admin,password=new]"],
    )
    assert logs_in(tmp_path / "data", "admin", "pw", SHA_256)  # it stays
    assert logs_in(tmp_path / "data", "admin", "new", SHA_512)


def test_fields_of_add_scram() -> None:
    user = parse_add_scram('SCRAM-SHA-512=[name="a,b",password="c]d", iterations=8192]')
    assert (user.name, user.mechanism, user.credential.iterations) == ("a,b", SHA_512, 8192)
    same = new_credential(SHA_512, "c]d", 8192, user.credential.salt)
    assert user.credential == same
    salted = "V11UVQ=="
    user = parse_add_scram(f"SCRAM-SHA-256=[name=a,salt=c2FsdA==,saltedpassword={salted}]")
    assert user.credential.salt == b"salt"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no MECHANISM"),
        ("SCRAM-SHA-256", "is no MECHANISM"),
        ("SCRAM-SHA-1=[name=a,password=secret]", "names the mechanism SCRAM-SHA-1"),
        ("SCRAM-SHA-256=[password=secret]", "has no name"),
        ("SCRAM-SHA-256=[name=a]", "the password is empty"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=1]", "are not 4096"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=x]", "no number"),
        ("SCRAM-SHA-256=[name=a,password=secret,x=1]", "fields"),
        ("SCRAM-SHA-256=[name=a,name=b,password=secret]", "once each"),
        ("SCRAM-SHA-256=[name=a,salt=!,password=secret]", "no base64"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2FsdA==]", "goes with salt"),
        ("SCRAM-SHA-256=[name=a,salt=c2FsdA==,saltedpassword=c2FsdA==,password=secret]", "without"),
    ],
)
def test_texts_that_are_no_user(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        parse_add_scram(text)
    assert "secret]" not in str(raised.value).replace("password=secret]'", "")


def test_it_may_be_repeated() -> None:
    words = ["--add-scram", "a", "--add-scram=b", "--override", "x=y"]
    plain = parse_plain(words)
    assert plain is not None and plain.add_scram == ("a", "b") and plain.overrides == ("x=y",)


# --- --command-config -----------------------------------------------------------------------------

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def written(tmp_path: Path, *lines: str) -> str:
    file = tmp_path / "client.properties"
    file.write_text("\n".join(lines))
    return str(file)


def test_a_file_of_kafkas_tools(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.jaas.config={SCRAM} \\",
        '  username="alice" \\',
        '  password="hers";',
        "acks=all",
    )
    assert login_of_file(file) == ClientLogin("SCRAM-SHA-512", "alice", "hers")
    token = written(
        tmp_path,
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=SCRAM-SHA-256",
        f"sasl.jaas.config={SCRAM} username=a password=b tokenauth=true;",
    )
    assert login_of_file(token) == ClientLogin("SCRAM-SHA-256", "a", "b", is_token=True)
    assert login_of_file(written(tmp_path, "acks=all")) is None


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["security.protocol=TLS"], "TLS is no protocol"),
        (["security.protocol=SASL_PLAINTEXT"], "GSSAPI is not known"),
        (["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN"], "is not set"),
        (
            [
                "security.protocol=SASL_PLAINTEXT",
                "sasl.mechanism=PLAIN",
                f"sasl.jaas.config={SCRAM} username=secret;",
            ],
            "no username and password",
        ),
    ],
)
def test_files_that_are_not_served(tmp_path: Path, lines: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        login_of_file(written(tmp_path, *lines))
    assert "secret" not in str(raised.value)


def test_a_command_that_names_a_wrong_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["topic", "list", "-b", "127.0.0.1:1", "--command-config", "/there/is/none"]
    assert main(words) == 3
    assert "cannot read /there/is/none" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 1025, "\u00e9" * 400, "a\udcffb"])
def test_a_name_that_cannot_log_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    at = ("--data-dir", str(tmp_path))
    status = run(monkeypatch, "add", "--password-file", "-", *at, "--", name, password="pw")
    assert status == (2 if "\udcff" in name else 1)
    assert run(monkeypatch, "add", "--password-file", "-", *at, "ok", password="pw") == 0
    assert list(users_in(tmp_path)) == ["ok"]


def test_a_directory_whose_metadata_is_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user would be in a store that no broker opens."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    at = ("--data-dir", str(tmp_path))
    for words in (("add", "a", "--password-file", "-"), ("list",), ("delete", "a")):
        assert run(monkeypatch, *words, *at, password="pw") == 1
        assert "has no metadata of its own" in capsys.readouterr().err
    missing = tmp_path / "mistyped"
    assert run(monkeypatch, "list", "--data-dir", str(missing)) == 1
    assert not missing.exists()


def test_a_password_that_is_too_long_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--data-dir", str(tmp_path))
    words = ("add", "a", "--password-file", "-", *at)
    assert run(monkeypatch, *words, password="x" * 4_096) == 0
    assert logs_in(tmp_path, "a", "x" * 4_096, SHA_512)
    assert run(monkeypatch, *words, password="x" * 4_097) == 2
