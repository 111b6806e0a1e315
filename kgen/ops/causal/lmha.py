"""The two kernels that fast-transformers computes causal linear attention with, written anew: float32 on plain cores.

`lmha` keeps the whole state in one block's registers and takes one time step at a time; `lmha_low_occupancy` gives each
value column a block and cuts the time steps over its warps. They are here to be read, run and measured beside
`lmha_chunk`, which is what an operator picks where it can.
"""

from __future__ import annotations

from kgen.errors import SpecError
from kgen.launch import Step, bind
from kgen.ops.calls import Plan
from kgen.ops.causal.scan import Scan
from kgen.registry import register
from kgen.spec import Axis, Flag, Kernel, Spec

WARP = 32
FORMULA = "o[t] = sum over s <= t of (q[t] . k[s]) v[s]          (reverse: over s >= t)"
ORIGIN = "Katharopoulos et al., Transformers are RNNs (2020), and the causal_product of their library fast-transformers"

_REVERSE = Flag("reverse", "walks from the last token to the first: o[t] sums over s >= t")


def _low_occupancy_smem(spec: Spec) -> dict[str, int]:
    threads = WARP * spec["WARPS"]
    return {"THREADS": threads, "STATIC_SMEM": 2 * spec["WARPS"] * spec["E"] * 4}  # two buffers of every warp's totals


def _low_occupancy_problem(spec: Spec) -> str | None:
    per_lane = spec["E"] // WARP
    if per_lane % spec["VEC"]:
        return f"a lane owns E / 32 = {per_lane} features, which must be a multiple of VEC = {spec['VEC']}"
    held = per_lane * spec["COLS_PER_THREAD"] * (2 if spec["pipelined"] else 1)
    room = 64 if spec["WARPS"] <= 8 else 32
    if held > room:
        return f"a lane would hold {held} elements of q and as many of k, and {room} fit in its registers"
    return None


LOW_OCCUPANCY = register(
    Kernel(
        name="lmha_low_occupancy",
        summary="Causal linear attention for few heads: one block per value column, the time steps cut over its warps.",
        formula=FORMULA,
        axes=(
            Axis("E", "e", (32, 64, 128, 256), "room for features of q and k; the true count comes at run time"),
            Axis("WARPS", "w", (4, 8, 16), "warps of a block, each with time steps of its own"),
            Axis("COLS_PER_THREAD", "c", (1, 2, 4, 8), "consecutive time steps that a warp takes per iteration"),
            Axis("VEC", "v", (1, 2, 4), "consecutive features of q and k that a lane loads at once", default=1),
        ),
        flags=(_REVERSE, Flag("pipelined", "loads the next iteration's q, k, v before this one's reductions")),
        derive=_low_occupancy_smem,
        check=_low_occupancy_problem,
        grid="(M * H * B): one block per value column of a head",
        origin=ORIGIN,
        defaults=(
            "lmha_low_occupancy_e64_w4_c4_f32",
            "lmha_low_occupancy_e64_w4_c4_v2_pipelined_f32",
            "lmha_low_occupancy_e128_w4_c4_f16",
            "lmha_low_occupancy_e128_w8_c4_bf16",
            "lmha_low_occupancy_e128_w16_c4_reverse_f32",
            "lmha_low_occupancy_e256_w8_c4_f32",
        ),
    )
)


def _lmha_smem(spec: Spec) -> dict[str, int]:
    floats = 2 * spec["STEPS"] * (2 * spec["E"] + spec["COLUMNS"])  # two buffers of q, k and v
    return {"THREADS": spec["T"] * spec["COLUMNS"], "STATIC_SMEM": 4 * floats}


def _lmha_problem(spec: Spec) -> str | None:
    features, threads, steps = spec["E"], spec["T"] * spec["COLUMNS"], spec["STEPS"]
    if features % (4 * spec["T"]):
        return f"a thread owns E / T features in groups of four, and {features} is no multiple of {4 * spec['T']}"
    if threads > 512:
        return f"a block would have {threads} threads, and 512 is the most"
    if _lmha_smem(spec)["STATIC_SMEM"] > 48 * 1024:
        return "its buffers would not fit in 48 KiB of shared memory: lower STEPS"
    in_flight = 2 * -(-steps * features // threads) + -(-steps // spec["T"])
    if features // spec["T"] + in_flight > 148:
        return "the state and the loads in flight would not fit in registers: raise T or COLUMNS, or lower STEPS"
    return None


LMHA = register(
    Kernel(
        name="lmha",
        summary="Causal linear attention for many heads: the state in a block's registers, one time step at a time.",
        formula=FORMULA,
        axes=(
            Axis("E", "e", (32, 48, 64, 128, 256), "room for features of q and k; the true count comes at run time"),
            Axis("T", "t", (1, 2, 4, 8), "threads that share a column of the state"),
            Axis("COLUMNS", "m", (32, 64, 128), "columns of v and o that a block owns", default=64),
            Axis("STEPS", "s", (1, 4, 8), "time steps fetched at once, with one barrier for all of them", default=8),
        ),
        flags=(_REVERSE,),
        derive=_lmha_smem,
        check=_lmha_problem,
        grid="(ceil(M / COLUMNS) * H * B): one block per head and tile of value columns",
        origin=ORIGIN,
        defaults=("lmha_e64_t1_s1_f32", "lmha_e64_t1_f32", "lmha_e128_t2_reverse_f32", "lmha_e128_t2_f16"),
    )
)

LOW_OCCUPANCY_THRESHOLD = 40
"""Heads (times batch) below which fast-transformers cuts the time steps too; meant as half the SMs, says its source."""


def plan_low_occupancy(scan: Scan, spec: Spec | None, device: int) -> Plan:
    """One launch of `lmha_low_occupancy`: the given one, or the one that fast-transformers would choose."""
    vec = max(vec for vec in (1, 2, 4) if vec == 1 or (scan.loads(vec) and scan.e % vec == 0))
    if spec is None:
        columns = scan.m * scan.sequences
        warps = 4 if columns >= 8 * LOW_OCCUPANCY_THRESHOLD else 8 if columns >= 4 * LOW_OCCUPANCY_THRESHOLD else 16
        room = _room(LOW_OCCUPANCY, scan)
        lanes = min(vec, room // WARP)
        spec = LOW_OCCUPANCY.spec(
            E=room, WARPS=warps, COLS_PER_THREAD=4, VEC=lanes, reverse=scan.reverse, dtype=scan.dtype
        )
    if spec["VEC"] > vec:
        raise SpecError(
            f"causal_dot_product: {spec.name} loads {spec['VEC']} features at once, and these rows allow {vec}",
            hint="E and all strides of q and k must be multiples of VEC, and the arrays aligned",
        )
    return _plan(scan, spec, scan.m * scan.sequences, device)


def plan(scan: Scan, spec: Spec | None, device: int) -> Plan:
    """One launch of `lmha`: the given one, or the one that fast-transformers would choose, in tiles of columns."""
    if spec is None:
        room = _room(LMHA, scan)
        threads = {128: 2, 256: 4}.get(room, 1)
        columns = min((c for c in (32, 64, 128) if c >= scan.m), default=128)
        spec = LMHA.spec(E=room, T=threads, COLUMNS=columns, STEPS=1, reverse=scan.reverse, dtype=scan.dtype)
    tiles = -(-scan.m // spec["COLUMNS"])
    return _plan(scan, spec, tiles * scan.sequences, device)


def _plan(scan: Scan, spec: Spec, blocks: int, device: int) -> Plan:
    sizes = (scan.heads, scan.length, scan.e, scan.m)
    step = Step(spec, blocks, 4, sizes, (*scan.q, *scan.k, *scan.v, *scan.o))
    return Plan(bind([step], device)[0], (str(step),), f"{spec.kernel.name} was asked for by name")


def _room(kernel: Kernel, scan: Scan) -> int:
    room = next((room for room in kernel.axes[0].values if room >= scan.e), None)
    if room is None:
        raise SpecError(
            f"causal_dot_product: {kernel.name} takes at most 256 features, and there are {scan.e}",
            hint="leave out algorithm= for one that takes any number",
        )
    return room
