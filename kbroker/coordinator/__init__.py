"""Who looks after what several clients share: groups of consumers, and later transactions."""
