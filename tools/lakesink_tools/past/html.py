"""Tables for notebooks. Every text is escaped, and the colours are the notebook's own, light or dark. Pure."""

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 50
_CELL = "padding: 0.2em 0.8em; text-align: {side}; border-bottom: 1px solid rgba(128, 128, 128, 0.4)"


def page(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], lines: Iterable[str] = ()) -> str:
    """A title, a table and lines below it; a column whose name ends with ``>`` is aligned right.

    The last `MOST_ROWS` rows are shown, because the newest batches are last.
    """
    hidden = len(rows) - MOST_ROWS
    above = [f"<div>{hidden:,} earlier rows are not shown.</div>"] if hidden > 0 else []
    sides = ["right" if column.endswith(">") else "left" for column in columns]
    head = _row("th", [column.removesuffix(">") for column in columns], sides)
    body = [_row("td", row, sides) for row in rows[-MOST_ROWS:]]
    table = ["<table>", f"<thead>{head}</thead>", "<tbody>", *body, "</tbody>", "</table>"] if rows else []
    below = [f"<div>{escape(line)}</div>" for line in lines]
    return "\n".join(["<div>", f"<div><b>{escape(title)}</b></div>", *above, *table, *below, "</div>"])


def _row(kind: str, cells: Sequence[str], sides: Sequence[str]) -> str:
    shown = (
        f'<{kind} style="{_CELL.format(side=side)}">{escape(cell)}</{kind}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"
