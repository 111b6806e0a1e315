"""The kernels of one time step of linear attention with gates, and of its normalizer."""

from __future__ import annotations

import functools

from kgen.ops.gated import features
from kgen.ops.gated.mapped import FEATURE_AXIS, MAPPED_AXIS, Mapped
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

THREADS = 256
NORMAL_THREADS = 128
_FLOAT_BYTES = 4


def _problem(spec: Spec) -> str | None:
    if spec["bonus"] and spec["GATE"] != 2:
        return "a bonus goes with a gate for each feature"
    if spec["normal"] and spec["GATE"]:
        return "a normalizer goes with no gate"
    return None


def _step(mapped: Mapped | None = None) -> Kernel:
    return register(
        Kernel(
            name=f"gated_step_{mapped.digest}" if mapped else "gated_step",
            stem="gated_step",
            summary="One token of linear attention with a gate: the state is read, updated in place, queried.",
            formula="S = diag(a) S + k v^T\no = q^T S" + (mapped.formula if mapped else ""),
            axes=(
                Axis("COLUMNS", "c", (32, 64, 128), "columns of the state of a block"),
                Axis("ROOM", "k", (64, 128, 256, 512), "rows at most"),
                Axis("GATE", "g", (0, 1, 2), "gates: none, one per head, one per feature", default=0),
                MAPPED_AXIS if mapped else FEATURE_AXIS,
            ),
            flags=(
                Flag("bonus", "the token reads the state before its gate, and itself times a bonus (RWKV6)"),
                Flag("normal", "the result is divided by what the query reads of the sum of keys"),
                Flag("indexed", "the states lie in a pool, and each sequence names its own"),
                Flag("packed", "columns lie side by side, and four of them are moved at once"),
                Flag("gfloat", "gates are floats"),
                Flag("ufloat", "the bonus is floats"),
            ),
            derive=lambda spec: {
                "THREADS": THREADS,
                "BATCH": 8 if spec["packed"] else 4,
                "STATIC_SMEM": _FLOAT_BYTES * (spec["ROOM"] * (2 + (spec["GATE"] == 2)) + THREADS * 4),
            },
            check=_problem,
            text=lambda spec: _text(mapped),
            grid="(ceil(columns / COLUMNS) * heads * batch): one block per tile of a state",
            origin="the recurrence itself",
            defaults=() if mapped else ("gated_step_c128_k128_g2_packed_bf16",),
        )
    )


def _normal(mapped: Mapped | None = None) -> Kernel:
    return register(
        Kernel(
            name=f"gated_step_normal_{mapped.digest}" if mapped else "gated_step_normal",
            stem="gated_step_normal",
            summary="One token of the normalizer of linear attention: the sum of keys, in place, and what it gives.",
            formula="z = z + k\nd = 1 / (q . z + epsilon)" + (mapped.formula if mapped else ""),
            axes=(MAPPED_AXIS if mapped else FEATURE_AXIS,),
            flags=(Flag("indexed", "the sums lie in a pool, and each sequence names its own"),),
            derive=lambda spec: {"THREADS": NORMAL_THREADS, "STATIC_SMEM": NORMAL_THREADS // 32 * _FLOAT_BYTES},
            text=lambda spec: _text(mapped),
            grid="(heads * batch): one block per sum",
            origin="Katharopoulos et al., Transformers are RNNs, 2020, equation 18",
            defaults=() if mapped else ("gated_step_normal_f1_f32",),
        )
    )


def _text(mapped: Mapped | None) -> dict[str, object]:
    return {"with_slope": False, **(features.code(*mapped) if mapped else {})}


STEP, NORMAL = _step(), _normal()


@functools.lru_cache(maxsize=256)
def steps_with(mapped: Mapped | None) -> tuple[Kernel, Kernel]:
    """The step, and that of the normalizer, with the feature map of their caller; without it, where there is none."""
    return (_step(mapped), _normal(mapped)) if mapped else (STEP, NORMAL)
