"""The charts of the benchmarks, drawn by Matplotlib from the figures of the last runs. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from benchmarks.fall import ADD_BATCH, REST, Part, around, within

GREEN, BROWN, BLUE, GREY, BLACK = "#2a7f62", "#b5651d", "#35618f", "#a5a5a5", "#333333"
_STYLE: Any = {
    "svg.hashsalt": "lakesink",  # ids in the file do not change from run to run
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
}
_CLIP_PATH = re.compile(r'<clipPath id="(\w+)"')
_INCHES_WIDE = 9.6
_INCHES_OF_A_BAR = 0.26
_INCHES_OF_A_TITLE = 0.75
_INCHES_OF_A_PANEL = 3.4
_COLOURS = (GREEN, BROWN, BLUE, BLACK, GREY)


def speed(results: Sequence[Mapping[str, Any]]) -> str:
    """Rows per second of each sink, one diagram below the other: longer is faster.

    Args:
        results: Of the workloads that `measures_speed`, each a `benchmarks.result.Result` as JSON.
    """
    with mpl.rc_context(_STYLE):
        figure, axes = _stacked([len(result["rows"]) for result in results])
        for axis, result in zip(axes, results, strict=True):
            _sinks(axis, result)
        axes[-1].set_xlabel("thousand rows per second: longer is faster")
        return _svg(figure)


def measures_speed(result: Mapping[str, Any]) -> bool:
    """True for the seconds of each sink, over a number of rows with which the title begins."""
    return bool(result["heads"][:2] == ["sink", "seconds"])


def _sinks(axis: Axes, result: Mapping[str, Any]) -> None:
    rows = int(result["title"].split()[0].replace(",", ""))
    sinks = [row[0] for row in result["rows"]]
    speeds = [rows / row[1] / 1000 for row in result["rows"]]
    bars = axis.barh(sinks, speeds, color=[GREEN if sink == "lakesink" else GREY for sink in sinks])
    axis.bar_label(bars, fmt="{:,.0f}", padding=3)
    axis.margins(x=0.1)
    axis.set_title(f"{result['key']}: {result['title']}", loc="left", fontsize="medium", fontweight="bold")
    axis.invert_yaxis()


def waterfall(loads: Sequence[Mapping[str, Any]]) -> str:
    """Every part of one micro-batch as a bar that begins where the part before it ends: shorter is faster.

    Args:
        loads: Each a `benchmarks.waterfall.Load` as JSON.
    """
    lines = [list(_lines(load)) for load in loads]
    with mpl.rc_context(_STYLE):
        figure, axes = _stacked([len(one) for one in lines])
        for axis, load, parts in zip(axes, loads, lines, strict=True):
            bars = axis.barh(
                range(len(parts)),
                [max(part.milliseconds, 0.0) for _, part, _ in parts],
                left=[part.start for _, part, _ in parts],
                color=[colour for _, _, colour in parts],
            )
            axis.bar_label(bars, labels=[f"{part.milliseconds:.1f}" for _, part, _ in parts], padding=3)
            axis.set_yticks(range(len(parts)), [label for label, _, _ in parts])
            axis.margins(x=0.06, y=0.01)
            axis.set_title(load["title"], loc="left", fontsize="medium", fontweight="bold")
            axis.invert_yaxis()
        axes[-1].set_xlabel("milliseconds since the start of the batch")
        return _svg(figure)


def _lines(load: Mapping[str, Any]) -> Iterator[tuple[str, Part, str]]:
    """Label, part and colour of each bar: the first sink within Spark's steps, then the other sinks."""
    first, *others = load["streams"]
    for part in around(first["spark"]):
        if part.name == ADD_BATCH:
            yield from _of_sink(first)
        else:
            yield f"Spark: {part.name}", part, GREY
    yield from chain.from_iterable(map(_of_sink, others))


def _of_sink(stream: Mapping[str, Any]) -> Iterator[tuple[str, Part, str]]:
    [whole] = (part for part in around(stream["spark"]) if part.name == ADD_BATCH)
    yield f"{stream['sink']}: {ADD_BATCH}", whole, BLACK
    if stream["steps"]:
        for step in within(stream["spark"], stream["steps"]):
            yield step.name, step, _colour(step)


def _colour(step: Part) -> str:
    if step.name == REST:
        return BROWN
    return BLUE if step.name.startswith("write") else GREEN


def curves(panels: Sequence[Mapping[str, Any]]) -> str:
    """Measured points as lines, two diagrams beside each other; both axes of each are logarithmic.

    Args:
        panels: Each a `benchmarks.scale.panel.Panel` as JSON.
    """
    rows = -(-len(panels) // 2)
    with mpl.rc_context({**_STYLE, "axes.grid.axis": "both", "axes.prop_cycle": cycler(color=_COLOURS)}):
        figure = Figure(figsize=(_INCHES_WIDE, rows * _INCHES_OF_A_PANEL), layout="constrained")
        axes = list(figure.subplots(rows, 2, squeeze=False).flat)
        for axis, panel in zip(axes, panels, strict=False):
            _lines_of(axis, panel)
        for unused in axes[len(panels) :]:
            unused.remove()
        return _svg(figure)


_OF_A_DAY = (
    ("data files", "files", 1),
    ("rows deleted, %", "deleted_share", 0.01),
    ("manifests", "manifests", 1),
    ("metadata, MiB", "metadata_bytes", 2**20),
    ("batch, processor ms", "batch_cpu_ms", 1),
)


def day(tables: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """Tables over the hours of a day, a column for each sink, with maintenance and without it.

    Args:
        tables: By sink and maintenance the hours, each a `benchmarks.day.Hour` as JSON.
    """
    with mpl.rc_context({**_STYLE, "axes.grid.axis": "both"}):
        height = len(_OF_A_DAY) * _INCHES_OF_A_PANEL / 2
        figure = Figure(figsize=(_INCHES_WIDE, height), layout="constrained")
        axes = figure.subplots(len(_OF_A_DAY), len(tables), sharex=True, squeeze=False)
        for column, (sink, days) in zip(axes.T, tables.items(), strict=True):
            column[0].set_title(sink, loc="left", fontsize="medium", fontweight="bold")
            column[-1].set_xlabel("hour")
            for axis, (label, name, unit) in zip(column, _OF_A_DAY, strict=True):
                for maintenance, hours in days.items():
                    colour = GREEN if maintenance == "on" else GREY
                    points = [hour["hour"] for hour in hours], [hour[name] / unit for hour in hours]
                    axis.plot(*points, color=colour, label=f"maintenance {maintenance}")
                if axis in axes[:, 0]:
                    axis.set_ylabel(label)
                axis.set_ylim(bottom=0)
        axes[0, 0].legend(frameon=False, fontsize="small")
        return _svg(figure)


def _lines_of(axis: Axes, panel: Mapping[str, Any]) -> None:
    sizes = sorted({x for points in panel["lines"].values() for x, _ in points})
    for label, points in panel["lines"].items():
        axis.loglog([x for x, _ in points], [y for _, y in points], marker="o", markersize=4, label=label)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize="small")
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:,g}")
    axis.set_xlabel(panel["x"])
    axis.set_title(panel["y"], loc="left", fontsize="medium", fontweight="bold")
    axis.legend(frameon=False, fontsize="small")


def _stacked(bars: Sequence[int]) -> tuple[Figure, list[Axes]]:
    """One diagram below the other, each as high as its number of bars needs."""
    heights = [number * _INCHES_OF_A_BAR + _INCHES_OF_A_TITLE for number in bars]
    figure = Figure(figsize=(_INCHES_WIDE, sum(heights)), layout="constrained")
    axes = figure.subplots(len(bars), height_ratios=heights, squeeze=False)
    return figure, list(axes.flat)


def _svg(figure: Figure) -> str:
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    # Ids of clip paths follow from coordinates, whose last digits differ from run to run.
    for number, found in enumerate(dict.fromkeys(_CLIP_PATH.findall(drawn))):
        drawn = drawn.replace(found, f"clip{number}")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"
