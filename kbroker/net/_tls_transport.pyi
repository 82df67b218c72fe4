from kbroker.net._listener_transport import ListenerTransport
from kbroker.net._tls_context import TlsContext

ENDED: str
LATE_MESSAGES: str
LONG_HANDSHAKE: str

class TlsTransport(ListenerTransport):
    tls_context: TlsContext
    def __init__(self, context: TlsContext) -> None: ...
    def replace(self, context: TlsContext) -> None: ...
    def take_failures(self) -> list[tuple[str, str, int, str]]: ...
