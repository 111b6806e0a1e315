"""The kernels that normalise rows, and how a problem picks one: rows in registers, or in parts that are read twice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kgen.device import multiprocessors
from kgen.dtypes import F32
from kgen.launch import Step, bind
from kgen.operand import Operand, joined
from kgen.ops import rows, rows_cut
from kgen.ops.axes import Rows, as_rows, staged
from kgen.ops.calls import Plan
from kgen.ops.rows_text import ALIGNED, WEIGHT_TYPES, affine, centred, text_of_rows, text_of_weights, weight_of
from kgen.registry import register
from kgen.scratch import scratch
from kgen.spec import Axis, Flag, Kernel, Spec

HELD = 40  # numbers of a row in a thread's registers
MOMENTS = 8  # bytes of what is known of a part

AFFINE = (
    Flag("weight", "the result is multiplied by a vector"),
    Flag("bias", "a vector is added to the result"),
    Flag("channels", "weight and bias have one number for each channel of a group"),
    Flag("wfloat", "weight and bias are float"),
    Flag("whalf", "weight and bias are __half"),
    Flag("wbf", "weight and bias are __nv_bfloat16"),
)
RMS = Flag("rms", "the mean is taken to be zero")


def check_affine(spec: Spec) -> str | None:
    """Why a combination of AFFINE is illegal, or None."""
    own = [dtype for dtype, flag in WEIGHT_TYPES.items() if spec[flag]]
    if len(own) > 1 or spec.dtype in own:
        return "weights have one type, which is named where it is not that of x"
    if (own or spec["channels"]) and not (spec["weight"] or spec["bias"]):
        return "there are no weights"
    if spec["rms"] and (spec["bias"] or spec["channels"]):
        return "without a mean there is neither a bias nor a group"
    return None


def _vectors(spec: Spec) -> list[str]:
    """What goes with the columns of a row."""
    return [name for name in ("weight", "bias") if spec[name] and not spec["channels"]]


def _kept(spec: Spec) -> int:
    """Bytes of weights for a pack that a block keeps, since it needs them for many rows; 0 where there is no room."""
    kept = len(_vectors(spec)) * spec["VEC"] * weight_of(spec).itemsize
    room = rows.SHARED // (spec["LANES"] * spec["PACKS"]) - rows.VECTOR
    return kept if spec["looped"] and kept <= room else 0


def _text_of_rows(spec: Spec) -> dict[str, Any]:
    vectors = _vectors(spec)
    return {
        **text_of_rows(spec, "Sum", weights=bool(vectors)),
        **text_of_weights(spec),
        "vectors": vectors,
        "kept": _kept(spec) > 0,
        "centred": centred(spec, "to_float(value[pack].at[i])"),
        "affine": affine(spec),
        "edge_centred": centred(spec, "edge[i]"),
        "edge_affine": affine(spec, "edge_weight[i]", "edge_bias[i]"),
    }


def _text_of_parts(spec: Spec) -> dict[str, Any]:
    shared = {**ALIGNED, "filled": spec["residual"], **text_of_weights(spec)}
    return {**shared, "centred": "value[pack][i]", "affine": affine(spec)}


def _check_rows(spec: Spec) -> str | None:
    if spec["residual"] and not spec["rms"]:
        return "only an RMS norm takes a residual"
    if spec["channels"] and spec["ragged"]:
        return "the packs of a group lie within its channels"
    if spec["residual"] and spec["looped"]:
        return "rows that are taken in turn are those of one array"
    return check_affine(spec) or rows.check(spec, HELD)


NORM = register(
    rows.RowKernel(
        name="norm",
        summary="Normalises rows, which stay in registers.",
        formula="y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]",
        axes=rows.AXES,
        flags=(
            RMS,
            Flag("residual", "what is normalised is the sum of two arrays, which is stored"),
            *AFFINE,
            *rows.FLAGS,
        ),
        derive=lambda spec: rows.derive(spec, kept=_kept(spec)),
        text=_text_of_rows,
        check=_check_rows,
        grid="a row for each block, for each cluster of blocks, or for LANES neighbouring threads",
        origin="Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450; Zhang and Sennrich, arXiv:1910.07467",
        defaults=(
            "norm_t128_n8_v4_weight_bias_f32",
            "norm_t128_n4_v8_rms_weight_bf16",
            "norm_t128_n4_v8_rms_residual_weight_bf16",
        ),
    )
)


def _check_split(spec: Spec) -> str | None:
    if spec["partial"] and any(spec[flag.name] for flag in AFFINE):
        return "a part's moments are what they are, whatever comes of them"
    if spec["residual"] and not (spec["partial"] and spec["rms"]):
        return "a residual is added at the first reading, for an RMS norm"
    if spec["VEC"] * spec.dtype.itemsize > rows.VECTOR:
        return f"no load is wider than {rows.VECTOR} bytes"
    return check_affine(spec)


SPLIT = register(
    Kernel(
        name="norm_split",
        summary="Normalises rows of any length in two launches, each of which reads them.",
        formula="y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i]",
        axes=(
            Axis("LANES", "t", (128, 256, 512), "threads of a block", default=512),
            Axis("PACKS", "n", (1, 2, 4, 8, 16), "packs that a thread has in flight", default=4),
            rows.VEC,
        ),
        flags=(
            RMS,
            Flag("partial", "only the moments of the parts; without it, what follows from them"),
            Flag("residual", "the moments are those of the sum of two arrays, which is stored"),
            *AFFINE,
        ),
        derive=lambda spec: {"THREADS": spec["LANES"], "STATIC_SMEM": spec["LANES"] // 32 * 12},
        text=_text_of_parts,
        check=_check_split,
        grid="a block for each part of a row",
        origin="Chan, Golub and LeVeque, Updating formulae for computing sample variances, 1979",
        defaults=("norm_split_v8_partial_bf16", "norm_split_v8_weight_bias_channels_bf16"),
    )
)


Axes = tuple[int, ...]


class Normal(NamedTuple):
    """What is asked for, besides the arrays. `groups` and `spatial`: of a group norm, else 0."""

    op: str
    rms: bool
    eps: float
    offset: float
    stats: bool
    groups: int = 0
    spatial: int = 0


ROLES = ("x", "residual", "weight", "bias", "y", "total", "mean", "rstd")
"""In which order kernels take them."""


def plan(given: Mapping[str, Operand | None], results: Mapping[str, Operand], axes: Axes, normal: Normal) -> Plan:
    """The launches for operands by their ROLES, all with the axes of x, in the order of the pointers of a call."""
    operands = (*given.values(), *results.values())
    fits = [operand is None or as_rows(operand, axes) is not None for operand in operands]
    if normal.groups:  # one number for each channel, neighbours all through
        for index, (role, operand) in enumerate(given.items()):
            if role in ("weight", "bias") and operand:
                fits[index] = joined(operand.shape, operand.strides)[1] in ((), (1,))
    roles = (*given, *results)

    def build(operands: Sequence[Operand | None], axes: Axes) -> Plan:
        return _plan_rows(dict(zip(roles, operands)), axes, normal)

    return staged(operands, len(given), axes, fits, build)


def _plan_rows(named: dict[str, Operand | None], axes: Axes, normal: Normal) -> Plan:
    x, residual, weight, bias, y, total = (named.get(role) for role in ROLES[:6])
    assert x is not None and y is not None
    at = {role: index for index, (role, operand) in enumerate(named.items()) if operand}
    read, written = _rows(x, axes), _rows(y, axes)
    long = [x, *((residual, total) if residual and total else ()), y]
    pitched = [rows_cut.Pitched(o, _rows(o, axes).pitch, o.dtype.itemsize) for o in long]
    weights = [w for w in (weight, bias) if w]
    taken = _packs(pitched, read.columns, weights, normal, ragged=True)
    affine = _affine(x, weight, bias, normal)
    order = [at[role] for role in ROLES if role in at]
    nobody = () if normal.stats else (0,) if normal.rms else (0, 0)
    device = y.device
    groups = (normal.groups, normal.spatial) if affine.get("channels") else ()
    floats = (normal.eps, normal.offset) if normal.rms and weight else (normal.eps,)
    few = (rows.WIDEST,) if x.dtype is F32 else ()
    cut = rows_cut.cut(read.rows, read.columns, taken, HELD, device, looped=int(residual is None), few=few)
    if cut:
        flags = {**affine, "rms": normal.rms, "residual": residual is not None, **taken.flags()}
        spec = NORM.spec(**cut.values(), **flags, dtype=x.dtype)
        long = [x, residual, y, total] if residual else [x, y]
        pitches = tuple(_rows(operand, axes).pitch for operand in long if operand)
        ints = (read.rows, read.columns, *groups)
        step = Step(spec, rows.grid(spec, read.rows, device), len(order) + len(nobody), ints, pitches, floats)
        run = bind([step], device)[0]
        why = f"{read.rows} rows of {read.columns} fit into the registers of {cut}"

        def launch(pointers: Sequence[int], stream: int) -> None:
            run([*(pointers[i] for i in order), *nobody], stream)

        return Plan(launch, (str(step),), why)
    plain = _packs(pitched, read.columns, weights, normal, ragged=False)
    # With a residual the second launch reads what the first one stored.
    sums = tuple(_rows(o, axes).pitch for o in (residual, total) if o)
    return _plan_split(x, y, at, read, written, sums, plain.vec, affine, groups, floats, normal)


def _plan_split(
    x: Operand,
    y: Operand,
    at: Mapping[str, int],
    read: Rows,
    written: Rows,
    sums: tuple[int, ...],
    vec: int,
    affine: dict[str, bool],
    groups: tuple[int, ...],
    floats: tuple[float, ...],
    normal: Normal,
) -> Plan:
    values = {"VEC": vec, "PACKS": {1: 16, 2: 8}.get(vec, 4)}
    partial = SPLIT.spec(**values, rms=normal.rms, residual=bool(sums), partial=True, dtype=x.dtype)
    apply = SPLIT.spec(**values, rms=normal.rms, **affine, dtype=x.dtype)
    tile = apply["LANES"] * apply["PACKS"] * vec
    parts = min(-(-4 * multiprocessors(y.device) // read.rows), -(-read.columns // tile))
    width = -(-read.columns // (parts * tile)) * tile
    parts = -(-read.columns // width)
    blocks = read.rows * parts
    ints = (read.columns, parts, width)
    nobody = () if normal.stats else (0,) if normal.rms else (0, 0)
    first = [at[role] for role in ("x", "residual", "total") if role in at]
    second = "total" if sums else "x"
    before = [at[role] for role in (second, "weight", "bias") if role in at]
    behind = [at[role] for role in ("y", "mean", "rstd") if role in at]
    steps = (
        Step(partial, blocks, len(first) + 1, ints, (read.pitch, *sums)),
        Step(
            apply,
            blocks,
            len(before) + len(behind) + len(nobody) + 1,
            (*ints, *groups),
            (sums[1] if sums else read.pitch, written.pitch),
            floats,
        ),
    )
    find, finish = bind(steps, y.device)
    device = y.device

    def launch(pointers: Sequence[int], stream: int) -> None:
        memory = scratch(blocks * MOMENTS, device, stream)
        find([*(pointers[i] for i in first), memory.ptr], stream)
        finish([*(pointers[i] for i in before), memory.ptr, *(pointers[i] for i in behind), *nobody], stream)

    why = f"{read.rows} rows of {read.columns}, in {parts} parts each"
    return Plan(launch, tuple(map(str, steps)), why)


def _rows(operand: Operand, axes: Axes) -> Rows:
    found = as_rows(operand, axes)
    assert found is not None
    return found


def _packs(
    long: Sequence[rows_cut.Pitched], columns: int, weights: Sequence[Operand], normal: Normal, *, ragged: bool
) -> rows_cut.Packs:
    """How rows, and the weights along them, are loaded and stored; what is written last."""
    stored = long[-2:] if len(long) > 2 else long[-1:]
    alike = len({o.offset(row) % rows.VECTOR - stored[-1].offset(row) % rows.VECTOR for o in stored for row in (0, 1)})
    taken = rows_cut.packs(long, columns, ragged=ragged and not normal.groups and alike == 1)
    if taken.ragged:  # weights are then taken from anywhere, too
        return taken
    vec = math.gcd(taken.vec, normal.spatial) if normal.groups else taken.vec
    while vec > 1 and not normal.groups and any(w.ptr % min(rows.VECTOR, vec * w.dtype.itemsize) for w in weights):
        vec //= 2
    return rows_cut.Packs(vec, full=taken.full and vec == taken.vec)


def _affine(x: Operand, weight: Operand | None, bias: Operand | None, normal: Normal) -> dict[str, bool]:
    """The flags of AFFINE."""
    flags: dict[str, bool] = {}
    first = weight or bias
    if first is not None:
        flags |= {"weight": weight is not None, "bias": bias is not None, "channels": normal.groups > 0}
        if first.dtype is not x.dtype:
            flags[WEIGHT_TYPES[first.dtype]] = True
    return flags
