"""Debian's packages for an image: fetched by apt, which checks their signatures, and unpacked here.

Packages of any machine are fetched on any machine with apt, into folders of their own: the system's
lists, cache and installed packages are neither read nor changed. Where Debian's archive is, the
sources of the system say. Scripts of packages are not run, so the list names what needs none.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from pathlib import Path
from typing import Final

from release.file_tree import Entry, Files
from release.stage import ReleaseError, run

SUITE: Final = "bookworm"  # Debian 12: its Python and its glibc are those of CI's tests
PYTHON: Final = "python3.11"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
# Python with the modules that a broker and its commands import, and the libraries of those; codecs
# and OpenSSL, which C opens by itself; certificates of public authorities.
PACKAGES: Final = (
    "base-files", "ca-certificates", "libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1",
    "liblz4-1", "liblzma5", "libpython3.11-minimal", "libpython3.11-stdlib", "libsqlite3-0",
    "libssl3", "libuuid1", "libzstd1", "python3.11-minimal", "zlib1g",
)  # fmt: skip
_SOURCES: Final = ("/etc/apt/sources.list", "/etc/apt/sources.list.d")
_ARCHIVE: Final = re.compile(r"\bhttps?://[^\s\]]+?/debian(-security)?/?(?=\s|$)")
_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_AR: Final = b"!<arch>\n"
_AR_HEADER_BYTES: Final = 60
# Modules of the standard library that brokers and commands do not import, or whose own libraries
# are left out; tables of other character sets; what builds and scripts of packages use.
_LIBRARIES: Final = (
    "mvec|expatw|anl|thread_db|nsl|nss_compat|nss_hesiod|memusage|pcprofile|BrokenLocale"
    "|c_malloc_debug|utf8"
)
_MODULES: Final = (
    "pydoc|doctest|pdb|config-|idlelib|lib2to3|test|tkinter|turtle|ensurepip|venv|distutils|xmlrpc"
    "|curses|dbm|msilib"
)
_COMPILED: Final = "_codecs_|_curses|_dbm|_gdbm|_crypt|nis|readline|_test|_ctypes_test|xx"
_LEFT_OUT: Final = re.compile(
    r"usr/share/(?!doc/[^/]+/copyright$|ca-certificates/|common-licenses/)"
    r"|usr/lib/[^/]+-linux-gnu/(gconv|audit|engines-3)(/|$)"
    rf"|usr/lib/[^/]+-linux-gnu/lib({_LIBRARIES})"
    rf"|usr/lib/python3\.11/({_MODULES})"
    rf"|usr/lib/python3\.11/lib-dynload/({_COMPILED})"
    r"|usr/(bin|sbin)/(?!python3\.11$)"
    r"|etc/(?!debian_version$|os-release$)"
    r"|(var|home|root|boot|srv|mnt|media|opt|tmp|run|proc|sys|dev)(/|$)"
    r"|usr/(games|include|src|local|lib/(systemd|udev|mime))(/|$)"
)
_MERGED: Final = ("bin", "sbin", "lib", "lib64")


def fetched(machine: str, to: Path, *, again: bool = False) -> list[Path]:
    """The packages of a machine as files below `to`: those that are there, unless all are asked for
    `again`. ReleaseError: apt cannot bring them."""
    architecture = ARCHITECTURES[machine]
    folder = to / architecture
    names = [f"{name}_*_{architecture}.deb" for name in PACKAGES]
    names += [f"{name}_*_all.deb" for name in PACKAGES]
    found = [path for name in names for path in folder.glob(name)] if folder.is_dir() else []
    if len(found) == len(PACKAGES) and not again:
        return sorted(found)
    for old in found:
        old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    options = _options(folder, architecture)
    run(["apt-get", "-qq", *options, "update"], cwd=folder)
    run(["apt-get", "-qq", *options, "download", *PACKAGES], cwd=folder)
    found = [path for name in names for path in folder.glob(name)]
    if len(found) != len(PACKAGES):
        raise ReleaseError(f"apt brought {len(found)} of {len(PACKAGES)} packages to {folder}")
    return sorted(found)


def _options(folder: Path, architecture: str) -> list[str]:
    """Of apt-get, with everything that it reads and writes below `folder`."""
    place = folder / "apt"
    for each in ("lists/partial", "cache/archives/partial", "parts"):
        (place / each).mkdir(parents=True, exist_ok=True)
    (place / "status").touch()
    (place / "sources.list").write_text(_source_lines(architecture))
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Dir::State": str(place),
        "Dir::State::lists": str(place / "lists"),
        "Dir::State::status": str(place / "status"),
        "Dir::Cache": str(place / "cache"),
        "Dir::Etc::SourceList": str(place / "sources.list"),
        "Dir::Etc::SourceParts": str(place / "parts"),
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _source_lines(architecture: str) -> str:
    """Lines of sources.list, for the places that the system's own sources name."""
    archive, security = _places()
    how = f"deb [arch={architecture} signed-by={_KEYS}]"
    lines = [f"{how} {archive} {SUITE} main", f"{how} {archive} {SUITE}-updates main"]
    if security:
        lines.append(f"{how} {security} {SUITE}-security main")
    return "\n".join(lines) + "\n"


def _places() -> tuple[str, str]:
    paths = [Path(_SOURCES[0]), *sorted(Path(_SOURCES[1]).glob("*"))]
    texts = [
        line
        for path in paths
        if path.is_file()
        for line in path.read_text(errors="replace").splitlines()
        if not line.lstrip().startswith("#")
    ]
    found = [match for line in texts for match in _ARCHIVE.finditer(line)]
    archives = [match[0] for match in found if match[1] is None]
    security = [match[0] for match in found if match[1] is not None]
    if not archives:
        raise ReleaseError("the image is made of Debian's packages: no source of apt has them")
    return archives[0], security[0] if security else ""


def members(deb: Path) -> dict[str, bytes]:
    """The files of an ar archive. ReleaseError: it is none."""
    data = deb.read_bytes()
    if not data.startswith(_AR):
        raise ReleaseError(f"{deb.name} is no package of Debian")
    found, at = {}, len(_AR)
    while at + _AR_HEADER_BYTES <= len(data):
        header = data[at : at + _AR_HEADER_BYTES]
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        at += _AR_HEADER_BYTES
        if at + size > len(data):
            raise ReleaseError(f"{deb.name} is cut off in {name}")
        found[name] = data[at : at + size]
        at += size + size % 2
    return found


def _archive(deb: Path, part: str) -> tarfile.TarFile:
    for name, data in members(deb).items():
        if name.startswith(f"{part}.tar"):
            return tarfile.open(fileobj=io.BytesIO(data), mode="r:*")
    raise ReleaseError(f"{deb.name} has no {part}.tar")


def control_of(deb: Path) -> bytes:
    """The fields of a package: its name, version and so on."""
    with _archive(deb, "control") as archive:
        control = archive.extractfile("./control")
        if control is None:
            raise ReleaseError(f"{deb.name} has no control file")
        return control.read()


def files_of(deb: Path) -> Files:
    """What of a package belongs into the image, with /bin, /sbin and /lib below /usr."""
    found: Files = {}
    with _archive(deb, "data") as archive:
        for member in archive:
            name = _merged(member.name.removeprefix("./").rstrip("/"))
            if not name or member.isdir() or _LEFT_OUT.match(name):
                continue
            if member.issym():
                found[name] = Entry(target=member.linkname, mode=0o777)
            elif member.islnk():
                original = _merged(member.linkname.removeprefix("./"))
                if original not in found:
                    raise ReleaseError(f"{deb.name}: {name} is a link to {original}")
                found[name] = found[original]
            elif member.isfile():
                content = archive.extractfile(member)
                if content is None:
                    raise ReleaseError(f"{deb.name}: {name} cannot be read")
                found[name] = Entry(content.read(), mode=member.mode & 0o755)
    return {name: _unpacked(name, entry) for name, entry in found.items()}


def _merged(name: str) -> str:
    return f"usr/{name}" if name.partition("/")[0] in _MERGED else name


def _unpacked(name: str, entry: Entry) -> Entry:
    """Copyrights are read by people: not in gzip."""
    if name.endswith("copyright.gz") and entry.data is not None:
        return entry._replace(data=gzip.decompress(entry.data))
    return entry


def base_of(debs: list[Path]) -> Files:
    """The files of all packages, and those that their scripts would make."""
    files: Files = {}
    for deb in debs:
        files.update(files_of(deb))
        control = control_of(deb)
        package = re.search(rb"^Package: (\S+)$", control, re.MULTILINE)
        if package is None:
            raise ReleaseError(f"{deb.name} does not say what it is")
        # Where scanners of images look for packages of one without dpkg's own database.
        files[f"var/lib/dpkg/status.d/{package[1].decode()}"] = Entry(control, mode=0o644)
    kept = {name.split("/")[1] for name in files if name.startswith("usr/")}
    for each in kept.intersection(_MERGED):
        files[each] = Entry(target=f"usr/{each}", mode=0o777)
    authorities = sorted(name for name in files if name.startswith("usr/share/ca-certificates/"))
    bundle = b"".join(files.pop(name).data or b"" for name in authorities)
    files["etc/ssl/certs/ca-certificates.crt"] = Entry(bundle, mode=0o644)
    # Where OpenSSL looks, and with it Python.
    files["usr/lib/ssl/cert.pem"] = Entry(target="/etc/ssl/certs/ca-certificates.crt", mode=0o777)
    files["usr/lib/ssl/certs"] = Entry(target="/etc/ssl/certs", mode=0o777)
    files["usr/bin/python3"] = Entry(target=PYTHON, mode=0o777)
    return files
