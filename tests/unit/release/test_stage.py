"""Wheels packed from small trees whose compiled modules are stand-ins."""

from __future__ import annotations

import os
import tomllib
import zipfile
from pathlib import Path

import pytest

from release import stage
from release.stage import ReleaseError
from tests.support.source_tree import ROOT

EPOCH_S = 1_700_000_000
METADATA = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "kbroker"
version = "0.1.0"
[tool.setuptools.packages.find]
include = ["kbroker*"]
[tool.setuptools.package-data]
"*" = ["*.pyi", "py.typed"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return planted(tmp_path / "tree")


def planted(tree: Path) -> Path:
    package = tree / "kbroker"
    (package / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "_net.pyx", "_net.pxd", "_net.pyi", "_net.c", "py.typed"):
        (package / name).write_text(f"# {name}\n")
    (package / "_net.abi3.so").write_bytes(b"compiled")
    (package / "__pycache__" / "old.abi3.so").write_bytes(b"")
    (tree / "pyproject.toml").write_text(METADATA)
    (tree / "README.md").write_text("kbroker\n")
    return tree


def pack(tree: Path, to: Path) -> Path:
    to.mkdir()
    return stage.pack(tree, stage.CORE, to, epoch_s=EPOCH_S, strip=False)


def test_a_wheel_has_modules_and_stubs_without_sources(tree: Path, tmp_path: Path) -> None:
    wheel = pack(tree, tmp_path / "to")
    with zipfile.ZipFile(wheel) as archive:
        ours = sorted(name for name in archive.namelist() if name.startswith("kbroker/"))
        assert archive.read("kbroker/_net.abi3.so") == b"compiled"
    assert [name.partition("/")[2] for name in ours] == [
        "__init__.py", "_net.abi3.so", "_net.pyi", "py.typed"
    ]  # fmt: skip
    assert wheel.name.startswith("kbroker-0.1.0-cp311-abi3-linux_")
    assert list((tmp_path / "to").iterdir()) == [wheel]


def test_place_time_and_modes_of_a_tree_do_not_matter(tree: Path, tmp_path: Path) -> None:
    other = planted(tmp_path / "another" / "place")
    for path in (other / "kbroker").iterdir():
        os.utime(path, (1_800_000_000, 1_800_000_000))
        path.chmod(0o700)
    first, second = pack(tree, tmp_path / "one"), pack(other, tmp_path / "two")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_modules_for_one_version_make_a_wheel_for_it(tree: Path, tmp_path: Path) -> None:
    (tree / "kbroker/_net.abi3.so").rename(tree / "kbroker/_net.cpython-311-x86_64-linux-gnu.so")
    name = pack(tree, tmp_path / "to").name
    assert "abi3" not in name and "-cp3" in name


def test_a_unit_that_is_not_compiled_is_named(tree: Path, tmp_path: Path) -> None:
    (tree / "kbroker/_log.pyx").write_text("")
    with pytest.raises(ReleaseError, match=r"kbroker/_log: make build"):
        pack(tree, tmp_path / "to")


def test_a_unit_that_is_compiled_twice_is_named(tree: Path, tmp_path: Path) -> None:
    (tree / "kbroker/_net.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    with pytest.raises(ReleaseError, match=r"kbroker/_net: make build"):
        pack(tree, tmp_path / "to")


def test_modules_of_two_kinds_are_refused(tree: Path, tmp_path: Path) -> None:
    (tree / "kbroker/_log.pyx").write_text("")
    (tree / "kbroker/_log.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    with pytest.raises(ReleaseError, match="stable ABI beside others"):
        pack(tree, tmp_path / "to")


def test_both_distributions_have_one_version() -> None:
    core, perf = (
        tomllib.loads((ROOT / each.metadata).read_text())["project"] for each in stage.DISTRIBUTIONS
    )
    version = core["version"]
    assert perf["version"] == version and f"kbroker=={version}" in perf["dependencies"]
    assert perf["requires-python"] == core["requires-python"]
    assert core["optional-dependencies"]["perf"] == [f"kbroker-perf=={version}"]
    assert core["optional-dependencies"]["report"] == [f"kbroker-perf[report]=={version}"]


def test_texts_below_share(tree: Path, tmp_path: Path) -> None:
    texts = {"man/man1/kbroker.1": "page", "zsh/site-functions/_kbroker": "script"}
    wheel = stage.pack(tree, stage.CORE, tmp_path, epoch_s=EPOCH_S, strip=False, shared=texts)
    with zipfile.ZipFile(wheel) as archive:
        below = {
            name.partition(".data/data/share/")[2]: archive.read(name).decode()
            for name in archive.namelist()
            if ".data/data/" in name
        }
    assert below == texts
