"""The file of an export: a written one reads back, and any other is one line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import UserError
from kbroker.metadata.controller import records
from kbroker.metadata.store.base import NODE_BYTES_MAX
from kbroker.metadata.transfer import file
from kbroker.metadata.transfer.file import Export, decode, digest, encode, load, save
from tests.unit.metadata.transfer.trees import EXPORTED_AT

SKELETON = {
    **dict.fromkeys(records.SKELETON, b""),
    records.CONTROLLER_EPOCH: b"7",
    records.CLUSTER_ID: records.encode_cluster_id("ours"),
}
OWN = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/."), min_size=1
)
CONTENT = st.binary(max_size=40) | st.text(max_size=40).map(str.encode)


def export(**more: bytes) -> Export:
    return Export.of({**SKELETON, **more}, EXPORTED_AT)


def changed(document: Any, change: Callable[[Any], object]) -> bytes:
    change(document)
    return json.dumps(document).encode()


@given(st.dictionaries(OWN.map("/theirs-{}".format), CONTENT, max_size=5))
def test_a_written_export_reads_back(theirs: dict[str, bytes]) -> None:
    written = export(**theirs)
    assert decode(encode(written)) == written


def test_people_can_read_it() -> None:
    document = json.loads(encode(export(**{"/bytes": b"\xff\0"})))
    assert document["kbroker_metadata"] == 1
    assert document["exported_at"] == EXPORTED_AT
    assert document["cluster_id"] == "ours"
    assert document["nodes"]["/controller_epoch"] == "7"
    assert document["nodes"]["/bytes"] == {"base64": "/wA="}


@settings(max_examples=300)
@given(st.data())
def test_changed_bytes_are_refused_or_say_the_same(data: st.DataObject) -> None:
    """One digit of a leader epoch would be enough."""
    written = export(**{"/bytes": b"\xff\0", "/text": "bücher\n".encode()})
    raw = bytearray(encode(written))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        read = decode(bytes(raw))
    except ValueError:
        return
    assert (read.tree, read.sha256) == (written.tree, written.sha256)


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace"))
)
def test_random_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        decode(raw)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda it: it.update(kbroker_metadata=2), "version 2 is not 1"),
        (lambda it: it.update(kbroker_metadata=True), "version True"),
        (lambda it: it.pop("kbroker_metadata"), "no file of kbroker metadata export"),
        (lambda it: it.update(exported_at="\x1b[2J"), "exported_at is no moment"),
        (lambda it: it.update(exported_at=[]), "exported_at is no text"),
        (lambda it: it.update(nodes=[]), "nodes is no object"),
        (lambda it: it.update(sha256="0"), "changed since"),
        (lambda it: it.update(cluster_id="another"), "changed since"),
        (lambda it: it["nodes"].update({"/controller_epoch": "8"}), "changed since"),
        (lambda it: it["nodes"].update({"/a": 1}), "/a is neither text nor base64"),
        (lambda it: it["nodes"].update({"/a": {"base64": "/wA=", "b": 1}}), "/a is neither"),
        (lambda it: it["nodes"].update({"/a": {"base64": "?"}}), ""),
        (lambda it: it["nodes"].update({"/a": "\ud800"}), "surrogates"),
        (lambda it: it["nodes"].update({"/a/b": ""}), "/a/b .*hangs under nothing"),
        (lambda it: it["nodes"].update({"/": ""}), "node / .*hangs under nothing"),
        (lambda it: it["nodes"].update({"a": ""}), "node a .*no node has such a path"),
        (lambda it: it["nodes"].update({"/a/..": ""}), "no node has such a path"),
        (lambda it: it["nodes"].update({"/bücher": ""}), "no node has such a path"),
        (lambda it: it["nodes"].update({"/" + "a" * 100_000: ""}), "no node has such a path"),
        (lambda it: it["nodes"].update({"/\x1b[2J": ""}), r"/\\x1b\[2J"),
        (lambda it: it["nodes"].update({"/a": "a" * (NODE_BYTES_MAX + 1)}), "bytes are more than"),
        (lambda it: it["nodes"].update({"/controller": "{}"}), "not carried"),
        (lambda it: it["nodes"].update({"/brokers/ids/1": "{}"}), "not carried"),
        (lambda it: it["nodes"].update({"/brokers/losses/1": "{}"}), "not carried"),
        (lambda it: it["nodes"].update({"/cluster/import": "{}"}), "not carried"),
        (lambda it: it["nodes"].pop("/cluster/id"), "/cluster/id .*not there"),
        (lambda it: it["nodes"].pop("/brokers/ids"), "/brokers/ids .*not there"),
        (lambda it: it["nodes"].update({"/controller_epoch": "-7"}), "no epoch"),
        (lambda it: it["nodes"].update({"/brokers/topics/a": "{}"}), "/brokers/topics/a "),
        (lambda it: it["nodes"].update({"/latest_producer_id_block": "{}"}), "/latest_producer"),
        (lambda it: it["nodes"].update({"/config/topics/a": "{}"}), "/config/topics/a "),
        (lambda it: it["nodes"].update({"/config/groups/a": "["}), "/config/groups/a "),
        (lambda it: it["nodes"].update({"/brokers/directories": "", "/brokers/directories/1": ""}),
         "/brokers/directories/1 "),
        (lambda it: it["nodes"].update({"/admin/deleted_topics/a": "{}"}), "/deleted_topics/a "),
    ],
)  # fmt: skip
def test_an_error_is_one_line(tmp_path: Path, change: Callable[[Any], object], reason: str) -> None:
    path = tmp_path / "tree.json"
    path.write_bytes(changed(json.loads(encode(export())), change))
    with pytest.raises(UserError) as raised:
        load(path)
    message = raised.value.message
    assert re.search(reason, message), message
    assert message.startswith(f"cannot read {path}: ")
    assert message.endswith(" -> export it again: kbroker metadata export")
    assert message.isprintable()
    assert len(message) < 600


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"[" * 100_000, "nested too deep"),
        (b'{"kbroker_metadata": ' + b"1" * 5_000 + b"}", "digits"),
        (b"", "Expecting value"),
        (b"\xff", "decode"),
        (b"[]", "no file of"),
    ],
)
def test_json_that_is_meant_to_hurt(tmp_path: Path, raw: bytes, reason: str) -> None:
    path = tmp_path / "tree.json"
    path.write_bytes(raw)
    with pytest.raises(UserError, match=reason):
        load(path)


def test_its_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tree.json"
    save(path, export())
    monkeypatch.setattr(file, "FILE_BYTES_MAX", path.stat().st_size)
    load(path)
    monkeypatch.setattr(file, "FILE_BYTES_MAX", path.stat().st_size - 1)
    with pytest.raises(UserError, match="has more than"):
        load(path)
    with pytest.raises(UserError, match="would have more than"):
        save(tmp_path / "other.json", export())
    assert not (tmp_path / "other.json").exists()


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_text("mine")
    with pytest.raises(UserError, match="is there already"):
        save(path, export())
    assert path.read_text() == "mine"


def test_where_nothing_can_be_written_or_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write .*No such file or directory -> name"):
        save(tmp_path / "none" / "tree.json", export())
    with pytest.raises(UserError, match=r"cannot read .*No such file or directory -> check"):
        load(tmp_path / "tree.json")
    with pytest.raises(UserError, match="Is a directory"):
        load(tmp_path)


def test_two_trees_have_two_digests() -> None:
    """However their bytes are put together."""
    assert digest({"/a": b"b"}) != digest({"/ab": b""})
    assert digest({"/a": b"", "/b": b"c"}) != digest({"/a": b"/b", "c": b""})
    assert digest({"/a": b"1", "/b": b"2"}) == digest({"/b": b"2", "/a": b"1"})


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    save(path, export())
    assert path.stat().st_mode & 0o777 == 0o600
