"""Receive chunks, requests and answers, in C alone: no Python surface; see _net.pyi."""
