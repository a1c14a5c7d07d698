"""The keyword options of streams and appends. Parsing, suggestions and the docs all use `OPTIONS`."""

import os
from typing import Any

from lakesink.settings.option import Option
from lakesink.settings.options_of_changes import OPTIONS_OF_CHANGES
from lakesink.settings.options_of_rows import OPTIONS_OF_ROWS
from lakesink.settings.options_of_target import OPTIONS_OF_COMMIT, OPTIONS_OF_TARGET
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.redact import redact

OPTIONS: tuple[Option, ...] = (*OPTIONS_OF_TARGET, *OPTIONS_OF_CHANGES, *OPTIONS_OF_ROWS, *OPTIONS_OF_COMMIT)
BY_NAME = {option.name: option for option in OPTIONS}


def read_option(name: str, value: Any) -> Any:
    """Parse the value of one option of `OPTIONS`."""
    return BY_NAME[name].parse(value)


def read_with_variable(name: str, value: Any) -> Any:
    """The parsed value of an option, else that of its variable ``LAKESINK_<OPTION>``; None if neither is set."""
    variable = f"LAKESINK_{name.upper()}"
    text = os.environ.get(variable, "")
    if value is not None or not text:
        return None if value is None else read_option(name, value)
    try:
        return BY_NAME[name].read(text)
    except ValueError as error:
        trouble = str(error)
    raise SettingsError.of("SETTING_INVALID.variable", variable=variable, text=redact(text)[:40], why=trouble)


def option_invalid(name: str, what: str) -> SettingsError:
    """The error for the value of one option of `OPTIONS`."""
    return BY_NAME[name].invalid(what)
