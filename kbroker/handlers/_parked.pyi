"""Parked fetches, in C alone: Python holds their deadlines through _hot.HotPath."""
