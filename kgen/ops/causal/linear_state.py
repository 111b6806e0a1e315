"""The two halves of linear attention by themselves: the state that keys and values make, and what queries read from it.

States come from the chunked scan's `outer` kernel, a part of the sequence each; where a state has several parts, or the
features are taken in slices, `lmha_total` adds the parts up and puts the sums where they belong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.device import multiprocessors
from kgen.dtypes import F32, FLOATS
from kgen.launch import Run, Step, bind
from kgen.operand import Operand, aligned, contiguous_strides
from kgen.ops.calls import Operator, Plan, Results
from kgen.ops.causal.chunk import CHUNK, SLICE, WARP, chunk_for, columns_for, room_for
from kgen.ops.causal.query import plan_query
from kgen.ops.layout import AXES, check_axes, expect, outer_strides
from kgen.ops.options import whole
from kgen.registry import register
from kgen.scratch import scratch
from kgen.spec import Kernel

TOTAL_THREADS = 128

TOTAL = register(
    Kernel(
        name="lmha_total",
        summary="The sum of a state's parts, each of which covers a part of the sequence.",
        formula="S[g] = sum over the parts p of g of S[p]",
        axes=(),
        dtypes=(F32,),
        derive=lambda spec: {"THREADS": TOTAL_THREADS},
        grid="(ceil(E * M / THREADS) * slots * H * B): one thread per element of a state",
        origin="the second pass of a segmented sum",
        defaults=("lmha_total_f32",),
    )
)


def linear_state(
    k: Any, v: Any, *, segment: int | None = None, layout: str = "bhtd", out: Any = None, stream: Any = None
) -> Any:
    """S = sum over t of k[t] v[t]^T, for every batch and head: over the whole sequence, or over each of its segments.

    Parameters
    ----------
    k : array [B, H, T, E]
        Keys; float32, float16 or bfloat16, of any strides, in any array that `causal_dot_product` takes.
    v : array [B, H, T, M]
        Values, of the same dtype.
    segment : int, optional
        The number of time steps per segment (the last one may have fewer); by default there is one state for all.
    layout : "bhtd" or "bthd"
        The order of the axes of k and v: "bthd" is [B, T, H, D]. States have heads first in both.
    out : array, optional
        Where to write the result, in float32; must not overlap an input.
    stream : optional
        A CuPy or torch stream or a pointer; by default the current stream of the arrays' library.

    Returns
    -------
    array [B, H, E, M], or [B, H, ceil(T / segment), E, M], of the inputs' kind, in float32 whatever their dtype.
    The same from call to call, bit for bit.

    Raises
    ------
    TypeError, ValueError
        For arrays that do not fit together; the message names the argument, what was passed and what is accepted.
    CaptureError
        At the first call of its kind, if that is made during a CUDA graph capture.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> k, v = np.ones((1, 1, 4, 1), "f"), np.array([[[[1], [10], [100], [1000]]]], "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.linear_state(k, v).ravel(), kgen.linear_state(k, v, segment=2).ravel()
    (array([1111.], dtype=float32), array([  11., 1100.], dtype=float32))
    """
    result: Any = _linear_state.call((k, v), (out,), (segment, layout), stream)[0]
    return result


def query_state(q: Any, state: Any, *, layout: str = "bhtd", out: Any = None, stream: Any = None) -> Any:
    """o[t] = S^T q[t], for every batch and head.

    Parameters
    ----------
    q : array [B, H, T, E]
        Queries; float32, float16 or bfloat16, of any strides.
    state : array [B, H, E, M]
        States in float32, of any strides, such as those of `linear_state`.
    layout : "bhtd" or "bthd"
        The order of the axes of q and of the result: "bthd" is [B, T, H, D]. The state has heads first in both.
    out, stream : optional
        As in `linear_state`; `out` has the dtype of q.

    Returns
    -------
    array [B, H, T, M] of the inputs' kind and of the dtype of q. All arithmetic is in float32.

    Raises
    ------
    TypeError, ValueError, CaptureError
        As in `linear_state`.

    Examples
    --------
    >>> import numpy as np, kgen
    >>> q, state = np.array([[[[1, 2]]]], "f"), np.array([[[[3], [4]]]], "f")
    >>> with kgen.backend("cpu"):
    ...     kgen.query_state(q, state)
    array([[[[11.]]]], dtype=float32)
    """
    result: Any = _query_state.call((q, state), (out,), (layout,), stream)[0]
    return result


def _state_results(op: str, given: Sequence[Operand], segment: int | None, layout: str) -> Results:
    k, v = given
    check_axes(op, given, layout)
    expect(op, given, v, (*k.shape[:3], v.shape[3]))
    batch, head, time = AXES[layout]
    slots = () if segment is None else (-(-k.shape[time] // whole(op, "segment", segment, 1)),)
    return [((k.shape[batch], k.shape[head], *slots, k.shape[3], v.shape[3]), F32)]


def _prepare_state(
    op: str, given: Sequence[Operand], results: Sequence[Operand], segment: int | None, layout: str
) -> Plan:
    k, v = given
    (state,) = results
    device = state.device
    length = k.shape[AXES[layout][2]]
    slots = 1 if segment is None else state.shape[2]
    steps_of_slot = length if segment is None else min(whole(op, "segment", segment), length)
    cut = _Cut(k, state, length, steps_of_slot, slots, multiprocessors(device))
    slices = [_Slice(k, v, state, start, cut, layout) for start in range(0, k.shape[3], SLICE)]
    steps = [step for part in slices for step in part.steps]
    ready = iter(bind(steps, device))
    work = [(part, [next(ready) for _ in part.steps]) for part in slices]
    nbytes = max(part.nbytes for part in slices)

    def launch(pointers: Sequence[int], stream: int) -> None:
        at_k, at_v, at_state = pointers
        memory = scratch(nbytes, device, stream) if nbytes else None
        for part, bound in work:
            part.launch(bound, at_k, at_v, at_state, memory.ptr if memory else 0, stream)

    return Plan(launch, tuple(map(str, steps)), cut.why)


class _Cut:
    """How the sequence is cut: `parts` of `steps` time steps each, `per_slot` of which make a state of the result.

    A state has as many parts as let its kernel fill the device, whose multiprocessors take one block each.
    """

    def __init__(self, k: Operand, state: Operand, length: int, segment: int, slots: int, sms: int) -> None:
        heads, (e, m) = state.shape[0] * state.shape[1], state.shape[-2:]
        self.slots = slots
        self.columns = columns_for(m)
        blocks = max(1, heads * slots * -(-m // self.columns))
        self.chunk = chunk_for(k.dtype, e, self.columns, blocks, sms) if segment >= 128 else 32
        wanted = max(1, min(sms // blocks, segment // (4 * self.chunk)))
        if slots > 1:  # all parts are of one length, so it must divide that of a segment
            wanted = next(parts for parts in range(wanted, 0, -1) if segment % parts == 0)
            self.steps = segment // wanted
        else:
            self.steps = max(1, -(-segment // (wanted * self.chunk))) * self.chunk
        self.per_slot = -(-segment // self.steps)
        self.parts = -(-length // self.steps)
        self.why = f"{blocks} tiles of states, in {self.per_slot} parts each, occupy {sms} multiprocessors"


class _Slice:
    """The launches for up to SLICE of the features, from `start` on, and the scratch memory that they take."""

    def __init__(self, k: Operand, v: Operand, state: Operand, start: int, cut: _Cut, layout: str) -> None:
        sequences, heads = state.shape[0] * state.shape[1], state.shape[1]
        e, m = min(state.shape[-2] - start, SLICE), state.shape[-1]
        self.source = start * k.dtype.itemsize
        self.target = start * state.strides[-2] * F32.itemsize
        self.nbytes = 0
        self.steps: list[Step] = []
        if cut.parts:
            room = room_for(e)
            free = not (_loads(k, e, room // WARP) and _loads(v, m, cut.columns // WARP))
            outer = CHUNK.spec(E=room, MB=cut.columns, C=cut.chunk, outer=True, unaligned=free, dtype=k.dtype)
            blocks = sequences * cut.parts * -(-m // cut.columns)
            sizes = (heads, k.shape[AXES[layout][2]], e, m, cut.parts, cut.steps, cut.parts)
            self.steps.append(Step(outer, blocks, 3, sizes, (*outer_strides(k, layout), *outer_strides(v, layout))))
        whole = e == state.shape[-2] and state.strides == contiguous_strides(state.shape)
        if cut.parts != cut.slots or not whole:
            blocks = sequences * cut.slots * -(-e * m // TOTAL_THREADS)
            counts = (heads, cut.slots, cut.parts, cut.per_slot, e * m, m)
            of_slots = state.strides[2] if len(state.shape) == 5 else 0
            self.steps.append(Step(TOTAL.spec(), blocks, 2, counts, (*state.strides[:2], of_slots, state.strides[-2])))
            self.nbytes = sequences * cut.parts * e * m * F32.itemsize

    def launch(self, bound: Sequence[Run], k: int, v: int, state: int, parts: int, stream: int) -> None:
        """Queue the slice, with scratch memory for the parts."""
        for run, step in zip(bound, self.steps):
            if step.spec.kernel is TOTAL:
                run((parts, state + self.target), stream)
            else:
                run((k + self.source, v, parts if self.nbytes else state), stream)


def _loads(x: Operand, features: int, elements: int) -> bool:
    """Whether rows may be read so many elements at once."""
    return features % elements == 0 and aligned(x, elements * x.dtype.itemsize)


def _query_results(op: str, given: Sequence[Operand], layout: str) -> Results:
    q, state = given
    check_axes(op, (q,), layout)
    if len(state.shape) != 4:
        raise ValueError(f"{op}: state has shape {state.shape}; it takes four axes [B, H, E, M]")
    batch, head, _ = AXES[layout]
    expect(op, given, state, (q.shape[batch], q.shape[head], q.shape[3], state.shape[3]))
    return [((*q.shape[:3], state.shape[3]), q.dtype)]


def _prepare_query(op: str, given: Sequence[Operand], results: Sequence[Operand], layout: str) -> Plan:
    q, state = given
    (o,) = results
    return plan_query(q, state, o, layout)


_linear_state = Operator("linear_state", ("k", "v"), ("segment", "layout"), _state_results, _prepare_state)
_query_state = Operator(
    "query_state",
    ("q", "state"),
    ("layout",),
    _query_results,
    _prepare_query,
    takes={"q": FLOATS, "state": (F32,)},
    mixed=True,
)
