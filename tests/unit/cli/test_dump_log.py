"""`kbroker dump-log` through its entry point, over the files of a log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.cli.main import main
from tests.support.led_log import open_led_log
from tests.support.record_batches import Record, build_batch

Run = Callable[..., tuple[int, str, str]]
AT_MS = 1_700_000_000_123


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a partition in a data directory: three records in two batches."""
    path = tmp_path / "words-0"
    log = open_led_log(path, "words", 0, uuid.UUID(int=5), {})
    log.set_leadership(1, True, 4, 1)
    log.append(build_batch([Record(b"one", b"k", AT_MS, [(b"h", b"x")]), Record(b"\xff", None, 0)]))
    log.append(
        build_batch([Record(None, b"k")], codec="lz4", producer_id=7, producer_epoch=1,
                    base_sequence=0)
    )  # fmt: skip
    log.close()
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def kbroker(*words: object) -> tuple[int, str, str]:
        status = main(["dump-log", *map(str, words)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return kbroker


def test_batches_of_a_file(run: Run, directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    status, out, err = run(path)
    assert (status, err) == (0, "")
    head, first, second = out.splitlines()
    assert head == f"{path}  {path.stat().st_size} bytes"
    assert first.startswith("  first 0  last 1  count 2  position 0  bytes ")
    assert "  epoch 4  codec none  time 2023-11-14T22:13:20.123Z  crc " in first
    assert "codec lz4" in second
    assert second.endswith("  producer 7  producer_epoch 1  sequence 0")


def test_records_as_json(run: Run, directory: Path) -> None:
    status, out, err = run("--records", "-J", directory / f"{0:020d}.log")
    assert (status, err) == (0, "")
    first, second = map(json.loads, out.splitlines())
    assert first["records"] == [
        {"offset": 0, "time": "2023-11-14T22:13:20.123Z", "key": "k", "value": "one",
         "headers": {"h": "x"}},
        {"offset": 1, "time": "1970-01-01T00:00:00.000Z", "key": None, "value": "\\xff"},
    ]  # fmt: skip
    assert [record["value"] for record in second["records"]] == [None]


def test_a_directory_with_all_its_files(run: Run, directory: Path) -> None:
    status, out, err = run("--records", directory.parent)
    assert (status, err) == (0, "")
    listed = [line.split("  ")[0] for line in out.splitlines() if not line.startswith(" ")]
    assert [Path(name).name for name in listed] == sorted(
        path.name for path in directory.iterdir() if path.is_file()
    )
    assert '    offset 0  time 2023-11-14T22:13:20.123Z  key "k"  value "one"' in out
    assert "  epoch 4  from 0\n" in out
    assert "  topic_id AAAAAAAAAAAAAAAAAAAABQ\n" in out
    assert "  producer_id 7  " in out


def test_verify_prints_the_contents_and_the_damage(run: Run, directory: Path) -> None:
    sound = "words-0: sound; records 3, batches 2, segments 1, from offset 0 to before 3\n"
    assert run("--verify", directory) == (0, sound, "")
    assert run("--verify", directory.parent) == (0, sound, "")
    path = directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    status, out, err = run("--verify", directory)
    assert status == 1
    assert out.startswith("words-0: damaged; records 2, ")
    assert err.startswith(f"error: {path}: offset 2, byte ")
    status, out, _ = run("--verify", "-J", directory)
    (damage,) = json.loads(out)["damage"]
    assert (status, damage["file"], damage["offset"]) == (1, str(path), 2)
    status, out, err = run(path)
    assert (status, len(out.splitlines())) == (1, 2)  # the name, and the batch that is whole
    assert "offset 2" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "there is no such file"),
        (["--verify", "--records", "."], "--verify prints no records"),
        ([__file__], "is no file that can be printed"),
        (["--verify", __file__], "--verify takes the directory"),
    ],
)
def test_wrong_usage(run: Run, words: list[str], said: str) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert said in err


def test_a_name_that_is_no_segments(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "words.log"
    path.write_bytes(b"")
    status, _, err = run(path)
    assert status == 1
    assert "20 digits" in err
