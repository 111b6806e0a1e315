"""Gated linear attention, and its kin without a gate, with one a head and with a bonus, beside flash-linear-attention.

Results are compared with float64 on one head: a recurrence of thousands of time steps is slow to walk on the host.
The peer's autotuner takes minutes at its first calls, all of them before anything is timed, and keeps what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from kgen.benchmarks import Array, Bars, Bench, Case, Contestant, Problem, rotation, sizes_of, tensor
from kgen.dtypes import BF16, F16, F32, FLOATS

SHAPES = ((1, 8, 2048, 64), (1, 16, 2048, 128), (8, 16, 2048, 128), (4, 16, 8192, 128))
"""B x H x T x D, or B x H x T x K x V."""

FORWARD, BACKWARD = "forward", "backward"
_QUICK = 2
_BARS = {F32: 2e-6, F16: 6e-4, BF16: 2e-3}
_GRADIENT_SLACK = 1.5


@dataclass(frozen=True)
class _Set:
    """One set of operands: q, k, v and what else the operator takes; `o` is what the forward pass writes."""

    inputs: tuple[Array, ...]
    do: Array
    o: Array


class Gated(Bench):
    """One of the operators: which inputs it has beside q, k, v, and its peers.

    gate   0: none, 1: one for a head and time step, 2: one for each feature
    bonus  whether the token itself is weighted (RWKV6)
    peers  the module of flash-linear-attention, and the name that its functions end with
    """

    def __init__(self, operator: str, *, gate: int, bonus: bool = False, peers: tuple[str, str]) -> None:
        self.operator = operator
        self.gate = gate
        self.bonus = bonus
        self.peers = peers

    def cases(self, *, quick: bool = False) -> list[Case]:
        shapes, dtypes = (SHAPES[:_QUICK], (BF16,)) if quick else (SHAPES, (BF16, F32))
        return [Case(shape, dtype, stage) for dtype in dtypes for stage in (FORWARD, BACKWARD) for shape in shapes]

    def shape_of(self, text: str) -> tuple[int, ...]:
        return sizes_of(text, 4, 5, hint="write BxHxTxD or BxHxTxKxV, as in 8x16x2048x128")

    def nbytes(self, case: Case) -> int:
        b, h, t, k, v = _sizes(case)
        gates = (0, 1, k)[self.gate]
        elements = 2 * k + 2 * v + gates if case.stage == FORWARD else 4 * k + 3 * v + 2 * gates
        return b * h * t * elements * case.dtype.itemsize

    def bars(self, case: Case) -> Bars:
        return Bars(_BARS[case.dtype] * (1.0 if case.stage == FORWARD else _GRADIENT_SLACK))

    def ladder(self, case: Case) -> list[str]:
        return ["article"] if self.gate == 2 and case.stage == FORWARD else []

    def problem(self, case: Case, *, algorithms: Sequence[str] = (), peers: bool = True) -> Problem:
        sets = self._operands(case)
        found = self._fla(case, sets) if peers and case.dtype in FLOATS[1:] else []
        modes = ["auto", *(["recurrent"] if case.dtype is not F32 else []), *algorithms]
        own = [self._kgen(case, sets, mode) for mode in modes]
        return Problem([*own, *found], self._reference(case, sets[0]))

    def host_call(self) -> Callable[[], object]:
        case = Case((1, 1, 1, 32), F32, FORWARD)
        call = self._kgen(case, self._operands(case, 1)).call
        return lambda: call(0)

    def _operands(self, case: Case, count: int | None = None) -> list[_Set]:
        """Normal numbers, rounded to the case's type; gates are the logarithms of sigmoids of such."""
        import cupy

        b, h, t, k, v = _sizes(case)
        random = cupy.random.default_rng(20)
        if count is None:
            count = rotation(self.nbytes(case))

        def draw(*shape: int) -> Array:
            return random.standard_normal(shape, dtype=cupy.float32).astype(case.dtype.numpy)

        def make() -> _Set:
            inputs = [draw(b, h, t, k), draw(b, h, t, k), draw(b, h, t, v)]
            if self.gate:
                shape = (b, h, t, k)[: 2 + self.gate]
                gates = -cupy.logaddexp(0, random.standard_normal(shape, dtype=cupy.float32))
                inputs.append(gates.astype(case.dtype.numpy))
            if self.bonus:
                inputs.append(draw(h, k))
            return _Set(tuple(inputs), draw(b, h, t, v), cupy.empty((b, h, t, v), case.dtype.numpy))

        return [make() for _ in range(count)]

    def _reference(self, case: Case, s: _Set) -> list[Any]:
        """The first head in float64, on the host."""
        import cupy

        from kgen import gated_reference

        inputs = [cupy.asnumpy(x[:1] if x.ndim == 2 else x[:1, :1]).astype("float64") for x in s.inputs]
        scale = s.inputs[0].shape[3] ** -0.5
        if case.stage == FORWARD:
            return [cupy.asarray(gated_reference.gated(*inputs, scale=scale)[0])]
        do = cupy.asnumpy(s.do[:1, :1]).astype("float64")
        made = gated_reference.gated_backward(do, *inputs, scale=scale)
        return [cupy.asarray(made[name]) for name in "qkvg"[: self._gradients]]

    @property
    def _gradients(self) -> int:
        """How many are compared: those of arrays with a time axis."""
        return 4 if self.gate else 3

    def _kgen(self, case: Case, sets: Sequence[_Set], mode: str = "auto") -> Contestant:
        import kgen

        forward_call, backward_call = getattr(kgen, self.operator), getattr(kgen, f"{self.operator}_backward")

        def forward(n: int) -> Any:
            s = sets[n % len(sets)]
            return (forward_call(*s.inputs, mode=mode, out=s.o),)

        def backward(n: int) -> Any:
            s = sets[n % len(sets)]
            return backward_call(s.do, *s.inputs, mode=mode)[: self._gradients]

        run = forward if case.stage == FORWARD else backward
        writes = (sets[0].o,) if case.stage == FORWARD else ()
        name = "kgen" if mode == "auto" else f"kgen {mode}"
        return Contestant(name, run, writes, lambda result: [x[:1, :1] for x in result])

    def _fla(self, case: Case, sets: Sequence[_Set]) -> list[Contestant]:
        """Its kernels in their own layout [B, T, H, D]; a call allocates its results, as its users' calls do."""
        try:
            import torch

            module = import_module(f"fla.ops.{self.peers[0]}")
        except ImportError:
            return []
        options = {} if self.gate else {"normalize": False}

        def time_first(x: Array) -> Any:
            made = tensor(x)
            return made if x.ndim == 2 else made.transpose(1, 2).contiguous()

        leaves = [[time_first(x).requires_grad_(case.stage == BACKWARD) for x in s.inputs] for s in sets]
        gradients = [time_first(s.do) for s in sets]

        def contestant(form: str) -> Contestant:
            function = getattr(module, f"{form}_{self.peers[1]}")
            call = partial(function, **options)
            results: list[Any] = []

            def forward(n: int) -> Any:
                with torch.no_grad():
                    return (call(*leaves[n % len(leaves)])[0],)

            def backward(n: int) -> Any:
                i = n % len(leaves)
                if not results:  # here and not above, so that what it raises is this contestant's own failure
                    results.extend(call(*inputs)[0] for inputs in leaves)
                made = torch.autograd.grad(results[i], leaves[i], gradients[i], retain_graph=True)
                return made[: self._gradients]

            run = forward if case.stage == FORWARD else backward
            return Contestant(f"fla {form.removeprefix('fused_')}", run, outputs=first_head)

        def first_head(result: Sequence[Any]) -> list[Array]:
            import cupy

            return [cupy.from_dlpack(x.detach()[:1, :, :1].transpose(1, 2).float().contiguous()) for x in result]

        return [contestant(form) for form in ("chunk", "fused_recurrent")]


BENCH = Gated("gla", gate=2, peers=("gla", "gla"))


def _sizes(case: Case) -> tuple[int, int, int, int, int]:
    b, h, t, k, *v = case.shape
    return b, h, t, k, v[0] if v else k
