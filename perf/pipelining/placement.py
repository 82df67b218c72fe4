"""Clusters whose ports are free where they are to listen.

A broker is given a port that is free on loopback of the network in which the calling thread is
(perf/brokers/base.py). A broker of the other network listens elsewhere, and both listen on another
address: that a port is free there is seen by asking there, and one that is not means other ports.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final

from perf.brokers.base import Broker, BrokerError, Place
from perf.cluster.brokers import Cluster, Make

TRIES_MAX: Final = 20


def placed(
    make: Make, near: Place, far: Place, directory: Path, brokers: int, **how: Any
) -> Cluster:
    """A cluster, not started yet: its leader near, all others far. BrokerError without ports."""
    for _ in range(TRIES_MAX):
        cluster = make(directory, brokers, near=near, far=far, **how)
        addresses = {broker.address for broker in cluster.running}
        if len(addresses) == len(cluster.running) and all(map(_is_free, cluster.running)):
            return cluster
    raise BrokerError(f"{directory.name}: no free ports in {TRIES_MAX} tries")


def _is_free(broker: Broker) -> bool:
    with broker.place.entered(), socket.socket() as probe:
        try:
            probe.bind((broker.host, broker.port))
        except OSError:
            return False
    return True
