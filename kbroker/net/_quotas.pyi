"""ConnectionQuotas, in C alone: Python sets its overrides through _net.SocketServer."""
