"""Another process maintains the stream's table once, as `lakesink maintain` does."""

from functools import partial

from lakesink.sinks.iceberg.upkeep.maintenance import Maintenance
from lakesink.sinks.iceberg.upkeep.policy import Policy
from lakesink.sinks.iceberg.upkeep.proof import PROOF
from lakesink_catalog.tables.tables import load_table
from lakesink_protocol.errors import LakesinkError
from proof.oracle import Broken, Promise
from proof.simulator.drivers import Stream

FEW_FILES = 2


def maintain(stream: Stream) -> None:
    """Maintain the table; rows are judged with each snapshot, and here that no proof of them failed."""
    load = partial(load_table, stream.client(), ".".join(stream.server.name))
    maintenance = Maintenance(load, stream.truth.branch, Policy(min_input_files=FEW_FILES), stream.effects)
    try:
        report = maintenance.run()
    except (LakesinkError, OSError) as error:
        code = getattr(error, "code", type(error).__name__)
        stream.outcomes[f"maintenance: {code}"] += 1
        stream.world.tell(f"ends: {code}")
        return
    stream.outcomes["maintenance: replaced"] += len(report.groups)
    codes = {file.reason.partition(":")[0] for file in report.left}
    stream.outcomes.update(f"maintenance: {code}" for code in codes)
    stream.world.tell(f"replaces {len(report.groups)} groups, and leaves {len(report.left)} files: {', '.join(codes)}")
    if PROOF in codes:
        stream.truth.broken.append(Broken(Promise.REFUSALS_ARE_RIGHT, "a proof of rows failed that are the same"))
