from array import array
from enum import IntEnum

class StateKind(IntEnum):
    TAKE = 0
    FORK = 1
    AT_BEGIN = 2
    AT_END = 3
    AT_WORD_EDGE = 4
    NOT_AT_WORD_EDGE = 5
    ACCEPT = 6

class Automaton:
    def __init__(self, states: list[tuple[int, int, int, int]], start: int) -> None: ...
    def matching(self, names: bytes, ends: array[int]) -> bytes: ...
