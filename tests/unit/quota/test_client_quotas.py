"""Which quota applies to a client, and how long it waits: beside a reference in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.quota._client_quotas import ClientQuotas
from kbroker.quota.entities import CLIENT_QUOTAS

EVERY = ""
NOW = 1_000_000  # ms
HOUR = 3_600_000


def limit(user: str | None, client: str | None, **bounds: float) -> tuple[object, ...]:
    names = ("produce", "fetch", "request", "mutation")
    return user, client, [bounds.get(name) for name in names]


def load(quotas: ClientQuotas, *limits: tuple[object, ...]) -> None:
    quotas.load(limits)  # type: ignore[arg-type]


def loaded(*limits: tuple[object, ...], **options: int) -> ClientQuotas:
    quotas = ClientQuotas(**options)
    load(quotas, *limits)
    return quotas


def produce(quotas: ClientQuotas, size: float, now_ms: int = NOW, client: str = "c") -> int:
    return quotas.charge("alice", client, kind="produce", size=size, now_ms=now_ms)


class Rate:
    """A rate by the words of KIP-13 and docs/quotas.md, with a list of all samples ever."""

    def __init__(self, samples: int = 11, sample_ms: int = 1_000) -> None:
        self.samples, self.sample_ms = samples, sample_ms
        self.kept: list[list[float]] = []  # began, last, value

    def record(self, value: float, now_ms: int) -> None:
        if not self.kept or now_ms - self.kept[-1][0] >= self.sample_ms:
            self.kept.append([now_ms, now_ms, 0.0])
        self.kept[-1][1] = now_ms
        self.kept[-1][2] += value

    def delay_ms(self, bound: float, now_ms: int) -> int:
        whole = self.samples * self.sample_ms
        kept = [each for each in self.kept[-self.samples - 1 :] if now_ms - each[1] < whole]
        window = now_ms - min((each[0] for each in kept), default=now_ms)
        window += max(0, self.samples - 1 - int(window // self.sample_ms)) * self.sample_ms
        window = max(window, 1)
        rate = sum(each[2] for each in kept) / window * 1_000
        return math.floor((rate - bound) / bound * window + 0.5) if rate > bound else 0


# --- which quota ----------------------------------------------------------------------------------

LEVELS = [
    ("alice", "c"), ("alice", EVERY), ("alice", None), (EVERY, "c"), (EVERY, EVERY), (EVERY, None),
    (None, "c"), (None, EVERY),
]  # fmt: skip


def bound_of(quotas: ClientQuotas, user: str, client: str) -> int | None:
    """Of fetches."""
    quotas.charge(user, client, kind="fetch", size=0, now_ms=NOW)
    last = [round(each[3]) for each in quotas.figures(1, now_ms=NOW)]
    return last[0] if last else None


@pytest.mark.parametrize("first", range(8))
def test_the_order_of_precedence(first: int) -> None:
    limits = [limit(*names, fetch=float(at + 1)) for at, names in enumerate(LEVELS)]
    quotas = loaded(*limits[first:])
    assert bound_of(quotas, "alice", "c") == first + 1


def test_no_quota() -> None:
    quotas = loaded(limit("bob", None, fetch=1.0), limit(None, "d", fetch=1.0))
    assert bound_of(quotas, "alice", "c") is None
    assert produce(quotas, 1e9) == 0
    assert quotas.statistics()["buckets"] == 0


def test_each_kind_has_its_own_order() -> None:
    quotas = loaded(limit("alice", "c", produce=1.0), limit(None, EVERY, fetch=7.0))
    assert bound_of(quotas, "alice", "c") == 7
    assert quotas.in_force == {"produce", "fetch"}


def test_an_empty_client_id_has_the_quotas_of_users_alone() -> None:
    quotas = loaded(limit(None, EVERY, fetch=1.0), limit("alice", EVERY, fetch=2.0))
    assert bound_of(quotas, "alice", "") is None
    load(quotas, limit("alice", EVERY, fetch=2.0), limit(EVERY, None, fetch=3.0))
    assert bound_of(quotas, "alice", "") == 3


@pytest.mark.parametrize(
    ("names", "other", "shared"),
    [
        (("alice", None), ("alice", "d"), True),
        ((EVERY, None), ("alice", "d"), True),
        ((EVERY, None), ("bob", "c"), False),
        (("alice", EVERY), ("alice", "d"), False),
        ((EVERY, EVERY), ("bob", "c"), False),
        ((None, "c"), ("bob", "c"), True),
        ((None, EVERY), ("bob", "c"), True),
        ((None, EVERY), ("alice", "d"), False),
    ],
)
def test_clients_that_share_a_quota(
    names: tuple[str | None, str | None], other: tuple[str, str], shared: bool
) -> None:
    quotas = loaded(limit(*names, produce=100.0))
    assert produce(quotas, 1_000) == 0
    later = quotas.charge(*other, kind="produce", size=1_000, now_ms=NOW)
    assert (later > 0) == shared


# --- how long -------------------------------------------------------------------------------------


def test_the_delay_brings_the_rate_to_the_bound() -> None:
    quotas = loaded(limit("alice", None, produce=1_000.0))
    assert produce(quotas, 10_000) == 0  # as much as a window has
    assert produce(quotas, 5_000) == 5_000
    assert produce(quotas, 1, NOW + 500) == round(15_001 / 1_000 * 1_000 - 10_500)


@given(seed=st.integers(0, 2**32), samples=st.integers(1, 13), sample_ms=st.sampled_from([1, 1000]))
def test_delays_are_those_of_the_reference(seed: int, samples: int, sample_ms: int) -> None:
    dice = random.Random(seed)
    bound = dice.choice([1.0, 250.5, 1e6])
    quotas = loaded(limit("alice", None, produce=bound), samples=samples, sample_ms=sample_ms)
    rate, now_ms = Rate(samples, sample_ms), NOW
    for _ in range(60):
        now_ms += dice.choice([0, 1, sample_ms // 2, sample_ms, 3 * sample_ms, 12 * sample_ms])
        size = float(dice.randrange(int(bound * 12)))
        rate.record(size, now_ms)
        expected = min(rate.delay_ms(bound, now_ms), 2**31 - 1)
        assert abs(produce(quotas, size, now_ms) - expected) <= 1


def test_bytes_that_are_not_sent_do_not_count() -> None:
    quotas = loaded(limit("alice", None, fetch=1_000.0))
    charge = {"kind": "fetch", "takes_back": True, "now_ms": NOW}
    assert quotas.charge("alice", "c", size=9_000, **charge) == 0  # type: ignore[arg-type]
    assert quotas.charge("alice", "c", size=9_000, **charge) == 8_000  # type: ignore[arg-type]
    assert quotas.charge("alice", "c", size=1_000, **charge) == 0  # type: ignore[arg-type]


def test_time_is_bounded_by_a_sample_and_the_longer_delay_counts() -> None:
    quotas = loaded(limit("alice", None, produce=1_000.0, request=50.0))
    assert quotas.charge("alice", "c", percent=5_000, now_ms=NOW) == 1_000
    both = quotas.charge("alice", "c", kind="produce", size=12_000, percent=1, now_ms=NOW)
    assert both == 2_000


def test_a_clock_that_goes_back_counts_as_its_last_time() -> None:
    quotas = loaded(limit("alice", None, produce=1_000.0))
    produce(quotas, 10_000)
    assert produce(quotas, 1_000, NOW - 10 * HOUR) == 1_000
    assert produce(quotas, 1_000, NOW) == 2_000
    assert produce(quotas, 1_000, NOW + 2 * HOUR) == 0


@pytest.mark.parametrize("bound", [0.0, 5e-324, 1e-9])
def test_a_tiny_quota_has_the_longest_delay(bound: float) -> None:
    quotas = loaded(limit("alice", None, produce=bound))
    assert produce(quotas, 1e300) == 2**31 - 1
    assert produce(quotas, -1e300, NOW + 1) == 0  # what was taken back


def test_a_huge_quota_is_none() -> None:
    quotas = loaded(limit("alice", None, produce=1.7e308))
    assert produce(quotas, 1e300) == 0


def test_other_quotas_are_in_force_at_once() -> None:
    quotas = loaded(limit("alice", None, produce=1_000.0))
    assert produce(quotas, 20_000) == 10_000
    load(quotas, limit("alice", None, produce=4_000.0))
    assert produce(quotas, 0) == 0
    quotas.load([])
    assert quotas.in_force == set() and produce(quotas, 1e9) == 0
    load(quotas, limit("alice", None, produce=1_000.0))
    assert produce(quotas, 0) == 10_000  # what was used before counts


# --- mutations ------------------------------------------------------------------------------------


def test_tokens_are_owed_once_and_then_refused() -> None:
    quotas = loaded(limit("alice", None, mutation=2.0))
    assert quotas.mutate("alice", "c", 30, True, NOW) == (True, 0)  # 22 were there
    assert quotas.mutate("alice", "c", 1, True, NOW) == (False, 4_000)
    assert quotas.mutate("alice", "c", 1, True, NOW + 3_999) == (False, 1)
    assert quotas.mutate("alice", "c", 1, True, NOW + 4_000) == (True, 0)
    assert quotas.mutate("alice", "c", 1, False, NOW + 4_000) == (True, 1_000)
    assert quotas.mutate("alice", "c", 22, True, NOW + HOUR) == (True, 0)
    assert quotas.mutate("bob", "c", 1e9, True, NOW) == (True, 0)


def test_tokens_and_a_clock_that_goes_back() -> None:
    quotas = loaded(limit("alice", None, mutation=1.0))
    assert quotas.mutate("alice", "c", 12, False, NOW) == (True, 1_000)
    assert quotas.mutate("alice", "c", 1, False, NOW - HOUR) == (True, 2_000)


# --- bounds ---------------------------------------------------------------------------------------


def test_a_hundred_thousand_client_ids_and_more() -> None:
    quotas = loaded(limit(EVERY, EVERY, produce=1e6))
    for at in range(100_500):
        assert produce(quotas, 1, client=f"client-{at}") == 0
    assert quotas.statistics() == {"buckets": 100_001, "limits": 1, "shared": 500}
    # Those beyond the bound share one, and those that are known have theirs.
    assert produce(quotas, 2e7, client="another") > 0
    assert produce(quotas, 1, client="still another") > 0
    assert produce(quotas, 1, client="client-7") == 0
    assert quotas.charge("bob", "another", kind="produce", size=1, now_ms=NOW) == 0


def test_idle_buckets_go_after_an_hour() -> None:
    quotas = loaded(limit(EVERY, EVERY, produce=1e6), buckets_max=10)
    for at in range(10):
        produce(quotas, 1, NOW + at, client=str(at))
    produce(quotas, 1, NOW + HOUR + 5, client="new")
    assert quotas.statistics()["buckets"] == 9
    assert {each[2] for each in quotas.figures(now_ms=NOW + HOUR + 5)} == {*"6789", "new"}


def test_long_names_take_no_room() -> None:
    quotas = loaded(limit("alice", EVERY, produce=10.0), limit("alice", "x" * 32_000, produce=1e6))
    assert produce(quotas, 1e4, client="x" * 31_999 + "y") > 0
    assert produce(quotas, 1e4, client="x" * 32_000) == 0
    assert {len(each[2] or "") for each in quotas.figures(now_ms=NOW)} == {128}


def test_figures() -> None:
    quotas = loaded(limit("alice", None, produce=1_000.0), limit(None, EVERY, mutation=1.0))
    produce(quotas, 12_000)
    quotas.mutate("alice", "c", 5, True, NOW)
    kinds = {each[0]: each for each in quotas.figures(now_ms=NOW)}
    assert kinds["produce"] == ("produce", "alice", None, 1_000.0, 1_200.0, 0.0, 1, 2_000)
    assert kinds["mutation"] == ("mutation", None, "c", 1.0, 0.5, 6.0, 0, 0)


def test_names_are_compared_as_a_whole() -> None:
    names: Iterable[str] = ("alice", "alic", "alicealice", "Alice", "\N{SNOWMAN}", "a\0b", "a\0")
    quotas = loaded(*(limit(name, None, fetch=float(at + 1)) for at, name in enumerate(names)))
    assert [bound_of(quotas, name, "c") for name in names] == list(range(1, 8))


def test_windows_are_positive() -> None:
    for wrong in ({"samples": 0}, {"sample_ms": 0}, {"mutation_samples": -1}, {"buckets_max": 0}):
        with pytest.raises(ValueError, match="windows"):
            ClientQuotas(**wrong)


def test_the_kinds_are_those_of_the_keys() -> None:
    quotas = loaded((None, "c", [1.0] * len(CLIENT_QUOTAS)))
    assert quotas.in_force == {"produce", "fetch", "request", "mutation"}
