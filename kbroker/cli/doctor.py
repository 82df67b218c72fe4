"""`kbroker doctor`: is this machine, this configuration and this cluster fit for a broker.

One line for each thing that was looked at; what is not well has its fix in the line. Reads the
configuration as `kbroker start` would, asks the machine, tries the listeners, and asks the cluster
if one answers: each broker, and what several must agree in. Changes nothing; one small temporary
file is made durable in each data directory.

The lines "note" compare the settings that the documents about the system name with ours, in brief;
`--notes` says of each why, and what other values change, as it was measured.
Status 0 ok, 1 warning, 2 failing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from kbroker.cli import cluster_checks
from kbroker.cli.certificate_checks import certificates
from kbroker.cli.checks import report
from kbroker.cli.connect import bootstrap_option, connect
from kbroker.cli.listener_checks import (
    ANSWER_TIMEOUT_MS,
    admin_ports,
    advertised,
    backlog,
    bindable,
    round_trips,
)
from kbroker.cli.machine_checks import machine, number
from kbroker.cli.output import output_option
from kbroker.clock import Clock, SystemClock
from kbroker.config import BROKER_KEYS, BrokerConfig
from kbroker.config.documents import BROKER_VALUES
from kbroker.config.effects import Effects, KnobEffects
from kbroker.config.effects import load as load_effects
from kbroker.config.key import format_value
from kbroker.findings.checks import NOTE, OK, WARNING, Check

# Whose setting it is, where it is not this broker's.
_WHERE = {"producer": ", set in the producer", "kafka": " in Apache Kafka"}


@click.command("doctor")
@click.option("--config", "file", metavar="FILE", help="The server.properties file to read.")
@click.option("--override", "overrides", metavar="KEY=VALUE", multiple=True, help="As for start.")
@click.option("--notes", is_flag=True, help="All that is known of each setting, not in brief.")
@bootstrap_option
@output_option
def command(
    file: str | None, overrides: tuple[str, ...], notes: bool, bootstrap: str, output: str
) -> int:
    """Look for trouble: limits, disks, clock, listeners, settings; one line each, with the fix."""
    config = BrokerConfig.load(file, os.environ, overrides)
    return report(list(_checks(config, bootstrap, SystemClock())), output, more=notes)


def _checks(config: BrokerConfig, bootstrap: str, clock: Clock) -> Iterator[Check]:
    yield from machine(config.log_dirs, clock)
    yield from bindable(config.listeners.listeners, clock)
    yield from admin_ports(config.admin_listeners)
    yield from advertised(config.listeners)
    yield from certificates(config, clock)
    yield from backlog(
        int(config["socket.listen.backlog.size"]), number("/proc/sys/net/core/somaxconn")
    )
    yield from settings(config)
    yield from cluster_checks.joining(config)
    with connect(bootstrap, timeout_ms=ANSWER_TIMEOUT_MS) as client:
        yield from round_trips(client)
        if client.cluster.brokers:
            yield from cluster_checks.cluster(client)
    yield from documents(config, load_effects())


def settings(config: BrokerConfig) -> Iterator[Check]:
    for warning in config.warnings:
        cause, _, fix = warning.partition(" -> ")
        yield Check(WARNING, "settings", cause, fix)
    if not config.warnings:
        yield Check(OK, "settings", f"{len(config.set_names())} are set, each known and in effect")


def documents(config: BrokerConfig, measured: Effects | None) -> Iterator[Check]:
    """Each setting that a document names or that was tried: the document's value, ours, the effect
    of either against the default, as it was measured."""
    tried: dict[str, list[KnobEffects]] = {}
    for knob in measured.knobs if measured is not None else ():
        if knob.key in BROKER_KEYS:
            tried.setdefault(knob.key, []).append(knob)
    for row in BROKER_VALUES:
        if row.key in BROKER_KEYS:
            ours = _ours(config, row.key)
            knobs = tried.pop(row.key, [])
            seen = (
                f"{row.key} is {_short(ours)}; document {row.document}: {row.says}{_brief(knobs)}"
            )
            yield Check(NOTE, "tuning", seen, more=" ".join([row.note, *_effects(knobs, ours)]))
    for key, knobs in tried.items():
        ours = _ours(config, key)
        seen = f"{key} is {_short(ours)}{_brief(knobs)}"
        yield Check(NOTE, "tuning", seen, more=" ".join(_effects(knobs, ours)))
    if measured is not None:
        yield Check(
            NOTE,
            "tuning",
            f"measured on {measured.machine}, {measured.date}; kbroker doctor --notes says what",
            more="One setting was changed at a time; kbroker perf tune measures them here.",
        )


def _ours(config: BrokerConfig, name: str) -> str:
    value = format_value(BROKER_KEYS[name], config[name])
    return "unset" if value is None else value


def _short(value: str) -> str:
    return "2^63-1" if value == str(2**63 - 1) else value


def _brief(knobs: list[KnobEffects]) -> str:
    """Whether a change of one key showed, in this broker or in a producer; "" if it was not
    measured."""
    lines = dict.fromkeys(f"; {knob.brief()}" for knob in knobs)
    # One that shows anywhere is one to read about.
    return next((one for one in lines if one.endswith("an effect")), next(iter(lines), ""))


def _effects(knobs: list[KnobEffects], ours: str) -> list[str]:
    """What was measured of one key, in sentences."""
    lines = []
    for knob in knobs:
        if knob.why_not:
            lines.append(f"Not measured: {knob.why_not}.")
            continue
        _, _, whose = knob.name.partition("@")
        where = _WHERE.get(whose, "")
        lines.append(f"Measured{where}: {knob.line(ours)}.")
    return lines
