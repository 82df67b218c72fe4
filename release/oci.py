"""An image in the layout of the Open Container Initiative, without a container engine.

`Layout` writes blobs by their digests, `image` one machine's manifest with its layers, `finish` the
index of all machines. `archive` makes one file of one machine's image, which is the same layout
again, with the manifest.json of `docker save`: without it Docker loads an archive only where
containerd keeps its images. `podman load` and `skopeo copy oci-archive:` read the layout.
`unpacked` is the way back, for tests and for `runc`.

Specification: github.com/opencontainers/image-spec, v1.1: image-layout, manifest, config, index.
manifest.json: a list of images, each with the paths of its config and layers in the archive, and
its names; Docker reads layers in gzip, too (moby's image/tarexport).
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from release.file_tree import Files, file, packed, tar_of

_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_REFERENCE: Final = "org.opencontainers.image.ref.name"
# The name that an image gets from `docker load` where containerd keeps images.
_CONTAINERD_NAME: Final = "io.containerd.image.name"
_VERSION: Final = {"imageLayoutVersion": "1.0.0"}


class Layer(NamedTuple):
    """What a step added, in words, and the files."""

    words: str
    files: Files


class Platform(NamedTuple):
    """A machine in the words of the specification."""

    architecture: str
    variant: str = ""

    def fields(self) -> dict[str, str]:
        found = {"architecture": self.architecture, "os": "linux"}
        return {**found, "variant": self.variant} if self.variant else found


class _Image(NamedTuple):
    """What a machine's image consists of: descriptors, as the specification calls them."""

    manifest: dict[str, Any]
    config: dict[str, Any]
    layers: list[dict[str, Any]]

    @property
    def parts(self) -> list[dict[str, Any]]:
        return [*self.layers, self.config, self.manifest]


PLATFORMS: Final = {"x86_64": Platform("amd64"), "aarch64": Platform("arm64", "v8")}


class Layout:
    """A folder with an image for one or several machines. Its files from before are removed."""

    def __init__(self, folder: Path, epoch_s: int) -> None:
        self.folder: Final = folder
        self._epoch_s = epoch_s
        self._images: dict[Platform, _Image] = {}
        self._name = ""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "blobs" / "sha256").mkdir(parents=True)

    def image(self, platform: Platform, layers: list[Layer], config: dict[str, Any]) -> int:
        """Adds the image of a machine; its size in bytes, as a registry sends it."""
        descriptors, diff_ids, history = [], [], []
        created = datetime.fromtimestamp(self._epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        taken: set[str] = set()
        for layer in layers:
            tar, compressed = packed(layer.files, self._epoch_s, taken)
            taken |= _names(tar)
            descriptors.append(self._blob(_LAYER, compressed))
            diff_ids.append(_digest(tar))
            history.append({"created": created, "created_by": layer.words})
        described = self._json(
            _CONFIG,
            {
                "created": created,
                **platform.fields(),
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": diff_ids},
                "history": history,
            },
        )
        manifest = self._json(
            _MANIFEST,
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": described,
                "layers": descriptors,
            },
        )
        made = _Image({**manifest, "platform": platform.fields()}, described, descriptors)
        self._images[platform] = made
        return sum(each["size"] for each in made.parts)

    def finish(self, name: str, tag: str) -> None:
        """The index, under a name and tag such as `kbroker` and `0.1.0`."""
        self._name = f"{name}:{tag}"
        manifests = [each.manifest for each in self._images.values()]
        index = self._json(
            _INDEX, {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
        )
        (self.folder / "index.json").write_bytes(_encoded(self._top(index)))
        (self.folder / "oci-layout").write_bytes(_encoded(_VERSION))

    def archive(self, platform: Platform, to: Path) -> None:
        """One machine's image as one file, once the layout is finished."""
        image = self._images[platform]
        paths = {each["digest"]: _path(each["digest"]) for each in image.parts}
        of_docker = {
            "Config": paths[image.config["digest"]],
            "RepoTags": [self._name],
            "Layers": [paths[each["digest"]] for each in image.layers],
        }
        files = {path: file((self.folder / path).read_bytes()) for path in paths.values()}
        files["index.json"] = file(_encoded(self._top(image.manifest)))
        files["manifest.json"] = file(_encoded([of_docker]))
        files["oci-layout"] = file(_encoded(_VERSION))
        to.write_bytes(tar_of(files, self._epoch_s))

    def _top(self, descriptor: dict[str, Any]) -> dict[str, Any]:
        """The content of index.json."""
        annotations = {
            _REFERENCE: self._name.partition(":")[2],
            _CONTAINERD_NAME: f"docker.io/library/{self._name}",
        }
        return {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": [{**descriptor, "annotations": annotations}],
        }

    def _json(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        return self._blob(kind, _encoded(content))

    def _blob(self, kind: str, data: bytes) -> dict[str, Any]:
        digest = _digest(data)
        (self.folder / _path(digest)).write_bytes(data)
        return {"mediaType": kind, "digest": digest, "size": len(data)}


def _path(digest: str) -> str:
    """Of a blob, in a layout."""
    return f"blobs/{digest.replace(':', '/')}"


def _encoded(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _names(tar: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return {name.rstrip("/") for name in archive.getnames()}


def unpacked(layout: Path, platform: Platform, root: Path) -> dict[str, Any]:
    """Writes the files of a machine's image below `root`, and returns its config. KeyError: the
    layout has no image of that machine; ValueError: a blob is not that of its digest."""
    top = json.loads((layout / "index.json").read_bytes())
    index = json.loads(_read(layout, top["manifests"][0]["digest"]))
    found = {each["platform"]["architecture"]: each["digest"] for each in index["manifests"]}
    manifest = json.loads(_read(layout, found[platform.architecture]))
    root.mkdir(parents=True, exist_ok=True)
    for layer in manifest["layers"]:
        compressed = io.BytesIO(_read(layout, layer["digest"]))
        with tarfile.open(fileobj=compressed, mode="r:gz") as files:
            files.extractall(root, numeric_owner=True, filter="fully_trusted")
    config: dict[str, Any] = json.loads(_read(layout, manifest["config"]["digest"]))
    return config


def _read(layout: Path, digest: str) -> bytes:
    data = (layout / _path(digest)).read_bytes()
    if _digest(data) != digest:
        raise ValueError(f"{digest} is another blob")
    return data
