"""Frames and trains out of a socket's bytes, in C alone: no Python surface; see _net.pyi."""
