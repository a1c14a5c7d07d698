"""Boxes with text, as SVG: all that the pictures need. Pure."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from xml.sax.saxutils import escape

WIDTH = 960
MARGIN = 16
LINE = 18
PADDING = 10
_CHARACTER = 7.2
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
    'font-family="sans-serif" font-size="13">\n<title>{title}</title>\n'
    '<rect width="100%" height="100%" fill="#ffffff"/>'
)


class Tint(Enum):
    """What a box's colour says: its fill and its border."""

    PLAIN = ("#f4f4f4", "#999999")
    WAITING = ("#fff4d6", "#c79100")
    WELL = ("#e0f2e3", "#2e7d32")
    HARM = ("#fbe3e1", "#c62828")
    HEAD = ("#e3ecf7", "#35618f")


@dataclass(frozen=True, slots=True)
class Box:
    """A box, as high as its text needs.

    Attributes:
        x: Its left edge.
        y: Its upper edge.
        width: Its width.
        text: Wrapped to fit; a line break stays one.
        tint: Its colour.
        height: At least so high.
    """

    x: float
    y: float
    width: float
    text: str
    tint: Tint = Tint.PLAIN
    height: float = 0

    @property
    def lines(self) -> list[str]:
        """The text as it is shown."""
        fits = int((self.width - 2 * PADDING) / _CHARACTER)
        return [
            line
            for part in self.text.split("\n")
            for line in textwrap.wrap(part, fits, break_long_words=False, break_on_hyphens=False) or [""]
        ]

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + max(self.height, len(self.lines) * LINE + 2 * PADDING - 4)

    def drawn(self) -> Iterable[str]:
        """As SVG."""
        fill, border = self.tint.value
        place = f'x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.bottom - self.y:g}"'
        yield f'<rect {place} rx="4" fill="{fill}" stroke="{border}"/>'
        for number, line in enumerate(self.lines):
            yield f'<text x="{self.x + PADDING:g}" y="{self.y + PADDING + 12 + number * LINE:g}">{escape(line)}</text>'


def row(y: float, columns: Sequence[tuple[float, str, Tint]], gap: float = 8) -> list[Box]:
    """Boxes side by side, all as high as the highest.

    Args:
        y: Upper edge.
        columns: Width, text and colour of each.
        gap: Between them.
    """
    boxes: list[Box] = []
    x: float = MARGIN
    for width, text, tint in columns:
        boxes.append(Box(x, y, width, text, tint))
        x += width + gap
    height = max(box.bottom for box in boxes) - y
    return [Box(box.x, y, box.width, box.text, box.tint, height) for box in boxes]


def table(rows: Iterable[Sequence[tuple[float, str, Tint]]], gap: float = 8) -> list[Box]:
    """Rows of boxes, one below the other."""
    boxes: list[Box] = []
    y: float = MARGIN
    for columns in rows:
        boxes += row(y, columns, gap)
        y = boxes[-1].bottom + gap
    return boxes


def svg(title: str, boxes: Sequence[Box]) -> str:
    """A picture.

    Args:
        title: For those who cannot see it.
        boxes: All that is in it.
    """
    height = max(box.bottom for box in boxes) + MARGIN
    head = _HEAD.format(width=WIDTH, height=f"{height:g}", title=escape(title))
    return "\n".join([head, *(line for box in boxes for line in box.drawn()), "</svg>", ""])
