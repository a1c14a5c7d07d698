"""What the environment of every engine must contain: storage keys, and the catalog's password or secrets. Pure."""

from typing import assert_never

from lakesink.engines.target import Postgres, Rest, Sqlite, Target

_AWS_VARIABLES = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another of AWS's ways, in the engine's environment"
_PASSWORD_FILE = "the password of {user} in ~/.pgpass, as {place}:{user}:..., which the drivers read"  # noqa: S105 - none


def access(target: Target) -> tuple[str, ...]:
    """The requirements in words, without secrets."""
    storage = (_AWS_VARIABLES,) if target.on_s3 else ()
    match target.backend:
        case Sqlite():
            return storage
        case Postgres(host=host, port=port, database=database, user=user):
            place = f"{host}:{port}:{database}"
            return (*storage, _PASSWORD_FILE.format(place=place, user=user or "the user"))
        case Rest(secrets=secrets):
            told = (f"{variable} in the engine's environment: the catalog's {key}" for key, variable in secrets.items())
            return (*storage, *told)
        case _:
            assert_never(target.backend)
