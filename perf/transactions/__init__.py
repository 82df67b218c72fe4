"""What transactions cost: small ones, large ones, and reading what is committed."""
