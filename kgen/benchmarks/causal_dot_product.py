"""The causal dot product beside fast-transformers (float32) and flash-linear-attention (16 bits).

The float64 reference and the random operands need cuBLAS and cuRAND, which come with torch or with cupy's extra `ctk`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, rotation, sizes_of, tensor
from kgen.dtypes import BF16, F16, F32, FLOATS

SHAPES = (
    (1, 8, 2048, 64),
    (4, 4, 1024, 100),
    (8, 16, 2048, 64),
    (8, 16, 2048, 128),
    (4, 16, 8192, 128),
    (32, 4, 2048, 256),
    (1, 16, 65536, 128),
)
"""B x H x L x D, or B x H x L x E x M where keys and values differ in width."""

FORWARD, BACKWARD = "forward", "backward"
_QUICK = 4
_CHUNK = 256

_BARS = {F32: Bars(2e-6, 1e-5), F16: Bars(6e-4), BF16: Bars(2e-3)}
_GRADIENT_SLACK = 1.5


@dataclass(frozen=True)
class _Set:
    """One set of operands; `written` is what the case's pass writes."""

    q: Array
    k: Array
    v: Array
    do: Array
    written: tuple[Array, ...]


class CausalDotProduct(Bench):
    """o_t = sum over s <= t of (q_t . k_s) v_s, and its gradients."""

    operator = "causal_dot_product"

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes, dtypes = (SHAPES[:_QUICK], (F32,)) if quick else (SHAPES, FLOATS)
        return [Case(shape, dtype, stage) for dtype in dtypes for stage in (FORWARD, BACKWARD) for shape in shapes]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 4, 5, hint="write BxHxLxD or BxHxLxExM, as in 8x16x2048x128")

    def nbytes(self, case: Case) -> int:
        b, h, length, e, m = _sizes(case)
        elements = 2 * e + 2 * m if case.stage == FORWARD else 4 * e + 3 * m
        return b * h * length * elements * case.dtype.itemsize

    def bars(self, case: Case) -> Bars:
        bars = _BARS[case.dtype]
        return bars if case.stage == FORWARD else Bars(bars.rms * _GRADIENT_SLACK, bars.max_rel)

    def ladder(self, case: Case) -> list[str]:
        from kgen.catalog import select

        width = next((bucket for bucket in (32, 64, 128, 256) if bucket >= _sizes(case)[3]), None)
        named = ["lmha", "lmha_low_occupancy", "lmha_chunk"]
        if width is None:
            return named
        common = (f"e={width}", f"dtype={case.dtype}", "reverse=no")
        return [*named, *(spec.name for spec in select("lmha_low_occupancy", "c=4", *common))]

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        sets = _operands(case, rotation(self.nbytes(case)))
        contestants = [_kgen("kgen", case, sets, None)]
        contestants += [_kgen(name, case, sets, name) for name in algorithms]
        if case.dtype is not F32:
            contestants.append(_kgen("kgen in f32", case, _widened(case, sets), None))
        found = (_fast_transformers(case, sets) if case.dtype is F32 else _fla(case, sets)) if peers else None
        return Problem([*contestants, *([found] if found else [])], _reference(case, sets[0]))

    def host_call(self) -> Callable[[], object]:
        sets = _operands(Case((1, 1, 16, 32), F32, FORWARD), 1)
        call = _kgen("kgen", Case((1, 1, 16, 32), F32, FORWARD), sets, None).call
        return lambda: call(0)


BENCH = CausalDotProduct()


def _sizes(case: Case) -> tuple[int, int, int, int, int]:
    b, h, length, e, *m = case.shape
    return b, h, length, e, m[0] if m else e


def _operands(case: Case, count: int) -> list[_Set]:
    """Fresh operands, rounded to the case's type.

    Uniform on [0, 1) in float32, where nothing cancels and an element-wise relative error means something; normal in 16
    bits, since sums of positive products leave float16's range on a long sequence.
    """
    import cupy

    b, h, length, e, m = _sizes(case)
    random = cupy.random.default_rng(20)

    def draw(width: int) -> Array:
        shape = (b, h, length, width)
        if case.dtype is F32:
            return random.random(shape, dtype=cupy.float32)
        return random.standard_normal(shape, dtype=cupy.float32).astype(case.dtype.numpy)

    return [_with_outputs(case, draw(e), draw(e), draw(m), draw(m)) for _ in range(count)]


def _with_outputs(case: Case, q: Array, k: Array, v: Array, do: Array) -> _Set:
    import cupy

    written = (v,) if case.stage == FORWARD else (q, k, v)
    return _Set(q, k, v, do, tuple(cupy.empty_like(like) for like in written))


def _widened(case: Case, sets: Sequence[_Set]) -> list[_Set]:
    """The same values in float32."""
    return [_with_outputs(case, *(x.astype("float32") for x in (s.q, s.k, s.v, s.do))) for s in sets]


def _scan(q: Array, k: Array, v: Array, *, reverse: bool = False) -> Array:
    """The operation in float64, chunk by chunk: tril(q k^T) v inside a chunk, q (sum of k^T v) for all before it."""
    import cupy

    if reverse:
        return _scan(*(x[:, :, ::-1] for x in (q, k, v)))[:, :, ::-1]
    (b, h, length, e), m = q.shape, v.shape[3]
    out = cupy.empty((b, h, length, m), cupy.float64)
    state = cupy.zeros((b, h, e, m), cupy.float64)
    mask = cupy.tri(_CHUNK, dtype=cupy.float64)
    for start in range(0, length, _CHUNK):
        steps = slice(start, start + _CHUNK)
        qc, kc, vc = (x[:, :, steps].astype(cupy.float64) for x in (q, k, v))
        kt = kc.swapaxes(2, 3)
        n = qc.shape[2]
        out[:, :, steps] = qc @ state + (qc @ kt * mask[:n, :n]) @ vc
        state += kt @ vc
    return out


def _reference(case: Case, s: _Set) -> list[Array]:
    """The float64 result on the rounded operands. The gradients are the operation itself with its roles exchanged."""
    if case.stage == FORWARD:
        return [_scan(s.q, s.k, s.v)]
    return [_scan(s.do, s.v, s.k), _scan(s.v, s.do, s.q, reverse=True), _scan(s.k, s.q, s.do, reverse=True)]


def _kgen(name: str, case: Case, sets: Sequence[_Set], algorithm: str | None) -> Contestant:
    import kgen

    def forward(n: int) -> None:
        s = sets[n % len(sets)]
        kgen.causal_dot_product(s.q, s.k, s.v, algorithm=algorithm, out=s.written[0])

    def backward(n: int) -> None:
        s = sets[n % len(sets)]
        kgen.causal_dot_product_backward(s.do, s.q, s.k, s.v, algorithm=algorithm, out=s.written)

    return Contestant(name, forward if case.stage == FORWARD else backward, sets[0].written)


def _fast_transformers(case: Case, sets: Sequence[_Set]) -> Contestant | None:
    """Its CUDA kernels without its Python layer, which would clear the outputs first; that time is left out."""
    try:
        from fast_transformers.causal_product import causal_dot_backward_cuda, causal_dot_product_cuda
    except ImportError:
        return None
    if causal_dot_product_cuda is None:
        return None
    forward = case.stage == FORWARD
    function = causal_dot_product_cuda if forward else causal_dot_backward_cuda
    operands = [(s.q, s.k, s.v, *s.written) if forward else (s.q, s.k, s.v, s.do, *s.written) for s in sets]
    tensors = [[tensor(x) for x in arrays] for arrays in operands]
    # Where its fast path refuses a width, it adds to its outputs by atomics: hence the zeros.
    return Contestant("fast_transformers", lambda n: function(*tensors[n % len(tensors)]), sets[0].written, poison=0)


def _fla(case: Case, sets: Sequence[_Set]) -> Contestant | None:
    """Its chunk kernels, in their own layout [B, T, H, D]; a call allocates its results, as its users' calls do."""
    try:
        import torch
        from fla.ops.linear_attn import chunk_linear_attn
    except ImportError:
        return None

    def attend(q: Any, k: Any, v: Any) -> Any:
        return chunk_linear_attn(q, k, v, scale=1.0, normalize=False)[0]

    def forward(n: int) -> Any:
        with torch.no_grad():
            return (attend(*leaves[n % len(leaves)]),)

    def backward(n: int) -> Any:
        i = n % len(leaves)
        if i not in results:  # here and not above, so that what it raises is this contestant's own failure
            results[i] = attend(*leaves[i])
        return torch.autograd.grad(results[i], leaves[i], gradients[i], retain_graph=True)

    def head_first(result: Sequence[Any]) -> list[Array]:
        import cupy

        return [cupy.from_dlpack(x.detach().transpose(1, 2).float().contiguous()) for x in result]

    def time_first(array: Array) -> Any:
        return tensor(array).transpose(1, 2).contiguous()

    leaves = [[time_first(x).requires_grad_(case.stage == BACKWARD) for x in (s.q, s.k, s.v)] for s in sets]
    gradients = [time_first(s.do) for s in sets]
    results: dict[int, Any] = {}
    return Contestant("fla chunk", forward if case.stage == FORWARD else backward, outputs=head_first)
