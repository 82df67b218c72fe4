"""Where delegation tokens live in the metadata store, and how their nodes are written.

    /delegation_token/tokens/ID                       one token; its HMAC is not stored
    /delegation_token/token_changes/token_change_N    a notice: the token of this id changed

Place in the flow: as `records.py` for the other nodes. Paths and contents are those of Apache Kafka
3.9 with ZooKeeper. Principals are in the form of a URL's query, as there.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from kbroker.limits import TOKEN_PRINCIPALS_BYTES_MAX
from kbroker.metadata.controller.records import INT64_MAX, Fields, encode_fields
from kbroker.security.delegation_token import DelegationToken
from kbroker.security.session import Principal

FOLDER: Final = "/delegation_token"
TOKENS: Final = f"{FOLDER}/tokens"
CHANGES: Final = f"{FOLDER}/token_changes"
# Parents before children.
TOKEN_FOLDERS: Final = (FOLDER, TOKENS, CHANGES)
NOTICE: Final = f"{CHANGES}/token_change_"  # the store appends a number

_VERSION: Final = 3
_WITH_REQUESTER: Final = 3
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def is_token_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    return encode_fields(
        _VERSION,
        owner=_quoted(token.owner),
        tokenRequester=_quoted(token.requester),
        renewers=[_quoted(each) for each in token.renewers],
        issueTimestamp=token.issued_ms,
        maxTimestamp=token.max_ms,
        expiryTimestamp=token.expires_ms,
        tokenId=token.token_id,
    )


def decode_token(path: str, data: bytes) -> DelegationToken:
    """DataDirectoryError: it is none, or of another node."""
    fields = Fields(path, data, _VERSION)
    token_id = fields.get("tokenId", str)
    if token_path(token_id) != path or not is_token_id(token_id):
        raise fields.damaged("its tokenId is of another node")
    owner = _principal(fields, fields.get("owner", str))
    requester = owner
    if fields.integer("version", 1, _VERSION) >= _WITH_REQUESTER:
        requester = _principal(fields, fields.get("tokenRequester", str))
    renewers: list[object] = fields.get("renewers", list)
    if len(data) > 8 * TOKEN_PRINCIPALS_BYTES_MAX:
        raise fields.damaged("its principals are too long")
    return DelegationToken(
        token_id,
        owner,
        requester,
        tuple(_principal(fields, each, may_lack_name=True) for each in renewers),
        fields.integer("issueTimestamp", 0, INT64_MAX),
        fields.integer("maxTimestamp", 0, INT64_MAX),
        fields.integer("expiryTimestamp", 0, INT64_MAX),
    )


def notice_number(name: str) -> int | None:
    """Of a node in the folder of notices; None: it is no notice."""
    prefix = NOTICE.rpartition("/")[2]
    digits = name.removeprefix(prefix)
    if digits == name or not (digits.isdecimal() and digits.isascii() and len(digits) < 20):
        return None
    return int(digits)


def _quoted(principal: Principal) -> str:
    return quote(str(principal), safe="").replace("~", "%7E")


def _principal(fields: Fields, text: object, *, may_lack_name: bool = False) -> Principal:
    """A client may name a renewer that has no name; an owner has one."""
    if not isinstance(text, str):
        raise fields.damaged("a principal is no text")
    try:
        kind, colon, name = unquote_to_bytes(text.replace("+", " ")).decode().partition(":")
    except UnicodeError:
        raise fields.damaged("a principal is not UTF-8") from None
    if not colon or not kind or not (name or may_lack_name):
        raise fields.damaged("a principal is not TYPE:NAME")
    return Principal(kind, name)
