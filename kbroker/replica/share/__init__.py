"""Share-partitions of the partitions that this broker leads: the member that has each record."""
