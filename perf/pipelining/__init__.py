"""Document 000's experiment: replicated produces through a connection that waits, and one that does
not, with two brokers a round-trip time apart."""
