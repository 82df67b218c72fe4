"""Imports point one way: this reads them all and fails on an arrow that points up.

The levels below are the ones of docs/architecture.md. A module may import modules of lower levels
and of its own package; packages of one level do not know each other. Two packages are words rather
than parts and are open to everything above level 0: config and protocol; the compiled channel
state machine is too. The compiled cores of log and net (`_log`, `_net` and the units named `_x`
beside them) stand below the Python of their packages, so that what serves requests without the GIL
never comes to need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.source_tree import (
    Import,
    absolute,
    cython_imports,
    imports,
    module_name,
    python_imports,
    relative,
    source_files,
)

LEVELS: Final[tuple[tuple[str, ...], ...]] = (
    ("words", "core"),
    ("quota",),
    ("config", "protocol", "state machine", "purgatory", "metrics", "log core", "net core"),
    ("log", "security"),
    ("net", "peer", "metadata"),
    ("replica", "findings"),
    ("coordinator",),
    ("engine",),
    ("handlers",),
    ("cluster",),
    ("observe",),
    ("console",),
    ("server", "admin"),
    ("backup",),
    ("cli",),
    ("testing",),
)
LEVEL_OF: Final = {group: level for level, groups in enumerate(LEVELS) for group in groups}
OPEN_TO_ALL: Final = frozenset({"config", "protocol", "state machine"})

# Modules that stand directly in kbroker/; packages are groups under their own name.
TOP_LEVEL: Final = {
    "kbroker": "words",
    "kbroker.errors": "words",
    "kbroker.types": "words",
    "kbroker.clock": "words",
    "kbroker.limits": "words",
    "kbroker.bytes_budget": "words",
    "kbroker.generated_part": "words",
    "kbroker.failures": "words",
    "kbroker.log_lines": "words",
    "kbroker.once": "words",
    "kbroker.outside_text": "words",
    "kbroker.own_thread": "words",
    "kbroker.scheduler": "words",
    "kbroker._state": "state machine",
    "kbroker._log": "log core",
    "kbroker._net": "net core",
    "kbroker.compression": "protocol",
    "kbroker.__main__": "cli",
}
CORES: Final = {"log": "log core", "net": "net core"}

# Rooms inside a package, from below: a module knows those of its own room and of rooms before it.
# Modules of the package itself put the rooms together. Compiled units and Python are looked at each
# among themselves, since all of the core is below all of the Python.
ROOMS: Final = {
    "log": ("engine", "opening", "upkeep", "looking"),
    "engine": ("worker", "waiting", "apis", "share"),
    "coordinator": (
        *("runtime", "group", "consumer_group", "txn", "share", "share_group"),
        "streams_group",
    ),
}

# A library with one door: the only files that may import it. None: the broker never does.
ONE_DOOR: Final[dict[str, tuple[str, ...]]] = {
    "numpy": (),
    "kazoo": (
        "kbroker/metadata/store/zookeeper.py",
        "kbroker/metadata/store/multi_read.py",  # a request of its client's
    ),
    "cramjam": ("kbroker/compression.py",),
    "javaproperties": ("kbroker/config/sources.py",),
    "sqlite3": ("kbroker/metadata/store/embedded.py",),
    "starlette": ("kbroker/admin/app.py", "kbroker/admin/console_mount.py"),
    "jinja2": ("kbroker/console/render.py",),
    "uvicorn": ("kbroker/admin/server.py",),
    "prometheus_client": ("kbroker/admin/exposition.py",),
}

FILES: Final = source_files("kbroker", suffixes=(".py", ".pyx", ".pxd"))
MODULES: Final = frozenset(module_name(path) for path in FILES)


def group_of(module: str) -> str:
    if module in TOP_LEVEL:
        return TOP_LEVEL[module]
    parts = module.split(".")
    if len(parts) < 3 and parts[-1] not in LEVEL_OF:
        raise LookupError(f"{module} has no level: give it one in tests/unit/test_arrows.py")
    package = parts[1]
    if package in CORES and len(parts) > 2 and parts[-1].startswith("_"):
        return CORES[package]
    return package


def target_of(wanted: Import, modules: frozenset[str]) -> str:
    """The module an import really reaches: `from kbroker import limits` is kbroker.limits."""
    inner = f"{wanted.module}.{wanted.name}"
    return inner if inner in modules else wanted.module


def allowed(source: str, target: str) -> bool:
    """May the group `source` import the group `target`?"""
    if source == target:
        return True
    below = LEVEL_OF[target] < LEVEL_OF[source]
    return below or (target in OPEN_TO_ALL and LEVEL_OF[source] > 0)


def wrong_arrows(path: Path) -> list[str]:
    source = group_of(module_name(path))
    wrong = []
    for wanted in imports(path):
        if wanted.module.split(".")[0] != "kbroker":
            continue
        target = group_of(target_of(wanted, MODULES))
        if not allowed(source, target):
            wrong.append(
                f"{relative(path)}:{wanted.line}: {source} (level {LEVEL_OF[source]}) imports"
                f" {target_of(wanted, MODULES)} of {target} (level {LEVEL_OF[target]})"
            )
    return wrong


def test_no_arrow_points_up() -> None:
    assert len(FILES) > 40
    wrong = [arrow for path in FILES for arrow in wrong_arrows(path)]
    assert not wrong, "\n".join(wrong)


def room_of(module: str) -> tuple[str, int] | None:
    """Its package and how far up its room is; None where the package has no rooms."""
    _, package, *inner = module.split(".")
    if package not in ROOMS:
        return None
    rooms = ROOMS[package]
    return package, rooms.index(inner[0]) if inner and inner[0] in rooms else len(rooms)


def points_up(source: str, target: str) -> bool:
    """Does an import of one module of a package by another one go to a room further up?"""
    here, there = room_of(source), room_of(target)
    if here is None or there is None or group_of(source) != group_of(target):
        return False
    return here[0] == there[0] and here[1] < there[1]


def test_no_arrow_inside_a_package_points_to_a_room_further_up() -> None:
    wrong = [
        f"{relative(path)}:{wanted.line}: {target}"
        for path in FILES
        if module_name(path).count(".") > 1
        for wanted in imports(path)
        if (target := target_of(wanted, MODULES)).count(".") > 1
        and target in MODULES
        and points_up(module_name(path), target)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ROOMS)
def test_every_folder_of_such_a_package_is_a_room(package: str) -> None:
    folders = {path.parent.name for path in FILES if path.parent.parent.name == package}
    assert folders == set(ROOMS[package])


@pytest.mark.parametrize(
    ("source", "target", "up"),
    [
        ("kbroker.log.engine._read", "kbroker.log.opening._recovery", True),
        ("kbroker.log.opening.loader", "kbroker.log.upkeep.cleaner", True),
        ("kbroker.log.opening.loader", "kbroker.log.manager", True),
        ("kbroker.log.engine.partition_log", "kbroker.log.upkeep._cleaning", False),
        ("kbroker.log.looking.dump", "kbroker.log.engine.validator", False),
        ("kbroker.coordinator.runtime._shards", "kbroker.coordinator.group._structs", True),
        ("kbroker.coordinator.group._structs", "kbroker.coordinator.runtime._structs", False),
        ("kbroker.log.manager", "kbroker.log.looking.directory_use", False),
    ],
)
def test_the_order_of_the_rooms(source: str, target: str, up: bool) -> None:
    assert points_up(source, target) is up


def test_every_package_has_a_level() -> None:
    packages = {module.split(".")[1] for module in MODULES if module.count(".") >= 2}
    assert packages <= set(LEVEL_OF), f"no level for {packages - set(LEVEL_OF)}"


def test_the_broker_imports_only_itself_and_libraries() -> None:
    """The one exception is the command that hands over to the load generators."""
    outside: dict[str, set[str]] = {"perf": {"kbroker/cli/perf.py"}}
    outside |= {name: set() for name in ("lab", "release", "spark_jobs", "tests")}
    wrong = [
        f"{relative(path)}:{wanted.line}: {wanted.module}"
        for path in FILES
        for wanted in imports(path)
        if relative(path) not in outside.get(wanted.module.split(".")[0], {relative(path)})
    ]
    assert not wrong, "\n".join(wrong)


def _units_imported() -> dict[str, set[str]]:
    """Compiled unit -> those that its .pyx or its .pxd cimports."""
    units: dict[str, set[str]] = {}
    for path in FILES:
        if path.suffix != ".py":
            unit = module_name(path)
            wanted = {target_of(one, MODULES) for one in imports(path)}
            units.setdefault(unit, set()).update(wanted - {unit})
    return {unit: wanted & units.keys() for unit, wanted in units.items()}


def test_compiled_units_do_not_import_each_other_in_circles() -> None:
    """What is left when units without imports among the rest are taken away, until none goes."""
    left = _units_imported()
    while free := [unit for unit, wanted in left.items() if not wanted & left.keys()]:
        for unit in free:
            del left[unit]
    assert not left, "\n".join(f"{u}: {sorted(w & left.keys())}" for u, w in left.items())


@pytest.mark.parametrize("library", ONE_DOOR)
def test_a_library_comes_in_through_one_door(library: str) -> None:
    importers = {
        relative(path)
        for path in FILES
        for wanted in imports(path)
        if wanted.module.split(".")[0] == library
    }
    assert importers <= set(ONE_DOOR[library])


@pytest.mark.parametrize(
    ("source", "target", "may"),
    [
        ("words", "config", False),
        ("words", "core", False),
        ("config", "words", True),
        ("config", "protocol", True),
        ("purgatory", "metrics", False),
        ("net core", "state machine", True),
        ("net core", "log core", False),
        ("log core", "net core", False),
        ("log core", "log", False),
        ("log", "log core", True),
        ("log", "security", False),
        ("peer", "net", False),
        ("handlers", "net core", True),
        ("replica", "handlers", False),
        ("engine", "handlers", False),
        ("cluster", "handlers", True),
        ("cluster", "observe", False),
        ("observe", "server", False),
        ("server", "admin", False),
        ("cli", "server", True),
    ],
)
def test_the_rule_itself(source: str, target: str, may: bool) -> None:
    assert allowed(source, target) is may


@pytest.mark.parametrize(
    ("module", "group"),
    [
        ("kbroker.errors", "words"),
        ("kbroker.core._arena", "core"),
        ("kbroker.log.engine._segment", "log core"),
        ("kbroker.log.manager", "log"),
        ("kbroker.log.opening.loader", "log"),
        ("kbroker.net", "net"),
        ("kbroker.engine._hot", "engine"),
        ("kbroker.metadata.store.base", "metadata"),
    ],
)
def test_groups(module: str, group: str) -> None:
    assert group_of(module) == group


def test_a_module_without_a_level_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"kbroker\.novelty has no level"):
        group_of("kbroker.novelty")


def test_imports_of_python_are_found_wherever_they_are() -> None:
    text = (
        "import os, kbroker.errors as e\n"
        "from . import sibling\n"
        "from ..config import (\n    broker,\n    topic as t,\n)\n"
        "def lazy():\n    from kbroker.server import broker\n"
        "    return importlib.import_module('kbroker.cli.main')\n"
    )
    found = {(i.line, absolute(i.module, "kbroker.log"), i.name) for i in python_imports(text)}
    assert found == {
        (1, "os", ""),
        (1, "kbroker.errors", ""),
        (2, "kbroker.log", "sibling"),
        (3, "kbroker.config", "broker"),
        (3, "kbroker.config", "topic"),
        (8, "kbroker.server", "broker"),
        (9, "kbroker.cli.main", ""),
    }


def test_imports_of_cython_are_found_and_those_in_text_are_not() -> None:
    text = (
        '"""Use it so:\n\n    from kbroker.server cimport broker\n"""\n'
        "# cimport kbroker.handlers\n"
        "from kbroker.log._segment cimport (  # why\n    Segment,\n    segment_new as make,\n)\n"
        "from ..replica cimport _snapshot\n"
        "from libc.string cimport \\\n    memcpy, memset\n"
        "cimport cython; import kbroker.errors as e\n"
        "cdef inline void f() noexcept nogil:\n    pass\n"
    )
    found = {(i.line, absolute(i.module, "kbroker.log"), i.name) for i in cython_imports(text)}
    assert found == {
        (6, "kbroker.log._segment", "Segment"),
        (6, "kbroker.log._segment", "segment_new"),
        (10, "kbroker.replica", "_snapshot"),
        (11, "libc.string", "memcpy"),
        (11, "libc.string", "memset"),
        (13, "cython", ""),
        (13, "kbroker.errors", ""),
    }


def test_an_import_of_a_submodule_by_its_package_is_the_submodule() -> None:
    modules = frozenset({"kbroker", "kbroker.limits", "kbroker.config"})
    assert target_of(Import(1, "kbroker", "limits"), modules) == "kbroker.limits"
    assert target_of(Import(1, "kbroker.config", "BrokerConfig"), modules) == "kbroker.config"
