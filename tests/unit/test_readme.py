"""What the README says there is, held against the tables that say what there is."""

from __future__ import annotations

import re
from pathlib import Path

import kbroker
from kbroker.config.absent_features import ABSENT
from kbroker.protocol.versions import SERVED
from kbroker.types import ApiKey
from tests.parity import vectors
from tests.parity.cases import cases_of, families

README = (Path(kbroker.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BY_LABEL = {key.label: key for key in ApiKey}


def table(head: str) -> list[list[str]]:
    """The rows of the table with this first line, cell by cell."""
    lines = README[README.index(head) :].splitlines()[2:]
    rows = lines[: next(at for at, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_api_with_its_versions() -> None:
    said = {}
    for names, versions, _ in table("| API | versions |"):
        each = [one.strip() for one in re.sub(r"\(.*?\)", "", versions).split(",")]
        apis = [one.strip() for one in names.split(",")]
        assert len(each) == len(apis), names
        said.update({BY_LABEL[api]: range_ for api, range_ in zip(apis, each, strict=True)})
    served = {
        key: f"{of.min}-{of.max}" if of.min != of.max else f"{of.min}" for key, of in SERVED.items()
    }
    assert said == served


def test_every_api_of_kafka_s_that_is_absent() -> None:
    (answer,) = vectors.load("api_versions")["asked v4"]
    listed = {ApiKey(api["api_key"]) for api in answer[1]["api_keys"]}
    said = [name.strip() for row in table("| what | APIs that are") for name in row[1].split(",")]
    assert sorted(said) == sorted(key.label for key in listed - SERVED.keys())


def test_every_setting_that_is_refused_because_its_feature_is_absent() -> None:
    said = " ".join(" ".join(row) for row in table("| what | why |"))
    assert [each.key for each in ABSENT if f"`{each.key}" not in said] == []


def test_the_number_of_parity_cases() -> None:
    (stated,) = re.findall(r"more than ([\d,]+) cases over every", README)
    cases = sum(len(list(cases_of(family))) for family in families())
    assert 0.9 * cases <= int(stated.replace(",", "")) <= cases
