"""Who speaks another protocol between brokers does not join, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker.errors import MetadataStoreError
from kbroker.metadata.controller.nodes import load_brokers
from kbroker.metadata.controller.peer_versions import OURS, Versions, versions_in, with_versions
from kbroker.metadata.controller.records import broker_path, encode_broker
from kbroker.metadata.controller.registration import register
from kbroker.metadata.image import BrokerImage
from kbroker.metadata.store.embedded import EmbeddedStore
from tests.unit.metadata.controller.harness import OneBroker, eventually

NEWER = Versions(OURS.highest + 1, OURS.highest + 3)
OLDER = Versions(OURS.lowest - 3, OURS.lowest - 1)


def there(store: EmbeddedStore, versions: Versions | None) -> None:
    data = encode_broker(BrokerImage(2, "h", 9092), 1)
    data = data if versions is None else with_versions(data, versions)
    store.create(broker_path(2), data, ephemeral=True)


@pytest.mark.parametrize("versions", [NEWER, OLDER])
def test_a_broker_without_a_version_in_common_does_not_join(
    tmp_path: Path, versions: Versions
) -> None:
    one = OneBroker(tmp_path, 1)
    one.start()
    there(one.embedded.new_session(), versions)
    late = one.embedded.new_session()
    with pytest.raises(MetadataStoreError) as refused:
        register(late, BrokerImage(3), {"d3"}, 1)
    assert f"broker 2 speaks version {versions} " in str(refused.value)
    assert f"this one version {OURS}" in str(refused.value)
    eventually(lambda: one.image.brokers.keys() == {1, 2})  # they go on
    one.stop()


@pytest.mark.parametrize(
    "versions", [OURS, Versions(OLDER.lowest, OURS.lowest), Versions(OURS.highest, 10**9), None]
)
def test_a_broker_with_a_common_version_joins(tmp_path: Path, versions: Versions | None) -> None:
    """And beside one that does not say, as Apache Kafka's."""
    one = OneBroker(tmp_path, 1)
    one.start()
    there(one.embedded.new_session(), versions)
    late = one.embedded.new_session()
    register(late, BrokerImage(3), {"d3"}, 1)
    assert {each.node_id for each in load_brokers(late)} == {1, 2, 3}
    assert versions_in(late.get(broker_path(3)).data) == OURS
    one.stop()


@pytest.mark.parametrize(
    "said", [None, [], [1], [1, 2, 3], ["1", "2"], [2, 1], [True, True], {}, "12", 3]
)
def test_a_text_that_is_no_range_counts_as_none(said: object) -> None:
    assert versions_in(json.dumps({"inter_broker_versions": said}).encode()) is None
    assert versions_in(json.dumps(said).encode()) is None
    assert versions_in(b"\xff{") is None
    assert versions_in(b"[" * 100_000) is None
