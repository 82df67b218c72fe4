"""The tree of verbs: which module holds which command, known without importing any of them.

A `LazyGroup` knows its commands by name, module and one line of help. `kbroker --help` prints those
lines from here; a command's module is imported when the command runs or shows its own help. Each
module offers its click command as the attribute `command`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kbroker import __version__
from kbroker.errors import InvariantError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Verb(NamedTuple):
    """Where a command lives, and its line in the overview."""

    module: str
    help: str


VERBS: Final[dict[str, Verb]] = {
    "start": Verb("kbroker.cli.start", "Run a broker in the foreground."),
    "topic": Verb("kbroker.cli.topic", "Create, list, describe and delete topics."),
    "produce": Verb("kbroker.cli.produce", "Write records to a topic."),
    "consume": Verb("kbroker.cli.consume", "Read records from a topic."),
    "partition": Verb("kbroker.cli.partition", "Move partitions to other brokers; elect leaders."),
    "group": Verb("kbroker.cli.group", "List, describe, reset and delete consumer groups."),
    "share": Verb("kbroker.cli.share", "Explain what share groups did with a record."),
    "txn": Verb("kbroker.cli.txn", "List, describe and explain transactions."),
    "user": Verb("kbroker.cli.user", "Add, list and delete users who log in with SCRAM."),
    "token": Verb("kbroker.cli.token", "Create, list, renew and remove delegation tokens."),
    "secure": Verb("kbroker.cli.secure", "Make brokers with TLS, users and ACLs."),
    "acl": Verb("kbroker.cli.acl", "List, add, remove and explain ACLs: who may do what."),
    "quota": Verb("kbroker.cli.quota", "Show and change quotas of users, clients and addresses."),
    "config": Verb("kbroker.cli.config", "Explain keys; show and change settings."),
    "offsets": Verb("kbroker.cli.offsets", "Show where the logs of partitions begin and end."),
    "backup": Verb("kbroker.cli.backup", "Save a broker that serves; restore it."),
    "metadata": Verb("kbroker.cli.metadata", "Take the metadata of one node to ZooKeeper."),
    "logdirs": Verb("kbroker.cli.logdirs", "Show what partitions take on the disks."),
    "logdir": Verb("kbroker.cli.logdir", "Move logs between data directories; take others over."),
    "explain": Verb("kbroker.cli.explain", "Show where a record lies and who may read it."),
    "dump-log": Verb("kbroker.cli.dump_log", "Print or check the files of a log, offline."),
    "why": Verb("kbroker.cli.why", "Name what is in the way of a group, a topic, a partition."),
    "health": Verb("kbroker.cli.health", "Say whether the cluster can be used; wait until it can."),
    "top": Verb("kbroker.cli.top", "Show rates, partitions, groups and lag, live."),
    "doctor": Verb("kbroker.cli.doctor", "Look for trouble: limits, disks, clock, listeners."),
    "generate": Verb("kbroker.cli.generate", "Write files for Prometheus, Grafana, shells, man."),
    "perf": Verb("kbroker.cli.perf", "Measure: load, latency, limits, comparison."),
    "version": Verb("kbroker.cli.version", "Print the version."),
    "kafka-topics": Verb("kbroker.cli.kafka_topics", "As Apache Kafka's kafka-topics.sh."),
    "kafka-acls": Verb("kbroker.cli.kafka_acls", "As Apache Kafka's kafka-acls.sh."),
    "kafka-configs": Verb("kbroker.cli.kafka_configs", "As Apache Kafka's kafka-configs.sh."),
    "kafka-consumer-groups": Verb(
        "kbroker.cli.kafka_consumer_groups", "As Apache Kafka's kafka-consumer-groups.sh."
    ),
    "kafka-delete-records": Verb(
        "kbroker.cli.kafka_delete_records", "As Apache Kafka's kafka-delete-records.sh."
    ),
    "kafka-get-offsets": Verb(
        "kbroker.cli.kafka_get_offsets", "As Apache Kafka's kafka-get-offsets.sh."
    ),
    "kafka-console-consumer": Verb(
        "kbroker.cli.kafka_console_consumer", "As Apache Kafka's kafka-console-consumer.sh."
    ),
    "kafka-console-producer": Verb(
        "kbroker.cli.kafka_console_producer", "As Apache Kafka's kafka-console-producer.sh."
    ),
}  # fmt: skip


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def __init__(self, *arguments: Any, verbs: Mapping[str, Verb], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._verbs: Final = dict(verbs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self._verbs.get(cmd_name)
        if verb is None:
            return None
        command = getattr(import_module(verb.module), "command", None)
        if not isinstance(command, click.Command):
            raise InvariantError(f"{verb.module} offers no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._verbs and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self._verbs, n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            ctx.fail(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands with their lines, without importing them, and options."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=verb.help)
            for name, verb in self._verbs.items()
            if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in self._verbs.items()])


def root() -> click.Group:
    """The command `kbroker` itself."""
    version = click.version_option(
        __version__, message="%(prog)s %(version)s", help="Print the version."
    )
    group = LazyGroup(
        "kbroker",
        verbs=VERBS,
        help="A message broker that speaks the Apache Kafka wire protocol.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    return version(group)
