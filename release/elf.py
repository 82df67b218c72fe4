"""Shared libraries without the parts that only debuggers read, for any machine of 64 bits.

The loader goes by the program headers, and no compiler puts debug information among what those
name. So what is left ends where the last of them ends, without the table of sections: what `strip`
does, but for machines that this one's binutils do not know.
"""

from __future__ import annotations

import struct
from typing import Final

_LITTLE_64: Final = b"\x7fELF\x02\x01"
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")


def loaded_part(library: bytes) -> bytes:
    """The library as far as a process needs it. Any other file stays as it is."""
    if not library.startswith(_LITTLE_64) or len(library) < _HEADER.size:
        return library
    fields = list(_HEADER.unpack_from(library))
    first, size, count = fields[5], fields[9], fields[10]
    if not count or size != _SEGMENT.size or first + size * count > len(library):
        return library
    segments = _SEGMENT.iter_unpack(library[first : first + size * count])
    end = max(first + size * count, *(each[2] + each[5] for each in segments))
    if end >= len(library):
        return library
    fields[6] = fields[12] = fields[13] = 0  # offset, number and names of sections
    return _HEADER.pack(*fields) + library[_HEADER.size : end]
