"""The kernels of linear attention with gates, one time step after another.

Forward and backward are one kernel with its roles exchanged: `gated_scan` walks along time with a state S, to which
each step adds x y^T, and of which z reads. The gradients' scans are named by what they give:

    o    z = q,  x = k,  y = v              S = a S + x y^T
    dv   z = k,  x = q,  y = do   adjoint   S = a (S + x y^T), the other way in time
    dq   z = do, x = v,  y = k    turned    the state of o, read along the values
    dk   z = v,  x = do, y = q    turned, adjoint
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from kgen.dtypes import F32
from kgen.ops.gated import features
from kgen.ops.gated.kernels import WIDEST, offset_type
from kgen.ops.gated.mapped import FEATURE_AXIS, MAPPED_AXIS, Mapped
from kgen.ops.gated.tiles import LOADERS, together
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

TURN = 2
"""Time steps that a turn of a scan's loop takes where it posts what lanes read."""

_FLOAT_BYTES = 4


def _steps(spec: Spec) -> int:
    """Time steps from barrier to barrier: fewer where each takes much of a loader's registers."""
    room = spec["ROWS"] * spec["LANES"]
    if _grouped(spec) and spec["GATE"] == 2 and spec["WARPS"] < 8 and room <= 256:
        return 32 if room <= 128 else 16
    return 16 if room <= 128 else 8 if room <= 256 or _grouped(spec) else 4


def _group(spec: Spec) -> int:
    """Time steps in a group, in which a state is decayed once: those that whoever prepares their gates has at hand."""
    return _steps(spec) // LOADERS if spec["GATE"] == 2 else _steps(spec)


class Role(NamedTuple):
    """What a kernel of scans gives, and with it the template's choices that are no flags."""

    turned: bool  # rows are value columns: what is read lies along the features, and so do gates
    products: bool  # also each result times its query, of which gates' gradients are made
    slopes: bool  # also the gate's gradient


def _gives(spec: Spec, what: str) -> bool:
    """Whether it is the scan of this name, with a feature map of its caller or without."""
    return spec.kernel.name.startswith(f"gated_scan_{what}")


def _role(spec: Spec) -> Role:
    gated = spec["GATE"] > 0
    query, key = _gives(spec, "query"), _gives(spec, "key")
    return Role(query or key, query and gated, key and gated)


def _adjoint(spec: Spec) -> bool:
    return bool(spec["adjoint"]) if any(flag.name == "adjoint" for flag in spec.kernel.flags) else _gives(spec, "key")


def _grouped(spec: Spec) -> bool:
    return in_groups(bool(spec["normal"]), _role(spec).turned, spec["GATE"] > 0)


def in_groups(normal: bool, turned: bool, gated: bool) -> bool:
    """Whether a state is decayed only once in a group of time steps."""
    return not normal and not (turned and gated)


def _token_floats(spec: Spec) -> int:
    """What lies in shared memory of each time step."""
    room, columns = spec["ROWS"] * spec["LANES"], block_columns(spec)
    turned, products, slopes = _role(spec)
    vector, shifted = spec["GATE"] == 2, turned and spec["bonus"]
    along_rows = 2 + (vector and not turned)
    own = products or slopes or (turned and spec["FEATURE"])
    along_columns = 1 + (vector and turned) + bool(own) + slopes + shifted
    scalars = bool(spec["bonus"] or not _grouped(spec)) + (spec["GATE"] == 1 or shifted)
    scalars += bool(_grouped(spec) and spec["GATE"])
    return -(-(room * along_rows + columns * along_columns + scalars) // 4) * 4


def block_columns(spec: Spec) -> int:
    return spec["WARPS"] * (32 // spec["LANES"]) * spec["COLUMNS"]


def posts(grouped: bool, gate: int, lanes: int, columns: int) -> bool:
    """Whether a scan's loading warps may add up what its lanes read, where there is shared memory for it."""
    return grouped and gate < 2 and (lanes, columns) == (8, 8)


def _scan_geometry(spec: Spec) -> dict[str, int]:
    steps, lanes = _steps(spec), spec["LANES"]
    parts = 2 * steps * lanes * (block_columns(spec) + 4) if spec["posted"] else 0
    return {
        "THREADS": 32 * (spec["WARPS"] + LOADERS),
        "LOADERS": LOADERS,
        "STEPS": steps,
        "TOGETHER": TURN if spec["posted"] else min(together(lanes, spec["COLUMNS"]), _group(spec) // 2),
        "DYNAMIC_SMEM": (2 * steps * _token_floats(spec) + parts) * _FLOAT_BYTES,
    }


def _scan_text(spec: Spec) -> dict[str, Any]:
    """What the template asks beside the axes: where gates lie, and what else a time step carries."""
    role, gate = _role(spec), spec["GATE"]
    shifted = bool(role.turned and spec["bonus"])
    per_row, per_column = gate == 2 and not role.turned, gate == 2 and role.turned
    swapped = _grouped(spec) and (spec["LANES"], spec["COLUMNS"]) == (8, 8) and not spec["posted"]
    sums = "Sums& sums, Sums& before" if swapped else "Sums& sums, const Sums& before"
    return role._asdict() | {
        "adjoint": _adjoint(spec),
        "partial": _gives(spec, "key") and bool(spec["partial"]),
        "grouped": _grouped(spec),
        "swapped": swapped,
        "sums": "float (*read)[LANES][BLOCK_COLUMNS + 4]" if spec["posted"] else sums,
        "GROUP": _group(spec),
        "per_step": gate == 1,
        "per_row": per_row,
        "per_column": per_column,
        "factor": "a[j]" if per_column else "a",
        "shifted": shifted,
        "walked": "walked" if shifted else "steps",
        "with_own": role.products or role.slopes or bool(spec["FEATURE"] and role.turned),
        "with_slope": role.turned,
        "offset_type": offset_type(spec),
    }


def _scan_problem(spec: Spec) -> str | None:
    if spec["ROWS"] * spec["LANES"] > WIDEST:
        return f"{spec['ROWS']} rows on {spec['LANES']} lanes are more than {WIDEST}"
    if spec["bonus"] and spec["GATE"] != 2:
        return "a bonus goes with a gate for each feature"
    if (spec["ufloat"] and not spec["bonus"]) or (spec["gfloat"] and not spec["GATE"]):
        return "what is not there has no type"
    if spec["normal"] and spec["GATE"]:
        return "a normalizer goes with no gate"
    if spec["FEATURE"] and spec["GATE"]:
        return "features other than the inputs themselves go with no gate"
    if spec.dtype is F32 and (spec["wide"] or spec["gfloat"] or spec["ufloat"]):
        return "all is float already"
    if spec["posted"] and not posts(_grouped(spec), spec["GATE"], spec["LANES"], spec["COLUMNS"]):
        return "what lanes read is posted where 8 lanes share 8 columns, without gates for each feature"
    if _gives(spec, "key") and spec["partial"] != (spec["GATE"] == 1) and spec["GATE"] != 2:
        return "the gradient of a gate for all features comes in parts, and none without a gate"
    return None


def _scan(
    name: str,
    summary: str,
    formula: str,
    flags: tuple[Flag, ...] = (),
    defaults: tuple[str, ...] = (),
    mapped: Mapped | None = None,
) -> Kernel:
    return register(
        Kernel(
            name=f"{name}_{mapped.digest}" if mapped else name,
            stem="gated_scan",
            summary=summary,
            formula=formula + (mapped.formula if mapped else ""),
            axes=(
                Axis("ROWS", "r", (4, 8, 12, 16), "rows of the state in a thread"),
                Axis("LANES", "l", (1, 2, 4, 8, 16, 32), "lanes that share a column"),
                Axis("COLUMNS", "c", (4, 8), "columns of the state in a thread"),
                Axis("WARPS", "w", (1, 2, 4, 8), "warps that hold states"),
                Axis("GATE", "g", (0, 1, 2), "gates: none, one per time step, one per feature", default=0),
                MAPPED_AXIS if mapped else FEATURE_AXIS,
                Axis("OFFSETS", "s", (0, 4, 8), "bytes of an offset, where sequences follow one another", default=0),
                Axis("VEC", "v", (1, 4), "consecutive elements that are loaded at once", default=4),
            ),
            flags=(
                Flag("reverse", "from the last time step to the first"),
                Flag("bonus", "a token reads the state before its gate, and itself times a bonus (RWKV6)"),
                *flags,
                Flag("normal", "the result is divided by what queries read of the sum of keys"),
                Flag("wide", "results are floats"),
                Flag("gfloat", "gates are floats"),
                Flag("ufloat", "the bonus is floats"),
                Flag("posted", "loading warps add up what lanes read"),
            ),
            derive=_scan_geometry,
            check=_scan_problem,
            text=lambda spec: _scan_text(spec) | (features.code(*mapped) if mapped else {}),
            grid="(ceil(columns / BLOCK_COLUMNS) * heads * sequences): one block per tile of columns",
            origin="Yang et al., Gated Linear Attention Transformers, 2024; Peng et al., Eagle and Finch: RWKV, 2024",
            defaults=() if mapped else defaults,
        )
    )


_SCANS: dict[str, tuple[str, str, tuple[Flag, ...], tuple[str, ...]]] = {
    "gated_scan": (
        "Linear attention with a gate, one time step after another, the state in the registers of a few warps.",
        "S[t] = diag(a[t]) S[t - 1] + x[t] y[t]^T\no[t] = z[t]^T S",
        (Flag("adjoint", "a gradient's scan: a step decays the state after it was added"),),
        (
            "gated_scan_r8_l16_c8_w8_g2_bf16",
            "gated_scan_r4_l32_c4_w4_g2_bonus_f32",
            "gated_scan_r16_l8_c8_w4_g1_posted_bf16",
        ),
    ),
    "gated_scan_query": (
        "The gradient of linear attention's queries, and that times the query, of which gates' gradients are made.",
        "S[t] = x[t] y[t]^T + S[t - 1] diag(a[t])\ndq[t] = z[t]^T S",
        (),
        ("gated_scan_query_r16_l8_c8_w4_g2_bf16",),
    ),
    "gated_scan_key": (
        "The gradient of linear attention's keys, and of its gates.",
        "S[t] = (x[t] y[t]^T + S[t + 1]) diag(a[t])\ndk[t] = z[t]^T S,  dg[t] = dg[t + 1] + q[t] dq[t] - k[t] dk[t]",
        (Flag("partial", "the gate's gradient as floats that are yet to be summed"),),
        ("gated_scan_key_r16_l8_c8_w4_g2_reverse_bf16",),
    ),
}
SCAN, QUERY_SCAN, KEY_SCAN = (_scan(name, *about) for name, about in _SCANS.items())


@functools.lru_cache(maxsize=256)
def scan_with(kernel: Kernel, mapped: Mapped | None) -> Kernel:
    """A scan with the feature map of its caller; that without it, where there is none."""
    if mapped is None:
        return kernel
    return _scan(kernel.name, *_SCANS[kernel.name], Mapped(mapped.feature_map) if kernel is SCAN else mapped)
