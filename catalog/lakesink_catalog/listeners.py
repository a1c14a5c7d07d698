"""The default listeners: the log and the failpoints."""

from lakesink_catalog.failpoints import failpoints
from lakesink_catalog.log import log
from lakesink_protocol.events import Listeners

LISTENERS = Listeners(log, failpoints)
