"""Apache Kafka with a listener that wants a password, over plain TCP: the reference of SASL.

with SaslKafkaBroker() as broker:
    broker.secure_port        # PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 on the listener SECURE
"""

from __future__ import annotations

from typing import Final

from lab.ports import free_port
from tests.support.kafka import KafkaBroker

USER: Final = "alice"
PASSWORD: Final = "a password"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES: Final = "org.apache.kafka.common.security"
# Of a broker of either kind.
SETTINGS: Final = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.secure.plain.sasl.jaas.config": (
        f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
    **{
        f"listener.name.secure.{each.lower()}.sasl.jaas.config": (
            f"{_MODULES}.scram.ScramLoginModule required;"
        )
        for each in MECHANISMS[1:]
    },
}


class SaslKafkaBroker(KafkaBroker):
    def __init__(self) -> None:
        super().__init__()
        self.secure_port = free_port()

    def format_arguments(self) -> tuple[str, ...]:
        users = (f"{each}=[name={USER},password={PASSWORD}]" for each in MECHANISMS[1:])
        return tuple(word for user in users for word in ("--add-scram", user))

    def settings(self) -> dict[str, str]:
        plain = super().settings()
        secure = f"SECURE://127.0.0.1:{self.secure_port}"
        return {
            **plain,
            "listeners": f"{plain['listeners']},{secure}",
            "advertised.listeners": f"{plain['advertised.listeners']},{secure}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_PLAINTEXT"
            ),
            **SETTINGS,
        }
