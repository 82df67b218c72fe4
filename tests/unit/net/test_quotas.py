"""ConnectionQuotas: bounds per address and for all, overrides, and counts that go down again."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.net.harness import Client, Rig, cold_frame, eventually


def served(client: Client) -> bool:
    """Whether the connection was taken: answered, not closed."""
    try:
        client.send(cold_frame(b"x"))
        return client.read(4) != b""
    except (ConnectionResetError, BrokenPipeError):
        return False


def refused(rig: Rig) -> int:
    return sum(a["refused"] for a in rig.server.statistics()["acceptors"])


def test_an_address_has_so_many_connections_and_another_its_own(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(connections_per_ip_max=2)
    here = [rig.client() for _ in range(3)]
    assert [served(client) for client in here] == [True, True, False]
    there = [rig.client(host="127.0.0.2") for _ in range(3)]
    assert [served(client) for client in there] == [True, True, False]
    assert refused(rig) == 2


def test_an_override_takes_the_place_of_the_bound(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(connections_per_ip_max=1, overrides={"127.0.0.3": 3, "127.0.0.4": 0})
    assert [served(rig.client()) for _ in range(2)] == [True, False]
    assert [served(rig.client(host="127.0.0.3")) for _ in range(4)] == [True] * 3 + [False]
    assert not served(rig.client(host="127.0.0.4"))


def test_all_connections_together_are_bounded(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(connections_max=3)
    clients = [rig.client(host=f"127.0.0.{2 + i}") for i in range(4)]
    assert [served(client) for client in clients] == [True, True, True, False]


def test_a_listener_of_brokers_takes_connections_beyond_the_bound(
    make_rig: Callable[..., Rig],
) -> None:
    """Followers have to come in when clients have all connections. As in Apache Kafka."""
    rig = make_rig(connections_max=1, listener={"counts": False})
    clients = [rig.client() for _ in range(3)]
    assert [served(client) for client in clients] == [True, True, True]


def test_counts_go_down_with_every_end(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(connections_per_ip_max=2)
    for turn in range(20):
        clients = [rig.client(), rig.client()]
        assert all(served(client) for client in clients), f"turn {turn}"
        if turn % 2:
            clients[0].reset()
        else:
            clients[0].send(b"\xff\xff\xff\xff")  # a size that ends the connection
        clients[1].close()
        eventually(lambda: rig.total("connections") == 0, "both are gone")
    assert refused(rig) == 0


def test_a_refused_connection_is_not_counted(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(connections_per_ip_max=1)
    first = rig.client()
    assert served(first)
    assert [served(rig.client()) for _ in range(5)] == [False] * 5
    first.close()
    eventually(lambda: rig.total("connections") == 0, "it is gone")
    assert served(rig.client())


def test_hundreds_of_addresses_have_bounds_of_their_own(make_rig: Callable[..., Rig]) -> None:
    """Those that have overrides and no connection leave the table when the bounds change."""
    rig = make_rig(overrides={f"127.0.{i // 256}.{i % 256}": 0 for i in range(2, 702)})
    assert not served(rig.client(host="127.0.2.88"))
    open_before = [rig.client(host=f"127.0.3.{i}") for i in range(1, 31)]
    assert all(served(client) for client in open_before)
    rig.server.bound_connections(100, 1, {"127.0.2.99": 0})
    assert not served(rig.client(host="127.0.2.99"))
    assert not any(served(rig.client(host=f"127.0.3.{i}")) for i in range(1, 31))
    assert all(served(rig.client(host=f"127.0.2.{i}")) for i in range(1, 31))
