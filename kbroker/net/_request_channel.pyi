"""The queue between Processors and handlers, in C alone: no Python surface; see _net.pyi."""
