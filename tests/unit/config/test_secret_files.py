"""Files with secrets that others can read: one warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.cli.command_config import login_of_file
from kbroker.config import BrokerConfig

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username=a password=b;"
JAAS = f"listener.name.secure.scram-sha-512.sasl.jaas.config={SCRAM}\n"


def written(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("mode", "is_warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)]
)
def test_a_file_of_settings_with_a_password(tmp_path: Path, mode: int, is_warned: bool) -> None:
    file = written(tmp_path / "server.properties", JAAS, mode)
    warnings = BrokerConfig.load(file).warnings
    assert bool(warnings) is is_warned
    if is_warned:
        assert f"{file} ({mode:04o}) -> chmod 600" in warnings[0]


def test_a_file_of_settings_without_one(tmp_path: Path) -> None:
    file = written(tmp_path / "server.properties", "node.id=3\n", 0o644)
    assert BrokerConfig.load(file).warnings == ()


def test_one_line_for_all_files(tmp_path: Path) -> None:
    store = written(tmp_path / "store.pem", "", 0o644)
    login = written(tmp_path / "login.conf", "KafkaServer { };", 0o660)
    text = f"{JAAS}ssl.keystore.type=PEM\nlistener.name.secure.ssl.keystore.location={store}\n"
    file = written(tmp_path / "server.properties", text, 0o644)
    config = BrokerConfig.load(file, {}, [f"kbroker.login.config.file={login}"])
    (warning,) = config.warnings
    for path, mode in ((file, "0644"), (store, "0644"), (login, "0660")):
        assert f"{path} ({mode})" in warning


def test_a_file_of_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM}"
    )
    assert login_of_file(written(tmp_path / "a.properties", text, 0o600)) is not None
    assert capsys.readouterr().err == ""
    file = written(tmp_path / "b.properties", text, 0o644)
    assert login_of_file(file) is not None
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"warning: others can read or write files with secrets: {file} (0644) -> chmod 600\n"
    )


def test_the_file_of_a_bearer_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = written(tmp_path / "a token", "x.y.z", 0o644)
    url = (tmp_path / "a token").as_uri()
    setting = f"sasl.oauthbearer.token.endpoint.url={url}"
    (warning,) = BrokerConfig.load(None, {}, [setting]).warnings
    assert f"{token} (0644) -> chmod 600" in warning
    text = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n{setting}"
    assert login_of_file(written(tmp_path / "a.properties", text, 0o644)) is not None
    assert f"{token} (0644) -> chmod 600" in capsys.readouterr().err
    for other in ("file:%00", "https://[h/x", "file://[h/x"):
        setting = f"sasl.oauthbearer.token.endpoint.url={other}"
        assert BrokerConfig.load(None, {}, [setting]).warnings == ()
