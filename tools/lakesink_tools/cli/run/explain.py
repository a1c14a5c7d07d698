"""The command ``explain``: the page of an error, without a network and without the docs."""

from lakesink_catalog.words import counted
from lakesink_protocol.catalogue import PREFIX, Explanation, explanations, full_code
from lakesink_protocol.errors import SettingsError
from lakesink_protocol.suggest import nearest
from lakesink_tools.cli.output import Report


def explain(code: str | None) -> Report:
    """Exit code 2: there is no such code."""
    if code is None:
        return _list()
    found = explanations().get(full_code(code))
    if found is None:
        names = [known.removeprefix(PREFIX) for known in explanations()]
        close = nearest(full_code(code).removeprefix(PREFIX), names)
        raise SettingsError.of(
            "CODE_UNKNOWN", code=code[:60], near="" if close is None else f"Did you mean {PREFIX}{close}?"
        )
    first, _, rest = found.page().partition("\n")
    return Report(_document(found), title=first, hints=rest.splitlines())


def _list() -> Report:
    known = sorted(explanations().values(), key=lambda one: one.code)
    longest = max(len(one.code) for one in known)
    return Report(
        {"errors": [_document(one) for one in known]},
        title=counted(len(known), "error"),
        hints=[
            *(f"{one.code:<{longest}}  {one.text.shown().says}" for one in known),
            "",
            f"Next: lakesink explain {PREFIX}ROLLED_BACK, for example",
        ],
    )


def _document(one: Explanation) -> dict[str, str]:
    shown = one.text.shown()
    return {"code": one.code, "what": shown.says, "data": shown.data, "do": " Or: ".join(shown.do), "more": one.more}
