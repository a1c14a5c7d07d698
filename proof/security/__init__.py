"""The proof against people: hostile receipts, records, ledgers, tables and names, and a secret that must never show.

`run` feeds inputs to the real code and judges what comes back by rules of its own; `python -m proof.security` runs it.
"""

from proof.security.figures import SecurityFigures
from proof.security.run import run

__all__ = ["SecurityFigures", "run"]
