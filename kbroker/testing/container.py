"""For tests that were written for testcontainers: the same calls, no container.

    with KafkaContainer() as kafka:
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})

The image and what only a container has (ports, volumes, networks) is taken and has no effect;
environment in the manner of Kafka's image (KAFKA_NUM_PARTITIONS) becomes configuration.
"""

from __future__ import annotations

from typing import Any, Final, Self

from kbroker.testing.broker import Broker

KAFKA_PORT: Final = 9093


class KafkaContainer:
    def __init__(self, image: str = "", port: int = KAFKA_PORT, **_of_a_container: Any) -> None:
        del image
        self.port: Final = port
        self._env: dict[str, str] = {}
        self.broker: Broker | None = None

    def with_env(self, key: str, value: str) -> Self:
        self._env[key] = value
        return self

    def with_kraft(self) -> Self:
        return self

    def with_exposed_ports(self, *ports: int) -> Self:
        del ports
        return self

    def with_bind_ports(self, container: int, host: int | None = None) -> Self:
        del container, host
        return self

    def with_name(self, name: str) -> Self:
        del name
        return self

    def start(self, timeout: float = 30) -> Self:
        del timeout
        self.broker = Broker(env=self._env).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        del force, delete_volume
        if self.broker is not None:
            self.broker.close()
        self.broker = None

    def get_bootstrap_server(self) -> str:
        """host:port for a client's bootstrap.servers."""
        return self._started().bootstrap

    def get_container_host_ip(self) -> str:
        return self._started().bootstrap.rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        del port
        return int(self._started().bootstrap.rpartition(":")[2])

    def get_logs(self) -> tuple[bytes, bytes]:
        return self._started().log_text().encode(), b""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> Broker:
        if self.broker is None:
            raise RuntimeError("the container has not been started: call start()")
        return self.broker
