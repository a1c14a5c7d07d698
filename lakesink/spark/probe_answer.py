"""What a probe of Spark tells the process that started it, as a JSON file between the two. Imports no PySpark."""

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path


class Step(Enum):
    """How far a probe came; the value is what it was doing."""

    SESSION = "starting a session"
    WORKERS = "running a task in Spark's Python"
    ARROW = "moving rows through Arrow to lakesink's writer"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The Python that ran one task.

    Attributes:
        host: Its machine.
        executable: Its Python.
        python: Version of that.
        lakesink: Version; empty if it cannot be imported.
        pyarrow: Version; empty if it cannot be imported.
        trouble: Why one of them cannot be imported; empty if both can.
    """

    host: str
    executable: str
    python: str
    lakesink: str
    pyarrow: str
    trouble: str


@dataclass(slots=True)
class SparkAnswer:
    """All that a probe found until it ended.

    Attributes:
        step: What it was doing last.
        pyspark: Version of the Python package.
        spark: Version of the Spark that it started.
        java: Version and home of its Java.
        master: Where its executors are.
        workers: What ran the tasks, each once.
        rows: Rows that came through Arrow.
        code: Code of the error that ended it; empty if it did all.
        what: What happened then.
        action: What to do about it.
    """

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
        """Leave it for `read`."""
        path.write_text(json.dumps(asdict(self) | {"step": self.step.name}))

    @classmethod
    def read(cls, path: Path) -> "SparkAnswer | None":
        """What was written there; None if nothing was."""
        if not path.exists():
            return None
        document = json.loads(path.read_text())
        workers = tuple(WorkerFacts(**worker) for worker in document.pop("workers"))
        return cls(step=Step[document.pop("step")], workers=workers, **document)
