"""DescribeConfigs (32): topics, the broker, and resources that are refused."""

from __future__ import annotations

from typing import Any

from kbroker.testing.plain import KEEPS_WHAT_IS_OLD
from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.requests import build, raw, tagged
from tests.parity.talk import Talk

VERSIONS = range(1, 5)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32

book = Book()
cases = book.cases


def ask(
    version: int,
    *resources: tuple[int, str, list[str] | None],
    synonyms: bool = False,
    documentation: bool = False,
) -> Any:
    return build(
        ApiKey.DESCRIBE_CONFIGS,
        version,
        include_synonyms=synonyms,
        include_documentation=documentation,
        resources=[
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for kind, name, keys in resources
        ],
    )


@book.case("a topic with synonyms", versions=VERSIONS)
def topic(talk: Talk, version: int) -> None:
    name = talk.topic(configs={"retention.ms": "77"})
    talk.ask(ask(version, (TOPIC, name, None), synonyms=True))


@book.case("some keys", versions=VERSIONS)
def some(talk: Talk, version: int) -> None:
    name = talk.topic(configs={"retention.ms": "77"})
    keys = ["node.id", "num.io.threads", "log.retention.ms", "nope", "ssl.key.password"]
    talk.ask(ask(version, (TOPIC, name, ["retention.ms", "nope"]), (BROKER, "1", keys)))


@book.case("refused", versions=VERSIONS)
def refused(talk: Talk, version: int) -> None:
    talk.ask(
        ask(
            version,
            (TOPIC, talk.name("none"), None),
            (TOPIC, "a b", None),
            (TOPIC, "", None),
            *((BROKER, name, None) for name in ("2", "x", "-1")),
            *((LOGGER, name, None) for name in ("2", "")),
        )
    )


@book.case("every key of a topic", versions=VERSIONS, over={"plain": False, "with help": True})
def whole_topic(talk: Talk, version: int, documentation: bool) -> None:
    own = {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": ".25",
        "preallocate": " TRUE ",
        "segment.bytes": "2000000",
        "leader.replication.throttled.replicas": "0:1,1:1",
        "compression.type": "gzip",
    }
    asked = ask(version, (TOPIC, talk.topic(configs=own), None), documentation=documentation)
    talk.ask(asked)


# Keys that get a new value at every start of a broker, addresses of Apache Kafka's own quorum, and
# settings that keep old records meanwhile.
OF_THIS_START = frozenset(
    {
        *KEEPS_WHAT_IS_OLD,
        *("advertised.listeners", "listeners", "log.dir", "log.dirs"),
        *("controller.listener.names", "controller.quorum.voters", "process.roles"),
        "listener.security.protocol.map",
    }
)


def steady(data: Any) -> Any:
    for result in data["results"]:
        result["configs"] = [c for c in result["configs"] if c["name"] not in OF_THIS_START]
    return data


@book.case("every key of the broker", versions=(1, 4), over={"plain": False, "synonyms": True})
def whole_broker(talk: Talk, version: int, synonyms: bool) -> None:
    talk.ask(ask(version, (BROKER, "1", None), synonyms=synonyms), view=steady)


@book.case("a broker's help is there", versions=range(3, 5))
def broker_help(talk: Talk, version: int) -> None:
    keys = ["num.io.threads", "log.dirs", "ssl.key.password"]
    answer = talk.ask(ask(version, (BROKER, "1", keys), documentation=True), view=steady)
    talk.note("words", [bool(config.documentation) for config in answer.results[0].configs])


@book.case("keys", versions=VERSIONS, over={"none": [], "null": None, "unknown": ["nope"]})
def keys(talk: Talk, version: int, names: list[str] | None) -> None:
    talk.ask(ask(version, (TOPIC, talk.topic(), names), (GROUP, "g", names)))


@book.case("keys twice and in another order", versions=VERSIONS)
def keys_twice(talk: Talk, version: int) -> None:
    names = ["segment.ms", "retention.ms", "retention.ms", "", "SEGMENT.MS"]
    talk.ask(ask(version, (TOPIC, talk.topic(), names)))


@book.case("a group", versions=VERSIONS, over={"some": "g", "with blanks": "a b"})
def group(talk: Talk, version: int, name: str) -> None:
    talk.ask(ask(version, (GROUP, name, None), synonyms=True))


@book.case("client metrics", versions=VERSIONS)
def client_metrics(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (METRICS, "nothing", None), synonyms=True))


@book.case("names that are refused", versions=VERSIONS)
def names(talk: Talk, version: int) -> None:
    resources = [
        *((kind, "", None) for kind in (METRICS, GROUP)),
        *((BROKER, name, None) for name in ("99999999999", "1.0", " 1", "one")),
        *((LOGGER, name, None) for name in ("x", "99999999999", "-1")),
        (TOPIC, "a" * 250, None),
        (TOPIC, "__cluster_metadata", None),
        (TOPIC, "..", None),
    ]
    talk.ask(ask(version, *resources))


@book.case("a kind that does not exist", versions=VERSIONS)
def no_kind(talk: Talk, version: int) -> None:
    name = talk.topic()
    for kind in (0, 1, 3, 5, 64, 127, -1):
        talk.ask(ask(version, (TOPIC, name, ["segment.ms"]), (kind, "x", None), (TOPIC, "", None)))


@book.case("a broker's id as a number is written", versions=VERSIONS)
def written(talk: Talk, version: int) -> None:
    keys = ["num.io.threads"]
    talk.ask(ask(version, *((BROKER, name, keys) for name in ("1", "01", "+1", "0001"))))


@book.case("the defaults of all brokers", versions=VERSIONS)
def cluster(talk: Talk, version: int) -> None:
    talk.ask(ask(version, (BROKER, "", ["num.io.threads"])))


@book.case("the same resource twice", versions=VERSIONS)
def twice(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.ask(ask(version, (TOPIC, name, ["segment.ms"]), (TOPIC, name, ["flush.ms"])))


@book.case("no resources", versions=VERSIONS)
def nothing(talk: Talk, version: int) -> None:
    talk.ask(ask(version))


@book.case("a topic that is gone", versions=VERSIONS)
def gone(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.delete(name)
    talk.ask(ask(version, (TOPIC, name, None)))


@book.case("unknown tagged fields", versions=[4])
def unknown_tags(talk: Talk, version: int) -> None:
    asked = ask(version, (TOPIC, talk.topic(), ["segment.ms"]))
    talk.ask(tagged(asked, {9: b"x"}), header_tags={77: b"yz"})


@book.case("cut short", versions=VERSIONS)
def cut(talk: Talk, version: int) -> None:
    request = ask(version, (TOPIC, "t", None))
    talk.ask(raw(request, raw(request).body[:-2]))


@book.case("versions that are not served", over={"0": 0, "5": 5})
def beyond(talk: Talk, version: int) -> None:
    talk.ask(raw(ask(1 if version == 0 else 4), version=version))
