"""Which connection of the admin port gives way, by dice that are given."""

from __future__ import annotations

from random import Random

from kbroker.admin.crowd import gives_way

Visitor = tuple[str, int]


def host_of(visitor: Visitor) -> str:
    return visitor[0]


def closed(waiting: list[Visitor], comes: str, times: int) -> list[Visitor]:
    """Which ones are, where one more from this host comes and so many times another one."""
    dice = Random(1)
    gone: list[Visitor] = []
    for number in range(times):
        gone.append(gives_way(waiting, [*waiting, (comes, 0)], host_of, dice))
        waiting.remove(gone[-1])
        waiting.append((comes, 1000 + number))
    return gone


def test_it_is_not_the_oldest() -> None:
    waiting = [("10.0.0.1", number) for number in range(32)]
    gone = closed(waiting, "10.0.0.1", 16)
    assert 0 < sum(each in gone for each in [("10.0.0.1", number) for number in range(16)]) < 16


def test_a_visitor_keeps_its_place_beside_an_address_with_many() -> None:
    visitor = ("10.0.0.2", 0)
    waiting = [visitor, *(("10.0.0.1", number) for number in range(31))]
    assert visitor not in closed(waiting, "10.0.0.1", 50)


def test_addresses_of_a_host_with_ipv6_are_one() -> None:
    visitor = ("fd00:2::1", 0)
    waiting = [visitor, *((f"fd00:1::{number:x}", number) for number in range(31))]
    assert visitor not in closed(waiting, "fd00:1::ffff", 50)


def test_visitors_through_a_proxy_are_not_all_closed_for_addresses_with_one_each() -> None:
    waiting = [("10.0.0.1", number) for number in range(8)]
    waiting += [(f"10.0.1.{number}", 0) for number in range(24)]
    gone = closed(waiting, "10.0.2.1", 1) + closed(waiting, "10.0.2.2", 6)
    assert sum(host_of(each) == "10.0.0.1" for each in gone) < len(gone)
