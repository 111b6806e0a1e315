"""How each default kernel is called: an operator, small odd sizes, and the float64 result.

Sizes go round every pipeline stage at least twice and are multiples of no tile, so that each wait and each bounds test
decides something: without it the result is wrong, or a check speaks. `tests.cpu.mutants` holds the sizes to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from kgen.spec import Spec
from tests.cpu.cases import along_rows, attention, elements, gated, moves, sums
from tests.cpu.cases.case import Case, call, verify

__all__ = ["CASES", "Case", "call", "cases_of", "verify"]

Make = Callable[[Spec], Case | tuple[Case, ...]]

CASES: Mapping[str, Make] = cast(
    Mapping[str, Make], attention.CASES | gated.CASES | sums.CASES | moves.CASES | elements.CASES | along_rows.CASES
)
"""By kernel, or by the stem that kernels share: from a specialization, the calls that run it."""


def cases_of(spec: Spec) -> tuple[Case, ...]:
    """The calls that run a specialization; raises LookupError, which names it, where this file has none."""
    make = CASES.get(spec.kernel.name) or CASES.get(spec.kernel.stem)
    if make is None:
        raise LookupError(f"{spec.name} has no case: say in tests/cpu/cases how {spec.kernel.name} is called")
    made = make(spec)
    return (made,) if isinstance(made, Case) else made
