"""How fast connections are made: by address, and by all together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kbroker.quota._client_quotas import ClientQuotas
from tests.unit.net.harness import Rig, cold_frame, eventually
from tests.unit.net.test_quotas import served


def limited(rig: Rig, sample_ms: int = 200) -> Rig:
    rig.server.use_quotas(ClientQuotas(samples=2, sample_ms=sample_ms))
    return rig


def figure(rig: Rig, name: str) -> int:
    acceptors: list[Any] = list(rig.server.statistics()["acceptors"])
    return sum(each[name] for each in acceptors)


def test_a_connection_over_the_rate_of_its_address_is_closed_later(
    make_rig: Callable[..., Rig],
) -> None:
    rig = limited(make_rig())
    rig.server.limit_connection_rates(-1.0, {"127.0.0.2": 10.0})
    first = [rig.client(host="127.0.0.2") for _ in range(2)]
    assert [served(each) for each in first] == [True, True]  # as many as a sample has
    began = time.monotonic()
    third = rig.client(host="127.0.0.2")
    third.send(cold_frame())
    assert third.ended()
    assert time.monotonic() - began >= 0.05
    assert figure(rig, "throttled") == figure(rig, "refused") == 1
    assert all(served(rig.client()) for _ in range(10))  # others have no such rate
    eventually(lambda: served(rig.client(host="127.0.0.2")), "it may connect again")


def test_every_address_has_the_default(make_rig: Callable[..., Rig]) -> None:
    rig = limited(make_rig(), 10_000)
    rig.server.limit_connection_rates(0.2, {"127.0.0.3": 1e6, "::1": 1.0})
    for host in ("127.0.0.2", "127.0.0.4"):
        assert [served(rig.client(host=host)) for _ in range(2)] == [True] * 2
    assert all(served(rig.client(host="127.0.0.3")) for _ in range(10))
    waits = rig.client(host="127.0.0.2")
    waits.send(cold_frame())
    assert figure(rig, "throttled") == 1 or eventually(lambda: figure(rig, "throttled") == 1)
    assert not waits.has_bytes()
    rig.server.limit_connection_rates(-1.0, {})
    assert all(served(rig.client(host="127.0.0.2")) for _ in range(5))


def test_refused_connections_are_bounded_and_end_with_the_broker(
    make_rig: Callable[..., Rig],
) -> None:
    rig = limited(make_rig(), 60_000)
    rig.server.limit_connection_rates(1e-9, {})
    clients = []
    for some in range(0, 300, 20):  # fewer than the kernel's backlog has room for
        clients += [rig.client() for _ in range(20)]
        eventually(lambda some=some: figure(rig, "throttled") == some + 20, "none is served")
    assert clients[0].ended()  # of more than are kept the first goes
    rig.server.stop_accepting()
    assert clients[-1].ended()


def test_all_together_wait_in_the_backlog(make_rig: Callable[..., Rig]) -> None:
    rig = limited(make_rig())
    rig.server.bound_connection_rate(20.0)
    began = time.monotonic()
    assert all(served(rig.client(host=f"127.0.0.{2 + at}")) for at in range(12))
    assert time.monotonic() - began >= 0.2
    assert figure(rig, "throttled") == 0 and figure(rig, "waited_ms") > 0
    rig.server.bound_connection_rate(-1.0)
    assert all(served(rig.client()) for _ in range(20))


def test_a_stop_does_not_wait_for_the_rate(make_rig: Callable[..., Rig]) -> None:
    rig = limited(make_rig(), 60_000)
    rig.server.bound_connection_rate(1e-9)
    rig.client()
    eventually(lambda: figure(rig, "waited_ms") > 0, "it waits")
    began = time.monotonic()
    rig.server.stop_accepting()
    assert time.monotonic() - began < 30


def test_a_listener_that_does_not_count(make_rig: Callable[..., Rig]) -> None:
    rig = limited(make_rig(listener={"counts": False}), 60_000)
    rig.server.bound_connection_rate(1e-9)
    assert all(served(rig.client()) for _ in range(5))
    assert figure(rig, "waited_ms") == 0


def test_a_refused_connection_is_none_of_those_that_open(make_rig: Callable[..., Rig]) -> None:
    rig = limited(make_rig(listener={"authenticates": True}), 60_000)
    rig.server.limit_connection_rates(1e-9, {})
    refused = [rig.client(host="127.0.0.2") for _ in range(5)]
    eventually(lambda: figure(rig, "throttled") == 5, "none is served")
    rig.server.limit_connection_rates(-1.0, {})
    opening = rig.client(host="127.0.0.2")
    eventually(lambda: rig.total("connections") == 1, "another one is")
    opening.close()
    eventually(lambda: rig.total("connections") == 0, "and goes")
    rig.server.stop_accepting()
    assert all(each.ended() for each in refused)
