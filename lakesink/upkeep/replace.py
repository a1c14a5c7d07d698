"""Replaces one group of files by new ones with the same rows, in a snapshot of its own.

The rewrite takes no turn. The commit looks at the files again, on the head that it is made for: rows that were deleted
meanwhile are deleted in the new files too, and a group whose files are not all there any more is lost.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyroaring import BitMap64

from lakesink.keys.deleted_rows import Deleted, KnownDeletes, read_deleted
from lakesink.keys.live_rows import applicable
from lakesink.parquet.deletes import DeletedRows, write_deletes
from lakesink.parquet.positions import below
from lakesink.upkeep.choose import Place, place_of, why_left
from lakesink.upkeep.columns import Unsuitable
from lakesink.upkeep.origins import live_numbers
from lakesink.upkeep.rewrite import Rewritten, Work
from lakesink_catalog.commit.change_commit import Applied, ChangeCommit
from lakesink_catalog.commit.table_change import Change
from lakesink_catalog.manifests.live import LiveFile, LiveFiles
from lakesink_protocol import events
from lakesink_protocol.ledger import MAINTENANCE
