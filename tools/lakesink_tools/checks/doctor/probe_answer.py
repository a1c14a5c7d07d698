"""The result of a probe of Spark, passed between two processes as a JSON file. Imports no PySpark."""

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path


class Step(Enum):
    """How far a probe came; the value describes the running step."""

    SESSION = "starting a session"
    WORKERS = "running a task in Spark's Python"
    ARROW = "moving rows through Arrow to lakesink's writer"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The Python that ran one task; a version is empty if its package cannot be imported, and `trouble` says why."""

    host: str
    executable: str
    python: str
    lakesink: str
    pyarrow: str
    trouble: str


@dataclass(slots=True)
class SparkAnswer:
    """Everything that a probe found until it ended; `code` is empty if no step failed."""

    step: Step = Step.SESSION
    pyspark: str = ""
    spark: str = ""
    java: str = ""
    master: str = ""
    workers: tuple[WorkerFacts, ...] = field(default_factory=tuple)
    rows: int = 0
    code: str = ""
    what: str = ""
    action: str = ""

    def write(self, path: Path) -> None:
        """Write the result for `read`."""
        path.write_text(json.dumps(asdict(self) | {"step": self.step.name}))

    @classmethod
    def read(cls, path: Path) -> "SparkAnswer | None":
        """The result in a file; None if there is no file."""
        if not path.exists():
            return None
        document = json.loads(path.read_text())
        workers = tuple(WorkerFacts(**worker) for worker in document.pop("workers"))
        return cls(step=Step[document.pop("step")], workers=workers, **document)
