"""PyIceberg without lakesink. Pure."""

from lakesink_protocol.errors import CatalogError
from lakesink_tools.engines.recipe import File, Query, Recipe
from lakesink_tools.engines.recipe_input import Rest, Target

ENGINE = "PyIceberg 0.12"


def recipe(target: Target) -> Recipe:
    """A program with expressions; raises a `CatalogError` if PyIceberg cannot read the table."""
    if target.equality_deletes:
        raise CatalogError.of("DELETES_UNSUPPORTED.recipe", table=".".join(target.parts))
    extras = "pyarrow" if isinstance(target.backend, Rest) else f"{target.backend.extra},pyarrow"
    return Recipe(
        engine=ENGINE,
        needs=(f"pip install 'pyiceberg[{extras}]'", *target.access),
        files=(File(f"{target.catalog}_table.py", "run it first", _program(target)),),
        queries=tuple(_queries(target)),
        notes=target.notes,
    )


def _program(target: Target) -> str:
    backend = target.backend
    secrets = backend.secrets if isinstance(backend, Rest) else {}
    catalog = (
        {"type": "rest", "uri": backend.uri, **backend.properties}
        if isinstance(backend, Rest)
        else {"type": "sql", "uri": backend.url}
    )
    properties = {**catalog, **({"warehouse": target.warehouse} if target.warehouse else {}), **target.storage}
    lines = [f"    {name!r}: {value!r},\n" for name, value in properties.items()]
    lines += [f"    {key!r}: os.environ[{variable!r}],\n" for key, variable in secrets.items()]
    return (
        ("import os\n\n" if secrets else "")
        + "from pyiceberg.catalog import load_catalog\n\n"
        + f"catalog = load_catalog({target.catalog!r}, **{{\n{''.join(lines)}}})\n"
        + f"table = catalog.load_table({target.parts!r})\n"
    )


def _queries(target: Target) -> list[Query]:
    found = [
        Query("how many rows", "table.scan().count()"),
        Query("the newest batches", "table.inspect.snapshots().sort_by([('committed_at', 'descending')]).slice(0, 10)"),
    ]
    if target.moment is None:
        return found
    found.append(Query(target.moment.what, f"table.scan(snapshot_id={target.moment.snapshot_id}).to_arrow()"))
    if target.moment.tag is not None:
        by_tag = f"table.scan().use_ref({target.moment.tag!r}).to_arrow()"
        found.append(Query(f"{target.moment.what}, by its tag", by_tag))
    return found
