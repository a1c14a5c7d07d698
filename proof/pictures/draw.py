"""Each picture, from the table that it shows. Pure."""

from collections.abc import Iterator, Mapping

from lakesink_catalog.failpoints import FAILPOINTS
from lakesink_protocol.errors import Reason
from lakesink_protocol.verdict import STREAM_RULES, Rule
from proof.guarantees.cells import KINDS, CellResult, Guarantee, Source
from proof.guarantees.run import Guarantees
from proof.pictures.calls import STORIES
from proof.pictures.svg import MARGIN, Box, Tint, svg, table

_PHASES = {
    "written": ("pre-commit", "nothing", Tint.PLAIN),
    "written again": ("pre-commit", "nothing", Tint.PLAIN),
    "recovered": ("prepared", "nothing", Tint.WAITING),
    "already committed": ("committed", "the whole batch", Tint.WELL),
}
"""Phase, what readers see, and colour, by what a replay makes of the batch."""
_SEEN = {
    Guarantee.EXACTLY_ONCE: Tint.WELL,
    Guarantee.IN_THE_END: Tint.WAITING,
    Guarantee.AT_LEAST_ONCE: Tint.HARM,
    Guarantee.AT_MOST_ONCE: Tint.HARM,
    Guarantee.NONE: Tint.HARM,
}
_COLUMNS = (("commit", "commit", Tint.WELL), ("skip", "skip: it is there", Tint.WAITING), ("", "refuse", Tint.HARM))


def batch() -> str:
    """How far a batch has come at each failpoint, and what a death there costs."""
    head = [("phase", 100), ("failpoint", 140), ("process", 82), ("the batch has come so far", 280)]
    head += [("readers see", 120), ("after a death here", 160)]
    widths = [width for _, width in head]
    rows = [[(width, text, Tint.HEAD) for text, width in head]]
    for name, point in FAILPOINTS.items():
        phase, seen, tint = _PHASES[point.replay]
        texts = (phase, name, point.process, point.meaning, seen, point.replay)
        rows.append([(width, text, tint) for width, text in zip(widths, texts, strict=True)])
    return svg("One batch, from its offsets to its commit, and what a death costs on the way", table(rows))


def seam() -> str:
    """Which methods of a sink are called, in which story."""
    width = (928 - 8 * (len(STORIES) - 1)) / len(STORIES)
    boxes: list[Box] = []
    for column, (title, calls) in enumerate(STORIES.items()):
        x, y = MARGIN + column * (width + 8), float(MARGIN)
        for number, text in enumerate([title, *calls()]):
            box = Box(x, y, width, text, Tint.HEAD if number == 0 else _of_call(text), 50 if number == 0 else 0)
            boxes.append(box)
            y = box.bottom + 8
    return svg("The calls of the two-phase seam: a batch that runs, and what comes after each death", boxes)


def verdicts() -> str:
    """Which rules commit a batch, which skip it, and which stop the stream."""
    width = (928 - 16) / 3
    boxes: list[Box] = []
    for column, (then, title, tint) in enumerate(_COLUMNS):
        x, y = MARGIN + column * (width + 8), float(MARGIN)
        rules = [rule for rule in STREAM_RULES if then in ("", rule.then) and (then or isinstance(rule.then, Reason))]
        for text, of in [(title, Tint.HEAD), *((_of_rule(rule), tint) for rule in rules)]:
            box = Box(x, y, width, text, of)
            boxes.append(box)
            y = box.bottom + 6
    return svg("The verdict on a batch: the first rule that applies decides", boxes)


def guarantees(found: Guarantees) -> str:
    """The guarantee table as measured."""
    rows = [[(220.0, "sink", Tint.HEAD), *((346.0, source.value, Tint.HEAD) for source in reversed(Source))]]
    for name, kind in KINDS.items():
        cells = (found.of((name, source)) for source in reversed(Source))
        rows.append([(220.0, kind.title, Tint.PLAIN), *((346.0, _of_cell(cell), _tint(cell)) for cell in cells)])
    return svg("What each sink made of each source when its drivers were killed", table(rows))


def all_pictures(found: Guarantees) -> Mapping[str, str]:
    """Every picture by the name of its file."""
    return dict(_named(found))


def _named(found: Guarantees) -> Iterator[tuple[str, str]]:
    yield "batch.svg", batch()
    yield "seam.svg", seam()
    yield "verdicts.svg", verdicts()
    yield "guarantees.svg", guarantees(found)


def _of_call(text: str) -> Tint:
    if text.startswith("commit") or text.endswith("it is there"):
        return Tint.WELL
    return Tint.WAITING if "prepared" in text or text == "recover" else Tint.PLAIN


def _of_rule(rule: Rule) -> str:
    return f"{rule.number}. {rule.when}" + (f": {rule.then.value}" if isinstance(rule.then, Reason) else "")


def _of_cell(cell: CellResult | None) -> str:
    if cell is None:
        return "not run"
    told = f"{cell.measured.value}\n{cell.lost} lost, {cell.doubled} doubled, {len(cell.blows)} kills"
    return f"{told}\na reader saw older values" if cell.went_back else told


def _tint(cell: CellResult | None) -> Tint:
    return Tint.PLAIN if cell is None else _SEEN[cell.measured]
