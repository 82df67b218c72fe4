"""A directory after a power cut: a model of the promises that a disk has been asked for.

    disk = Disk(directory)
    with FileFaults(before=disk.before):     # sees the directory before each file operation
        ...
        disk.leave("posix", target, dice)    # what may be there when the power comes back

A file's bytes last once it was synced, names once their directory was, a volume with all of it. Of
the rest, anything may be there or not, and three kinds of file systems are modelled:

    posix      names as their directory was synced last, bytes as their file was: nothing more
    journal    names change in one order, and a prefix of that is there, no shorter than any sync
               made it (ext4, XFS); of each file's bytes any sectors, old, new, or zeros
    names      all names, and the synced bytes: the empty file after a rename

One thread works on the directory. A file is known by its inode, from its first name to its last.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

KINDS: Final = ("posix", "journal", "names")
SECTOR_BYTES: Final = (512, 4096)
DIRECTORY: Final = -1
ROOT: Final = ""


@dataclass
class _File:
    """One inode. `None` for a directory's bytes."""

    content: bytes | None
    durable: bytes = b""


Names = dict[str, int]  # path below the directory: number of the file


@dataclass
class Disk:
    """See the head of this file."""

    directory: Path
    _files: list[_File] = field(default_factory=list)
    _by_inode: dict[int, int] = field(default_factory=dict)
    # Since the journal was written last: the names as each operation found them.
    _journal: list[Names] = field(default_factory=lambda: [{}])
    # Of each directory, by its number: what was in it when it was synced last.
    _synced_names: dict[int, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.look()
        self._sync_all()  # what was there before has been there for long

    def before(self, operation: str, path: str) -> None:
        """An operation of the log is about to come."""
        self.look()
        if operation == "sync":
            self._sync(path)

    def look(self) -> Names:
        """What is there now."""
        found: Names = {}
        inodes: dict[int, int] = {}
        for below, inode, content in _everything_below(f"{self.directory}/", ROOT):
            number = self._by_inode.get(inode)
            if number is None or (content is None) != (self._files[number].content is None):
                number = len(self._files)
                self._files.append(_File(content))
            self._files[number].content = content
            found[below] = inodes[inode] = number
        self._by_inode = inodes
        if found != self._journal[-1]:
            self._journal.append(found)
        return found

    # --- Syncs ------------------------------------------------------------------------------------

    def _sync(self, path: str) -> None:
        names = self._journal[-1]
        del self._journal[:-1]  # whatever is synced, the journal is written up to there
        root = str(self.directory)
        if path == root:
            self._sync_names(DIRECTORY, ROOT, names)
            return
        below = path[len(root) + 1 :] if path.startswith(f"{root}/") else ROOT
        if below in names:  # else it has no name any more
            file = self._files[names[below]]
            if file.content is None:
                self._sync_names(names[below], below, names)
            else:
                file.durable = file.content

    def _sync_names(self, number: int, below: str, names: Names) -> None:
        inside: dict[str, int] = {}
        for path, each in names.items():
            parent, _, name = path.rpartition("/")
            if parent == below:
                inside[name] = each
        self._synced_names[number] = inside

    def _sync_all(self) -> None:
        names = self._journal[-1]
        del self._journal[:-1]
        self._sync_names(DIRECTORY, ROOT, names)
        for path, number in names.items():
            file = self._files[number]
            if file.content is None:
                self._sync_names(number, path, names)
            else:
                file.durable = file.content

    # --- What is left -----------------------------------------------------------------------------

    def leave(self, kind: str, target: Path, dice: random.Random) -> None:
        """Makes `target` what a cut at this moment may leave. `target` must not be there."""
        self.look()
        target.mkdir()
        if kind == "posix":
            names = self._durable_names(DIRECTORY, ROOT)
        elif kind == "journal":
            names = dice.choice(self._journal)
        else:
            names = self._journal[-1]
        for path in sorted(names, key=_parts):
            file = self._files[names[path]]
            if file.content is None:
                (target / path).mkdir()
            else:
                left = _torn(file, dice) if kind == "journal" else file.durable
                (target / path).write_bytes(left)

    def _durable_names(self, number: int, below: str) -> Names:
        names: Names = {}
        for name, inside in self._synced_names.get(number, {}).items():
            path = f"{below}/{name}" if below else name
            names[path] = inside
            if self._files[inside].content is None:
                names |= self._durable_names(inside, path)
        return names


def _everything_below(root: str, below: str) -> Iterator[tuple[str, int, bytes | None]]:
    """(path below `root`, inode, bytes) of each file; a directory before its content."""
    with os.scandir(root + below) as entries:
        for entry in sorted(entries, key=_name):
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield path, entry.inode(), None
                yield from _everything_below(root, path)
            else:
                yield path, entry.inode(), _content(entry.path)


def _parts(path: str) -> list[str]:
    return path.split("/")


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _content(path: str) -> bytes:
    """Without what a file object brings: this is asked some million times."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        content = b""
        while part := os.read(descriptor, 1 << 20):
            content += part
        return content
    finally:
        os.close(descriptor)


def _torn(file: _File, dice: random.Random) -> bytes:
    """Old and new sectors as they come; where the file has grown, zeros as well."""
    old, new = file.durable, file.content or b""
    how = dice.random()
    if old == new or how < 0.2:
        return new
    if how < 0.4:
        return old
    length = dice.choice([len(old), len(new), dice.randint(*sorted((len(old), len(new))))])
    sector = dice.choice(SECTOR_BYTES)
    parts = []
    for at in range(0, length, sector):
        end = min(at + sector, length)
        source = new if dice.random() < 0.7 else old if at < len(old) else b""
        parts.append(source[at:end].ljust(end - at, b"\0"))
    return b"".join(parts)
