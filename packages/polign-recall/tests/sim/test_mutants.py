"""The simulation notices when a rule of the protocol is broken.

A simulation that let one of these mutants pass could not be trusted on the real code, which passes the very same seeds.
"""

from __future__ import annotations

import pytest

from .mutants import MUTANTS, Mutant
from .oracle import Violation
from .world import World

SEEDS = 600
"""Runs within which a mutant must be caught; most are in the first few, the shyest took 160."""


def first_caught(mutant: Mutant) -> tuple[int, Violation]:
    """The first seed in which the mutant breaks an invariant."""
    for seed in range(SEEDS):
        try:
            World(seed, chain_type=mutant.chain_type, ignored=mutant.ignored).run()
        except Violation as violation:
            return seed, violation
    pytest.fail(f"not caught in {SEEDS} seeds")


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name: str):
    mutant = MUTANTS[name]
    with pytest.MonkeyPatch.context() as patch:
        for module, attribute, replacement in mutant.patches:
            patch.setattr(module, attribute, replacement)
        seed, violation = first_caught(mutant)
    assert violation.label in mutant.noticed_by, violation
    World(seed).run()  # the product passes where the mutant does not
