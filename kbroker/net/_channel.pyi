"""One connection's reading, answering and closing, in C alone: no Python surface; see _net.pyi."""
