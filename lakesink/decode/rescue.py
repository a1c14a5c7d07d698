"""Keeps what a row does not hold of its document, as the text of the rescue column, and counts it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lakesink.decode.json_rest import Reason, Rest, present_in, rest_of
from lakesink.decode.json_scalars import Parsed, either, without
from lakesink.decode.misfits import dotted
from lakesink.rows.schema import Struct
from lakesink_protocol.measures import RESCUED_ROWS, Tally
from lakesink_protocol.quality import Quality, first_reasons, reason_of

LARGEST_REST_BYTES = 1024 * 1024
"""A document with a larger rest is malformed: nothing is cut."""
_REASONS_KEPT = 1_000
Texts = Callable[[pa.Array, Collection[str]], Iterable[str]]
"""Gives documents, which were read to rows, as JSON; the members of some names may be left out."""


@dataclass(slots=True)
class Rescue:
    """The rescue column of one task.

    Attributes:
        struct: The columns that come from the documents.
        texts: Half of a surrogate pair in a text stands for bytes that are not UTF-8.
        rows: Rows with a text in the rescue column.
    """

    struct: Struct
    texts: Texts
    rows: int = 0
    _reasons: Counter[str] = field(default_factory=Counter, init=False)

    @property
    def quality(self) -> Quality:
        """What was kept."""
        return Quality(Tally({RESCUED_ROWS: self.rows}), rescued=first_reasons(self._reasons.items()))

    def kept(self, documents: pa.Array, parsed: Parsed) -> tuple[Parsed, pa.StringArray]:
        """The texts of the rescue column, and the rows; one with a rest that cannot be kept is a misfit."""
        rest = parsed.rest
        if rest is not None and parsed.misfits is not None:
            rest = pc.and_not(rest, parsed.misfits)
        positions = [] if rest is None else pc.indices_nonzero(rest).to_pylist()
        if not positions:
            return parsed, pa.nulls(len(documents), pa.string())
        chosen = pa.array(positions, pa.int64())
        present = present_in(parsed.values.take(chosen), self.struct)
        held = {self.struct.fields[at].name for at in present.leaves if all(present.parts[at].valid)}
        chosen_texts = self.texts(documents.take(chosen), held)
        texts: list[str | None] = [None] * len(documents)
        for at, (position, text) in enumerate(zip(positions, chosen_texts, strict=True)):
            texts[position] = self._text(rest_of(text, self.struct, present, at))
        kept = pa.array(texts, pa.string())
        if "" not in texts:
            return parsed, kept
        refused = pc.fill_null(pc.equal(kept, ""), False)  # noqa: FBT003 - Arrow takes it by position
        return Parsed(without(parsed.values, refused), either(parsed.misfits, refused)), without(kept, refused)

    def _text(self, rest: Rest) -> str | None:
        """None without a rest; empty for one that is too large, or not UTF-8."""
        if not rest.reasons:
            return None
        text = rest.text
        if len(text) > LARGEST_REST_BYTES or not 0 < _utf8_bytes(text) <= LARGEST_REST_BYTES:
            return ""
        self.rows += 1
        self._reasons.update(set(map(_in_words, rest.reasons)))
        if len(self._reasons) > _REASONS_KEPT:
            self._reasons = Counter(first_reasons(self._reasons.items()))
        return text


def _utf8_bytes(text: str) -> int:
    """Length as UTF-8; 0 for a text that has none."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


@lru_cache(maxsize=_REASONS_KEPT)
def _in_words(reason: Reason) -> str:
    place, why = reason
    return reason_of(dotted(place), why)
