"""The kernels of `quantize`: groups with a scale each, along rows or across them, and the scale of a whole array."""

from __future__ import annotations

from collections.abc import Callable

from kgen.dtypes import E4M3, E5M2, I8, DType
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = 256
LARGEST = {E4M3: 448.0, E5M2: 57344.0, I8: 127.0}
"""The largest number that a code stands for."""

_VEC = Axis("VEC", "v", (1, 2, 4, 8), "neighbours that a thread takes at once")


def _too_wide(spec: Spec) -> str | None:
    return f"a load has at most 16 bytes, not {wide}" if (wide := spec["VEC"] * spec.dtype.itemsize) > 16 else None


def down(spec: Spec) -> int:
    """Groups that a thread has a share in: several small ones, so that enough loads are under way."""
    return max(1, 4 // spec["ITEMS"]) if spec["ITEMS"] and spec["LANES"] <= 32 else 1


def _text(target: DType) -> Callable[[Spec], dict[str, object]]:
    return lambda spec: {"target": target.c, "target_header": target.header, "target_name": target.name.upper()}


def _kernel(target: DType) -> Kernel:
    return Kernel(
        name=f"quantize_{target}",
        summary=f"Groups of neighbours as codes of {target.numpy_name}, with a scale for each group.",
        formula="scale[g] = max over i in g of |x[i]| / LARGEST, or 1\nq[i] = round(x[i] / scale[g])",
        axes=(
            _VEC,
            Axis("LANES", "l", (4, 8, 16, 32, 256, 1024), "threads of a group"),
            Axis("ITEMS", "i", (0, 1, 2, 4, 8, 16), "packs of a group that a thread holds; 0: it reads them twice"),
        ),
        derive=lambda spec: {
            "THREADS": spec["LANES"] if spec["LANES"] > 32 else THREADS,  # a block, or a part of a warp
            "LARGEST": int(LARGEST[target]),
            "DOWN": down(spec),
            "STATIC_SMEM": spec["LANES"] // 8 if spec["LANES"] > 32 else 0,
        },
        check=_too_wide,
        grid="(ceil(groups * LANES / (THREADS * DOWN))): LANES threads for each group",
        origin="the scaled formats of 8-bit training and inference",
        stem="quantize",
        text=_text(target),
        defaults=("quantize_e4m3_v8_l8_i2_bf16",) if target is E4M3 else (),
    )


def _columns_kernel(target: DType) -> Kernel:
    return Kernel(
        name=f"quantize_columns_{target}",
        summary=f"Columns as codes of {target.numpy_name}, with a scale for each; or the largest magnitude of each.",
        formula="scale[c] = max over r of |x[r, c]| / LARGEST, or 1\nq[r, c] = round(x[r, c] / scale[c])",
        axes=(_VEC, Axis("LANES", "l", (1, 2, 4, 8, 16, 32), "threads along a row")),
        flags=(Flag("codes", "magnitudes are known, and codes are written"),),
        derive=lambda spec: {
            "THREADS": THREADS,
            "LARGEST": int(LARGEST[target]),
            "STATIC_SMEM": 0 if spec["codes"] else 4 * THREADS * spec["VEC"],
        },
        check=_too_wide,
        grid="(ceil(columns / (LANES * VEC)) * splits * matrices): column tiles vary fastest",
        origin="the scaled formats of 8-bit training and inference",
        stem="quantize_columns",
        text=_text(target),
        defaults=("quantize_columns_e4m3_v8_l32_bf16", "quantize_columns_e4m3_v8_l32_codes_bf16")
        if target is E4M3
        else (),
    )


_BY_TARGET = {target: register(_kernel(target)) for target in LARGEST}
_COLUMNS = {target: register(_columns_kernel(target)) for target in LARGEST}

SCALE = register(
    Kernel(
        name="quantize_largest",
        summary="The largest magnitude of an array's parts, or the scale that follows from it.",
        formula="out[block] = max of |x[i]|",
        axes=(_VEC,),
        flags=(Flag("scale", "one block, whose result is divided by the largest code"),),
        derive=lambda spec: {"THREADS": THREADS, "STATIC_SMEM": THREADS // 8},
        check=_too_wide,
        grid="any number of blocks, which share the array",
        defaults=("quantize_largest_v8_bf16",),
    )
)


def groups_kernel(target: DType) -> Kernel:
    """The kernel that makes codes of a type."""
    return _BY_TARGET[target]


def columns_kernel(target: DType) -> Kernel:
    """The same for groups across rows."""
    return _COLUMNS[target]
