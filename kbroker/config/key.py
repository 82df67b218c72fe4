"""One row of the configuration table: a key, its type, its default and what it may hold.

A `ConfigKey` is data. Parsing a text into a typed value, saying which values are allowed and
writing a value back as Kafka's tools expect it are functions of the row alone, so that
server.properties, environment, command line, CreateTopics and DescribeConfigs cannot disagree.

Level: config, which knows only level 0. Everything here is immutable; any thread may use it.
The numbers of `ConfigType` and `ConfigSource` travel in DescribeConfigs answers
(https://kafka.apache.org/protocol, DescribeConfigs) and never change.

It never reads a file, looks at the environment or imports anything slow. The table is built
while a broker starts, and the whole package has 25 ms for that.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple


class ConfigType(IntEnum):
    """What a value is, by the number that DescribeConfigs uses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, by the number that DescribeConfigs uses."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Dynamic(Enum):
    """How a broker key may change while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


# Short names, since the table says them a few hundred times.
BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD
READ_ONLY: Final = Dynamic.READ_ONLY
PER_BROKER: Final = Dynamic.PER_BROKER
CLUSTER_WIDE: Final = Dynamic.CLUSTER_WIDE

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

_BOUNDS: Final = {
    SHORT: (-(2**15), 2**15 - 1),
    INT: (-(2**31), INT_MAX),
    LONG: (-(2**63), LONG_MAX),
}
_NUMBER_WORDS: Final = {
    SHORT: "a 16-bit integer",
    INT: "an integer",
    LONG: "a 64-bit integer",
    DOUBLE: "a number",
}


class _Same(Enum):
    """The marker for "Apache Kafka has the same default"."""

    SAME = "same"


SAME: Final = _Same.SAME


class ConfigKey(NamedTuple):
    """A row of the table.

    `default` is typed (None: unset). `kafka` is the default of Apache Kafka 4.3 where ours
    differs, as its tools print it (None: unset there; "-": the key is ours alone).
    `clustered` is the default where `zookeeper.connect` is set (None: the same).
    `default_words` explains a default that depends on the machine or on other keys. `low` and
    `high` bound numbers, `also` lists values outside those bounds, `choices` bounds texts and list
    elements.
    `check` returns what is wrong, or None; `check_words` says what it lets through.
    `supported` says that setting the key has an effect in this version.
    """

    name: str
    type: ConfigType
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    also: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    ignore_case: bool = False
    check: Callable[[Any], str | None] | None = None
    check_words: str = ""
    dynamic: Dynamic = READ_ONLY
    supported: bool = False
    kafka: str | _Same | None = SAME
    default_words: str = ""
    clustered: Any = None
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is PASSWORD

    @property
    def own(self) -> bool:
        """True for a key that Apache Kafka 4.3 does not have."""
        return self.kafka == "-"


class InvalidValue(Exception):
    """A text that is not a value of its key; `allowed` says what would be."""

    def __init__(self, key: ConfigKey, text: str | None, allowed: str) -> None:
        super().__init__(key.name, text, allowed)
        self.key = key
        self.text = text
        self.allowed = allowed


def allowed_values(key: ConfigKey) -> str:
    """The values that `key` accepts, in words: for error lines, help and docs."""
    if key.check_words:
        return key.check_words
    if key.choices:
        listed = ", ".join(key.choices)
        return f"a comma-separated list of {listed}" if key.type is LIST else f"one of {listed}"
    if key.type is BOOLEAN:
        return "true or false"
    if key.type in _NUMBER_WORDS:
        return _number_words(key)
    return "a comma-separated list" if key.type is LIST else "any text"


def _number_words(key: ConfigKey) -> str:
    words = _NUMBER_WORDS[key.type]
    if key.type is INT and key.low is None:
        words = "a 32-bit integer"
    if key.low is not None and key.high is not None:
        words += f" from {key.low} to {key.high}"
    elif key.low is not None:
        words += f" of at least {key.low}"
    return words + "".join(f", or {value}" for value in key.also)


def parse_value(key: ConfigKey, text: str) -> Any:
    """The typed value that `text` means for `key`; raises InvalidValue and nothing else.

    Lists come back as tuples, so that a parsed configuration is immutable.
    """
    stripped = text if key.type is PASSWORD else text.strip()
    value: Any = stripped
    if key.type is BOOLEAN:
        value = {"true": True, "false": False}.get(stripped.lower())
        if value is None:
            raise InvalidValue(key, text, allowed_values(key))
    elif key.type in _NUMBER_WORDS:
        value = _parse_number(key, stripped)
    elif key.type is LIST:
        value = tuple(part.strip() for part in stripped.split(",")) if stripped else ()
        if key.choices:
            value = tuple(dict.fromkeys(value))  # where order says nothing, a part counts once
        if "" in value or (key.check is None and len(set(value)) != len(value)):
            raise InvalidValue(key, text, f"{allowed_values(key)}, without empty or repeated parts")
    _check_choices(key, text, value)
    if key.check is not None:
        problem = key.check(value)
        if problem is not None:
            raise InvalidValue(key, text, problem)
    return value


def _parse_number(key: ConfigKey, text: str) -> int | float:
    try:
        # int() would also take "1_000", other scripts' digits and surrounding blanks.
        if not text.isascii() or "_" in text:
            raise ValueError(text)
        number: int | float = float(text) if key.type is DOUBLE else int(text)
    except ValueError:
        raise InvalidValue(key, text, allowed_values(key)) from None
    if number in key.also:
        return number
    low, high = _BOUNDS.get(key.type, (-DOUBLE_MAX, DOUBLE_MAX))
    low = low if key.low is None else key.low
    high = high if key.high is None else key.high
    if not low <= number <= high:  # also refuses NaN
        raise InvalidValue(key, text, allowed_values(key))
    return number


def _check_choices(key: ConfigKey, text: str, value: Any) -> None:
    if not key.choices:
        return
    choices = {choice.lower() for choice in key.choices} if key.ignore_case else set(key.choices)
    for part in value if key.type is LIST else (value,):
        if (part.lower() if key.ignore_case else part) not in choices:
            raise InvalidValue(key, text, allowed_values(key))


def format_value(key: ConfigKey, value: Any) -> str | None:
    """`value` as Kafka's own tools print it; None stays None."""
    if value is None:
        return None
    if key.type is BOOLEAN:
        return "true" if value else "false"
    if key.type is LIST:
        return ",".join(value)
    if key.type is DOUBLE:
        return _format_double(float(value))
    return str(value)


def _format_double(number: float) -> str:
    """Java's notation, which clients that compare with Apache Kafka's answers expect."""
    text = repr(number)
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
