"""Each step of a batch as a frozen value, and the listeners that receive it. Pure: the listeners are injected.

An event contains no row and no secret: whoever emits it redacts paths and errors first. A listener never alters a
decision, and only a failpoint may stop a batch.
"""

from lakesink_protocol.events.batch_steps import *
from lakesink_protocol.events.committing import *
from lakesink_protocol.events.environment import *
from lakesink_protocol.events.event import *
from lakesink_protocol.events.incoming import *
from lakesink_protocol.events.queries import *
from lakesink_protocol.events.reading import *
from lakesink_protocol.events.upkeep import *
