"""Where the log goes in processes of Spark that nobody configures."""

import logging


def ensure_log_handler() -> None:
    """Add a log handler if there is none: the standard error of planner and committer is the driver's."""
    logger = logging.getLogger("lakesink")
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
