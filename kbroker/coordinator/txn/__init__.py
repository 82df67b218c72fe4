"""The transaction coordinator: every transactional id that this broker looks after."""
