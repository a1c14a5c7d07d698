"""Small sinks: eight sound ways to commit, and unsafe ones."""

from tests.testing.sinks.markers import FolderMarkerSink, JournalSink, LockedFileSink, MarkerSink
from tests.testing.sinks.transactions import CompareAndSwapSink, JoinedSink, PrimaryKeySink, UpsertSink

SOUND = (
    PrimaryKeySink,
    UpsertSink,
    CompareAndSwapSink,
    JoinedSink,
    MarkerSink,
    FolderMarkerSink,
    LockedFileSink,
    JournalSink,
)
"""With the example's, the two that are shipped and the one of folders: twelve that pass."""
