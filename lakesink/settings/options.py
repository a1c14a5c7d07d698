"""The keyword options of streams and appends. Parsing, suggestions and the docs all use `OPTIONS`."""

from typing import Any

from lakesink.settings.option import Option
from lakesink.settings.options_of_changes import OPTIONS_OF_CHANGES
from lakesink.settings.options_of_commit import OPTIONS_OF_COMMIT
from lakesink.settings.options_of_rows import OPTIONS_OF_ROWS
from lakesink.settings.options_of_target import OPTIONS_OF_TARGET
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import MASK, contains_secret, redact
from lakesink_protocol.suggest import sentence

OPTIONS: tuple[Option, ...] = (*OPTIONS_OF_TARGET, *OPTIONS_OF_CHANGES, *OPTIONS_OF_ROWS, *OPTIONS_OF_COMMIT)
BY_NAME = {option.name: option for option in OPTIONS}


def read_option(name: str, value: Any) -> Any:
    """Parse the value of one option of `OPTIONS`."""
    try:
        return BY_NAME[name].read(value)
    except ValueError as error:
        shown = MASK if contains_secret(name, value) or name == "catalog_properties" else _shown(value)
        why = f"The option {name} is {shown}: {sentence(redact(str(error)))}"
    raise option_invalid(name, why)


def option_invalid(name: str, what: str, action: str = "") -> SettingsError:
    """The error for the value of an option; without an action, its description is shown."""
    option = BY_NAME[name]
    return SettingsError("OPTION_INVALID", what, action=action or f"{name} ({option.type}): {option.doc}")


def _shown(value: Any) -> str:
    if not isinstance(value, (str, int, float)):
        return f"a {type(value).__name__}"
    text = redact(repr(value))
    return text if len(text) <= 40 else f"{text[:37]}..."
