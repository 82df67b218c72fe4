"""Where a request's time went, in C alone: no Python surface; see _request_figures.pyi."""
