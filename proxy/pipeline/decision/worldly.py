"""The levels of certainty that a question is about the world, shared by `world` and `world_zh`."""

from enum import IntEnum

LONGEST = 200  # characters; a longer question tells a story


class Worldly(IntEnum):
    """How sure it is that the question is about the world."""

    NO = 0
    LIKELY = 1
    SURE = 2
