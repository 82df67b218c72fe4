"""The quotas of clients and addresses, as the image has them, in force at the network core.

Place in the flow: the controller's thread calls `follow` with every image. Where its quotas are
others than before, C gets all of them (`quota/_client_quotas`, `net/_connection_rates`), and
clients that wait for old ones are read again. C counts the use.

`follow` on one thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kbroker.limits import QUOTA_WINDOWS_MAX
from kbroker.quota._client_quotas import ClientQuotas
from kbroker.quota.entities import (
    CLIENT_QUOTAS,
    CONNECTION_CREATION_RATE,
    EVERY,
    QuotaEntity,
)

if TYPE_CHECKING:
    from kbroker._net import SocketServer
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage

log: Final = logging.getLogger("kbroker.quotas")

_MS_PER_S: Final = 1_000
_Found = Mapping[QuotaEntity, Mapping[str, float]]


class Quotas:
    """See the head of this file."""

    def __init__(self, config: BrokerConfig, server: SocketServer) -> None:
        """Before the server starts."""
        self.clients: Final = ClientQuotas(
            samples=min(config["quota.window.num"], QUOTA_WINDOWS_MAX),
            sample_ms=config["quota.window.size.seconds"] * _MS_PER_S,
            mutation_samples=min(config["controller.quota.window.num"], QUOTA_WINDOWS_MAX),
            mutation_sample_ms=config["controller.quota.window.size.seconds"] * _MS_PER_S,
        )
        self._server: Final = server
        self._seen: tuple[object, object] = None, None
        self._of_clients: _Found = {}
        self._of_addresses: dict[str, float] = {}
        server.use_quotas(self.clients)

    def follow(self, image: ClusterImage) -> None:
        """This is the image now."""
        users, quotas = self._seen
        if image.users is users and image.quotas is quotas:
            return
        self._seen = image.users, image.quotas
        found = dict(image.all_quotas())
        clients = {each: own for each, own in found.items() if each.ip is None}
        addresses = {
            each.ip: own[CONNECTION_CREATION_RATE]
            for each, own in found.items()
            if each.ip is not None and CONNECTION_CREATION_RATE in own
        }
        if clients != self._of_clients:
            self._load(clients)
        if addresses != self._of_addresses:
            self._of_addresses = addresses
            every = addresses.get(EVERY, -1.0)
            named = {ip: rate for ip, rate in addresses.items() if ip != EVERY}
            self._server.limit_connection_rates(every, named)
            log.info("%d quotas of addresses are in force", len(addresses))

    def _load(self, clients: _Found) -> None:
        self.clients.load(
            (entity.user, entity.client_id, [own.get(key) for key in CLIENT_QUOTAS])
            for entity, own in clients.items()
        )
        self._of_clients = clients
        self._server.quotas_changed()
        log.info("%d quotas of users and clients are in force", len(clients))
