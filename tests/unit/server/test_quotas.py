"""The image's quotas come into force at the network core, each time that they have changed."""

from __future__ import annotations

from typing import Any

from kbroker.config import BrokerConfig
from kbroker.metadata.image import ClusterImage
from kbroker.quota._client_quotas import ClientQuotas
from kbroker.quota.entities import EVERY, QuotaEntity
from kbroker.server.quotas import Quotas

RATE = {"producer_byte_rate": "1000"}


class Server:
    """Of the network core, what quotas are given to."""

    def __init__(self) -> None:
        self.changes = 0
        self.rates: list[tuple[float, dict[str, float]]] = []

    def use_quotas(self, quotas: ClientQuotas) -> None:
        self.quotas = quotas

    def quotas_changed(self) -> None:
        self.changes += 1

    def limit_connection_rates(self, every: float, named: dict[str, float]) -> None:
        self.rates.append((every, named))


def made(*settings: str) -> tuple[Server, Quotas]:
    server: Any = Server()
    return server, Quotas(BrokerConfig.load(None, {}, list(settings)), server)


def test_quotas_are_in_force_when_the_image_has_them() -> None:
    server, quotas = made()
    image = ClusterImage()
    quotas.follow(image)
    assert server.changes == 0 and quotas.clients.in_force == set()
    image = image.with_quotas({QuotaEntity("alice", "c"): RATE})
    quotas.follow(image)
    assert server.changes == 1 and quotas.clients.in_force == {"produce"}
    quotas.follow(image.at_version(9))
    quotas.follow(image.with_users({"bob": {"SCRAM-SHA-256": "salt=1"}}))
    assert server.changes == 1  # those of clients are as they were
    quotas.follow(image.with_users({"bob": RATE}))
    assert server.changes == 2 and quotas.clients.statistics()["limits"] == 2
    quotas.follow(ClusterImage())
    assert server.changes == 3 and quotas.clients.in_force == set()


def test_rates_of_addresses() -> None:
    server, quotas = made()
    rate = {"connection_creation_rate": "5"}
    image = ClusterImage().with_quotas({QuotaEntity(ip="::1"): rate})
    quotas.follow(image)
    assert server.rates == [(-1.0, {"::1": 5.0})] and server.changes == 0
    quotas.follow(image.with_quotas({QuotaEntity(ip=EVERY): rate}))
    assert server.rates[1:] == [(5.0, {"::1": 5.0})]
    quotas.follow(ClusterImage())
    assert server.rates[2:] == [(-1.0, {})]


def test_windows_are_those_of_the_configuration() -> None:
    _, quotas = made("quota.window.num=2", "controller.quota.window.size.seconds=3")
    quotas.follow(
        ClusterImage().with_users(
            {"alice": {"producer_byte_rate": "100", "controller_mutation_rate": "1"}}
        )
    )
    # A window of a second, and eleven samples of three seconds.
    assert quotas.clients.charge("alice", "c", kind="produce", size=200, now_ms=0) == 1_000
    assert quotas.clients.mutate("alice", "c", 34, False, 0) == (True, 1_000)
