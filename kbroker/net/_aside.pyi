"""Answers to the socket, in C alone: no Python surface; see _net.pyi."""
