"""Small calls that run one specialization, for `kgen check` and the tests: an operator, odd sizes, the float64 result.

Sizes go round every pipeline stage at least twice and are multiples of no tile, so that each wait and each bounds test
decides something: without it the result is wrong, or a check speaks. `tests.cpu.mutants` holds the sizes to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from kgen.errors import SpecError
from kgen.samples import (
    attention,
    counts,
    elements,
    gated,
    gated_chunk,
    gated_chunk_vector,
    logsumexp,
    moves,
    norm,
    norm_backward,
    products,
    softmax,
    sums,
    transposes,
)
from kgen.samples.case import Case, Shape, call, complaint, options_of, verify
from kgen.spec import Spec

__all__ = ["CASES", "Case", "call", "cases_of", "complaint", "no_case", "options_of", "verify"]

CASES: Mapping[str, Callable[..., Case | tuple[Case, ...]]] = cast(
    Mapping[str, Any],
    attention.CASES
    | gated.CASES
    | gated_chunk.CASES
    | gated_chunk_vector.CASES
    | sums.CASES
    | counts.CASES
    | products.CASES
    | transposes.CASES
    | moves.CASES
    | elements.CASES
    | softmax.CASES
    | logsumexp.CASES
    | norm.CASES
    | norm_backward.CASES,
)
"""By kernel, or by the stem that kernels share: from a specialization (and a shape), the calls that run it."""


def no_case(spec: Spec, shape: Shape | None, why: str = "") -> SpecError:
    """What to raise where no call runs a specialization, or none has this shape."""
    of_shape = f" of the shape {' '.join(map(str, shape))}" if shape else ""
    hint = "`kgen check --help` says which sizes a kernel's sample call takes"
    if not shape:
        hint = "the executor can run it: kgen.cpu.compile_spec(spec, check=True).check(grid=, block=, args=)"
    return SpecError(f"{spec.name} has no sample call{of_shape}{why and f': {why}'}", hint=hint)


def cases_of(spec: Spec, shape: Shape | None = None) -> tuple[Case, ...]:
    """The calls that run a specialization; raises SpecError, which names it, where there are none.

    shape  of the call, in place of the sizes that suit the specialization; what it means, the functions say that take
           one (B, H, T, E, M of linear attention; rows and columns of what goes along rows; elements)
    """
    make = CASES.get(spec.kernel.name) or CASES.get(spec.kernel.stem)
    if make is None:
        raise no_case(spec, None)
    try:
        made = make(spec, shape)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise no_case(spec, shape) from error
    return (made,) if isinstance(made, Case) else made
