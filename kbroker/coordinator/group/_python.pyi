"""Compiled; for other units only. Its names for Python are in _groups.pyi."""
