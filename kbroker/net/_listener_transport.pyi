from typing_extensions import disjoint_base

# A transport is a subclass in C.
@disjoint_base
class ListenerTransport: ...
