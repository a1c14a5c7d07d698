"""DuckDB's Iceberg extension: attaches a REST catalog; reads tables of other catalogs by their metadata file. Pure."""

from lakesink_tools.engines.recipe import File, Query, Recipe, first_queries, quoted, text_literal
from lakesink_tools.engines.recipe_input import Rest, Target

ENGINE = "DuckDB 1.5.5"


def recipe(target: Target) -> Recipe:
    """Statements and queries for DuckDB."""
    rest = target.backend if isinstance(target.backend, Rest) else None
    secrets = ["the AWS keys in place of <...>"] if target.on_s3 else []
    secrets += [
        f"the catalog's {key} in place of <{variable}>" for key, variable in (rest.secrets if rest else {}).items()
    ]
    extensions = ["avro", "httpfs", "iceberg"]
    lines = [f"INSTALL {name};" for name in extensions] + [f"LOAD {name};" for name in extensions]
    lines += [_storage(target)] if target.on_s3 else []
    if rest:
        has_secret = not {"token", "credential"}.isdisjoint(rest.secrets)
        access = "SECRET lakesink_catalog" if has_secret else "AUTHORIZATION_TYPE 'none'"
        lines += _secret(rest)
        lines.append(
            f"ATTACH {text_literal(target.warehouse)} AS {quoted((target.catalog,), chr(34))}"
            f" (TYPE iceberg, ENDPOINT {text_literal(rest.uri)}, {access});"
        )
    return Recipe(
        engine=ENGINE,
        needs=("the extension iceberg, which INSTALL fetches", *secrets),
        files=(File(f"{target.catalog}-duckdb.sql", "run it in every session", "\n".join(lines) + "\n"),),
        queries=_queries(target),
        notes=tuple(_notes(target, rest)),
    )


def _storage(target: Target) -> str:
    facts = {"TYPE": "s3", "KEY_ID": "'<AWS_ACCESS_KEY_ID>'", "SECRET": "'<AWS_SECRET_ACCESS_KEY>'"}
    endpoint = target.storage.get("s3.endpoint")
    if "s3.region" in target.storage:
        facts["REGION"] = text_literal(target.storage["s3.region"])
    if endpoint is not None:
        scheme, _, host = endpoint.rpartition("://")
        facts |= {"ENDPOINT": text_literal(host.rstrip("/")), "URL_STYLE": "'path'"}
        facts["USE_SSL"] = str(scheme != "http").lower()
    return f"CREATE SECRET ({', '.join(f'{name} {value}' for name, value in facts.items())});"


def _secret(rest: Rest) -> list[str]:
    """A secret for OAuth2, if the configuration has a token or a credential."""
    facts = []
    if "token" in rest.secrets:
        facts.append(f"TOKEN '<{rest.secrets['token']}>'")
    elif "credential" in rest.secrets:
        name = rest.secrets["credential"]
        facts += [f"CLIENT_ID '<{name}, before its colon>'", f"CLIENT_SECRET '<{name}, after it>'"]
        if "oauth2-server-uri" in rest.properties:
            facts.append(f"OAUTH2_SERVER_URI {text_literal(rest.properties['oauth2-server-uri'])}")
    return [f"CREATE SECRET lakesink_catalog (TYPE iceberg, {', '.join(facts)});"] if facts else []


def _notes(target: Target, rest: Rest | None) -> list[str]:
    found = []
    if rest is None:
        found.append(
            "DuckDB reads the named metadata file, so it shows the table as it is now:"
            " run this command again after the next batch."
        )
    if target.moment is not None and target.moment.tag is not None:
        found.append("DuckDB reads an earlier snapshot by its id, not by a tag.")
    return found


def _queries(target: Target) -> tuple[Query, ...]:
    if isinstance(target.backend, Rest):
        *namespaces, name = target.parts
        table = quoted((target.catalog, ".".join(namespaces), name), '"')
        return first_queries(target.moment, table=table, newest=_newest(table), at_snapshot="AT (VERSION => {})")
    file = text_literal(target.metadata_file)
    found = first_queries(None, table=f"iceberg_scan({file})", newest=_newest(file), at_snapshot="")
    if target.moment is None:
        return found
    at = f"{file}, snapshot_from_id => {target.moment.snapshot_id}"
    return (*found, Query(target.moment.what, f"SELECT * FROM iceberg_scan({at})"))


def _newest(table: str) -> str:
    return f"SELECT timestamp_ms, snapshot_id FROM iceberg_snapshots({table}) ORDER BY timestamp_ms DESC LIMIT 10"
