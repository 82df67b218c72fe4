"""Settings of a running broker, changed as an administrator does."""

from __future__ import annotations

from typing import Final

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

WAIT_S: Final = 30.0


def change(bootstrap: str, key: str, value: object, *, node_id: int = 1) -> None:
    """Holds from the return on."""
    entry = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(WAIT_S)
