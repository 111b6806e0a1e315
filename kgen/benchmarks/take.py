"""Rows by their indices beside torch's index_select: embeddings of language models, and narrow rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, sizes_of
from kgen.dtypes import F16, F32

SHAPES = (
    (1000, 64, 1000),
    (32000, 768, 2048),
    (32000, 4096, 512),
    (32000, 4096, 32768),
    (128256, 4096, 65536),
    (1_000_000, 64, 1 << 21),
    (50_000, 1023, 1 << 17),
    (1 << 24, 1, 1 << 24),
)
"""Entries of the table, their width, and indices."""
_QUICK = 1


class Take(Bench):
    """Tables are far larger than the L2, or so are the results."""

    operator = "take"

    def cases(self, *, quick: bool = False) -> list[Case]:
        return [
            Case(shape, dtype, "forward") for dtype in (F32, F16) for shape in (SHAPES[:_QUICK] if quick else SHAPES)
        ]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 3, hint="write ENTRIESxWIDTHxINDICES, as in 32000x4096x32768")

    def nbytes(self, case: Case) -> int:
        _, width, count = case.shape
        return count * (2 * width * case.dtype.itemsize + 8)

    def bars(self, case: Case) -> Bars:
        return Bars(1e-30)  # moved, not computed

    def ladder(self, case: Case) -> list[str]:
        return []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        import cupy

        from kgen.ops.moving.take import embedding, take

        entries, width, count = case.shape
        table = cupy.random.random((entries, width), dtype="f4").astype(case.dtype.numpy)
        indices = cupy.random.randint(0, entries, size=count)
        out = cupy.empty((count, width), case.dtype.numpy)
        contestants = [
            Contestant("kgen", lambda n: take(table, indices, mode="fill", out=out), [out]),
            Contestant("kgen raise", lambda n: take(table, indices, out=out), [out]),
            Contestant("kgen embedding", lambda n: embedding(indices, table, out=out), [out]),
        ]
        contestants += _torch(table, indices, out) if peers else []
        return Problem(contestants, [table[indices]])

    def host_call(self) -> Callable[[], object]:
        import cupy

        from kgen.ops.moving.take import embedding

        table, indices, out = cupy.ones((32, 32), "f4"), cupy.arange(8), cupy.empty((8, 32), "f4")
        return lambda: embedding(indices, table, out=out)


BENCH = Take()


def _torch(table: Array, indices: Array, out: Array) -> list[Contestant]:
    try:
        import torch
        from torch.utils.dlpack import from_dlpack
    except ImportError:
        return []
    rows, places, target = map(from_dlpack, (table, indices, out))
    return [Contestant("torch", lambda n: torch.index_select(rows, 0, places, out=target), [out])]
