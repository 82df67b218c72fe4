"""Consumer groups whose assignments the coordinator computes (KIP-848)."""
