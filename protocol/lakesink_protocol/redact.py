"""Hides secrets: all text about users' settings passes through this module before it is printed or raised. Pure.

It hides the values of keys that name a secret, the user part of a URI, and all values of a catalog's own secrets in any
text. Each filter catches secrets that the others miss. If in doubt, it hides too much.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, overload
from urllib.parse import unquote

MASK = "***"
MAX_DESCRIPTION = 160

_REVEALING_WORDS = (
    r"pass(?:word|wd|phrase)|(?<![a-z0-9])pass(?![a-z0-9_-])|pwd|secret|token|credential|authorization|cookie|signature"
    r"|connection-?string|key-?id|(?:api|access|account|private|encryption|decryption|customer|shared|master|signing)-?key"
    r"|(?<![a-z0-9])(?:sas|sig)(?![a-z0-9])"
)
_SECRET_KEY = re.compile(rf"(?:{_REVEALING_WORDS}|(?:^|[.-])header[.-])", re.IGNORECASE)
_SECRET_PAIR = re.compile(
    r"(?P<address>://[\w.\-]{1,255}:[0-9]{1,5}(?![\w.\-]))|"  # a host named like a secret, with its port
    rf"""(?P<key>(?:{_REVEALING_WORDS.replace("-?", "[-_]?")})[\w.\-]{{0,64}}["']?\s{{0,8}}(?:=>|[=:])\s{{0,8}})"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|(?:(?:bearer|basic|negotiate)\s+)?[^\s,;&}\])"']+)""",
    re.IGNORECASE,
)
_PROSE = r"\s+(?-i:[a-z]+)(?![\w+/=])"
_BEARER = re.compile(rf"\b(bearer|basic(?!{_PROSE}))\s+[A-Za-z0-9._~+/=\-]{{8,}}", re.IGNORECASE)
_USER_INFO = re.compile(
    r"""(?P<scheme>[a-z][a-z0-9+.\-]{0,30})://(?P<user>[^\s/:@"]{0,512}:[^\s"]{0,512}|[^\s/?\#"]{1,512})@""",
    re.IGNORECASE,
)
_ACCEPTED_WORD = r"\w{1,40}(?:\+InputMissing)?:[0-9]{1,19}@[0-9a-z-]{1,40}:(?:commit|skip)$"
_USER_WITHOUT_SCHEME = re.compile(rf"^(?!{_ACCEPTED_WORD})[^\s/:@]{{1,512}}:(?!//)[^\s]{{1,512}}@")
_NAMING_SCHEMES = frozenset({"abfs", "abfss", "wasb", "wasbs", "postgresql"})
"""Schemes with a container or a database user before the @; in others, a word there can be a token."""
_SHORTEST_SECRET = 4
_OF_S3 = "AWS Error "


@overload
def redact(value: str, known: Mapping[str, Any] | None = None) -> str: ...
@overload
def redact(value: Mapping[str, Any], known: Mapping[str, Any] | None = None) -> dict[str, Any]: ...
def redact(value: str | Mapping[str, Any], known: Mapping[str, Any] | None = None) -> str | dict[str, Any]:
    """The text or mapping with every secret replaced by `MASK`; nested mappings are redacted too.

    The secrets of the properties in `known` are replaced in every form.
    """
    if isinstance(value, str):
        return _redact_text(value, known or {})
    return {key: _redact_entry(str(key), entry, known) for key, entry in value.items()}


def is_secret(key: str) -> bool:
    """True if a property of this name holds a secret."""
    return _SECRET_KEY.search(key.replace("_", "-")) is not None


def contains_secret(key: str, value: object) -> bool:
    """True if this property must stay hidden: a secret by its name, or a value of which `redact` hides a part."""
    return is_secret(key) or redact({key: value}) != {key: value}


def describe(error: BaseException, known: Mapping[str, Any] | None = None) -> str:
    """One short line about another library's exception, without secrets."""
    first = _reason_first(next((line.strip() for line in _text(error).splitlines() if line.strip()), ""))
    text = redact(f"{type(error).__name__}: {first}" if first else type(error).__name__, known)
    text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 3]}..."


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the exception of another library can fail in __str__
        return ""


def shown(text: str, longest: int) -> str:
    """Untrusted text with limited length and without terminal control characters."""
    return "".join(char if char.isprintable() else "?" for char in text[:longest])


def safe_cause(error: BaseException, known: Mapping[str, Any] | None = None) -> BaseException | None:
    """The exception if no message in its chain shows a secret, else None: for ``raise ... from``."""
    messages = [_text(link) for link in _chain(error)]
    return error if all(redact(message, known) == message for message in messages) else None


def _redact_entry(key: str, value: Any, known: Mapping[str, Any] | None) -> Any:
    if isinstance(value, Mapping):
        return redact(value, known)
    if is_secret(key):
        return MASK
    return redact(value, known) if isinstance(value, str) else value


def _redact_text(text: str, known: Mapping[str, Any]) -> str:
    for secret in sorted(_secrets(known), key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _USER_INFO.sub(lambda one: f"{one['scheme']}://{MASK}@" if _is_user_info(one) else one[0], text)
    text = _USER_WITHOUT_SCHEME.sub(f"{MASK}@", text)
    text = _SECRET_PAIR.sub(lambda found: found["address"] or f"{found['key']}{MASK}", text)
    return _BEARER.sub(rf"\1 {MASK}", text)


def _is_user_info(found: re.Match[str]) -> bool:
    return ":" in found["user"] or found["scheme"].lower().partition("+")[0] not in _NAMING_SCHEMES


def _user_infos(text: str) -> Iterator[str]:
    yield from (found["user"] for found in _USER_INFO.finditer(text) if _is_user_info(found))
    if without_scheme := _USER_WITHOUT_SCHEME.match(text):
        yield without_scheme[0].removesuffix("@")


def _secrets(known: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for key, value in known.items():
        if isinstance(value, Mapping):
            found |= _secrets(value)
        elif is_secret(str(key)):
            found.add(str(value))
        elif isinstance(value, str):
            found.update(user.partition(":")[2] for user in _user_infos(value))
            found.update(pair["value"].strip("\"'") for pair in _SECRET_PAIR.finditer(value) if pair["value"])
    found |= {unquote(secret) for secret in found}
    return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            waiting += [link.__cause__, link.__context__]


def _reason_first(text: str) -> str:
    """Arrow's message begins with the full name of an object, so the reason at its end would be cut off."""
    where, found, reason = text.partition(f": {_OF_S3}")
    return f"{_OF_S3}{reason} {where}" if found else text
