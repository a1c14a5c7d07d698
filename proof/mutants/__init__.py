"""Seeded bugs of the product: a proof that does not see them proves nothing.

Each mutant is one mistake that sinks have made in the field, put into the product's own functions by this package and
by nothing else. Each has to be caught by the simulator, and by a scenario of real processes that is clean without it.
"""

from proof.mutants import compacting, deciding, following, locating, merging, recovering, sending, writing
from proof.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *deciding.MUTANTS,
    *sending.MUTANTS,
    *merging.MUTANTS,
    *recovering.MUTANTS,
    *writing.MUTANTS,
    *following.MUTANTS,
    *locating.MUTANTS,
    *compacting.MUTANTS,
)


def mutant_named(name: str) -> Mutant:
    """The mutant of this name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)
