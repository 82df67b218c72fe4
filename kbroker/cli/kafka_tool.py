"""What the commands with the options of Apache Kafka's tools share: `kbroker kafka-topics`.

Place in the flow: scripts that were written for the original's `kafka-topics.sh` run with
`kbroker kafka-topics`. Their options, lines on standard output and exit statuses are the same,
which `tests/clients/test_kafka_tools.py` and `test_kafka_admin_tools.py` hold beside the original.
A command that no such test holds is not here. Text about usage is ours, and no stack trace follows
an error.

Settings are judged by the broker, in its words. The status of an error is 1, unless it is another
one in the original.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from kbroker.cli.output import say, say_to_programs
from kbroker.errors import ErrorCode, KafkaError, UserError

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.types import TopicPartition

Name = TypeVar("Name")

FAILED: Final = 1
TIMEOUT_MS: Final = 30_000
_IN_ORDER: Final = "kbroker.options"
_HASH_BITS: Final = 0xFFFFFFFF
_FIRST_BUCKETS: Final = 16
_LOAD: Final = 0.75
_SPECIAL: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class KafkaTool(click.Command):
    """`subject` is in the line of an error on standard output, "Error while executing SUBJECT : ".
    Without one the error is on standard error, after the words `before`. As in the original, words
    that belong to no option are left out of account, and an option has one value."""

    allow_extra_args = True
    repeated_error: type[UserError] = UserError  # of an option that has two values

    def __init__(self, *arguments: Any, subject: str = "", before: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._subject: Final = subject
        self._before: Final = before

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            given = self.make_parser(ctx).parse_args(list(args))[2]
            self._refuse_repeated(given)
            ctx.meta[_IN_ORDER] = [each.name for each in given]
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            refuse(f"{self._before}{error.option_name.lstrip('-')} is not a recognized option")
        except click.BadOptionUsage as error:
            name = error.option_name.lstrip("-")
            refuse(f"{self._before}Option {name} requires an argument")
        except click.UsageError as error:
            refuse(self._before + error.format_message())

    def _refuse_repeated(self, given: Sequence[click.Parameter]) -> None:
        for each in given:
            is_one = isinstance(each, click.Option) and not (each.is_flag or each.multiple)
            if is_one and given.count(each) > 1:
                name = each.opts[0].lstrip("-")
                error = self.repeated_error(
                    f"Found multiple arguments for option {name}, but you asked for only one"
                )
                raise click.exceptions.Exit(self.failed(error))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KafkaError, UserError) as error:
            return self.failed(error)

    def failed(self, error: KafkaError | UserError) -> int:
        """Prints the line of an error; the status."""
        if self._subject:
            say_to_programs(f"Error while executing {self._subject} : {text_of(error)}")
        else:
            text = str(error) if isinstance(error, KafkaError) else text_of(error)
            say(self._before + text, err=True)
        return FAILED


def field_of(option: str) -> str:
    """The name of an option's value among all."""
    return option.replace("-", "_").replace(".", "_")


def option(name: str, metavar: str, words: str, **more: Any) -> click.Option:
    """An option with a value."""
    return click.Option([f"--{name}", field_of(name)], metavar=metavar, help=words, **more)


def flag(name: str, words: str) -> click.Option:
    """An option without a value."""
    return click.Option([f"--{name}", field_of(name)], is_flag=True, help=words)


def in_order(*names: str) -> list[str]:
    """Which of these options of the running command were given, in the order of its line."""
    given: list[str] = click.get_current_context().meta[_IN_ORDER]
    return [each for each in given if each in names]


def given_of(options: Mapping[str, Any]) -> frozenset[str]:
    """The names of the options that are there."""
    return frozenset(
        name.replace("_", "-")
        for name, value in options.items()
        if value is not None and value is not False and value != ()
    )


def refuse(message: str) -> NoReturn:
    """Wrong usage: the line on standard error, and the status."""
    say(message, err=True)
    raise click.exceptions.Exit(FAILED)


def text_of(error: KafkaError | UserError) -> str:
    if isinstance(error, UserError):
        return error.message
    if error.message == error.code.name:
        return words_of(error.code)
    return error.message


def words_of(code: ErrorCode) -> str:
    """Of an error without a message of the broker."""
    return _WORDS.get(code, code.name)


def exception_of(code: ErrorCode, words: str = "") -> str:
    """As Java prints the exception of an error, with these words or its own."""
    name = _CLASSES.get(code)
    if name is None:
        parts = code.name.removesuffix("_FAILED").removesuffix("_EXCEPTION").split("_")
        name = "".join(part.capitalize() for part in parts)
    return f"org.apache.kafka.common.errors.{name}Exception: {words or words_of(code)}"


def fail(message: str) -> NoReturn:
    """An error after the options were read, in the line that `invoke` prints."""
    raise UserError(message)


def connected(
    bootstrap: str,
    command_config: str | None,
    properties: Mapping[str, str] | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
) -> Client:
    """A client with the login of Apache Kafka's --command-config, or of these properties, which
    are of that file and of options."""
    from kbroker.peer.client import Client

    login = None
    if properties:
        from kbroker.cli.command_config import login_of_settings

        login = login_of_settings(command_config or "--command-property", properties)
    elif command_config is not None:
        from kbroker.cli.command_config import login_of_file

        login = login_of_file(command_config)
    return Client(bootstrap, login=login, timeout_ms=timeout_ms)


def topic_expression(text: str) -> re.Pattern[str]:
    """A regular expression, or several with commas between them; quotes around it are dropped."""
    plain = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(plain)
    except re.error:
        fail(f"{plain} is an invalid regex.")


def properties_of(texts: Iterable[str]) -> dict[str, str]:
    """Of options that are given as NAME=VALUE."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            refuse(f"Missing value for key {name}")
        found[name] = value
    return found


# Texts of codes that brokers send without a message, in the words of Apache Kafka's clients.
_WORDS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the"
    " consumer group is actively subscribed to it.",
    ErrorCode.INVALID_GROUP_ID: "The configured groupId is invalid.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets"
    " maintained by the server.",
    ErrorCode.POLICY_VIOLATION: "Request parameters do not satisfy the configured policy.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member.",
    ErrorCode.LEADER_NOT_AVAILABLE: "There is no leader for this topic-partition as we are in the"
    " middle of a leadership election.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
}

# Names that do not follow from those of the codes.
_CLASSES: Final = {
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmpty",
    ErrorCode.REQUEST_TIMED_OUT: "Timeout",
}


# --- as Java prints ------------------------------------------------------------------------------


def java_hash(text: str) -> int:
    """`String.hashCode`, of UTF-16 units, without its sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & _HASH_BITS
    return value


def in_hash_order(
    names: Iterable[Name],
    hash_of: Callable[[Any], int] = java_hash,
    *,
    size: int = _FIRST_BUCKETS,
) -> Iterator[Name]:
    """As a `HashMap` with these keys is walked, into which they were put in this order: several
    tools print settings so. `size` is what it was made for. Buckets of more than eight keys would
    be trees; so many do not meet among the names of settings."""
    put = list(dict.fromkeys(names))
    buckets = 1 << max(size - 1, 0).bit_length()
    while len(put) > buckets * _LOAD:
        buckets *= 2
    placed: list[list[Name]] = [[] for _ in range(buckets)]
    for name in put:
        value = hash_of(name) & _HASH_BITS
        placed[(value ^ (value >> 16)) & (buckets - 1)].append(name)
    for bucket in placed:
        yield from bucket


def partition_hash(where: TopicPartition) -> int:
    """`TopicPartition.hashCode`."""
    return 31 * (31 + where.partition) + java_hash(where.topic)


def java_double(value: float) -> str:
    """`Double.toString`."""
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return _SPECIAL.get(str(value), str(value))
    mantissa, _, power = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(power)}"
