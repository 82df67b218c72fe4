"""The file of `kbroker metadata export`: a metadata tree as JSON that people can read.

    {
      "kbroker_metadata": 1,
      "exported_at": "2026-11-24T06:00:00Z",
      "cluster_id": "td1oS7a7TU-n3josdqba8w",
      "sha256": "5f70bf18...",
      "nodes": {
        "/brokers": "",
        "/controller_epoch": "7",
        "/theirs": {"base64": "/wA="}
      }
    }

A node's content is its text, or base64 where it is no UTF-8. `sha256` is of the nodes (`digest`):
it names the tree in the store that it came from, and in the one that it goes to, and a file in
which a node was changed is refused. A file may come from anywhere: its size is bounded, and what
cannot be read is a UserError of one line. It is on the disk, whole, under its name, or not there at
all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kbroker.errors import DataDirectoryError, UserError
from kbroker.log.engine import file_operations
from kbroker.metadata.transfer.tree import check_tree
from kbroker.outside_text import printable

FILE_BYTES_MAX: Final = 256 * 1024 * 1024
_MODE: Final = 0o600
_FORMAT: Final = "kbroker_metadata"
_VERSION: Final = 1
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_BASE64: Final = "base64"
_REASON_CHARS_MAX: Final = 400


@dataclass(frozen=True)
class Export:
    """What a file says. `tree` has passed `check_tree`."""

    exported_at: str
    cluster_id: str
    sha256: str
    tree: Mapping[str, bytes]

    @classmethod
    def of(cls, tree: Mapping[str, bytes], exported_at: str) -> Export:
        """DataDirectoryError where no broker could use the tree."""
        return cls(exported_at, check_tree(tree), digest(tree), tree)


def digest(tree: Mapping[str, bytes]) -> str:
    """Two trees have the same if they have the same nodes with the same contents."""
    found = hashlib.sha256()
    for path, data in sorted(tree.items()):
        name = path.encode()
        found.update(b"%d %d " % (len(name), len(data)) + name + data)
    return found.hexdigest()


def encode(export: Export) -> bytes:
    nodes = {path: _encoded(data) for path, data in sorted(export.tree.items())}
    document = {
        _FORMAT: _VERSION,
        "exported_at": export.exported_at,
        "cluster_id": export.cluster_id,
        "sha256": export.sha256,
        "nodes": nodes,
    }
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def decode(raw: bytes) -> Export:
    """ValueError says what is wrong with it."""
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
    try:
        document = json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(document, dict) or _FORMAT not in document:
        raise ValueError("it is no file of kbroker metadata export")
    version = document[_FORMAT]
    if type(version) is not int or version != _VERSION:
        raise ValueError(f"its version {version!r} is not {_VERSION}, which this kbroker reads")
    exported_at = _text(document, "exported_at")
    if not _MOMENT.fullmatch(exported_at):
        raise ValueError("exported_at is no moment")
    nodes = document.get("nodes")
    if not isinstance(nodes, dict):
        raise ValueError("nodes is no object")
    tree = {path: _decoded(path, value) for path, value in nodes.items()}
    try:
        export = Export.of(tree, exported_at)
    except DataDirectoryError as error:
        raise ValueError(error.cause) from None
    if (export.cluster_id, export.sha256) != (
        _text(document, "cluster_id"),
        _text(document, "sha256"),
    ):
        raise ValueError("it was changed since it was written")
    return export


def load(path: Path) -> Export:
    """UserError where it is no such file."""
    try:
        with path.open("rb") as file:
            return decode(file.read(FILE_BYTES_MAX + 1))
    except OSError as error:
        why, fix = error.strerror or str(error), "check the path"
    except ValueError as error:
        why = printable(str(error), _REASON_CHARS_MAX)
        fix = "export it again: kbroker metadata export"
    raise UserError(f"cannot read {path}: {why}", fix)


def save(path: Path, export: Export) -> None:
    """A new file; UserError where there is one, or where it cannot be written."""
    if path.exists():
        raise UserError(f"{path} is there already", "name a file that is not")
    data = encode(export)
    if len(data) > FILE_BYTES_MAX:
        raise UserError(f"{path} would have more than {FILE_BYTES_MAX} bytes", "delete topics")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        # For its owner alone, as it has credentials of users; the file in its place keeps that.
        os.close(os.open(path.with_name(f"{path.name}.tmp"), flags, _MODE))
        file_operations.replace_file(path, data)
    except OSError as error:
        file_operations.unlink(path.with_name(f"{path.name}.tmp"))
        raise UserError(
            f"cannot write {path}: {error.strerror}", "name a file where there is room"
        ) from error


def _encoded(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def _decoded(path: str, value: object) -> bytes:
    match value:
        case str():
            return value.encode()
        case {"base64": str(text), **others} if not others:
            return base64.b64decode(text, validate=True)
    raise ValueError(f"{printable(path)} is neither text nor base64")


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value
