"""The text of a name in a certificate, to the character the one that Apache Kafka maps and shows.

Place in the flow: the network core hands up the subject of a client's certificate in DER, and
`principal_rules` makes a user of the text.

The text is that of Java's X500Principal.getName(): RFC 2253, the last part of the name first, with
nine keywords. An attribute without one is `OID=#` and its value's DER in hexadecimal. OpenSSL's
and other libraries' texts differ from it, and an ACL names a user by it.

Pure functions; any thread.
"""

from __future__ import annotations

from typing import Final

from kbroker.security.der import (
    OBJECT_IDENTIFIER,
    SEQUENCE,
    SET,
    Value,
    dotted,
    only_value,
    values_of,
)

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# By the type of a string.
_CHARSETS: Final = {
    0x0C: "utf-8",
    0x13: "utf-8",
    0x14: "utf-8",
    0x16: "utf-8",
    0x1B: "utf-8",
    0x1E: "utf-8",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"


def name_of(der: bytes) -> str:
    """The text of a name; ValueError if it is not DER of one."""
    parts = [_part(value) for value in values_of(only_value(der, SEQUENCE))]
    return ",".join(reversed(parts))


def _part(value: Value) -> str:
    if value.tag != SET:
        raise ValueError("a part of a name is no set")
    return "+".join(_attribute(each) for each in values_of(value.content))


def _attribute(value: Value) -> str:
    if value.tag != SEQUENCE:
        raise ValueError("an attribute of a name is no sequence")
    kind, content = values_of(value.content)
    if kind.tag != OBJECT_IDENTIFIER:
        raise ValueError("an attribute of a name has no type")
    number = dotted(kind.content)
    keyword, charset = _KEYWORDS.get(number), _CHARSETS.get(content.tag)
    if keyword is None or charset is None:
        return f"{keyword or number}=#{content.whole.hex()}"
    return f"{keyword}={_escaped(content.content.decode(charset, 'replace'))}"


def _escaped(text: str) -> str:
    inner = text.strip(_BLANKS)
    if not inner:
        return "".join(f"\\{each}" for each in text)
    at = text.index(inner)
    before, after = text[:at], text[at + len(inner) :]
    middle = "".join(f"\\{each}" if each in _ESCAPED else each for each in inner)
    middle = middle.replace("\0", "\\00")
    return "".join(f"\\{each}" for each in before) + middle + "".join(f"\\{each}" for each in after)
