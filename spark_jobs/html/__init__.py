"""A report as one self-contained HTML page: words, tables and plots, light and dark."""
