"""Files of an image in memory, by their paths, and the layers that they are packed into.

A path is relative, without a slash at its end. The same files make the same bytes: entries are
sorted, times are one number, and owners are numbers.
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755
_LEVEL: Final = 9


class Entry(NamedTuple):
    """A file with its data, a link with its target, or a directory, which has neither."""

    data: bytes | None = None
    target: str | None = None
    mode: int = DIRECTORY_MODE
    uid: int = 0
    gid: int = 0


Files = dict[str, Entry]


def file(data: bytes | str, mode: int = FILE_MODE) -> Entry:
    return Entry(data.encode() if isinstance(data, str) else data, mode=mode)


def link(target: str) -> Entry:
    return Entry(target=target, mode=0o777)


def directory(mode: int = DIRECTORY_MODE, uid: int = 0, gid: int = 0) -> Entry:
    return Entry(mode=mode, uid=uid, gid=gid)


def of_folder(folder: Path, below: str, wanted: Callable[[PurePosixPath], bool]) -> Files:
    """The files in a folder, with `below` before their paths."""
    found: Files = {}
    for path in sorted(folder.rglob("*")):
        name = PurePosixPath(path.relative_to(folder))
        if path.is_file() and wanted(name):
            runs = path.stat().st_mode & stat.S_IXUSR
            found[f"{below}/{name}"] = file(path.read_bytes(), PROGRAM_MODE if runs else FILE_MODE)
    return found


def write(files: Files, root: Path) -> None:
    """Into an empty folder, owners left out."""
    for name, entry in sorted(files.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.target is not None:
            path.symlink_to(entry.target)
        elif entry.data is None:
            path.mkdir(exist_ok=True)
            path.chmod(entry.mode)
        else:
            path.write_bytes(entry.data)
            path.chmod(entry.mode)


def packed(files: Files, epoch_s: int, taken: Iterable[str] = ()) -> tuple[bytes, bytes]:
    """A layer as tar, and the same in gzip."""
    tar = tar_of(files, epoch_s, taken)
    compressed = io.BytesIO()
    with gzip.GzipFile("", "wb", _LEVEL, compressed, mtime=0) as stream:
        stream.write(tar)
    return tar, compressed.getvalue()


def tar_of(files: Files, epoch_s: int, taken: Iterable[str] = ()) -> bytes:
    """Directories above the files are added, except those of `taken`, which earlier layers have."""
    whole = _with_parents(files, set(taken))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, entry in sorted(whole.items()):
            archive.addfile(_header(name, entry, epoch_s), io.BytesIO(entry.data or b""))
    return buffer.getvalue()


def _with_parents(files: Files, taken: set[str]) -> Files:
    whole = dict(files)
    for name in files:
        for parent in PurePosixPath(name).parents:
            text = str(parent)
            if text != "." and text not in taken:
                whole.setdefault(text, directory())
    return whole


def _header(name: str, entry: Entry, epoch_s: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.mtime, header.mode = epoch_s, entry.mode
    header.uid, header.gid = entry.uid, entry.gid
    if entry.target is not None:
        header.type, header.linkname = tarfile.SYMTYPE, entry.target
    elif entry.data is None:
        header.type = tarfile.DIRTYPE
    else:
        header.size = len(entry.data)
    return header
