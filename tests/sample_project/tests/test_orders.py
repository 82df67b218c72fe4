from confluent_kafka import Consumer
from orders import Orders

from kbroker.testing import ApiKey


def test_an_order_is_a_record(kbroker_broker, kbroker_topic):
    Orders(kbroker_broker.bootstrap, kbroker_topic).place("ann", 250)
    (record,) = kbroker_broker.records(kbroker_topic)
    assert (record.key, record.value) == (b"ann", b'{"cents": 250}')


def test_totals_and_committed_offsets(kbroker_broker, kbroker_new_topic):
    topic = kbroker_new_topic(partitions=3)
    orders = Orders(kbroker_broker.bootstrap, topic)
    for customer, cents in (("ann", 100), ("bob", 50), ("ann", 25)):
        orders.place(customer, cents)
    assert orders.totals(f"billing-{topic}", 3) == {"ann": 125, "bob": 50}
    assert sum(kbroker_broker.committed(f"billing-{topic}").values()) == 3


def test_an_order_survives_a_leader_that_moves(kbroker_broker, kbroker_topic):
    rule = kbroker_broker.on(ApiKey.PRODUCE, error="NOT_LEADER_OR_FOLLOWER", times=2)
    Orders(kbroker_broker.bootstrap, kbroker_topic).place("ann", 250)
    assert rule.hits == 2
    assert len(kbroker_broker.records(kbroker_topic)) == 1


def test_an_order_survives_a_lost_answer(kbroker_broker, kbroker_topic):
    kbroker_broker.on(ApiKey.PRODUCE, drop=True, times=1)
    Orders(kbroker_broker.bootstrap, kbroker_topic).place("ann", 250)
    assert [seen.fault for seen in kbroker_broker.requests(ApiKey.PRODUCE)].count("drop") == 1
    assert len(kbroker_broker.records(kbroker_topic)) == 1


def test_a_billing_that_hangs_is_left_out(kbroker_own_broker):
    """Its session ends, by the broker's clock, without a wait for it."""
    broker = kbroker_own_broker
    topic = broker.create_topic()
    Orders(broker.bootstrap, topic).place("ann", 250)
    broker.on(ApiKey.HEARTBEAT, drop=True)
    broker.on(ApiKey.LEAVE_GROUP, drop=True)
    hanging = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    hanging.subscribe([topic])
    hanging.poll(0.1)
    broker.wait_for(group="billing", state="Stable", members=1)
    broker.clock.advance(minutes=5)
    broker.wait_for(group="billing", state="Empty")


def test_orders_outlive_the_broker(kbroker_own_broker):
    broker = kbroker_own_broker
    broker.create_topics({"orders": 1})
    Orders(broker.bootstrap, "orders").place("ann", 250)
    broker.kill9()
    broker.start()
    assert [record.key for record in broker.records("orders")] == [b"ann"]
