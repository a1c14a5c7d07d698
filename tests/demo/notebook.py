"""Executes the notebook as Jupyter does. ``python -m tests.demo.notebook`` stores what it shows then."""

import re
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "first_table.ipynb"
LONGEST_CELL_SECONDS = 600
_VARYING = (
    (re.compile(r"in /\S+"), "in FOLDER"),
    (re.compile(r"\b\d{15,}\b"), "SNAPSHOT"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r" *\b[\d,.]+ (ms|s|B|KiB)\b"), r" \1"),
)


def executed(folder: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run in this folder; what Java writes to standard error is left out."""
    notebook: nbformat.NotebookNode = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=LONGEST_CELL_SECONDS, resources={"metadata": {"path": str(folder)}})
    client.execute()
    for cell in code_cells(notebook):
        cell.metadata.pop("execution", None)
        cell.outputs = list(_joined(output for output in cell.outputs if output.get("name") != "stderr"))
    return notebook


def _joined(outputs: Iterable[nbformat.NotebookNode]) -> Iterator[nbformat.NotebookNode]:
    """Outputs with neighbouring texts as one: how often a kernel sends them differs from run to run."""
    for kind, group in groupby(outputs, key=lambda output: output.output_type):
        first, *others = group
        if kind == "stream":
            first.text += "".join(other.text for other in others)
        yield from [first] if kind == "stream" else [first, *others]


def shown(notebook: nbformat.NotebookNode) -> list[str]:
    """What each output shows, without what differs from run to run. The end of a query may come after its cell."""
    texts = (_steady(_text(output)) for cell in code_cells(notebook) for output in cell.outputs)
    without_ends = (re.sub(r"^.*  query ended  .*\n", "", text, flags=re.MULTILINE) for text in texts)
    return [text for text in without_ends if text]


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _text(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return str(output.data.get("text/html", output.data.get("text/plain", "")))


def _steady(text: str) -> str:
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text


def store() -> None:
    """Write the outputs of a new run into the notebook."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(Path(folder))
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "stream":
                output.text = output.text.replace(folder, "/home/you/notebook")
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    store()
