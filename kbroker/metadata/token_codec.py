"""Changed delegation tokens as bytes between brokers: a tag of a difference between images.

Place in the flow: `cluster_delta_codec.py` writes and reads the rest of the difference. A token
that is gone has its id alone. Bytes from a peer are not trusted: what could be no token is a
ProtocolError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.protocol.wire import ProtocolError, Reader, Writer
from kbroker.security.delegation_token import DelegationToken
from kbroker.security.session import Principal

_GONE: Final = 0
_THERE: Final = 1


def tag_of_tokens(changed: Mapping[str, DelegationToken | None], tag: int) -> dict[int, bytes]:
    """No tag without a change, as of an earlier kbroker."""
    if not changed:
        return {}
    writer = Writer(flexible=True)
    writer.array(len(changed))
    for token_id, token in changed.items():
        writer.string(token_id)
        writer.int8(_GONE if token is None else _THERE)
        if token is not None:
            _write_principal(writer, token.owner)
            _write_principal(writer, token.requester)
            writer.array(len(token.renewers))
            for each in token.renewers:
                _write_principal(writer, each)
            for moment_ms in (token.issued_ms, token.max_ms, token.expires_ms):
                writer.int64(moment_ms)
        writer.tags()
    return {tag: writer.getvalue()}


def changed_tokens(reader: Reader) -> dict[str, DelegationToken | None]:
    """Raises ProtocolError."""
    changed: dict[str, DelegationToken | None] = {}
    for _ in range(reader.array()):
        token_id, kind = reader.string(), reader.int8()
        if kind not in (_GONE, _THERE):
            raise ProtocolError(f"{kind} says not whether a token is there")
        changed[token_id] = _read_token(reader, token_id) if kind == _THERE else None
        reader.tags()
    return changed


def _read_token(reader: Reader, token_id: str) -> DelegationToken:
    owner, requester = _read_principal(reader), _read_principal(reader)
    renewers = tuple(_read_principal(reader) for _ in range(reader.array()))
    issued_ms, max_ms, expires_ms = (reader.int64() for _ in range(3))
    if min(issued_ms, max_ms, expires_ms) < 0:
        raise ProtocolError("a token with a time below 0")
    return DelegationToken(token_id, owner, requester, renewers, issued_ms, max_ms, expires_ms)


def _write_principal(writer: Writer, principal: Principal) -> None:
    writer.string(principal.type)
    writer.string(principal.name)


def _read_principal(reader: Reader) -> Principal:
    return Principal(reader.string(), reader.string())
