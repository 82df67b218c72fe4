"""The `kbroker` command. Every verb is a file of its own, imported only when it is used."""
