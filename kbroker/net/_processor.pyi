"""The network threads, in C alone: nothing here is called from Python; see _net.pyi."""
