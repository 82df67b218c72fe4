"""What `kbroker doctor` says of several brokers: can they hold what their settings ask for.

Of a cluster that answers: racks, what the brokers speak, settings that differ, factors that cannot
be met. Of the configuration of a broker that is to join one: whether its ZooKeeper can be reached
from here, and whether the others can reach it where it says.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.config.agreed import AGREED
from kbroker.errors import KafkaError, UserError
from kbroker.findings.checks import FAILING, OK, WARNING, Check
from kbroker.findings.cluster_health import MIN_IN_SYNC, TOPICS_ASKED_MAX, min_in_sync
from kbroker.metadata.store.zookeeper_settings import CONNECT, parse_connect
from kbroker.peer.address import reason

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.peer.client import Client
    from kbroker.peer.messages import ClusterMetadata

DEFAULT_FACTOR: Final = "default.replication.factor"
REPLICATION_KEYS: Final = (
    DEFAULT_FACTOR,
    MIN_IN_SYNC,
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "unclean.leader.election.enable",
    "replica.lag.time.max.ms",
)
FACTORS: Final = tuple(key for key in REPLICATION_KEYS if key.endswith("replication.factor"))
# How many must be in sync, and of how many.
MINIMUMS: Final = {
    MIN_IN_SYNC: DEFAULT_FACTOR,
    "transaction.state.log.min.isr": "transaction.state.log.replication.factor",
}
# In which brokers should agree, and what is looked at beside.
COMPARED: Final = tuple(dict.fromkeys((*AGREED, *REPLICATION_KEYS)))
CONNECT_TIMEOUT_S: Final = 2.0
_NAMED_MAX: Final = 3

Settings = Mapping[str, str | None]


# --- a configuration ------------------------------------------------------------------------------


def joining(config: BrokerConfig) -> Iterator[Check]:
    """Nothing for a broker without a cluster."""
    if config[CONNECT] is None:
        return
    hosts, _ = parse_connect(config[CONNECT])
    yield zookeeper(hosts, {host: _reach(host) for host in hosts})
    listeners = config.listeners
    endpoint = listeners.advertised_for(listeners.inter_broker_name)
    bound = next(each for each in listeners.listeners if each.name == listeners.inter_broker_name)
    yield among_brokers(bound.name, bound.host if endpoint is None else endpoint.host)


def _reach(host: str) -> str:
    """Why it cannot be connected to; "" if it can."""
    name, _, port = host.rpartition(":")
    try:
        socket.create_connection((name.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:
        return reason(error)
    return ""


def zookeeper(hosts: tuple[str, ...], troubles: Mapping[str, str]) -> Check:
    bad = [f"{host}: {troubles[host]}" for host in hosts if troubles[host]]
    if not bad:
        named = ", ".join(hosts)
        return Check(OK, "zookeeper", f"{named} can be connected to")
    seen = f"{len(bad)} of {len(hosts)} cannot be connected to: {'; '.join(bad)}"
    fix = "start it, or set zookeeper.connect to where it listens"
    return Check(FAILING if len(bad) == len(hosts) else WARNING, "zookeeper", seen, fix)


def among_brokers(name: str, host: str) -> Check:
    """The address where other brokers fetch from this one; "": every address, by its name."""
    if host and _is_loopback(host):
        fix = f"advertised.listeners={name}://HOST:PORT as the other brokers see it"
        seen = f"{name}: brokers on other machines cannot reach {host}"
        return Check(WARNING, "between", seen, fix)
    return Check(OK, "between", f"{name} is for other brokers, at {host or 'the host name'}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- a cluster that answers -----------------------------------------------------------------------


def cluster(client: Client) -> Iterator[Check]:
    try:
        metadata = client.metadata()
    except (KafkaError, UserError):
        return  # the round trips have reported it
    settings = {node_id: _settings(client, node_id) for node_id in sorted(metadata.brokers)}
    known = {node_id: values for node_id, values in settings.items() if values}
    if known:
        # New topics are the controller's to make.
        deciding = known.get(metadata.controller_id, next(iter(known.values())))
        yield from replication(len(metadata.brokers), deciding)
    if len(metadata.brokers) < 2:
        return
    yield racks({each.node_id: each.rack for each in metadata.brokers.values()})
    yield alike("settings", "the same settings where they should agree", _by_key(known))
    yield alike("versions", "the same versions of the protocol", _versions(client))
    yield topics(metadata, client)


def _settings(client: Client, node_id: int) -> Settings:
    """Of the running broker; nothing if it does not tell."""
    from kbroker.peer.config_messages import BROKER_RESOURCE, Resource

    try:
        entries = client.configs(Resource(BROKER_RESOURCE, str(node_id)), COMPARED)
    except KafkaError:
        return {}
    return {entry.name: entry.value for entry in entries}


def replication(brokers: int, values: Settings) -> Iterator[Check]:
    """More replicas than brokers: topics, groups or transactions cannot be made; more that must be
    in sync than replicas: no client can write with acks=all."""
    wanted = {
        name: int(value)
        for name, value in values.items()
        if value is not None and value.lstrip("-").isdecimal()
    }
    bad = False
    for name in sorted(wanted.keys() & {*FACTORS}):
        if wanted[name] > brokers:
            bad = True
            verdict = FAILING if name.startswith("offsets.") else WARNING
            seen = f"{name} is {wanted[name]} with {brokers} broker{'' if brokers == 1 else 's'}"
            yield Check(verdict, "replicas", seen, f"set {name}={brokers}, or start more brokers")
    for name, of in MINIMUMS.items():
        if name in wanted and of in wanted and wanted[name] > wanted[of]:
            bad = True
            seen = f"{name} is {wanted[name]} with {of}={wanted[of]}: acks=all is refused"
            yield Check(WARNING, "replicas", seen, f"set {name} to at most {of}")
    if wanted and not bad:
        seen = f"no default asks for more replicas than brokers ({brokers}), or more in sync"
        yield Check(OK, "replicas", seen)


def racks(of: Mapping[int, str | None]) -> Check:
    without = [str(each) for each, rack in sorted(of.items()) if rack is None]
    if len(without) == len(of):
        return Check(OK, "racks", "no broker has a rack")
    if without:
        seen = f"broker {', '.join(without)} has no broker.rack, others have: racks do not count"
        return Check(WARNING, "racks", seen, "set broker.rack of every broker, or of none")
    return Check(OK, "racks", f"{len(of)} brokers in {len({*of.values()})} racks")


def _by_key(known: Mapping[int, Settings]) -> dict[int, dict[str, str]]:
    return {
        node_id: {name: str(value) for name, value in values.items()}
        for node_id, values in known.items()
    }


def _versions(client: Client) -> dict[int, dict[str, str]]:
    """By broker: the versions of each API."""
    found = {}
    for node_id, address in sorted(client.cluster.brokers.items()):
        try:
            offered = client.cluster.link(address).versions
        except KafkaError:
            continue  # the round trip has reported it
        found[node_id] = {f"API {key}": f"{low}-{high}" for key, (low, high) in offered.items()}
    return found


def alike(name: str, what: str, of: Mapping[int, Mapping[str, str]]) -> Check:
    """Whether all brokers say the same of each thing."""
    keys = sorted({key for values in of.values() for key in values})
    differ = []
    for key in keys:
        said: dict[str, list[str]] = {}
        for node_id, values in sorted(of.items()):
            said.setdefault(values.get(key, "-"), []).append(str(node_id))
        if len(said) > 1:
            places = ", ".join(f"{value} at {'+'.join(ids)}" for value, ids in said.items())
            differ.append(f"{key} {places}")
    if not differ:
        return Check(OK, name, f"{len(of)} brokers have {what}")
    seen = "; ".join(differ[:_NAMED_MAX]) + ("; ..." if len(differ) > _NAMED_MAX else "")
    return Check(WARNING, name, f"brokers differ: {seen}", "give all of them the same")


def topics(metadata: ClusterMetadata, client: Client) -> Check:
    """Topics that acks=all cannot be written to, whichever brokers live."""
    names = sorted(metadata.topics)[:TOPICS_ASKED_MAX]
    bad = []
    for name in names:
        needed = min_in_sync(client, name)
        fewest = min((len(part.replicas) for part in metadata.topics[name].partitions), default=0)
        if fewest < needed:
            bad.append(f"{name} ({needed} of {fewest})")
    if not bad:
        return Check(OK, "topics", f"{len(names)} can have as many in sync as they need")
    seen = f"more must be in sync than there are replicas: {', '.join(bad[:_NAMED_MAX])}"
    seen += ", ..." if len(bad) > _NAMED_MAX else ""
    return Check(WARNING, "topics", seen, f"lower {MIN_IN_SYNC}, or give them more replicas")
