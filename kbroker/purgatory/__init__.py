"""Operations that wait for an event or a timeout, and the time wheel under them.

Pure Python, on level 1: it knows no Kafka noun, no socket and no file. Read `purgatory.py` first,
then `delayed_operation.py`, `timer.py` and `time_wheel.py`.
"""
