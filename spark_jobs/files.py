"""Files of tables and ledgers, wherever they are: a local directory or any URI that Hadoop knows.

The ledger relies on one operation, `create`: a file appears whole under its name or not at all, and
a name that is taken stays as it is. How that is had depends on the place:

- local: written beside under a hidden name, synced, then linked: link(2) refuses a taken name;
- HDFS and other file systems with a real rename: FileContext's rename without overwriting;
- object stores whose Hadoop client can ask for it (s3a of Hadoop 3.4.2 and later): an object
  appears when it is closed, and the store refuses one whose name is taken (If-None-Match);
- other object stores (gs and so on): the name is looked up before, so of two writers at one moment
  both may win, unless the store itself refuses one.

URIs go through as Hadoop writes them (nothing is percent-decoded). A path without a scheme is
qualified by Spark's default file system, so that driver and executors mean the same place. Local
files need no JVM. Any thread. Errors are OSError in both worlds.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

READ_BYTES_MAX: Final = 1 << 26  # of a note of Spark's or ours; who expects more says so
# A rename is a copy there, while an object that is being written is not visible.
OBJECT_STORES: Final = frozenset({"s3", "s3a", "s3n", "gs", "oss", "cosn", "obs", "wasb", "wasbs"})
# "Appears in close(), if there is nothing": a capability of Hadoop's, and createFile's option.
CONDITIONAL: Final = "fs.option.create.conditional.overwrite"


@dataclass(frozen=True)
class Entry:
    """One name in a directory; `modified_ms` since 1970 UTC by the file system's clock."""

    name: str
    size: int
    modified_ms: int
    is_directory: bool


class Files(Protocol):
    """What the ledger, the sink and maintenance need of a file system."""

    def qualify(self, uri: str) -> str:
        """The URI with scheme and absolute path, without a slash at the end."""
        ...

    def entries(self, uri: str) -> list[Entry]:
        """A directory's entries in the order of their names; none where it does not exist."""
        ...

    def exists(self, uri: str) -> bool:
        """Whether there is a file or a directory."""
        ...

    def read(self, uri: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """A file's bytes. FileNotFoundError where there is none; OSError for a larger one."""
        ...

    def create(self, uri: str, data: bytes) -> bool:
        """Whole or not at all; False if the name is taken. Makes directories above it."""
        ...

    def delete(self, uri: str) -> None:
        """A file, or a directory with all below it; no error where there is none."""
        ...

    def sync(self, uri: str) -> None:
        """What is below this directory survives a loss of power, where the place can do that."""
        ...


def files_of(spark: Any, uri: str) -> Files:
    """The files that `uri` is among, seen from this driver."""
    hadoop = HadoopFiles(spark)
    return LocalFiles() if hadoop.qualify(uri).startswith("file:") else hadoop


def join(uri: str, *names: str) -> str:
    """A URI below `uri`."""
    return "/".join((uri.rstrip("/"), *names))


class LocalFiles:
    """The machine's own file systems, without a JVM."""

    def qualify(self, uri: str) -> str:
        return f"file://{os.path.abspath(self._path(uri))}"

    def entries(self, uri: str) -> list[Entry]:
        try:
            with os.scandir(self._path(uri)) as names:
                found = [entry for name in names if (entry := _local_entry(name)) is not None]
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda entry: entry.name)

    def exists(self, uri: str) -> bool:
        return self._path(uri).exists()

    def read(self, uri: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
        with open(self._path(uri), "rb") as file:
            _check_size(uri, os.fstat(file.fileno()).st_size, bytes_max)
            return file.read()

    def create(self, uri: str, data: bytes) -> bool:
        target = self._path(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with open(hidden, "xb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.link(hidden, target)
        except FileExistsError:
            return False
        except OSError as error:
            error.filename = error.filename or uri  # of a write that found no room
            raise
        finally:
            hidden.unlink(missing_ok=True)
        _sync_path(target.parent)
        return True

    def delete(self, uri: str) -> None:
        path = self._path(uri)
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            pass

    def sync(self, uri: str) -> None:
        root = self._path(uri)
        for directory, _, names in os.walk(root):
            for name in names:
                _sync_path(Path(directory, name))
            _sync_path(Path(directory))
        _sync_path(root.parent)

    @staticmethod
    def _path(uri: str) -> Path:
        if not uri.startswith("file:"):
            return Path(uri)
        rest = uri.removeprefix("file:")
        return Path("/" + rest.removeprefix("//").lstrip("/") if rest.startswith("//") else rest)


def _local_entry(found: os.DirEntry[str]) -> Entry | None:
    """None for a file that was removed while the directory was read."""
    try:
        facts = found.stat(follow_symlinks=False)
        directory = found.is_dir(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return Entry(found.name, facts.st_size, facts.st_mtime_ns // 1_000_000, directory)


def _check_size(uri: str, size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise OSError(errno.EFBIG, f"{size} bytes are more than is ever written here", uri)


def _sync_path(path: Path) -> None:
    try:
        number = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # removed meanwhile, as a task's temporary directory
    try:
        os.fsync(number)
    finally:
        os.close(number)


class HadoopFiles:
    """Any file system of Hadoop's, through the driver's JVM with the session's own settings."""

    def __init__(self, spark: Any) -> None:
        context = spark.sparkContext
        self._gateway = context._gateway
        self._jvm = context._jvm
        self._conf = context._jsc.hadoopConfiguration()

    def qualify(self, uri: str) -> str:
        with _as_os_error(uri):
            path = self._path(uri)
            found = str(path.getFileSystem(self._conf).makeQualified(path).toString())
        if found.startswith("file:/") and not found.startswith("file:///"):
            found = "file://" + found.removeprefix("file:")
        return found.rstrip("/")

    def entries(self, uri: str) -> list[Entry]:
        path = self._path(uri)
        try:
            with _as_os_error(uri):
                found = path.getFileSystem(self._conf).listStatus(path)
        except FileNotFoundError:
            return []
        entries = [
            Entry(
                str(status.getPath().getName()),
                int(status.getLen()),
                int(status.getModificationTime()),
                bool(status.isDirectory()),
            )
            for status in found
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def exists(self, uri: str) -> bool:
        path = self._path(uri)
        with _as_os_error(uri):
            return bool(path.getFileSystem(self._conf).exists(path))

    def read(self, uri: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
        path = self._path(uri)
        with _as_os_error(uri):
            system = path.getFileSystem(self._conf)
            _check_size(uri, int(system.getFileStatus(path).getLen()), bytes_max)
            stream = system.open(path)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def create(self, uri: str, data: bytes) -> bool:
        path = self._path(uri)
        try:
            with _as_os_error(uri):
                system = path.getFileSystem(self._conf)
                conditional = bool(system.hasPathCapability(path, CONDITIONAL))
            if conditional:
                return self._write_conditionally(system, path, uri, data)
            with _as_os_error(uri):
                if str(system.getScheme()) in OBJECT_STORES:
                    self._write(system.create(path, False), data)
                else:
                    self._write_and_rename(system, path, data)
        except FileExistsError:
            return False
        return True

    def delete(self, uri: str) -> None:
        path = self._path(uri)
        with _as_os_error(uri):
            path.getFileSystem(self._conf).delete(path, True)

    def sync(self, uri: str) -> None:
        """Nothing: a file that is closed is as safe as the place makes it."""

    def _path(self, uri: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(uri)

    @staticmethod
    def _write(stream: Any, data: bytes) -> None:
        stream.write(data)
        stream.close()

    def _write_conditionally(self, system: Any, path: Any, uri: str, data: bytes) -> bool:
        """What a refusal looks like differs, and the client's own second try may be refused because
        its first one came through: what is there in the end decides."""
        try:
            with _as_os_error(uri):
                self._write(system.createFile(path).must(CONDITIONAL, True).build(), data)
        except OSError as error:
            try:
                return self.read(uri) == data
            except FileNotFoundError:
                raise error from None
        return True

    def _write_and_rename(self, system: Any, path: Any, data: bytes) -> None:
        system.mkdirs(path.getParent())
        hidden = self._path(
            join(str(path.getParent().toString()), f".{path.getName()}.{uuid.uuid4().hex}.tmp")
        )
        self._write(system.create(hidden, False), data)
        fs = self._jvm.org.apache.hadoop.fs
        rename = getattr(fs, "Options$Rename")
        ways = self._gateway.new_array(rename, 1)
        ways[0] = rename.valueOf("NONE")
        try:
            fs.FileContext.getFileContext(system.getUri(), self._conf).rename(hidden, path, ways)
        finally:
            system.delete(hidden, False)


@contextmanager
def _as_os_error(uri: str) -> Iterator[None]:
    """Java's exceptions as Python's, in one line and without a stack trace."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raised = error.java_exception
        name = str(raised.getClass().getSimpleName())
        said = str(raised.getMessage() or "").split("\n", 1)[0]
        if name in ("FileNotFoundException", "NoSuchFileException"):
            raise FileNotFoundError(errno.ENOENT, "no such file", uri) from None
        if name == "FileAlreadyExistsException":
            raise FileExistsError(errno.EEXIST, "exists", uri) from None
        raise OSError(f"{uri}: {name}: {said}") from None
