"""Metrics as data: what there is (catalogue), under which names (families), and rates over time.

Level of the core: imports words only. `observe/observer.py` reads the broker's figures; the admin
side, the alert rules, the dashboard and docs/metrics.md all read the one table in `catalogue.py`.
"""
