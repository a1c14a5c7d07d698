"""What the page on operations says of maintenance runs as it is printed, beside a stream's table."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from lakesink_protocol.outcome import Committed
from testkit.builders import TABLE, counted, expected
from tests.interop.maintenance.lake import Lake
from tests.interop.maintenance.others import plant
from tests.interop.maintenance.plain import plain_stream

pytestmark = pytest.mark.interop
PAGE = Path(__file__).parents[3] / "docs/operate/operating.md"


@pytest.mark.parametrize("engine", ["spark", "trino"])
def test_the_recipes_run_as_they_are_printed(lake: Lake, engine: str) -> None:
    with plain_stream(lake) as stream:
        for batch_id in range(3):
            stream.run(batch_id)
        orphan = plant(lake, TABLE, timedelta(days=8))
        files = len(list(stream.lake.table().scan().plan_files()))
        for statement in printed(engine):
            getattr(lake, engine).sql(statement)
        assert not orphan.exists()
        assert len(list(stream.lake.table().scan().plan_files())) < files
        assert isinstance(stream.run(3), Committed)
        assert counted(stream.lake) == expected(*range(4))
        assert lake.asked("audit", TABLE)["findings"] == []


def printed(name: str) -> list[str]:
    text = PAGE.read_text().partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]
    [code] = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    return [statement.strip() for statement in code.split(";\n") if statement.strip()]
