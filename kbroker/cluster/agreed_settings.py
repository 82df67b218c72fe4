"""Whether the brokers of a cluster agree in the settings in which they should.

Place in the flow: a broker registers with these settings as in its file
(`config/agreed.py`). After its registration it compares itself with the others that are registered,
over which it lays the settings made at run time for each and for all, and writes a warning for each
setting that differs. No broker is refused: in a rolling restart brokers differ for a while.

Secrets are compared by fingerprints (`security/secret_fingerprint.py`).

A broker that registers without these fields, an older kbroker or one of Apache Kafka, is compared
only by its rack and its listeners.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.config.agreed import AGREED, SECRETS, same_text
from kbroker.errors import DataDirectoryError
from kbroker.log_lines import first_few
from kbroker.metadata.controller import records
from kbroker.metadata.controller.config_nodes import load_resource_configs
from kbroker.metadata.image import ConfigKind, ConfigResource
from kbroker.metadata.store.base import StoreError
from kbroker.outside_text import printable

if TYPE_CHECKING:
    from kbroker.metadata.image import BrokerImage
    from kbroker.metadata.store.base import MetadataStore

logger: Final = logging.getLogger("kbroker.config")

_CHANGES: Final = "which of them holds changes with elections"
_FOREIGN: Final = "what one encrypts or issues by it, another cannot read"
RACK: Final = "whether broker.rack is set"  # they are to be different racks
Settings = Mapping[str, str]


def warn_of_differences(store: MetadataStore, node_id: int) -> None:
    """In which settings the others that are registered differ from this broker."""
    try:
        registered = _registered(store)
    except (StoreError, DataDirectoryError) as error:
        logger.warning("the settings of the other brokers cannot be compared: %s", error)
        return
    for line in differences(registered, node_id):
        logger.warning("%s", line)


def _registered(store: MetadataStore) -> dict[int, Settings]:
    """What holds at each broker."""
    found: dict[int, Settings] = {}
    overrides = load_resource_configs(store, [ConfigKind.BROKER])
    every = overrides.get(ConfigResource(ConfigKind.BROKER, ""), {})
    for name, node in store.children_data(records.BROKER_IDS).items():
        path = f"{records.BROKER_IDS}/{name}"
        try:
            broker = records.decode_broker(path, node.data)
            settings = records.decode_broker_settings(path, node.data)
        except DataDirectoryError:
            continue  # the controller says so
        own = overrides.get(ConfigResource(ConfigKind.BROKER, name), {})
        now = {key: text for key, text in {**every, **own}.items() if key in settings}
        texts = {key: same_text(key, text) for key, text in now.items() if key in AGREED}
        found[broker.node_id] = {**_placed(broker), **settings, **texts}
    return found


def _placed(broker: BrokerImage) -> Settings:
    placed = {RACK: "no" if broker.rack is None else "yes"}
    if not broker.endpoints:
        return placed
    inside = broker.endpoints[0]  # where brokers come
    return {
        **placed,
        "inter.broker.listener.name": inside.name,
        "security.inter.broker.protocol": inside.protocol,
        "the names of listeners": ",".join(sorted(each.name for each in broker.endpoints)),
    }


def differences(of: Mapping[int, Settings], node_id: int) -> Iterator[str]:
    """A line for each setting in which others differ from this broker, with their values."""
    ours = of.get(node_id, {})
    for name, value in ours.items():
        others: dict[str, list[str]] = {}
        for other, settings in sorted(of.items()):
            theirs = settings.get(name, value)
            if theirs != value:
                others.setdefault(theirs, []).append(str(other))
        if others:
            there = [f"{printable(text)} at {first_few(ids)}" for text, ids in others.items()]
            yield (
                f"brokers differ in {name}: {printable(value)} here, {first_few(there)};"
                f" {_FOREIGN if name in SECRETS else _CHANGES} -> give all brokers the same"
            )
