"""An Apache Kafka's storage as its own tool formats it, without a JVM for each node.

The tool writes the same for every node that has its defaults, but for the ids. `make setup`
keeps it once, beside the jars, from a node that the tool has formatted.
"""

from __future__ import annotations

import shutil
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Final

from lab.jars import KAFKA

_META: Final = "meta.properties"
_CHECKPOINT: Final = "bootstrap.checkpoint"
_VERSION: Final = "1"


def kept() -> Path:
    """The first records of a node's metadata: the levels of its features."""
    return KAFKA.directory / _CHECKPOINT


def keep(data_dir: Path) -> None:
    """Of a node that the tool has formatted; ValueError if it writes something else than we do."""
    found = _read(data_dir / _META)
    if found != _meta(found.get("node.id", ""), found.get("cluster.id", ""),
                      found.get("directory.id", "")):  # fmt: skip
        raise ValueError(f"the storage tool writes {found}")
    made = kept().with_suffix(".new")
    shutil.copyfile(data_dir / _CHECKPOINT, made)
    made.rename(kept())


def write(data_dir: Path, node_id: str, cluster_id: str) -> bool:
    """Format a node's only directory. False, and nothing is written, if it is formatted already or
    there is nothing kept."""
    if (data_dir / _META).exists() or not kept().exists():
        return False
    data_dir.mkdir(parents=True, exist_ok=True)
    # In Kafka's form of an id, which never begins with a dash.
    directory_id = "k" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    lines = [f"{key}={value}\n" for key, value in _meta(node_id, cluster_id, directory_id).items()]
    shutil.copyfile(kept(), data_dir / _CHECKPOINT)
    (data_dir / _META).write_text("".join(lines), encoding="utf-8")
    return True


def _meta(node_id: str, cluster_id: str, directory_id: str) -> dict[str, str]:
    return {
        "cluster.id": cluster_id,
        "directory.id": directory_id,
        "node.id": node_id,
        "version": _VERSION,
    }


def _read(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
