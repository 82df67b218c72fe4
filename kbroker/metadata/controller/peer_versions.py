"""Which versions of the protocol between brokers a broker speaks, as its registration says it.

Images and answers about them are of `UPDATE_VERSION`; a broker of another kbroker version may speak
another, or several. A broker that registers checks the others: if it has no version in common with
one of them, it could not read that one's updates, so it reports this and does not join. The brokers
that are there first decide: a cluster goes on as it is, whichever broker comes.

A registration that does not say it is of Apache Kafka, or cannot be read: that disturbs no other
broker.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kbroker.errors import MetadataStoreError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.image_updates import UPDATE_VERSION
from kbroker.metadata.store.base import MetadataStore, NoNodeError

FIELD: Final = "inter_broker_versions"


class Versions(NamedTuple):
    lowest: int
    highest: int

    def meets(self, other: Versions) -> bool:
        return self.lowest <= other.highest and other.lowest <= self.highest

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


OURS: Final = Versions(UPDATE_VERSION, UPDATE_VERSION)


def with_versions(data: bytes, versions: Versions = OURS) -> bytes:
    """The registration with the versions that its broker speaks."""
    fields = {**json.loads(data), FIELD: list(versions)}
    return json.dumps(fields, separators=(",", ":")).encode()


def versions_in(data: bytes) -> Versions | None:
    """None: it does not say."""
    try:
        lowest, highest = json.loads(data)[FIELD]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not (type(lowest) is int and type(highest) is int and lowest <= highest):
        return None
    return Versions(lowest, highest)


def check_others(store: MetadataStore, node_id: int, versions: Versions = OURS) -> None:
    """MetadataStoreError if a registered broker speaks no version that we do."""
    for name in sorted(store.children(records.BROKER_IDS)):
        path = f"{records.BROKER_IDS}/{name}"
        if path == records.broker_path(node_id):
            continue
        try:
            theirs = versions_in(store.get(path).data)
        except NoNodeError:
            continue  # it has just gone
        if theirs is not None and not theirs.meets(versions):
            raise MetadataStoreError(
                f"broker {name} speaks version {theirs} of the protocol between brokers, and this"
                f" one version {versions}",
                "start the kbroker version that the others run; a newer one joins by way of a"
                " version that speaks both",
            )
