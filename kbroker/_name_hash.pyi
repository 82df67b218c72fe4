"""The hash of names that peers choose, for compiled units only; see _name_hash.pyx."""
