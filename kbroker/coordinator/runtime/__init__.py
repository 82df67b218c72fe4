"""What every coordinator does alike: partitions led, loading, ordered writes; see machine.py."""
