"""What starts servers on this machine, for tests and for measurements: one place for both.

`ports` gives free ports, `jars` (by `maven`) the jars of Apache Kafka and Apache ZooKeeper, `child`
processes that end with the one that started them; `zookeeper` and `kafka` say how such a server is
configured and started, `namespaces` makes networks of this process's own, `local_cluster` is
`make cluster`.

It imports kbroker.testing and the standard library; perf and tests import it.
"""
