"""`meta.properties`: which cluster and which broker a data directory belongs to.

Place in the flow: the server checks it in every data directory before anything else is opened, and
writes it once the cluster's id is known. Kafka's tools read and write the same file, so it has
their keys: `version`, `cluster.id`, `node.id` (`broker.id` in files of version 0), `directory.id`.

A crash leaves the old file or the new one, never half of one: it is written beside and renamed.
Lines that are not ours are not kept. Never decides what the cluster's id is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kbroker.errors import DataDirectoryError
from kbroker.log.engine import file_operations
from kbroker.metadata.image import new_uuid
from kbroker.types import uuid_text

FILE_NAME: Final = "meta.properties"
_VERSION: Final = "1"
# A handful of short lines; whatever is longer is not this file.
_FILE_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: str


def load(directory: Path) -> MetaProperties | None:
    """What the directory says about itself; None if it is new. Raises DataDirectoryError."""
    path = directory / FILE_NAME
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataDirectoryError(f"cannot read {path}: {error.strerror}") from error
    if len(raw) > _FILE_BYTES_MAX:
        raise _damaged(path, f"more than {_FILE_BYTES_MAX} bytes")
    values = _parse(raw.decode("utf-8", "replace"))
    version = values.get("version", "0")
    if version not in ("0", _VERSION):
        raise _damaged(path, f"version {version!r} is not known")
    node_id = values.get("node.id", values.get("broker.id", ""))
    if not (node_id.isascii() and node_id.isdecimal() and len(node_id) <= 10):
        raise _damaged(path, f"node.id {node_id!r} is no number")
    cluster_id = values.get("cluster.id", "")
    if not cluster_id:
        raise _damaged(path, "cluster.id is missing")
    return MetaProperties(cluster_id, int(node_id), values.get("directory.id", ""))


def ensure(directory: Path, cluster_id: str, node_id: int) -> MetaProperties:
    """Claim the directory for this cluster and broker, or refuse one that is another's."""
    found = load(directory)
    if found is None:
        found = MetaProperties(cluster_id, node_id, uuid_text(new_uuid()))
        _write(directory / FILE_NAME, found)
    if found.cluster_id != cluster_id:
        raise DataDirectoryError(
            f"{directory} belongs to cluster {found.cluster_id}, this is cluster {cluster_id}",
            "use another data directory, or the metadata store of that cluster",
        )
    if found.node_id != node_id:
        raise DataDirectoryError(
            f"{directory} belongs to node.id {found.node_id}, this broker is {node_id}",
            f"set node.id={found.node_id}, or use another data directory",
        )
    return found


def _parse(text: str) -> Mapping[str, str]:
    values: dict[str, str] = {}
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, _, value = line.partition("=")
            # The only escapes that a Java program writes for these values.
            values[key.strip()] = value.strip().replace("\\=", "=").replace("\\:", ":")
    return values


def _write(path: Path, meta: MetaProperties) -> None:
    text = (
        f"version={_VERSION}\ncluster.id={meta.cluster_id}\n"
        f"node.id={meta.node_id}\ndirectory.id={meta.directory_id}\n"
    )
    try:
        file_operations.replace_file(path, text.encode(), sync=True)
    except OSError as error:
        raise DataDirectoryError(
            f"cannot write {path}: {error.strerror}",
            "give the broker a data directory that it may write to",
        ) from error


def _damaged(path: Path, reason: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"{path} cannot be used: {reason}", "restore the file, or use another data directory"
    )
