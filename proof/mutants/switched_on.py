"""Imported by a driver process, puts a mutant into it for good: which one, a variable says."""

import os

from proof.mutants import mutant_named
from proof.mutants.mutant import Patches
from proof.mutants.scenarios import VARIABLE

mutant_named(os.environ[VARIABLE]).put_in(Patches())
