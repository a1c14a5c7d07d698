"""Tells an answer of a service that is a refusal in other words from an outage. Pure.

A service may answer 500 or 501 to what it will never accept, such as a requirement that it does not know. An outage
ends, or its words change; gateways and busy services answer 502, 503, 504 or 429, which prove nothing.
"""

from dataclasses import dataclass, field

ENOUGH = 3
LONG_ENOUGH_MS = 30_000
_MAY_BE_REFUSALS = (500, 501)


@dataclass(slots=True)
class Repeated:
    """One answer to the requests of one commit, as often as it came in a row, while the table stayed as it was.

    Attributes:
        metadata_file: The table's metadata file, on which every one of these requests was built.
    """

    text: str = field(default="", init=False)
    metadata_file: str = field(default="", init=False)
    times: int = field(default=0, init=False)
    first_ms: int = field(default=0, init=False)
    last_ms: int = field(default=0, init=False)

    def heard(self, status: int | None, text: str, metadata_file: str, now_ms: int) -> None:
        """Count an answer with this status; None if there was no answer, or another one than an error."""
        if status not in _MAY_BE_REFUSALS:
            self.times = 0
            return
        if not self.times or (text, metadata_file) != (self.text, self.metadata_file):
            self.text, self.metadata_file, self.times, self.first_ms = text, metadata_file, 0, now_ms
        self.times, self.last_ms = self.times + 1, now_ms

    def is_refusal(self, metadata_file: str) -> bool:
        """True if another request is useless: the table, loaded after the last answer, has this metadata file."""
        lasted = self.times >= ENOUGH and self.last_ms - self.first_ms >= LONG_ENOUGH_MS
        return lasted and metadata_file == self.metadata_file

    def __str__(self) -> str:
        seconds = (self.last_ms - self.first_ms) // 1000
        return f"the catalog answered {self.times} times in {seconds} s, while the table stayed as it was: {self.text}"
