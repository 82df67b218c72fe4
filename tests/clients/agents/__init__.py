"""Client libraries in processes of their own, driven by one protocol: see driver.py."""
