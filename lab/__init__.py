"""What starts servers on this machine, for tests and for measurements: one place for both.

`ports` gives free ports, `jars` (by `maven`) the jars of Apache Kafka and Apache ZooKeeper, `child`
processes that end with the one that started them; `zookeeper` and `kafka` say how such a server is
configured and started, `namespaces` makes networks of this process's own, `local_cluster` is
`make cluster`.

A broker, or another server, of a test or of `make cluster` is started, waited for and ended by
kbroker.testing.process, which people install without this package. perf/brokers/base.py does that
by itself: a broker that is measured may be held still for minutes, is ended by the kernel (`child`)
and has no keeper's process beside it.

It imports kbroker.testing and the standard library; perf and tests import it.
"""
