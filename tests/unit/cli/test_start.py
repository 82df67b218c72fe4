"""`kbroker start`: both parsers agree, and the broker gets what was asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kbroker.cli import start
from kbroker.cli.main import main
from kbroker.cli.start_arguments import OPTIONS, StartArguments, parse_plain
from kbroker.config import BrokerConfig
from kbroker.errors import UsageError


class FakeBroker(ModuleType):
    """Replaces kbroker.server.running and remembers how it was run."""

    def __init__(self) -> None:
        super().__init__("kbroker.server.running")
        self.calls: list[tuple[BrokerConfig, dict[str, Any]]] = []

    def run(self, config: BrokerConfig, **options: Any) -> int:
        self.calls.append((config, options))
        return 0


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    fake = FakeBroker()
    monkeypatch.setitem(sys.modules, "kbroker.server.running", fake)
    for variable in ("KAFKA_NUM_IO_THREADS", "KBROKER_NUM_IO_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    return fake


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], StartArguments()),
        (["f"], StartArguments(file="f")),
        (["--port", "0"], StartArguments(port=0)),
        (["--port=65535"], StartArguments(port=65535)),
        (["--data-dir", "d", "f"], StartArguments(file="f", data_dir="d")),
        (["--ready-file=r"], StartArguments(ready_file="r")),
        (["--log-format", "json"], StartArguments(log_format="json")),
        (["--override", "a=b", "--override=c=d"], StartArguments(overrides=("a=b", "c=d"))),
        (["--override", "a=--x"], StartArguments(overrides=("a=--x",))),
    ],
)
def test_the_two_parsers_agree(
    words: list[str], arguments: StartArguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parse_plain(words) == arguments
    seen: list[StartArguments] = []
    monkeypatch.setattr(start, "run_start", lambda given: seen.append(given) or 0)
    start.command.main(args=words, standalone_mode=False)
    assert seen == [arguments]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h"],
        ["--no-such"],
        ["--port"],
        ["--port", "x"],
        ["--port", "65536"],
        ["--port", "٣"],
        ["--port", "1", "--port", "2"],
        ["--log-format", "xml"],
        ["--data-dir", ""],
        ["one", "two"],
        ["--", "f"],
    ],
)
def test_arguments_that_are_not_plain_are_left_to_click(words: list[str]) -> None:
    assert parse_plain(words) is None


def test_every_option_has_a_field() -> None:
    assert {option.field for option in OPTIONS} == set(StartArguments._fields) - {"file"}


def test_defaults_reach_the_broker(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    assert main(["start"]) == 0
    ((config, options),) = broker.calls
    assert options.pop("serve_admin") is start.serve_admin
    assert options == {"data_dir": "/home/user/.local/share/kbroker", "ready_file": None}
    assert config["logging.format"] == "text"


def test_everything_at_once(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=2\nqueued.max.requests=2\nlog.dirs=/elsewhere\n")
    monkeypatch.setenv("KAFKA_NUM_IO_THREADS", "3")
    monkeypatch.chdir(tmp_path)
    words = ["start", str(file), "--port", "0", "--data-dir", "data", "--ready-file", "ready"]
    words += ["--override", "num.partitions=4", "--log-format", "json"]
    assert main(words) == 0
    ((config, options),) = broker.calls
    del options["serve_admin"]
    assert options == {"data_dir": str(tmp_path / "data"), "ready_file": str(tmp_path / "ready")}
    assert config.log_dirs == (str(tmp_path / "data"),)
    assert config["num.io.threads"] == 3
    assert config["queued.max.requests"] == 2
    assert config["num.partitions"] == 4
    assert config["logging.format"] == "json"
    assert [(one.host, one.port) for one in config.listeners.listeners] == [
        ("127.0.0.1", 0),
        ("::1", 0),
    ]
    assert config.origin("listeners") == "--port"


def test_the_brokers_status_is_the_commands(broker: FakeBroker) -> None:
    broker.run = lambda config, **options: 143  # type: ignore[method-assign]
    assert main(["start"]) == 143
    assert main(["start", "--", "--no-file"]) == 3


def test_port_needs_one_listener_name() -> None:
    config = BrokerConfig.load(
        overrides=[
            "listeners=A://:1,B://:2",
            "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
        ]
    )
    with pytest.raises(UsageError, match="A, B"):
        start.with_port(config, 9)


def test_a_comma_in_the_data_directory() -> None:
    with pytest.raises(UsageError, match="comma"):
        start.build_config(StartArguments(data_dir="a,b"))


def test_unknown_attribute_of_the_module() -> None:
    with pytest.raises(AttributeError):
        start.no_such_name  # noqa: B018
