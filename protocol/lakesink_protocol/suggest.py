"""Suggests the nearest known name in messages about an unknown name. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to `name`, or None if none is similar. Case does not count."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower()[:256], by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence for an unknown name: suggests the nearest known name, else lists known names; empty without any."""
    candidates = sorted(set(known))
    closest = nearest(name, candidates)
    if closest is not None:
        return f"Did you mean {closest!r}?"
    if not candidates:
        return ""
    shown = ", ".join(candidates[:_SHOWN])
    more = "" if len(candidates) <= _SHOWN else f", and {len(candidates) - _SHOWN} more"
    return f"Known: {shown}{more}."


def sentence(text: str) -> str:
    """The text, with a full stop unless it already ends in punctuation."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


_SHOWN = 20
