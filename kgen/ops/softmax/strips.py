"""The softmax of columns that stay in shared memory, strip after strip: the kernel, and its launch."""

from __future__ import annotations

from typing import Any

from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import F32, DType
from kgen.errors import SpecError
from kgen.launch import Step, bind, picked
from kgen.operand import Operand
from kgen.ops import rows_cut
from kgen.ops.axes import Planes
from kgen.ops.calls import Plan
from kgen.ops.rows import REACH, SHARED, VECTOR
from kgen.ops.softmax import flags as softmax_flags
from kgen.ops.softmax.columns import text_of_columns
from kgen.ops.softmax.flags import Wanted
from kgen.registry import register
from kgen.spec import Axis, Kernel, Spec

THREADS = 512  # of a block: one for each multiprocessor, since two that are half as large were no faster
CHUNK = 4  # rows of a thread that come together
WIDTHS = (256, 128)
"""Bytes of a row in a strip, by preference: in narrower ones, columns are copied at half the speed, or less."""
LEAST = 4  # bytes of a copy that does without registers

LANES = Axis("LANES", "l", (8, 16, 32, 64), "threads side by side, each on a pack of columns")
PACKS = Axis("PACKS", "n", (4, 8, 12, 16, 20, 24), "rows of a thread, of a strip")
VEC = Axis("VEC", "v", (1, 2, 4, 8), "neighbours that make a pack, and are loaded and stored at once")
CLUSTER = Axis("CLUSTER", "c", (1, 2, 4, 8, 16), "blocks that share a strip, as a cluster", default=1)
AXES = (LANES, PACKS, VEC, CLUSTER)
FLAGS = tuple(flag for flag in softmax_flags.FLAGS if flag.name in ("log", "scaled"))


def _derive(spec: Spec) -> dict[str, int]:
    cluster = spec["CLUSTER"]
    stride = spec["LANES"] * spec["VEC"]
    slots = THREADS // max(32, spec["LANES"])
    total = 12 if spec.dtype is F32 and not spec["log"] else 8
    exchanges = 2 * (8 * cluster * stride + 8) if cluster > 1 else 0
    static = 8 * slots * stride + -(-total * stride // 8) * 8 + exchanges
    chunk = THREADS * CHUNK * spec["VEC"] * spec.dtype.itemsize
    chunks = spec["PACKS"] // CHUNK
    stages = min((SHARED - static) // chunk, 2 * chunks)
    return {
        "THREADS": THREADS,
        "STATIC_SMEM": static,
        "DYNAMIC_SMEM": stages * chunk,
        "DEPTH": THREADS // spec["LANES"],
        "SLOTS": slots,
        "CHUNK": CHUNK,
        "CHUNKS": chunks,
        "STAGES": stages,
        "CLUSTER": cluster,
    }


def _check(spec: Spec) -> str | None:
    if not LEAST <= spec["VEC"] * spec.dtype.itemsize <= VECTOR:
        return f"what is fetched for later is of {LEAST} to {VECTOR} bytes"
    if spec["LANES"] * spec["VEC"] * spec.dtype.itemsize not in WIDTHS:
        return "strips are " + " or ".join(map(str, WIDTHS)) + " bytes wide"
    derived = spec.derived
    if derived["STATIC_SMEM"] > 48 * 1024 or derived["STAGES"] <= derived["CHUNKS"]:
        return "there is no shared memory for a strip, and what is to come"
    return None


def _text(spec: Spec) -> dict[str, Any]:
    number = ("scale * " if spec["scaled"] else "") + "float_of(taken, i)"
    return {
        **text_of_columns(spec),
        "staged": True,
        "deferred": True,
        "power": "addend" if spec.dtype is F32 else "exponential",
        "lse": False,
        "answer": softmax_flags.answer(spec, softmax_flags.below(spec, number, "peak[i]"), "[i]"),
    }


STRIPS = register(
    Kernel(
        name="softmax_strips",
        summary="Softmax along columns, strips of which stay in shared memory.",
        formula="y[i, c] = exp(x[i, c] - m[c]) / sum over j of exp(x[j, c] - m[c]), where m[c] = max over i of x[i, c]",
        axes=AXES,
        flags=FLAGS,
        derive=_derive,
        text=_text,
        check=_check,
        min_arch=rows_cut.CLUSTERS,
        grid="a cluster of blocks for many strips: as many as all multiprocessors have room for",
        origin="Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867",
        defaults=("softmax_strips_l8_n8_v4_c2_f32", "softmax_strips_l8_n16_v8_bf16"),
    )
)


def rows_of(spec: Spec) -> int:
    """How long columns may be."""
    return spec.derived["DEPTH"] * spec["PACKS"] * spec["CLUSTER"]


def clusters(spec: Spec, device: int) -> int:
    """How many clusters a device has room for."""
    return int(multiprocessors(device) * REACH[spec["CLUSTER"]]) // spec["CLUSTER"]


def cut(read: Planes, vec: int, dtype: DType, device: int) -> dict[str, int] | None:
    """The axes of a specialization for such columns, or None where no cluster has room for a strip of them."""
    if shared_memory(device) < SHARED or vec * dtype.itemsize < LEAST:
        return None
    for width in WIDTHS:
        lanes = width // (vec * dtype.itemsize)
        for cluster in (c for c in CLUSTER.values if c <= rows_cut.largest(device)):
            packs = -(-read.length // (THREADS // lanes * cluster * CHUNK)) * CHUNK
            if packs not in PACKS.values or lanes not in LANES.values:
                continue
            values = {"LANES": lanes, "PACKS": packs, "VEC": vec, "CLUSTER": cluster}
            spec = Spec(STRIPS, tuple(values.values()), frozenset(), dtype)
            if _check(spec) is None and clusters(spec, device):
                return values
    return None


def plan_strips(
    x: Operand, y: Operand, read: Planes, written: Planes, vec: int, wanted: Wanted, spec: Spec | None
) -> Plan | None:
    """One launch, or None where no cluster has room for a strip, or the kernel cannot do what is wanted."""
    device = y.device
    if wanted.op == "logsumexp" or y.dtype is not x.dtype:
        return None
    if spec is None:
        values = cut(read, vec, x.dtype, device)
        if values is None:
            return None
        flags = {flag.name: wanted.flags(wide=False)[flag.name] for flag in FLAGS}
        spec = STRIPS.spec(**values, **flags, dtype=x.dtype)
    elif spec["VEC"] > vec or rows_of(spec) < read.length:
        raise SpecError(
            f"{wanted.op}: {spec.name} does not take columns of {read.length} in packs of {vec} at most neighbours"
        )
    strips = -(-read.columns // (spec["LANES"] * spec["VEC"])) * read.planes
    teams = min(strips, max(1, clusters(spec, device)))
    steps = (read.plane, read.step, written.plane, written.step)
    step = Step(spec, teams * spec["CLUSTER"], 2, (read.length, read.columns, strips), steps, wanted.floats)
    run = bind([step], device)[0]
    why = f"{strips} strips of columns of {read.length}, which {teams} times {spec['CLUSTER']} blocks take in turn"
    return Plan(picked(run, (0, -1)), (str(step),), why)  # no mask
