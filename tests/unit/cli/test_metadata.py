"""`kbroker metadata`: from a broker's directory to a ZooKeeper, each trouble in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.cli.main import main
from kbroker.metadata.controller import records
from kbroker.metadata.store.zookeeper import ZooKeeperStore
from kbroker.metadata.store.zookeeper_settings import ZooKeeperSettings
from kbroker.metadata.transfer.file import load
from kbroker.metadata.transfer.tree import read_tree
from kbroker.testing.zookeeper.server import ZooKeeperServer
from tests.unit.metadata.transfer.trees import used_store


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Path:
    used_store(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tree.json"


def export(data: Path, file: Path) -> None:
    assert main(["metadata", "export", "--data-dir", str(data), str(file)]) == 0


def test_there_it_is_a_cluster_below_a_path_that_was_not_there(
    zookeeper: ZooKeeperServer, data: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(data, file)
    tree = load(file)
    nodes = f"{len(tree.tree)} nodes of cluster {tree.cluster_id}"
    assert capsys.readouterr().out == f"{file}: {nodes}\n"
    where = f"{zookeeper.connect}/deep/down"
    words = ["metadata", "import", "--zookeeper", where, str(file)]
    assert main(words) == 0
    assert capsys.readouterr().out == f"{where}: {nodes}\n"
    store = ZooKeeperStore.open(ZooKeeperSettings((zookeeper.connect,), "/deep/down"))
    try:
        found = read_tree(store)
    finally:
        store.close()
    found.pop(records.IMPORT)
    assert found == tree.tree
    assert main(words) == 6
    error = capsys.readouterr().err
    assert error.startswith(f"error: KB1005 there is /cluster/id in ZooKeeper at {where} already")
    assert error.count("\n") == 1


def test_for_programs(
    zookeeper: ZooKeeperServer, data: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metadata", "export", "--data-dir", str(data), str(file), "-o", "json"]) == 0
    written = json.loads(capsys.readouterr().out)
    tree = load(file)
    same = {"cluster_id": tree.cluster_id, "exported_at": tree.exported_at,
            "sha256": tree.sha256, "nodes": len(tree.tree)}  # fmt: skip
    assert written == {"file": str(file), **same}
    where = f"{zookeeper.connect}/programs"
    assert main(["metadata", "import", "--zookeeper", where, str(file), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"zookeeper": where, **same}
    undo = ["metadata", "undo-export", "--data-dir", str(data), "-o", "json"]
    assert main(undo) == 0
    assert json.loads(capsys.readouterr().out) == {
        "directory": str(data), "undone": True, "file": str(file), "exported_at": tree.exported_at
    }  # fmt: skip
    assert main(undo) == 0
    assert json.loads(capsys.readouterr().out) == {"directory": str(data), "undone": False}


def test_an_export_can_be_undone(
    data: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(data, file)
    capsys.readouterr()
    start = [sys.executable, "-m", "kbroker", "start", "--port", "0", "--data-dir", str(data)]
    started = subprocess.run(start, capture_output=True, text=True, check=False)
    assert started.returncode == 5
    line = started.stderr
    assert f"was exported to {file} at " in line
    assert "zookeeper.connect" in line
    undo = ["metadata", "undo-export", "--data-dir", str(data)]
    assert " ".join(undo[:2]) in line and line.count("\n") == 1
    assert main(undo) == 0
    assert capsys.readouterr().out == (
        f"{data}: a broker may start from it again; {file} is of no use now\n"
    )
    assert main(undo) == 0
    assert capsys.readouterr().out == f"{data}: was not exported\n"


def test_which_zookeeper_is_in_the_brokers_own_settings(
    zookeeper: ZooKeeperServer, data: Path, file: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    export(data, file)
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nzookeeper.connect={zookeeper.connect}/file\n")
    assert main(["metadata", "import", "--config", str(config), str(file)]) == 0
    monkeypatch.setenv("KBROKER_ZOOKEEPER_CONNECT", f"{zookeeper.connect}/environment")
    assert main(["metadata", "import", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [each.partition(": ")[0] for each in lines] == [
        f"{zookeeper.connect}/file",
        f"{zookeeper.connect}/environment",
    ]


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["export", "FILE"], 2, "error: Missing option '--data-dir'"),
        (["export", "--data-dir", "none", "FILE"], 5, "error: KB1004 there is no metadata store"),
        (["undo-export", "--data-dir", "none"], 5, "error: KB1004 there is no metadata store"),
        (["import", "FILE"], 2, "error: KB1001 nothing says which ZooKeeper"),
        (["import", "--zookeeper", "h:x", "FILE"], 3, "error: KB1002 zookeeper.connect='h:x'"),
        (["import", "--zookeeper", "h:1", "FILE"], 1, "error: KB1000 cannot read FILE: No such"),
    ],
)
def test_trouble_is_one_line(
    words: list[str], status: int, line: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["metadata", *words]) == status
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith(line)
    assert [*tmp_path.iterdir()] == []


def test_no_server_there(data: Path, file: Path, capsys: pytest.CaptureFixture[str],
                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    export(data, file)
    capsys.readouterr()
    monkeypatch.setenv("KBROKER_ZOOKEEPER_CONNECTION_TIMEOUT_MS", "200")
    assert main(["metadata", "import", "--zookeeper", "127.0.0.1:1/a", str(file)]) == 6
    error = capsys.readouterr().err
    assert error.startswith("error: KB1005 no ZooKeeper answers at 127.0.0.1:1/a in 200 ms -> ")
    assert error.count("\n") == 1
