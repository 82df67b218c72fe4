"""The nodes below `/kbroker`, which Apache Kafka has no counterpart of: features and formats.

    /kbroker/features    the finalized levels of features, and how often they have changed
    /kbroker/formats     the numbers of formats in use (`metadata/formats.py`), which grow only
    /kbroker/sasl        a secret, of which the broker makes the salts of users that are not there

Place in the flow: as `records.py` for the other nodes, with the reading and writing, which is a
line each. The controller writes the features, with its fence, any broker the formats and, once,
the secret.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from kbroker.errors import MetadataStoreError
from kbroker.metadata.controller.records import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    Fields,
    encode_fields,
)
from kbroker.metadata.features import FinalizedFeatures
from kbroker.metadata.formats import IN_NODE, Format, Numbers
from kbroker.metadata.store.base import (
    BadVersionError,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)

FOLDER: Final = "/kbroker"
FEATURES: Final = f"{FOLDER}/features"
FORMATS: Final = f"{FOLDER}/formats"
SASL: Final = f"{FOLDER}/sasl"
_VERSION: Final = 1
_SECRET_BYTES: Final = 32


def encode_features(features: FinalizedFeatures) -> bytes:
    return encode_fields(_VERSION, epoch=str(features.epoch), levels=dict(features.levels))


def decode_features(path: str, data: bytes) -> FinalizedFeatures:
    """Levels of features that this kbroker does not know are kept."""
    fields = Fields(path, data)
    levels: dict[str, int] = fields.get("levels", dict)
    if not all(type(each) is int and 0 < each <= INT16_MAX for each in levels.values()):
        raise fields.damaged("a level is no number above 0")
    return FinalizedFeatures(fields.number("epoch", 0, INT64_MAX), MappingProxyType(levels))


def load_features(store: MetadataStore) -> FinalizedFeatures:
    """All at level 0 in a store that was made before there were levels."""
    try:
        return decode_features(FEATURES, store.get(FEATURES).data)
    except NoNodeError:
        return FinalizedFeatures()


def writing(store: MetadataStore, features: FinalizedFeatures) -> list[Operation]:
    """What makes these the levels in the store; nothing for those that never changed."""
    if not features.epoch:
        return []
    data = encode_features(features)
    if store.exists(FEATURES):
        return [Set(FEATURES, data)]
    folder = [] if store.exists(FOLDER) else [Create(FOLDER)]
    return [*folder, Create(FEATURES, data)]


def encode_formats(numbers: Numbers, written_by: str) -> bytes:
    written = {each.value: numbers.get(each, 0) for each in IN_NODE}
    return encode_fields(_VERSION, numbers=written, written_by=written_by)


def decode_formats(path: str, data: bytes) -> tuple[Numbers, str]:
    """The numbers of formats that this kbroker knows, and which kbroker has written them."""
    fields = Fields(path, data)
    numbers: dict[str, object] = fields.get("numbers", dict)
    found: dict[Format, int] = {}
    for each in IN_NODE:
        number = numbers.get(each.value, 0)
        if type(number) is not int or not 0 <= number <= INT32_MAX:
            raise fields.damaged(f"the number of {each.value} is none")
        found[each] = number
    return found, fields.get("written_by", str)


def load_formats(store: MetadataStore) -> tuple[Numbers, str]:
    try:
        return decode_formats(FORMATS, store.get(FORMATS).data)
    except NoNodeError:
        return {}, ""


def sasl_secret(store: MetadataStore) -> bytes:
    """Made by the first broker that asks for it."""
    for _ in range(2):
        try:
            text = Fields(SASL, store.get(SASL).data).get("secret", str)
        except NoNodeError:
            store.ensure(FOLDER)
            with suppress(NodeExistsError):  # another broker's
                secret = secrets.token_hex(_SECRET_BYTES)
                store.create(SASL, encode_fields(_VERSION, secret=secret))
            continue
        return text.encode()
    raise MetadataStoreError(f"{SASL} comes and goes", "stop what removes it")


def raise_formats(store: MetadataStore, needed: Numbers, written_by: str) -> bool:
    """Have the node say these numbers at least; False if it did. Any broker may do that at the
    same time: the version of the node decides."""
    store.ensure(FOLDER)
    try:
        node = store.get(FORMATS)
    except NoNodeError:
        try:
            store.create(FORMATS, encode_formats(needed, written_by))
        except NodeExistsError:
            return raise_formats(store, needed, written_by)
        return True
    known, _ = decode_formats(FORMATS, node.data)
    merged = {each: max(known.get(each, 0), needed.get(each, 0)) for each in IN_NODE}
    if merged == known:
        return False
    try:
        store.set(FORMATS, encode_formats(merged, written_by), node.version)
    except BadVersionError:  # another broker's, and numbers only grow
        return raise_formats(store, needed, written_by)
    return True
