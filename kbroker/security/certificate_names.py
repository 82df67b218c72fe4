"""Which names a certificate is for: its subject's other names, to compare one with the next.

Pure; any thread. Source: RFC 5280, section 4.2.1.6.
"""

from __future__ import annotations

from typing import Final

from kbroker.security.der import OBJECT_IDENTIFIER, SEQUENCE, dotted, only_value, values_of

_EXTENSIONS: Final = 0xA3
_OCTET_STRING: Final = 0x04
_SUBJECT_ALT_NAME: Final = "2.5.29.17"


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Each name with its kind, in DER, of a certificate in DER; ValueError if that is none."""
    to_be_signed = next(values_of(only_value(certificate, SEQUENCE)), None)
    if to_be_signed is None or to_be_signed.tag != SEQUENCE:
        raise ValueError("it is no certificate")
    for field in values_of(to_be_signed.content):
        if field.tag == _EXTENSIONS:
            for extension in values_of(only_value(field.content, SEQUENCE)):
                kind, *_, value = values_of(extension.content)
                if kind.tag == OBJECT_IDENTIFIER and dotted(kind.content) == _SUBJECT_ALT_NAME:
                    names = only_value(only_value(value.whole, _OCTET_STRING), SEQUENCE)
                    return frozenset(name.whole for name in values_of(names))
    return frozenset()
