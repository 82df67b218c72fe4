"""The file that `kbroker token create` writes for a client."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.cli import token
from kbroker.config.sources import read_file
from kbroker.peer.token_messages import KnownToken
from kbroker.security.delegation_token import DelegationToken
from kbroker.security.session import Principal


def test_settings_of_several_lines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, job = tmp_path / "client.properties", tmp_path / "job.properties"
    used.write_text(
        "security.protocol=SASL_SSL\n"
        r"ssl.truststore.certificates=-----BEGIN\na=b\n-----END"
        "\n"
        r"ssl.truststore.location=\\share\\a:b"
        "\nssl.keystore.location=/key\nsasl.jaas.config=hers\n"
    )
    monkeypatch.setattr(token, "command_config", lambda: str(used))
    anna = Principal("User", "anna")
    made = KnownToken(DelegationToken("an-id", anna, anna, (), 1, 2, 3), b"h")
    job.write_text(token._settings(made, "SCRAM-SHA-256"))
    found = {name: setting.text for name, setting in read_file(str(job)).items()}
    login = found.pop("sasl.jaas.config")
    assert 'username="an-id" password="aA==" tokenauth="true";' in login
    assert found == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": "-----BEGIN\na=b\n-----END",
        "ssl.truststore.location": r"\share\a:b",
        "sasl.mechanism": "SCRAM-SHA-256",
    }
