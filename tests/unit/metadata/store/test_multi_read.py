"""Many nodes in one request: its bytes, and answers that are none."""

from __future__ import annotations

import struct

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError

from kbroker.metadata.store.base import Create
from kbroker.metadata.store.multi_read import MultiRead
from kbroker.testing.zookeeper import frames
from kbroker.testing.zookeeper.frames import FrameError, NotServedError, Reader
from kbroker.testing.zookeeper.tree import Tree

PART = struct.Struct(">i?i")
END = PART.pack(-1, True, -1)


def test_it_asks_for_each_path_without_a_watch() -> None:
    assert Reader(bytes(MultiRead(["/a", "/b/ö"]).serialize())).reads() == ["/a", "/b/ö"]
    assert MultiRead([]).serialize() == END


def test_each_is_answered_by_itself() -> None:
    tree = Tree()
    tree.multi(1, [Create("/a", b"1")])
    answer = b"head" + frames.parts_read([tree.find("/a"), None])
    (data, stat), missing = MultiRead(["/a", "/b"]).deserialize(answer, 4)
    assert (data, stat.version) == (b"1", 0)
    assert isinstance(missing, NoNodeError)


def test_a_session_without_the_right_to_one_node_reads_the_others() -> None:
    refused = PART.pack(-1, False, NoAuthError.code) + struct.pack(">i", NoAuthError.code)
    tree = Tree()
    found = frames.parts_read([tree.find("/")])
    first, second = MultiRead(["/secret", "/"]).deserialize(refused + found, 0)
    assert isinstance(first, NoAuthError) and not isinstance(second, Exception)


@pytest.mark.parametrize("answer", [b"", END[:3], END, frames.parts_read([None] * 3)])
def test_a_response_that_is_no_answer_to_it_is_refused(answer: bytes) -> None:
    with pytest.raises(struct.error):
        MultiRead(["/a", "/b"]).deserialize(answer, 0)


def test_a_server_reads_a_bounded_number_without_watches() -> None:
    too_many = bytes(MultiRead(["/"] * (frames.READS_MAX + 1)).serialize())
    with pytest.raises(FrameError, match="more than 1000"):
        Reader(too_many).reads()
    watched = bytes(MultiRead(["/"]).serialize()).replace(b"/\0", b"/\1")
    with pytest.raises(NotServedError):
        Reader(watched).reads()
