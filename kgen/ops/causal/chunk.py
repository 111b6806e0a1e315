"""The fast path: chunks of time steps on the tensor cores, exact in float32, and how a problem is cut for it.

One primitive serves all: `lmha_chunk` takes up to 128 features and any number of value columns. Wider rows are taken in
slices that add up; few heads are cut along time into segments, whose states (`outer`) come before the segments are
scanned side by side: each adds up the states before its own where they are few, else `lmha_prefix` does it for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgen.arch import Arch
from kgen.device import multiprocessors, shared_memory
from kgen.dtypes import F32, DType
from kgen.errors import SpecError
from kgen.launch import Run, Step, bind, shifted
from kgen.ops.calls import Plan
from kgen.ops.causal.scan import Scan
from kgen.registry import register
from kgen.scratch import Sections
from kgen.spec import Axis, Flag, Kernel, Spec

PRODUCERS = 8  # warps that load, scale and split, besides those that multiply
WARP = 32
SLICE = 128  # features that one launch takes at the most
PREFIX_THREADS = 128
FEW = 1 << 20  # bytes of states that a block adds up in less time than another launch takes
ROOMY = 116 * 1024  # bytes of shared memory that 128 columns take in float32; the smaller chips have 99 KiB


def _geometry(spec: Spec) -> dict[str, int]:
    parts = 2 if spec.dtype is F32 else 1
    chunk, features, columns = spec["C"], spec["E"], spec["MB"]
    stage = parts * chunk * 2 * (features + 8 + columns + 8) + 8 * PRODUCERS + 16
    if not spec["outer"]:
        stage += parts * chunk * 2 * (features + 8 + chunk + 8) + 4 * chunk
    hands_over = features == columns == 128  # 16 warps leave 128 registers for each, and the state's warps need more
    return {
        "THREADS": WARP * (columns // 16 + PRODUCERS),
        "PARTS": parts,
        "PRODUCERS": PRODUCERS,
        "CONSUMER_REGISTERS": 160 if hands_over else 0,
        "PRODUCER_REGISTERS": 96 if hands_over else 0,
        "DYNAMIC_SMEM": 2 * stage,
    }


def _problem(spec: Spec) -> str | None:
    if spec["C"] == 64 and (spec["E"] == 128 or (spec.dtype is F32 and spec["MB"] == 128)):
        return "a chunk of 64 time steps needs more registers and shared memory than a block has"
    if spec["outer"] and (spec["segmented"] or spec["partial"] or spec["adds"]):
        return "states are float32 anyway, and begin with nothing"
    if spec["packed"] and not spec["outer"]:
        return "only states are packed"
    if spec["partial"] and spec.dtype is F32:
        return "with float32 the result of a slice is float32 anyway"
    return None


CHUNK = register(
    Kernel(
        name="lmha_chunk",
        summary="Causal linear attention in chunks of C time steps on the tensor cores, to the precision of float32.",
        formula="o[t] = q[t] S + sum over s <= t within t's chunk of (q[t] . k[s]) v[s]\n"
        "S    = sum over s of the chunks before t's of k[s] v[s]^T",
        axes=(
            Axis("E", "e", (32, 64, 128), "room for features of q and k; the true count comes at run time"),
            Axis("MB", "m", (32, 64, 128), "value columns of a block, 16 for each warp that multiplies"),
            Axis("C", "c", (16, 32, 64), "time steps of a chunk", default=32),
        ),
        flags=(
            Flag("outer", "only the states: S = sum of k[s] v[s]^T over each segment of the sequence"),
            Flag("packed", "states lie as the registers do, for the scan that reads them back"),
            Flag(
                "segmented", "the sequence is cut into segments, each of which starts from the states of those before"
            ),
            Flag("adds", "adds what the slices of the features before this one gave"),
            Flag("partial", "writes float32, to which the next slice of the features adds"),
            Flag("unaligned", "rows begin anywhere: elements are loaded one by one"),
        ),
        derive=_geometry,
        check=_problem,
        grid="(ceil(M / MB) * segments * H * B): one block per head, segment of the sequence and tile of value columns",
        origin="Katharopoulos et al., Transformers are RNNs (2020), in the chunked form of Hua et al., Transformer "
        "Quality in Linear Time (2022); numbers split in halves after Ootomo and Yokota (2022)",
        min_arch=Arch(8, 0),
        defaults=(
            "lmha_chunk_e32_m32_f32",
            "lmha_chunk_e64_m64_f32",
            "lmha_chunk_e64_m64_segmented_f32",
            "lmha_chunk_e64_m64_outer_f32",
            "lmha_chunk_e128_m128_f32",
            "lmha_chunk_e128_m128_adds_f32",
            "lmha_chunk_e128_m128_bf16",
            "lmha_chunk_e128_m128_partial_bf16",
            "lmha_chunk_e128_m128_adds_bf16",
        ),
    )
)

PREFIX = register(
    Kernel(
        name="lmha_prefix",
        summary="The running sum of the segments' states, each in place of its own.",
        formula="S[g] = sum over h <= g of S[h]",
        axes=(Axis("PREFETCH", "p", (4, 8, 16), "segments whose loads are in flight together", default=16),),
        dtypes=(F32,),
        derive=lambda spec: {"THREADS": PREFIX_THREADS},
        grid="(ceil(E * M / THREADS) * H * B): one thread per element of a state",
        origin="the second pass of a segmented scan",
        defaults=("lmha_prefix_f32",),
    )
)


def plan(scan: Scan, spec: Spec | None, device: int) -> Plan:
    """Slices of the features where they are many, segments of the sequence where heads are few."""
    cut = cut_of(scan, multiprocessors(device), shared_memory(device), spec)
    if spec and spec["segmented"] and cut.segments == 1:
        raise SpecError(f"causal_dot_product: {spec.name} scans segments, and {cut.why}")
    slices = [_Slice(scan, start, cut, spec) for start in range(0, scan.e, SLICE)]
    steps = [step for part in slices for step in part.steps]
    ready = iter(bind(steps, device))
    bound = [[next(ready) for _ in part.steps] for part in slices]
    sums = 4 * scan.sequences * scan.length * scan.m if len(slices) > 1 else 0
    sections = Sections((max(part.nbytes for part in slices), sums), device)
    # Walking backward is walking forward from the last token along negative strides.
    last = (scan.length - 1) * scan.dtype.itemsize if scan.reverse else 0
    ends = [last * strides[2] for strides in (scan.q, scan.k, scan.v, scan.o)]

    if len(steps) == 1:
        return Plan(shifted(bound[0][0], ends), (str(steps[0]),), cut.why)

    def launch(pointers: Sequence[int], stream: int) -> None:
        (at_states, at_sums), _held = sections.take(stream)
        q, k, v, o = (pointer + end for pointer, end in zip(pointers, ends))
        for part, launches in zip(slices, bound):
            part.launch(launches, q, k, v, o, at_states, at_sums, stream)

    return Plan(launch, tuple(map(str, steps)), cut.why)


class Cut(NamedTuple):
    """How a scan is cut: value columns of a block, time steps of a chunk and of a segment, how many segments."""

    columns: int
    chunk: int
    segment: int
    segments: int
    why: str


def cut_of(scan: Scan, sms: int, smem: int, spec: Spec | None = None) -> Cut:
    """The cut for a device of `sms` multiprocessors, whose blocks may have `smem` bytes of shared memory.

    Segments cost a second pass over k and v, so there are as many as fill the device and not more.
    """
    columns = spec["MB"] if spec else columns_for(scan.m, widest=64 if smem < ROOMY else 128)
    tiles = -(-scan.m // columns)
    chunk = spec["C"] if spec else chunk_for(scan.dtype, scan.e, columns, scan.sequences * tiles, sms)
    wanted = max(1, min(sms // (scan.sequences * tiles), scan.length // (4 * chunk)))
    if spec and not spec["segmented"]:
        wanted = 1
    segment = -(-scan.length // wanted)
    segment = -(-segment // chunk) * chunk
    segments = -(-scan.length // segment)
    why = f"{scan.sequences} sequences of {segments} segments by {tiles} tiles of columns occupy {sms} multiprocessors"
    return Cut(columns, chunk, segment, segments, why)


def room_for(e: int) -> int:
    """The E of the kernel for so many features, 128 at the most."""
    return next(room for room in CHUNK.axes[0].values if room >= e)


def columns_for(m: int, widest: int = 128) -> int:
    """How many value columns a block takes of m."""
    return next((columns for columns in CHUNK.axes[1].values if m <= columns <= widest), widest)


def chunk_for(dtype: DType, e: int, columns: int, blocks: int, sms: int) -> int:
    """Time steps of a chunk: more where states are small, elements have 16 bits, and heads alone fill the device."""
    return 64 if dtype is not F32 and columns <= 64 and e <= 64 and 2 * blocks >= sms else 32


class _Slice:
    """The launches for up to 128 of the features, from `start` on; every slice but the first adds to the one before."""

    def __init__(self, scan: Scan, start: int, cut: Cut, spec: Spec | None) -> None:
        e = min(scan.e - start, SLICE)
        self.offset = start * scan.dtype.itemsize
        self.first = start == 0
        self.last = start + e == scan.e
        sign = -1 if scan.reverse else 1
        q, k, v, o = ((x[0], x[1], sign * x[2]) for x in (scan.q, scan.k, scan.v, scan.o))
        if not self.last:  # sums lie in the order of the walk
            o = (scan.heads * scan.length * scan.m, scan.length * scan.m, scan.m)

        room = room_for(e)
        at_once = max(room // WARP, cut.columns // WARP, 2)
        free = not (scan.loads(at_once) and scan.e % at_once == 0 and scan.m % at_once == 0)
        axes = {"E": room, "MB": cut.columns, "C": cut.chunk, "unaligned": free}
        partial = not self.last and scan.dtype is not F32
        segmented = cut.segments > 1
        main = spec or CHUNK.spec(**axes, segmented=segmented, partial=partial, adds=not self.first, dtype=scan.dtype)
        if free and not main["unaligned"]:
            raise SpecError(
                f"causal_dot_product: {main.name} loads rows {at_once} elements at once, which these forbid"
            )

        sizes = (scan.heads, scan.length, e, scan.m)
        tiles = -(-scan.m // cut.columns)
        self.state = 4 * main["E"] * cut.columns * tiles  # bytes, with the room that is not used
        self.nbytes = self.state * scan.sequences * cut.segments if segmented else 0
        before = cut.segments - 1  # nothing comes after the last one
        prefixed = before * self.state > FEW * tiles
        pointers = 4 + segmented + (not self.first)
        counts = (*sizes, cut.segments, cut.segment, int(prefixed)) if segmented else sizes
        self.steps = [Step(main, scan.sequences * tiles * cut.segments, pointers, counts, (*q, *k, *v, *o))]
        if prefixed:
            columns = scan.sequences * -(-self.state // (4 * PREFIX_THREADS))
            self.steps.insert(0, Step(PREFIX.spec(), columns, 2, (cut.segments, self.state // 4)))
        if before:
            outer = CHUNK.spec(**{**axes, "E": main["E"]}, outer=True, packed=True, dtype=scan.dtype)
            counts = (*sizes, before, cut.segment, cut.segments)
            self.steps.insert(0, Step(outer, scan.sequences * tiles * before, 3, counts, (*k, *v)))

    def launch(self, bound: Sequence[Run], q: int, k: int, v: int, o: int, states: int, sums: int, stream: int) -> None:
        """Queue the slice, with scratch memory for the states of segments and for the sums of slices."""
        q, k = q + self.offset, k + self.offset
        *totals, main = bound
        if totals:
            totals[0]((k, v, states + self.state), stream)  # what segment s adds, where segment s + 1 starts
            for prefix in totals[1:]:
                prefix((states, 0), stream)
        segments = (states,) if totals else ()
        main((q, k, v, o if self.last else sums, *segments, *(() if self.first else (sums,))), stream)
