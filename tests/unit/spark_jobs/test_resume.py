"""Where a query begins: the ledger's end, a checkpoint that agrees with it, or a new one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spark_jobs.errors import LostRange
from spark_jobs.files import LocalFiles
from spark_jobs.ledger import Commit, Ledger, batch_key
from spark_jobs.resume import Plan, Work, lost, named, plan
from spark_jobs.source import TopicState

WORK = Work("orders", "plain", "plain-v1")
ID = "00000000-0000-0000-0000-00000000000a"
OTHER = "00000000-0000-0000-0000-00000000000b"


class Place:
    """Tables and checkpoints in a directory; `query` is the newest checkpoint's id."""

    def __init__(self, root: Path) -> None:
        self.files = LocalFiles()
        self.root = root
        self.ledger = Ledger(self.files, str(root / "plain"))
        self.said: list[str] = []

    def plan(self, *offsets: tuple[int, int], topic_id: str = ID, accept: bool = False) -> Plan:
        self.said = []
        return plan(
            WORK, self.files, self.ledger, str(self.root / "checkpoints"),
            TopicState(topic_id, dict(enumerate(offsets))), accept_loss=accept,
            say=self.said.append,
        )  # fmt: skip

    def number(self, made: Plan) -> int:
        return int(Path(made.checkpoint).name)

    def land(self, query: str, batch: int, *ranges: tuple[int, int]) -> None:
        """What a sink does at the end of a batch."""
        commit = Commit(batch_key(query, batch), "batch", 1, topic="orders", topic_id=ID,
                        ranges=dict(enumerate(ranges)))  # fmt: skip
        assert self.ledger.commit(commit)


def spark_begins(made: Plan, query: str, **initial: int) -> None:
    """What Spark writes before the first batch."""
    write(made, "metadata", {"id": query})
    write(made, "sources/0/0", {"orders": initial})


def spark_plans(made: Plan, batch: int, **ends: int) -> None:
    write(made, f"offsets/{batch}", {"orders": ends})


def spark_ends(made: Plan, batch: int) -> None:
    write(made, f"commits/{batch}", {})


def write(made: Plan, name: str, value: object) -> None:
    path = Path(made.checkpoint, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(value)] if name == "metadata" else ["v1", "{}", json.dumps(value)]
    path.write_text("\n".join(lines))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def landed_once(place: Place) -> Plan:
    """A checkpoint with one batch, [0, 5), all of it done."""
    made = place.plan((0, 5))
    spark_begins(made, "q", **{"0": 0})
    spark_plans(made, 0, **{"0": 5})
    place.land("q", 0, (0, 5))
    spark_ends(made, 0)
    return made


def test_the_first_time_begins_at_the_topics_start(place: Place) -> None:
    made = place.plan((3, 9), (0, 0))
    assert made.starts == {0: 3, 1: 0}
    assert made.topic_id == ID
    assert made.checkpoint.endswith("/checkpoints/orders/plain-v1/000001")
    assert place.said == []


def test_goes_on_in_a_checkpoint_that_agrees(place: Place) -> None:
    made = landed_once(place)
    again = place.plan((0, 8))
    assert again.checkpoint == made.checkpoint
    assert again.starts == {0: 5}
    assert place.said == []


def test_a_checkpoint_without_a_batch_is_taken_again(place: Place) -> None:
    made = place.plan((0, 0))
    spark_begins(made, "q", **{"0": 0})
    assert place.plan((0, 4)).checkpoint == made.checkpoint
    assert place.number(place.plan((2, 4))) == 2  # the topic's start went on


@pytest.mark.parametrize("died", ["before the sink", "before the ledger", "before Spark's commit"])
def test_a_batch_that_was_cut(place: Place, died: str) -> None:
    """Spark runs it again with the same ranges; both sides of the ledger's commit agree."""
    made = landed_once(place)
    spark_plans(made, 1, **{"0": 7})
    if died == "before Spark's commit":
        place.land("q", 1, (5, 7))
    again = place.plan((0, 9))
    assert again.checkpoint == made.checkpoint
    assert again.starts == {0: 7 if died == "before Spark's commit" else 5}


def test_offsets_of_a_first_batch_that_were_not_written_to_their_end(place: Place) -> None:
    """Spark refuses a directory with leftovers in it, each time it begins."""
    made = place.plan((0, 9))
    spark_begins(made, "q")
    write(made, "offsets/.0.5bc0.tmp", {})
    again = place.plan((0, 9))
    assert (place.number(again), dict(again.starts)) == (2, {0: 0})


def test_a_first_batch_that_was_cut(place: Place) -> None:
    made = place.plan((2, 5))
    spark_begins(made, "q", **{"0": 2})
    spark_plans(made, 0, **{"0": 5})
    assert place.plan((2, 8)).checkpoint == made.checkpoint


def test_without_its_checkpoint_the_ledger_says_where(place: Place) -> None:
    place.land("gone", 7, (0, 5), (0, 2))
    made = place.plan((0, 8), (0, 2), (0, 4))
    assert place.number(made) == 1
    assert made.starts == {0: 5, 1: 2, 2: 0}
    (line,) = place.said
    assert "there is no checkpoint" in line and "0: 5, 1: 2" in line


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("behind", "not where the table ends"),
        ("ahead", "ahead of the table"),
        ("metadata", "cannot be read"),
        ("torn", "cannot be read"),
        ("other topic", "cannot be read"),
    ],
)
def test_a_checkpoint_that_disagrees_is_left(place: Place, change: str, why: str) -> None:
    made = landed_once(place)
    if change == "behind":  # of a backup: another one landed on
        place.land("another", 0, (5, 6))
    elif change == "ahead":
        spark_plans(made, 1, **{"0": 7})
        spark_ends(made, 1)
    elif change == "metadata":
        Path(made.checkpoint, "metadata").unlink()
    elif change == "torn":
        Path(made.checkpoint, "offsets", "0").write_text("v1\n{}\n{")
    else:
        write(made, "offsets/0", {"other": {"0": 5}})
    again = place.plan((0, 9))
    assert place.number(again) == 2
    assert again.starts == {0: 6 if change == "behind" else 5}
    (line,) = place.said
    assert why in line and "nothing is lost or doubled" in line


@pytest.mark.parametrize(
    ("offsets", "topic_id", "line"),
    [
        ([(7, 9)], ID, "deleted before they had landed .* partition 0: offsets 5 to 6;"),
        ([(0, 3)], ID, "ends before the table does.* partition 0: offsets 3 to 4;"),
        ([(0, 5)], OTHER, "re-created, .* partition 0: all from offset 5 on;"),
        ([(0, 9)], OTHER, "or these brokers are another cluster's, which needs tables of its own"),
        ([(0, 50)], OTHER, "re-created"),
        ([(0, 50)], "", None),  # a broker that has no ids: nothing to compare
        ([], ID, "re-created"),  # partitions do not go away
        ([(0, 5), (2, 3)], ID, "partition 1: offsets 0 to 1;"),  # came and went unseen
        ([(5, 5), (0, 4)], ID, None),
    ],
)
def test_a_lost_range_is_reported(
    place: Place, offsets: list[tuple[int, int]], topic_id: str, line: str | None
) -> None:
    landed_once(place)
    if line is None:
        place.plan(*offsets, topic_id=topic_id)
        return
    with pytest.raises(LostRange) as refused:
        place.plan(*offsets, topic_id=topic_id)
    assert re.search(line, refused.value.message), refused.value.message
    assert "--accept-loss" in refused.value.message and "\n" not in refused.value.message
    assert place.ledger.state().gaps == ()


@pytest.mark.parametrize(
    ("offsets", "topic_id", "starts"),
    [
        ([(7, 9)], ID, {0: 7}),
        ([(0, 3)], ID, {0: 3}),
        ([(0, 5)], OTHER, {0: 0}),
        ([(2, 50), (0, 1)], OTHER, {0: 2, 1: 0}),
        ([(0, 5), (2, 3)], ID, {0: 5, 1: 2}),
    ],
)
def test_an_accepted_loss_is_a_gap_once(
    place: Place, offsets: list[tuple[int, int]], topic_id: str, starts: dict[int, int]
) -> None:
    old = landed_once(place)
    made = place.plan(*offsets, topic_id=topic_id, accept=True)
    assert made.starts == starts
    assert made.checkpoint != old.checkpoint
    assert len(place.ledger.state().gaps) == 1
    place.plan(*offsets, topic_id=topic_id, accept=True)
    assert len(place.ledger.state().gaps) == 1
    place.plan(*offsets, topic_id=topic_id)


def test_a_long_list_is_cut() -> None:
    line = named({partition: (0, 2) for partition in range(100)})
    assert line.startswith("partition 0: offsets 0 to 1, ")
    assert line.endswith("partition 7: offsets 0 to 1 and 92 partitions more")


def test_nothing_is_lost_where_nothing_is() -> None:
    assert lost("orders", ID, {0: 5}, TopicState(ID, {0: (5, 5)})) is None
    assert lost("orders", ID, {0: 5}, TopicState(ID, {0: (0, 9), 1: (0, 3)})) is None
