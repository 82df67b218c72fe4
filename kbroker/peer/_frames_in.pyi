from kbroker.protocol.wire import Reader

class FrameSizeError(Exception):
    args: tuple[int]

class FramesIn:
    def __init__(self, room: int, bytes_min: int, bytes_max: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""

    def note(self, count: int) -> None:
        """So many are there. ValueError beyond the room."""

    def take(self) -> bytes | None:
        """The next frame, without its size, if it is whole. FrameSizeError: and each time again."""

def answer_in(frame: bytes, correlation_id: int, flexible: bool, has_tags: bool) -> Reader | None:
    """After the header, or None where that has another id; ProtocolError where it is malformed."""
