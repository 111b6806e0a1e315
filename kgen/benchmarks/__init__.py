"""What is timed: a module an operator, of its name, whose `BENCH` declares rows, floors, references and contestants."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from kgen.device import l2_cache
from kgen.dtypes import BF16, DType
from kgen.errors import KgenError

Array = Any
"""A CuPy array; bench modules import CuPy only when they run."""

_MOST_SETS = 32

NAN_BYTE = 0xFF
"""All bits set is a NaN in every float format: an element that nobody wrote shows."""


class BenchError(KgenError, ValueError):
    """A benchmark was asked for that does not exist: an unknown operator, row or dtype."""


@dataclass(frozen=True)
class Case:
    """One row of a table: a problem's shape, element type, and pass ("forward", "backward", "sum rows", ...)."""

    shape: tuple[int, ...]
    dtype: DType
    stage: str


@dataclass(frozen=True)
class Contestant:
    """One way to compute a case.

    call     runs it once, on the input set that the running number picks
    writes   what call number 0 writes into, to be poisoned before the check
    outputs  from the result of call 0, the arrays to compare with the reference; None: `writes`
    poison   the byte that `writes` is filled with; 0 for one that adds to its output
    """

    name: str
    call: Callable[[int], object]
    writes: Sequence[Array] = ()
    outputs: Callable[[Any], Sequence[Array]] | None = None
    poison: int = NAN_BYTE


@dataclass(frozen=True)
class Problem:
    """A case on the device: who takes part (kgen's own choice first), and the float64 result."""

    contestants: Sequence[Contestant]
    reference: Sequence[Array]


@dataclass(frozen=True)
class Bars:
    """Errors up to which a result counts as right; None: not judged.

    known  the RMS error that a peer's method is known to make: up to there its result is inexact, and no worse
    """

    rms: float
    max_rel: float | None = None
    known: float = 0.0


class Bench(ABC):
    """What an operator declares to be timed."""

    operator: str

    @abstractmethod
    def cases(self, *, quick: bool = False) -> list[Case]:
        """The rows of the table; quick: the few small ones."""

    @abstractmethod
    def shape_of(self, text: str) -> tuple[int, ...]:
        """The shape that a `--row` word stands for; raises BenchError."""

    @abstractmethod
    def nbytes(self, case: Case) -> int:
        """The fewest bytes that device memory must move: every input read once, every output written once."""

    @abstractmethod
    def bars(self, case: Case) -> Bars:
        """How exact a result must be to count as right."""

    @abstractmethod
    def ladder(self, case: Case) -> list[str]:
        """Names of the algorithms worth comparing on this case."""

    @abstractmethod
    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        """The case on the device, with kgen, kgen's named algorithms, and the peers that can be imported."""

    @abstractmethod
    def host_call(self) -> Callable[[], object]:
        """kgen's call on a problem so small that the host is all that it costs."""

    def label(self, shape: tuple[int, ...]) -> str:
        """How tables and `--row` write a shape."""
        return "x".join(map(str, shape))


def rotation(nbytes: int) -> int:
    """How many sets of operands, of so many bytes each, it takes until a rotation finds none of its data in the L2."""
    import cupy

    return min(_MOST_SETS, max(1, -(-3 * l2_cache(cupy.cuda.Device().id) // nbytes)))


def tensor(array: Array) -> Any:
    """The same memory as a torch tensor; bfloat16 crosses as int16, which every version of DLPack takes."""
    import torch
    from torch.utils.dlpack import from_dlpack

    if array.dtype == BF16.numpy:
        return from_dlpack(array.view("int16")).view(torch.bfloat16)
    return from_dlpack(array)


def compiled(function: Callable[..., Any]) -> Any:
    """What torch.compile makes of a function for the shapes that it will see, and no others.

    What it compiled of the same code for another row is forgotten: from a second shape on it would make one kernel for
    all, which takes up to a thousand times as long, and from a ninth on none.
    """
    import torch
    import torch._dynamo

    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def sizes_of(text: str, *ranks: int, hint: str) -> tuple[int, ...]:
    """The sizes that "8x16" stands for, of as many axes as `ranks` admit; raises BenchError with the hint."""
    words = text.lower().split("x")
    if len(words) not in ranks or not all(word.isdigit() and int(word) for word in words):
        raise BenchError(f"{text!r} is no shape", hint=hint)
    return tuple(map(int, words))


def operators() -> list[str]:
    """The operators that have a benchmark."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def bench_of(operator: str) -> Bench:
    """The benchmark of an operator; raises BenchError where there is none."""
    if operator not in operators():
        raise BenchError(f"no benchmark is called {operator!r}", hint=f"there are {', '.join(operators())}")
    bench = importlib.import_module(f"{__name__}.{operator}").BENCH
    assert isinstance(bench, Bench)
    return bench


def select(
    bench: Bench, *, rows: Sequence[str], dtypes: Sequence[str], stages: Sequence[str], quick: bool
) -> list[Case]:
    """The cases asked for: every declared one that the words admit, or a shape of the caller's own."""
    cases = bench.cases(quick=quick and not (rows or dtypes))
    if rows:
        kinds: Mapping[tuple[DType, str], None] = dict.fromkeys((case.dtype, case.stage) for case in cases)
        cases = [Case(bench.shape_of(row), dtype, stage) for row in rows for dtype, stage in kinds]
    cases = [case for case in cases if not dtypes or case.dtype.name in dtypes]
    chosen = [case for case in cases if not stages or any(_names(stage, case.stage) for stage in stages)]
    if not chosen:
        passes = ", ".join(map(repr, dict.fromkeys(case.stage for case in bench.cases())))
        raise BenchError(f"{bench.operator} has no such row", hint=f"its passes are {passes}")
    return chosen


def _names(pattern: str, stage: str) -> bool:
    """Whether a pattern is for a pass, or for its last word: "backward" takes "layer backward", too."""
    return fnmatchcase(stage, pattern) or fnmatchcase(stage.split()[-1], pattern)
