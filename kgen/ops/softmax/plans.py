"""Which kernel computes a softmax: rows in registers, rows in a stream, or columns side by side."""

from __future__ import annotations

from collections.abc import Sequence

from kgen.errors import SpecError
from kgen.operand import Operand
from kgen.ops import rows, rows_cut
from kgen.ops.axes import Planes, Rows, as_planes, as_rows, others, part, staged
from kgen.ops.calls import Plan
from kgen.ops.softmax.along_rows import plan_rows
from kgen.ops.softmax.column_plans import held, plan_columns, ragged
from kgen.ops.softmax.flags import Wanted
from kgen.ops.softmax.grid import plan_grid
from kgen.ops.softmax.logsumexp import plan_logsumexp
from kgen.ops.softmax.masks import mask_rows
from kgen.ops.softmax.online import plan_online
from kgen.ops.softmax.ring import plan_ring
from kgen.ops.softmax.strip_plans import plan_strips
from kgen.ops.softmax.strips import GRID
from kgen.registry import parse
from kgen.spec import Spec

NARROW = 64  # rows, from which on full packs, wherever they begin, do better in shared memory than others in registers
ALGORITHMS = ("softmax", "softmax_ring", "softmax_grid", "softmax_online", "softmax_columns", "softmax_strips")


def plan(
    x: Operand, mask: Operand | None, y: Operand, axes: tuple[int, ...], wanted: Wanted, algorithm: str | None
) -> Plan:
    """The launches for any strides; y has the shape of x, or 1 for each axis of a sum.

    Raises SpecError, which lists the algorithms, for a name that is none of them or cannot take this problem.
    """
    if not axes:  # every element is a row of its own
        x, y, axes = _each_alone(x), _each_alone(y), (len(x.shape),)
        mask = mask and _each_alone(mask)
    spec = _named(wanted, algorithm, x, y)
    kernel = spec.kernel.name if spec else algorithm
    if kernel in (None, "softmax_columns", "softmax_strips"):
        read = as_planes(x, axes)
        written = as_planes(y, axes) if wanted.op != "logsumexp" else _one_each(y, axes, read)
        if read and written and written.length == read.length and mask is None and not wanted.causal:
            return _plan_planes(x, y, read, written, wanted, kernel, spec)
        if kernel:
            raise SpecError(
                f"{wanted.op}: {kernel} takes axes that are not the last, and no mask; "
                f"the axes are {axes} of the shape {x.shape}"
            )
    if mask is not None:
        mask = _broadcast(mask, x)
    masks = [] if wanted.op == "logsumexp" else [mask]  # that is launched without a pointer for one
    beside = [one is None or mask_rows(one, axes) is not None for one in masks]
    fits = (as_rows(x, axes) is not None, *beside, _writes(y, axes))

    def build(operands: Sequence[Operand | None], axes: tuple[int, ...]) -> Plan:
        x, *masks, y = operands
        mask = masks[0] if masks else None
        assert x is not None and y is not None
        read, heights = as_rows(x, axes), part(y, others(y, axes))
        assert read is not None
        written = Rows(read.rows, read.columns, heights[1][0] if heights[1] else read.columns)
        if wanted.op == "logsumexp":
            return plan_logsumexp(x, y, read, written)
        found = None
        if kernel in (None, "softmax_ring"):
            found = plan_ring(x, mask, y, axes, read, written, wanted)
        if found is None and kernel in (None, "softmax"):
            found = plan_rows(x, mask, y, axes, read, written, wanted, spec)
        if found is None and kernel in (None, "softmax_grid"):
            found = plan_grid(x, y, axes, read, written, wanted)
        if found is None and kernel in (None, "softmax_online"):
            found = plan_online(x, mask, y, axes, read, written, wanted, spec)
        if found is None:
            raise SpecError(f"{wanted.op}: {read.rows} rows of {read.columns} are not for the algorithm {algorithm!r}")
        return found

    return staged((x, *masks, y), 1 + len(masks), axes, fits, build)


def _plan_planes(
    x: Operand, y: Operand, read: Planes, written: Planes, wanted: Wanted, kernel: str | None, spec: Spec | None
) -> Plan:
    """Columns side by side: in registers, where they are short and packs are full; in shared memory; or read twice."""
    both = ((x, read),) if wanted.op == "logsumexp" else ((x, read), (y, written))
    apart = [
        rows_cut.Pitched(o, pitch, o.dtype.itemsize) for o, planes in both for pitch in (planes.step, planes.plane)
    ]
    vec = rows_cut.packs(apart, read.columns).vec
    narrow = vec * x.dtype.itemsize < rows.VECTOR and read.length >= NARROW and ragged(x, y, read, written)
    if kernel == "softmax_strips" or (kernel is None and (narrow or held(read, vec, x.dtype, y.device) is None)):
        found = plan_strips(x, y, read, written, vec, wanted, spec)
        if found:
            return found
        if kernel:
            raise SpecError(f"{wanted.op}: columns of {read.length} are not for the algorithm {kernel!r}")
    return plan_columns(x, y, read, written, vec, wanted, spec)


def _one_each(y: Operand, axes: tuple[int, ...], read: Planes | None) -> Planes | None:
    """Where a number for each column is written, or None where these are no neighbours."""
    before, pitches = part(y, range(axes[0]))
    after, inner = part(y, range(axes[-1] + 1, len(y.shape)))
    if read is None or len(before) > 1 or inner != (1,):
        return None
    return Planes(read.planes, read.length, after[0], pitches[0] if pitches else 0, 0)


def _writes(y: Operand, axes: tuple[int, ...]) -> bool:
    """Whether rows of results can be written: as they are read, or one number each."""
    return as_rows(y, axes) is not None


def _each_alone(operand: Operand) -> Operand:
    """The same array with an axis of one element behind the others."""
    return operand.view((*operand.shape, 1), (*operand.strides, 1))


def _broadcast(mask: Operand, x: Operand) -> Operand:
    """The mask with the shape of x; an axis that it lacks has the stride 0."""
    missing = len(x.shape) - len(mask.shape)
    strides = (0,) * missing + tuple(0 if size == 1 else step for size, step in zip(mask.shape, mask.strides))
    return mask.view(x.shape, strides)


def _named(wanted: Wanted, algorithm: str | None, x: Operand, y: Operand) -> Spec | None:
    """The specialization that `algorithm` names in full, or None."""
    if algorithm is None or algorithm in ALGORITHMS:
        return None
    if not isinstance(algorithm, str) or not algorithm.startswith("softmax"):
        raise SpecError(
            f"{wanted.op}: there is no algorithm {algorithm!r}",
            hint=f"one of {', '.join(ALGORITHMS)}, a specialization's whole name, or None for what suits the shape",
        )
    try:
        spec = parse(algorithm)
    except SpecError as error:
        raise SpecError(f"{wanted.op}: algorithm {algorithm!r}: {error}") from None
    flags = {name for name, on in wanted.flags(wide=y.dtype is not x.dtype).items() if on}
    own = spec.flags - {flag.name for flag in (*rows.FLAGS, GRID)}  # how they are taken is another matter
    if spec.dtype is not x.dtype or own != flags:
        raise SpecError(
            f"{wanted.op}: {spec.name} is for {spec.dtype} and {sorted(own) or 'no flags'}; "
            f"this call needs {x.dtype} and {sorted(flags) or 'none'}"
        )
    return spec
