"""A checkpoint as this machine can read it, for every check that looks into one."""

from lakesink.checkpoint.folder import Checkpoint, FsspecFiles
from lakesink.checks.doctor.finding import Finding, Part, Standing
from lakesink_protocol.redact import describe, redact


def opened(root: str, part: Part, name: str, standing: Standing, fix: str) -> Checkpoint | Finding:
    """The checkpoint at a place, or what to say where it cannot be read from here.

    Args:
        root: Path or URI of the checkpoint.
        part: Of the finding, as its name, standing and remedy.
        name: See `part`.
        standing: See `part`.
        fix: See `part`.
    """
    try:
        return Checkpoint(FsspecFiles(root))
    except (ImportError, ValueError) as error:
        return Finding(part, name, standing, f"{redact(root)} cannot be read from here: {describe(error)}", fix)
