"""What `kbroker doctor` says of any machine; and of this one, which must at least be looked at."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

import pytest

from kbroker.cli import doctor, listener_checks, machine_checks
from kbroker.cli.main import main
from kbroker.clock import ManualClock, SystemClock
from kbroker.config import BrokerConfig
from kbroker.config.effects import Effects, KnobEffects, Tried
from kbroker.findings.checks import FAILING, NOTE, OK, WARNING, Check, disk, size, status_of
from tests.unit.peer.fake_broker import FakeBroker

LINE_COLUMNS_MAX = 132  # the widest that terminals were made for

MOUNTS = """/dev/sda1 / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
/dev/sdb1 /data xfs rw 0 0
server:/x /data/far\\040away nfs4 rw 0 0
broken
"""


def test_status_is_the_worst() -> None:
    assert status_of([]) == 0
    assert status_of([Check(NOTE, "a", ""), Check(OK, "b", "")]) == 0
    assert status_of([Check(WARNING, "a", ""), Check(OK, "b", "")]) == 1
    assert status_of([Check(WARNING, "a", ""), Check(FAILING, "b", "")]) == 2


@pytest.mark.parametrize(
    ("verdicts", "check"),
    [
        ([FAILING, WARNING, OK], [machine_checks.files(n) for n in (1024, 20_000, 100_000)]),
        ([WARNING, OK], [machine_checks.maps(n) for n in (30_000, 65_530)]),
        ([WARNING, OK, OK], [machine_checks.swap(*n) for n in ((60, 1), (1, 1), (60, 0))]),
        ([WARNING, OK], [machine_checks.write_back(n, "10 %", "64 MB") for n in (6_000, 3_000)]),
        ([NOTE, NOTE, OK], [machine_checks.zstd(n) for n in (0, 10_504, 10_506)]),
        ([WARNING, OK], [machine_checks.clock_source(n) for n in ("hpet", "tsc")]),
        ([WARNING, WARNING, OK], [machine_checks.synchronized(*n)
                                  for n in ((5, 0), (0, 0x40), (0, 0x2001))]),
        ([WARNING, WARNING, OK, OK], [machine_checks.file_system("d", n)
                                      for n in ("tmpfs", "nfs4", "ext4", "")]),
        ([FAILING, WARNING, OK], [machine_checks.fsync_cost("d", n) for n in (None, 51.0, 50.0)]),
        ([FAILING, WARNING, OK], [disk("disk", "d", n, 100) for n in (4, 14, 15)]),
        ([OK, WARNING], [next(listener_checks.backlog(50, n)) for n in (50, 49)]),
    ],
)  # fmt: skip
def test_verdicts(verdicts: list[str], check: list[Check]) -> None:
    assert [each.verdict for each in check] == verdicts
    for each in check:
        assert bool(each.fix) is (each.verdict != OK), "what is not well has its fix in the line"


def test_a_fact_that_the_kernel_does_not_give_is_left_out() -> None:
    assert list(listener_checks.backlog(50, None)) == []
    assert machine_checks.number("/proc/no/such/file") is None
    assert machine_checks.read("/proc/no/such/file") == ""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "ext4"), ("/dev/shm", "tmpfs"), ("/dev/shmoo", "ext4"), ("/data/a/b", "xfs"),
     ("/data/far away/x", "nfs4")],
)  # fmt: skip
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert machine_checks.file_system_of(path, MOUNTS) == kind


def test_a_directory_that_is_yet_to_be_made(tmp_path: Path) -> None:
    checks = machine_checks.look_at_directory(str(tmp_path / "a" / "b"), MOUNTS, SystemClock())
    names = [check.name for check in checks]
    assert [name for name in names if name != "inodes"] == ["disk", "filesystem", "fsync"]
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (check,) = machine_checks.look_at_directory(str(file), MOUNTS, SystemClock())
    assert (check.verdict, check.name) == (FAILING, "directory")


def test_fsync_stops_early_on_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = ManualClock(), []
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append(handle), clock.advance(40)))
    assert machine_checks.measure_fsync_ms(str(tmp_path), clock) == 40
    assert len(calls) == 1
    assert machine_checks.measure_fsync_ms("/no/such/directory", clock) is None


def test_listeners() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, FakeBroker() as broker:
        free_address, port = "127.0.0.1", taken.getsockname()[1]
        taken.settimeout(0)
        listeners = ",".join(
            f"{name}://{address}"
            for name, address in {
                "A": f"{free_address}:0",
                "B": f"127.0.0.1:{broker.port}",
                "D": "192.0.2.1:9092",
            }.items()
        )
        protocols = ",".join(f"{name}:PLAINTEXT" for name in "ABD")
        config = BrokerConfig.load(
            None,
            {},
            [
                f"listeners={listeners}",
                f"listener.security.protocol.map={protocols}",
                "inter.broker.listener.name=A",
            ],
        )
        checks = list(listener_checks.bindable(config.listeners.listeners, SystemClock()))
        assert [check.verdict for check in checks] == [OK, OK, FAILING]
        assert "a broker answers there" in checks[1].seen
        assert "Cannot assign requested address" in checks[2].seen
        assert listener_checks.try_to_bind("127.0.0.1", port, ipv6=False) == errno.EADDRINUSE
        assert listener_checks.try_to_bind("no-such-host.invalid", 1, ipv6=False) == -1


def test_a_port_that_something_else_has() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        config = BrokerConfig.load(None, {}, [f"listeners=PLAINTEXT://127.0.0.1:{port}"])
        (check,) = listener_checks.bindable(config.listeners.listeners, SystemClock())
    assert (check.verdict, "something else" in check.seen) == (FAILING, True)


def test_advertised_names() -> None:
    values = [
        "listeners=PLAINTEXT://127.0.0.1:9092",
        "advertised.listeners=PLAINTEXT://no-such-host.invalid:9",
    ]
    (check,) = listener_checks.advertised(BrokerConfig.load(None, {}, values).listeners)
    assert check.verdict == FAILING and check.fix.startswith("advertised.listeners=PLAINTEXT://")
    (check,) = listener_checks.advertised(BrokerConfig.load(None, {}, values[:1]).listeners)
    assert check.verdict == OK


def test_settings() -> None:
    (check,) = doctor.settings(BrokerConfig.load(None, {}, ["node.id=4"]))
    assert check.verdict == OK
    (check,) = doctor.settings(BrokerConfig.load(None, {}, ["nodde.id=4"]))
    assert check.verdict == WARNING and "node.id" in check.seen + check.fix


def test_the_documents_values_are_notes() -> None:
    notes = list(doctor.documents(BrokerConfig.load(None, {}, ["num.io.threads=3"]), None))
    assert {note.verdict for note in notes} == {NOTE}
    assert any(note.seen.startswith("num.io.threads is 3; document 004: disks") for note in notes)


def test_measured_effects_stand_beside_the_settings() -> None:
    def knob(name: str, key: str, document: str, **values: str) -> KnobEffects:
        tried = tuple(Tried(v.strip("_"), words, True) for v, words in values.items())
        return KnobEffects(name, key, "8", document, tried)

    measured = Effects(
        "2 x Processor",
        "2026-11-22",
        (
            knob("num.io.threads", "num.io.threads", "2", _2="CPU x0.90", _3="p99 x2.00"),
            knob("compression.type@producer", "compression.type", "lz4", lz4="CPU x3.00"),
            knob("socket.send.buffer.bytes", "socket.send.buffer.bytes", "", _1="p99 x9.00"),
            KnobEffects("num.replica.fetchers", "num.replica.fetchers", "", "", (), "not yet"),
            knob("key.of.another.version", "key.of.another.version", "", _1="p99 x9.00"),
        ),
    )
    config = BrokerConfig.load(None, {}, ["num.io.threads=3"])
    notes = list(doctor.documents(config, measured))
    seen = [note.seen for note in notes]

    def about(key: str) -> str:
        (note,) = [note for note in notes if note.seen.startswith(f"{key} is ")]
        return note.more

    assert about("num.io.threads").endswith(
        "Measured: 2 instead of 8: CPU x0.90 | with 3: p99 x2.00."
    )
    assert about("compression.type").endswith(
        "Measured, set in the producer: lz4 instead of 8: CPU x3.00."
    )
    assert about("num.replica.fetchers").endswith("Not measured: not yet.")
    assert any(
        line.startswith("num.replica.fetchers is 1; document 004: CPUs / 4; not measured")
        for line in seen
    )
    assert "num.io.threads is 3; document 004: disks x 2; measured: an effect" in seen
    assert about("socket.send.buffer.bytes").endswith("1 instead of 8: p99 x9.00.")
    assert not any("key.of.another.version" in line for line in seen)
    assert "2 x Processor, 2026-11-22" in seen[-1]


@pytest.mark.parametrize(
    ("words", "decided", "brief"),
    [
        ("CPU x1.91", True, "measured: an effect"),
        ("no effect found: CPU within 4%", False, "measured: no effect found"),
        ("cannot be decided here: CPU within x2.2", False,
         "measured: cannot be decided here"),
    ],
)  # fmt: skip
def test_an_unproved_effect_is_not_called_none(words: str, decided: bool, brief: str) -> None:
    knob = KnobEffects("k", "k", "8", "", (Tried("2", words, decided),))
    assert knob.brief() == brief
    assert ("cannot be decided" in knob.line("8")) == ("cannot be decided" in words)


def test_a_note_is_a_line_and_details_come_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["doctor", "--override", f"log.dirs={tmp_path}", "-b", "127.0.0.1:1"]
    words += ["--override", "listeners=PLAINTEXT://127.0.0.1:0"]
    main(words)
    brief = [line for line in capsys.readouterr().out.splitlines() if line.startswith(NOTE)]
    assert len(brief) > 10
    long = [line for line in brief if len(line) > LINE_COLUMNS_MAX]
    assert not long, f"no line of a terminal: {long}"
    assert any("--notes" in line for line in brief), "where the rest is"
    main([*words, "--notes"])
    whole = [line for line in capsys.readouterr().out.splitlines() if line.startswith(NOTE)]
    assert len(whole) == len(brief)
    assert all(line.startswith(short) for line, short in zip(whole, brief, strict=True))
    assert any("instead of" in line for line in whole)
    assert not any("instead of" in line for line in brief)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "--override", f"log.dirs={tmp_path}", "-o", "json"]
    words += ["--override", "listeners=PLAINTEXT://127.0.0.1:0"]
    with FakeBroker() as broker:
        broker.add_topic("")  # the fake broker's only resource without a name of its own
        status = main([*words, "-b", broker.bootstrap])
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == {0: "ok", 1: "warning", 2: "failing"}[status]
    names = {check["name"] for check in document["checks"]}
    assert names >= {"files", "disk", "fsync", "listener", "settings", "round trip", "tuning"}
    status = main([*words, "-b", "127.0.0.1:1"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    (cluster,) = (check for check in checks if check["name"] == "cluster")
    assert status >= 1 and "Connection refused" in cluster["seen"]


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (15 * 2**30, "15 GB"), (2**60, "1024 PB")],
)
def test_sizes(count: int, words: str) -> None:
    assert size(count) == words
