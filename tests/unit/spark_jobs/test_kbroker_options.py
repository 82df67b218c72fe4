"""What the data source `kbroker` makes of its options and of offsets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs import kbroker_options
from spark_jobs.kbroker_options import LostRecordsError, Options, SourceError, Span

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders"}


def options(stream: bool = True, **more: str) -> Options:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return Options.of({**GIVEN, **named}, stream=stream)


def test_defaults_are_the_kafka_sources() -> None:
    assert (options().starting, options(stream=False).starting) == ("latest", "earliest")
    assert options(stream=False).ending == "latest"
    assert options().topics == ("orders",)
    assert (options().rows_max, options().headers) == (0, False)


def test_names_have_no_case_and_words_neither() -> None:
    found = options(STARTINGOFFSETS="Earliest", maxOffsetsPerTrigger="7", includeHeaders="TRUE")
    assert (found.starting, found.rows_max, found.headers) == ("earliest", 7, True)


def test_single_partitions() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "assign": '{"a": [0, 2], "b": [1]}'}
    found = Options.of(given, stream=True)
    assert (found.topics, found.assigned) == (("a", "b"), {"a": (0, 2), "b": (1,)})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"subscribePattern": "a.*"}, "no option subscribepattern"),
        ({"kafka_client_rack": "a"}, r"no option kafka\.client\.rack"),
        ({"kafka_sasl": "a"}, r"no option kafka\.sasl"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"startingOffsets": "yesterday"}, "startingoffsets: a JSON object"),
        ({"startingOffsets": "[" * 100_000}, "startingoffsets: a JSON object"),
        ({"startingOffsets": '{"orders": 3}'}, "orders: offsets by partition"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "orders: offsets by partition"),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, "orders: offsets by partition"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "orders: offsets by partition"),
        ({"maxOffsetsPerTrigger": "many"}, "maxoffsetspertrigger: a number"),
        ({"subscribe": " , "}, "needs the option subscribe"),
        ({"kafka_bootstrap_servers": ""}, r"needs the option kafka\.bootstrap\.servers"),
        ({"assign": '{"a": [0]}'}, "one of subscribe and assign"),
    ],
)
def test_an_option_that_does_not_fit_is_named(more: dict[str, str], said: str) -> None:
    with pytest.raises(SourceError, match=said) as raised:
        options(**more)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "more",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders": {"0": -1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"orders": {"0": -2}}'},
    ],
)
def test_a_batch_begins_and_ends_where_the_kafka_sources_may(more: dict[str, str]) -> None:
    with pytest.raises(SourceError, match="a batch cannot"):
        options(stream=False, **more)


def test_words_and_numbers_become_offsets() -> None:
    first, last = {"a": {"0": 5, "1": 6, "2": 7}}, {"a": {"0": 50, "1": 60, "2": 70}}
    assert kbroker_options.resolved("earliest", first, last) == first
    assert kbroker_options.resolved("latest", first, last) == last
    wanted: Any = {"a": {"0": -1, "1": 9}, "other": {"0": 1}}
    assert kbroker_options.resolved(wanted, first, last) == {"a": {"0": 50, "1": 9, "2": 7}}


COUNTS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), min_size=1, max_size=9)


@given(COUNTS, st.integers(1, 10**5))
def test_a_limit_is_shared_out_and_every_partition_moves(
    found: list[tuple[int, int]], rows_max: int
) -> None:
    start = {"a": {str(i): begin for i, (begin, _) in enumerate(found)}}
    end = {"a": {str(i): begin + count for i, (begin, count) in enumerate(found)}}
    cut = kbroker_options.limited(start, end, rows_max)
    taken = {name: cut["a"][name] - start["a"][name] for name in end["a"]}
    assert sum(taken.values()) <= max(rows_max, 0) + len(found)
    for name, (_, count) in zip(taken, found, strict=True):
        assert (taken[name] > 0) == (count > 0)
        assert taken[name] <= count


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    found = kbroker_options.spans(
        {"a": {"0": 3}}, {"a": {"0": 3, "1": 4}}, {"a": {"0": 0, "1": 0}}, {"a": {"0": 3, "1": 9}}
    )
    assert found == [Span("a", 1, 0, 4)]


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (4, 8, r"lost: a-0 begins at 5, 4 to 5 is gone: retention"),
        (1, 4, r"lost: a-0 begins at 5, 1 to 4 is gone: retention"),
        (11, 11, r"lost: a-0 ends at 10, but was read up to 11: the topic was made anew"),
        (6, 11, r"lost: a-0 ends at 10"),
    ],
)
def test_a_range_that_is_not_there_is_lost_in_one_line(start: int, end: int, said: str) -> None:
    with pytest.raises(LostRecordsError, match=said):
        kbroker_options.spans(
            {"a": {"0": start}}, {"a": {"0": end}}, {"a": {"0": 5}}, {"a": {"0": 10}}
        )


def test_nothing_to_read_before_the_first_offset_is_no_loss() -> None:
    at = {"a": {"0": 3}}
    assert kbroker_options.spans(at, at, {"a": {"0": 5}}, {"a": {"0": 10}}) == []


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [
        (4, 8, [Span("a", 0, 5, 8)]),  # retention was faster
        (1, 4, []),
        (11, 11, []),  # the topic was made anew
        (11, 9, []),
        (6, 10, [Span("a", 0, 6, 10)]),
    ],
)
def test_a_loss_that_is_accepted_is_gone_over(start: int, end: int, kept: list[Span]) -> None:
    assert not options(failOnDataLoss="False").fail_on_loss
    found = kbroker_options.spans(
        {"a": {"0": start}}, {"a": {"0": end}}, {"a": {"0": 5}}, {"a": {"0": 10}},
        fail_on_loss=False,
    )  # fmt: skip
    assert found == kept


def test_tls_and_sasl_have_the_names_of_java_and_are_in_no_text() -> None:
    jaas = 'a.ScramLoginModule required username="ann" password="canary";'
    found = options(
        **{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": jaas,
           "kafka.ssl.truststore.location": "/Issuer.pem"}
    )  # fmt: skip
    assert found.properties == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": jaas,
        "ssl.truststore.location": "/Issuer.pem",
    }
    assert "canary" not in repr(found)
    assert options().properties == {}
