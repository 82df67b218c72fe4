"""The book of rules: which one meets a request, how often, and whose APIs it takes off the path."""

from __future__ import annotations

from types import SimpleNamespace

from kbroker.errors import ErrorCode
from kbroker.testing.faults import Faults, Trace
from kbroker.types import ApiKey


def test_a_rule_meets_its_api_as_often_as_it_says() -> None:
    faults = Faults()
    number = faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    assert faults.take(ApiKey.FETCH, "c") is None
    first = faults.take(ApiKey.PRODUCE, "c")
    assert first is not None and not first.used_up
    assert faults.api_keys() == {ApiKey.PRODUCE}
    second = faults.take(ApiKey.PRODUCE, None)
    assert second is not None and second.used_up
    assert faults.api_keys() == set()
    assert faults.take(ApiKey.PRODUCE, "c") is None
    assert faults.hits(number) == 2


def test_the_first_rule_that_fits_counts_and_the_next_comes_after_it() -> None:
    faults = Faults()
    faults.add(ApiKey.FETCH, drop=True, times=1)
    faults.add(ApiKey.FETCH, delay_ms=5)
    taken = [faults.take(ApiKey.FETCH, None) for _ in range(3)]
    assert [fault.drop for fault in taken if fault is not None] == [True, False, False]


def test_a_rule_for_one_client() -> None:
    faults = Faults()
    faults.add(ApiKey.FETCH, drop=True, client_id="slow")
    assert faults.take(ApiKey.FETCH, "quick") is None
    assert faults.take(ApiKey.FETCH, None) is None
    assert faults.take(ApiKey.FETCH, "slow") is not None


def test_a_removed_group_meets_none_and_is_still_counted() -> None:
    faults = Faults()
    number = faults.add(ApiKey.FETCH)
    faults.take(ApiKey.FETCH, None)
    other = faults.add(ApiKey.METADATA)
    faults.remove(number)
    faults.remove(number)
    assert faults.take(ApiKey.FETCH, None) is None
    assert (faults.hits(number), faults.hits(other)) == (1, 0)
    faults.remove(None)
    assert faults.api_keys() == set()


def test_the_trace_has_the_requests_and_the_faults() -> None:
    trace = Trace()
    asked = SimpleNamespace(
        api_key=0, api_version=9, client_id="c", correlation_id=7, body=b"x" * 40
    )
    trace.note(asked, "drop")
    trace.note(SimpleNamespace(**{**vars(asked), "api_key": 1, "client_id": None}), "")
    (seen,) = trace.requests(ApiKey.PRODUCE)
    assert (seen.api, seen.api_version, seen.body_bytes) == (ApiKey.PRODUCE, 9, 40)
    assert seen.text().endswith("Produce v9  c #7  40 bytes  drop")
    assert [each.api_key for each in trace.requests(None)] == [0, 1]
    assert trace.requests(None)[1].text().endswith("Fetch v9  - #7  40 bytes")
