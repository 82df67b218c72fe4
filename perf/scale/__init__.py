"""What one broker would do on more processors than there are here: docs/scale.md."""
