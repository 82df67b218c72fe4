"""What the documents say of the code, where a test can hold them to it."""

from __future__ import annotations

import re
import subprocess
from pathlib import PurePosixPath

import pytest

from kbroker.handlers.registry import REGISTRY
from kbroker.server.sockets import HOT, HOT_UNTIL
from tests.simulation.planted import PLANTED
from tests.simulation.planted_shares import PLANTED_IN_SHARES
from tests.simulation.planted_threads import PLANTED_IN_THREADS
from tests.simulation.planted_transactions import PLANTED_IN_TRANSACTIONS
from tests.support.source_tree import ROOT

# Names of files that a broker or a job writes, not of files in the tree.
WRITTEN = {
    "meta.properties",
    "_ledger/00000000000000000012.json",
    "groups.json",
    "manifest.json",
    "metadata.json",
}
IGNORED = {"build", ".venv", "node_modules"}
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not IGNORED & set(path.relative_to(ROOT).parts) and ".pytest_cache" not in path.parts
)
FILE = re.compile(r"`([\w./*-]+\.(?:pyx|pxd|pyi|py|h|md|json|toml|properties|supp|c|j2))`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """Files of the tree, as git lists them; those that are about to be, too."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    return listed.stdout.splitlines()


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_file_that_a_document_names_is_there(tracked: list[str]) -> None:
    names = [PurePosixPath(name) for name in tracked]
    missing = [
        f"{path.relative_to(ROOT)}: {named}"
        for path in DOCUMENTS
        for named in sorted(set(FILE.findall(path.read_text(encoding="utf-8"))) - WRITTEN)
        if not any(name.match(named.removeprefix("/")) for name in names)
    ]
    assert not missing, "\n".join(missing)


def test_every_link_to_a_file_leads_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {link}"
        for path in DOCUMENTS
        for link in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / link).exists()
    ]
    assert not broken, "\n".join(broken)


def test_every_decision_is_in_the_list_under_its_title() -> None:
    listed = text_of("docs/adr/README.md")
    for path in sorted((ROOT / "docs" / "adr").glob("0*.md")):
        headed = re.match(r"# (\d+)\. (.+)\n", path.read_text(encoding="utf-8"))
        assert headed is not None, path.name
        number, title = headed.groups()
        assert f"| [{number}]({path.name}) | {title} | 20" in listed, path.name


def test_hot_apis_are_listed_with_their_versions() -> None:
    page = text_of("docs/architecture.md").replace("\n", " ")
    (listed,) = re.findall(r"Hot are ([^;]*); anything else is cold", page)
    said = dict(re.findall(r"(\w+) (\d+-\d+)", listed))
    hot = [api for api in REGISTRY.apis if api.hot]
    until = {api.key: HOT_UNTIL.get(api.key, api.max_version) for api in hot}
    assert said == {api.name: f"{api.min_version}-{until[api.key]}" for api in hot}
    assert {api.key for api in hot} == set(HOT)


def test_ten_words_that_are_ours_are_in_use() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| .* \| `([\w/.]+)` \|$", text_of("docs/glossary.md"), re.M)
    assert len(rows) == 10
    for word, file in rows:
        assert word.split()[-1] in text_of(file), f"{word}: {file}"


CHECK = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
PLANTED_MISTAKES = "## Planted mistakes"
PLANTS = re.compile(r"plants? ((?:`[\w-]+`(?:, )?)+)")


def test_every_check_of_a_fault_is_there() -> None:
    page, _, _ = text_of("docs/checks.md").partition(PLANTED_MISTAKES)
    rows = re.findall(r"^\| (.+) \| (.+) \|$", page, re.M)
    faults = [(fault, checks) for fault, checks in rows if fault != "fault"]
    assert len(faults) == 41
    missing = []
    for fault, checks in faults:
        named = CHECK.findall(checks)
        if not named and not checks.startswith("none: "):
            missing.append(f"{fault}: no check")
        for path, test in named:
            if not (ROOT / path).exists() or (test and f"def {test}(" not in text_of(path)):
                missing.append(f"{fault}: {path} {test}")
        for names in PLANTS.findall(checks):
            plants = re.findall(r"[\w-]+", names)
            missing += [each for each in plants if each not in {*PLANTED, *PLANTED_IN_THREADS}]
    assert not missing, "\n".join(missing)


def test_every_plant_is_in_the_table_of_planted_mistakes() -> None:
    _, _, section = text_of("docs/checks.md").partition(PLANTED_MISTAKES)
    rows = "".join(re.findall(r"^\| .+ \|$", section, re.M))
    plants = {*PLANTED, *PLANTED_IN_TRANSACTIONS, *PLANTED_IN_SHARES}
    assert set(re.findall(r"`([a-z-]+)`", rows)) == plants


# Pages of prose with tables of measurements; those that a command writes have their own line.
MEASURED = re.compile(r"\d(?:\.\d+)? ?(?:us|ms|s|MB|GB|MB/s) \|")


def test_a_table_of_figures_is_led_by_its_date() -> None:
    """Or its section is: figures age, and a reader must know from when."""
    undated = []
    for name in ("groups", "reports", "tuning", "operations", "hostile"):
        page = text_of(f"docs/{name}.md").split("<!-- measured")[0]
        for section in re.split(r"^## ", page, flags=re.M):
            tables = [line for line in section.splitlines() if MEASURED.search(line)]
            if len(tables) > 2 and not re.search(r"20\d\d-\d\d-\d\d", section):
                undated.append(f"{name}: {section.splitlines()[0]}")
    assert not undated, "\n".join(undated)
