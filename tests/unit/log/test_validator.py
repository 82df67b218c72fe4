"""Batches that the compiled log leaves to Python get the verdict that C would have given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.errors import ErrorCode
from tests.support.led_log import LedLog
from tests.support.record_batches import CODECS, Record, build_batch, compress
from tests.support.verdict import check_batch
from tests.unit.log.test_validation import BROKEN_RECORDS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", BROKEN_RECORDS)
def test_the_same_verdict_as_in_c(log: LedLog, codec: str, name: str) -> None:
    batch = build_batch([b"v"], codec=codec, payload=compress(codec, BROKEN_RECORDS[name]))
    assert check_batch(batch) == log.append_group([batch])[0].error == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_sound_batches(codec: str) -> None:
    batch = build_batch([Record(key=b"k"), Record(key=None)], codec=codec)
    assert check_batch(batch) is ErrorCode.NONE
    assert check_batch(batch, compacted=True) is ErrorCode.INVALID_RECORD


def test_batches_that_are_none() -> None:
    assert check_batch(b"short") is ErrorCode.INVALID_RECORD
    assert check_batch(build_batch(codec="zstd", payload=b"junk")) is ErrorCode.INVALID_RECORD
    assert check_batch(build_batch(attributes=6)) is ErrorCode.INVALID_RECORD


WITHOUT_LIBRARIES = """
import sys, uuid
from pathlib import Path
from tests.support.led_log import open_led_log
from tests.support.verdict import check_batch
from tests.support.record_batches import CODECS, Record, build_batch

log = open_led_log(Path(sys.argv[1]) / "words-0", "words", 0, uuid.UUID(int=1), {})
log.set_leadership(1, True, 0, 1)
left = []
for number, codec in enumerate(CODECS):
    batch = build_batch([Record(timestamp_ms=5), Record(timestamp_ms=10 + number)], codec=codec)
    try:
        log.append(batch)
    except NotImplementedError:
        left.append(codec)
        assert check_batch(batch) == 0
        log.append(batch, prechecked=True)
    assert log.offset_for_time(10 + number) == (2 * number + 1, 10 + number, 0)
    assert log.offset_of_max_timestamp() == (2 * number + 1, 10 + number, 0)
print(*left)
"""


def test_a_machine_without_the_libraries(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARIES, str(tmp_path)],
        env={**os.environ, "KBROKER_WITHOUT_CODECS": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (run.stdout.split(), run.stderr) == (["gzip", "zstd"], "")


SHORT_OF_DESCRIPTORS = """
import os, resource, sys, time, uuid
from pathlib import Path
from tests.support.led_log import open_led_log
from tests.support.record_batches import CODECS, build_batch

log = open_led_log(Path(sys.argv[1]) / "words-0", "words", 0, uuid.UUID(int=1), {})
log.set_leadership(1, True, 0, 1)
log.append(build_batch([b"v"]))  # its files are open
batches = {codec: build_batch([b"v"], codec=codec) for codec in CODECS}
limits = resource.getrlimit(resource.RLIMIT_NOFILE)

def left():
    codecs = []
    for codec, batch in batches.items():
        try:
            log.append(batch)
        except NotImplementedError:
            codecs.append(codec)
    return codecs

resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, limits[1]))
short = left()
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
until = time.monotonic() + 30
while left() and time.monotonic() < until:
    time.sleep(0.1)
print(*short, "then", *left())
"""


def test_a_library_that_could_not_be_loaded_is_looked_for_again(tmp_path: Path) -> None:
    """The first compressed batch may come when descriptors are out; Python validates it then."""
    run = subprocess.run(
        [sys.executable, "-c", SHORT_OF_DESCRIPTORS, str(tmp_path)],
        env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stderr == ""
    short, _, later = run.stdout.partition("then")
    # Python itself may have loaded zlib.
    assert "zstd" in short and not later.strip()
