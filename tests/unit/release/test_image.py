"""Layers and layouts of images, and packages of Debian, made from small files."""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from release import debs, elf, file_tree, image, oci
from release.file_tree import Entry, Files, directory, file, link
from release.stage import ReleaseError

EPOCH_S = 1_700_000_000
AMD64, ARM64 = oci.PLATFORMS["x86_64"], oci.PLATFORMS["aarch64"]
BASE: Files = {"usr/bin/a": file("one", 0o755), "bin": link("usr/bin")}
OWN: Files = {"usr/bin/b": file("two"), "var/lib/b": directory(0o770, 1000, 0)}
LAYERS = [oci.Layer("base", BASE), oci.Layer("own", OWN)]
CONFIG: dict[str, Any] = {"User": "1000:1000"}


def layout(folder: Path) -> oci.Layout:
    made = oci.Layout(folder, EPOCH_S)
    made.image(AMD64, LAYERS, CONFIG)
    made.image(ARM64, LAYERS[:1], CONFIG)
    made.finish("kbroker", "0.1.0")
    return made


def test_an_image_is_unpacked_as_it_was_made(tmp_path: Path) -> None:
    made = layout(tmp_path / "image")
    config = oci.unpacked(made.folder, AMD64, tmp_path / "root")
    assert config["config"] == CONFIG and config["architecture"] == "amd64"
    assert [each["created_by"] for each in config["history"]] == ["base", "own"]
    assert (tmp_path / "root/bin/b").read_text() == "two"
    assert (tmp_path / "root/usr/bin/a").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "root/var/lib/b").stat().st_mode & 0o777 == 0o770
    oci.unpacked(made.folder, ARM64, tmp_path / "other")
    assert not (tmp_path / "other/usr/bin/b").exists()


def test_every_blob_has_its_digest_and_size(tmp_path: Path) -> None:
    folder = layout(tmp_path).folder
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (top,) = json.loads((folder / "index.json").read_text())["manifests"]
    assert top["annotations"]["org.opencontainers.image.ref.name"] == "0.1.0"
    waiting, seen = [top], set()
    while waiting:
        descriptor = waiting.pop()
        blob = folder / "blobs" / descriptor["digest"].replace(":", "/")
        seen.add(blob)
        assert blob.stat().st_size == descriptor["size"]
        if descriptor["mediaType"].endswith("json"):
            content = json.loads(blob.read_bytes())
            waiting += content.get("manifests", []) + content.get("layers", [])
            waiting += [content["config"]] if "layers" in content else []
    assert seen == set((folder / "blobs" / "sha256").iterdir())


def test_a_blob_that_was_changed_is_refused(tmp_path: Path) -> None:
    folder = layout(tmp_path / "image").folder
    largest = max((folder / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes() + b" ")
    with pytest.raises(ValueError, match="another blob"):
        oci.unpacked(folder, AMD64, tmp_path / "root")


def test_the_same_files_make_the_same_bytes(tmp_path: Path) -> None:
    other = [oci.Layer(each.words, dict(reversed(each.files.items()))) for each in LAYERS]
    first, second = layout(tmp_path / "one"), oci.Layout(tmp_path / "two", EPOCH_S)
    second.image(AMD64, other, dict(CONFIG))
    second.image(ARM64, other[:1], dict(CONFIG))
    second.finish("kbroker", "0.1.0")
    for machine, name in ((AMD64, "amd64.tar"), (ARM64, "arm64.tar")):
        archives = []
        for made in (first, second):
            made.archive(machine, tmp_path / name)
            archives.append((tmp_path / name).read_bytes())
        assert archives[0] == archives[1]


def parts_of(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        files = {each.name: opened.extractfile(each) for each in opened if each.isfile()}
        return {name: stream.read() for name, stream in files.items() if stream is not None}


def test_docker_finds_an_image_in_its_archive(tmp_path: Path) -> None:
    """By manifest.json alone, as it does where containerd does not keep its images: the config by
    its path, as many layers as that has digests, each of that digest once it is unpacked."""
    layout(tmp_path / "image").archive(AMD64, tmp_path / "image.tar")
    content = parts_of(tmp_path / "image.tar")
    (found,) = json.loads(content["manifest.json"])
    assert found["RepoTags"] == ["kbroker:0.1.0"]
    config = json.loads(content[found["Config"]])
    assert config["architecture"] == "amd64" and config["config"] == CONFIG
    layers = [gzip.decompress(content[path]) for path in found["Layers"]]
    digests = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
    assert digests == config["rootfs"]["diff_ids"]
    assert "usr/bin/b" in names_of(layers[1])


def test_an_archive_is_a_layout_of_one_machine(tmp_path: Path) -> None:
    layout(tmp_path / "image").archive(ARM64, tmp_path / "image.tar")
    content = parts_of(tmp_path / "image.tar")
    (top,) = json.loads(content["index.json"])["manifests"]
    assert top["platform"]["architecture"] == "arm64"
    assert top["annotations"] == {
        "org.opencontainers.image.ref.name": "0.1.0",
        "io.containerd.image.name": "docker.io/library/kbroker:0.1.0",
    }
    blobs = {PurePosixPath(name).name: blob for name, blob in content.items() if "/" in name}
    manifest = json.loads(blobs[top["digest"].removeprefix("sha256:")])
    parts = [top, manifest["config"], *manifest["layers"]]
    assert set(blobs) == {each["digest"].removeprefix("sha256:") for each in parts}


def names_of(tar: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return archive.getnames()


def test_directories_are_in_the_first_layer_that_needs_them() -> None:
    taken: set[str] = set()
    tar, _ = file_tree.packed(BASE, EPOCH_S, taken)
    names = names_of(tar)
    assert names == ["bin", "usr", "usr/bin", "usr/bin/a"]
    tar, _ = file_tree.packed(OWN, EPOCH_S, names)
    assert names_of(tar) == ["usr/bin/b", "var", "var/lib", "var/lib/b"]


def tar_of(members: Files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, entry in members.items():
            header = tarfile.TarInfo(f"./{name}")
            header.mode = entry.mode
            if entry.target is not None:
                header.type, header.linkname = tarfile.SYMTYPE, entry.target
            elif entry.data is None:
                header.type = tarfile.DIRTYPE
            else:
                header.size = len(entry.data)
            archive.addfile(header, io.BytesIO(entry.data or b""))
    return buffer.getvalue()


def deb(path: Path, files: Files, control: bytes = b"Package: libc6\nVersion: 1\n") -> Path:
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tar_of({"control": Entry(control, mode=0o644)}),
        "data.tar.xz": tar_of(files),
    }
    data = b"!<arch>\n"
    for name, content in parts.items():
        data += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        data += content + b"\n" * (len(content) % 2)
    path.write_bytes(data)
    return path


def test_files_of_a_package(tmp_path: Path) -> None:
    package = deb(
        tmp_path / "libc6_1_amd64.deb",
        {
            "lib": directory(),
            "lib/x86_64-linux-gnu/libc.so.6": file("libc", 0o755),
            "lib64/ld-linux-x86-64.so.2": link("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
            "usr/bin/passwd": file("suid", 0o4755),
            "usr/bin/python3.11": file("python", 0o4755),
            "usr/lib/x86_64-linux-gnu/gconv/BIG5.so": file("no use"),
            "usr/share/doc/libc6/copyright": file("free"),
            "usr/share/doc/libc6/changelog.gz": file("long"),
            "var/lib/x": file("state"),
        },
    )
    files = debs.files_of(package)
    assert sorted(files) == [
        "usr/bin/python3.11",
        "usr/lib/x86_64-linux-gnu/libc.so.6",
        "usr/lib64/ld-linux-x86-64.so.2",
        "usr/share/doc/libc6/copyright",
    ]
    assert files["usr/bin/python3.11"].mode == 0o755  # no set-user-id bit
    assert debs.control_of(package).startswith(b"Package: libc6\n")


def test_files_that_scripts_of_packages_would_make(tmp_path: Path) -> None:
    packages = [
        deb(tmp_path / "a.deb", {"lib/b.so": file("b")}),
        deb(
            tmp_path / "c.deb",
            {
                f"usr/share/ca-certificates/mozilla/{name}.crt": file(f"{name}\n")
                for name in ("two", "one")
            },
            b"Package: ca-certificates\n",
        ),
    ]
    files = debs.base_of(packages)
    assert files["lib"].target == "usr/lib" and "lib64" not in files
    assert files["etc/ssl/certs/ca-certificates.crt"].data == b"one\ntwo\n"
    assert "var/lib/dpkg/status.d/ca-certificates" in files


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: b"PK" + data, "no package of Debian"),
        (lambda data: data[:-20], "cut off"),
        (lambda data: data[: 8 + 60 + 4], "no data.tar"),
    ],
)
def test_a_damaged_package(tmp_path: Path, change: Any, words: str) -> None:
    package = deb(tmp_path / "a.deb", {"usr/lib/b.so": file("b")})
    package.write_bytes(change(package.read_bytes()))
    with pytest.raises(ReleaseError, match=words):
        debs.files_of(package)


def test_places_of_debian_in_both_forms_of_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/debian.sources").write_text(
        "Types: deb\n# http://old.invalid/debian\nURIs: http://one.invalid/debian\n"
    )
    (tmp_path / "parts/more.list").write_text(
        "deb [arch=amd64] http://two.invalid/debian-security/ bookworm-security main\n"
        "deb http://three.invalid/node nodistro main\n"
    )
    monkeypatch.setattr(debs, "_SOURCES", (f"{tmp_path}/none", f"{tmp_path}/parts"))
    lines = debs._source_lines("arm64")
    assert "arch=arm64" in lines and "http://one.invalid/debian bookworm main" in lines
    assert "http://two.invalid/debian-security/ bookworm-security main" in lines
    monkeypatch.setattr(debs, "_SOURCES", (f"{tmp_path}/none", f"{tmp_path}/none"))
    with pytest.raises(ReleaseError, match="no source of apt"):
        debs._source_lines("arm64")


def test_own_files_are_apart_from_dependencies(tmp_path: Path) -> None:
    for name in ("kbroker/a.py", "kbroker/a.pyi", "kbroker-0.1.0.dist-info/METADATA",
                 "kbroker-0.1.0.dist-info/direct_url.json", "click/b.py", "bin/kbroker",
                 "click-8.5.1.dist-info/RECORD", "click/__pycache__/b.pyc"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("")
    needed, own = image._split(tmp_path)
    assert [PurePosixPath(name).name for name in needed] == ["b.py"]
    assert [PurePosixPath(name).name for name in sorted(own)] == ["METADATA", "a.py"]


def test_a_wheel_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "kbroker-0.1.0-cp311-abi3-manylinux_2_28_x86_64.whl").touch()
    with pytest.raises(ReleaseError, match="no wheel for aarch64 -> make wheels"):
        image._wheels(tmp_path)


def test_a_library_without_debug_information_is_loaded(tmp_path: Path) -> None:
    """What follows the last segment is left out, here of a module of ours, which has some."""
    (module,) = (Path(image.__file__).parents[1] / "kbroker/core").glob("_xxh3*.so")
    whole = module.read_bytes()
    made = elf.loaded_part(whole)
    assert len(made) < len(whole)
    assert elf.loaded_part(made) == made
    path = tmp_path / module.name
    path.write_bytes(made)
    assert ctypes.CDLL(str(path)).PyInit__xxh3


@pytest.mark.parametrize(
    "data",
    [b"", b"#!/bin/sh", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x01" + bytes(200),
     b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<Q", 1 << 60) + bytes(14)
     + struct.pack("<HH", 56, 9) + bytes(100)],
    ids=["nothing", "script", "32 bits", "no segment", "segments elsewhere"],
)  # fmt: skip
def test_other_files_stay_as_they_are(data: bytes) -> None:
    assert elf.loaded_part(data) == data
