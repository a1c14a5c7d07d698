"""Bars with a label before and a figure behind, as SVG: the pictures of the benchmarks. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

GREEN, BROWN, BLUE, GREY, BLACK = "#2a7f62", "#b5651d", "#35618f", "#8a8a8a", "#333333"
_WIDTH, _LEFT, _BAR = 960, 500, 380
HIGH, LOW = 26, 18
"""Pixels of a line: few lines have room, many have not."""
_THINNEST = 1
LONGEST_LABEL = 75
"""Characters for which there is room before the bars."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a picture.

    Attributes:
        label: Before it.
        figure: Behind it.
        colour: As SVG has it.
        length: Share of the room, of 1.
        start: Where it begins, as such a share.
    """

    label: str
    figure: str
    colour: str
    length: float
    start: float = 0.0

    def drawn(self, top: int, line: int) -> str:
        """As SVG, below this, in a line so high."""
        length, text = max(self.length * _BAR, _THINNEST), top + line // 2 + 3
        return (
            f'<text x="{_LEFT - 8}" y="{text}" text-anchor="end">{escape(self.label)}</text>'
            f'<rect x="{_LEFT + self.start * _BAR:.0f}" y="{top + 4}" width="{length:.0f}" height="{line - 8}" '
            f'fill="{self.colour}"/>'
            f'<text x="{_LEFT + _BAR + 8}" y="{text}">{escape(self.figure)}</text>'
        )


@dataclass(frozen=True, slots=True)
class Heading:
    """A line of text alone.

    Attributes:
        text: In bold.
    """

    text: str

    def drawn(self, top: int, line: int) -> str:
        """As SVG, below this, in a line so high."""
        return f'<text x="10" y="{top + line // 2 + 4}" font-weight="bold">{escape(self.text)}</text>'


def svg(lines: Sequence[Bar | Heading], mark: float | None = None, line: int = HIGH) -> str:
    """A picture of lines, one below the other.

    Args:
        lines: From the top; the first is its heading.
        mark: Share of the room at which a line goes down through all bars.
        line: Height of a line, in pixels.
    """
    height = line * (len(lines) + 1)
    drawn = [one.drawn(line * place, line) for place, one in enumerate(lines)]
    if mark is not None:
        at = _LEFT + _BAR * mark
        drawn.append(f'<line x1="{at}" x2="{at}" y1="{line}" y2="{height - 8}" stroke="black"/>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
    )
    return "\n".join(
        [
            f'{head}font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
            *drawn,
            "</svg>",
            "",
        ]
    )
