"""Opens a checkpoint for the checks."""

from lakesink.checkpoint.folder import Checkpoint, FsspecFiles
from lakesink.checks.doctor.finding import Finding, Part, Standing
from lakesink_protocol.redact import describe, redact


def opened(root: str, part: Part, name: str, standing: Standing, fix: str) -> Checkpoint | Finding:
    """The checkpoint, or the given finding if it cannot be read from here.

    Args:
        root: Path or URI of the checkpoint.
        part: Part of the finding.
        name: Name of the finding's check.
        standing: Standing of the finding.
        fix: Fix of the finding.
    """
    try:
        return Checkpoint(FsspecFiles(root))
    except (ImportError, ValueError) as error:
        return Finding(part, name, standing, f"{redact(root)} cannot be read from here: {describe(error)}", fix)
