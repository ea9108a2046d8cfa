"""Pictures of games: cells, rectangles and numbers in plain colours."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]  # [H, W, 3]
Colour = Sequence[int]  # red, green, blue

BACK, INK = (24, 26, 32), (236, 236, 228)
DIGITS = tuple(  # rows of three bits, from the top
    [int(row, 8) for row in digit]
    for digit in ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717")
)


def cells(codes: NDArray[np.integer], palette: Sequence[Colour], side: int) -> Picture:
    """Draw a grid of codes [H, W] as squares of `side` pixels, in the colours of a palette, separated by lines."""
    picture = np.array(palette, np.uint8)[codes].repeat(side, 0).repeat(side, 1)
    picture[side - 1 :: side], picture[:, side - 1 :: side] = BACK, BACK
    return picture


def rectangle(picture: Picture, left: float, top: float, width: float, height: float, colour: Colour) -> None:
    """Fill a rectangle, in pixels, clipped to the picture."""
    x, y = max(round(left), 0), max(round(top), 0)
    picture[y : max(round(top + height), 0), x : max(round(left + width), 0)] = colour


def number(picture: Picture, value: int, left: int, top: int, scale: int, colour: Colour) -> None:
    """Write a number >= 0 with digits of 3 x 5 squares of `scale` pixels."""
    for place, digit in enumerate(str(value)):
        for row, bits in enumerate(DIGITS[int(digit)]):
            for column in range(3):
                if bits >> (2 - column) & 1:
                    x, y = left + (4 * place + column) * scale, top + row * scale
                    rectangle(picture, x, y, scale, scale, colour)
