"""What a log costs beside its requests: cleaning."""
