"""The catalogue's kernels on their sample calls: what a GPU gave, and whether the executor gives the same.

A sample call (kgen/samples) goes to a GPU and to the executor, where operators are told of the same device, so that
they launch the same kernels on the same blocks. `python -m tests.cpu.conformance_samples FILE` records on a GPU.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import kgen
from kgen import cpu, device
from kgen.dtypes import dtype_of
from kgen.errors import SpecError
from kgen.launch import Launcher, Step
from kgen.ops.calls import Operator
from kgen.samples import call, cases_of
from kgen.samples.accuracy import rms_error
from kgen.samples.case import Case
from kgen.spec import Spec
from tests.cpu.executing import fresh_plan
from tests.cpu.judging import source_of

Array = np.ndarray[Any, Any]

KERNELS = (
    *("add", "gelu", "swiglu"),
    *("sum_rows", "argmax_rows", "sum_columns", "argmax_columns", "dot"),
    *("softmax", "softmax_columns", "softmax_online", "softmax_backward"),
    *("norm", "norm_split", "norm_backward"),
    *("gemv", "gemv_columns", "gemv_quantized", "gemv_sum"),
    *("transpose", "transpose_ragged", "transpose_rows", "take", "rope"),
    *("quantize_e4m3", "quantize_largest"),
    *("histogram", "histogram_weights", "histogram_density", "nms_rank"),
    "gated_scan",
)
"""Of each the first default specialization is recorded."""

KEPT = 1024
"""Elements of an output that are kept as they are; of all of it there is a checksum."""

APPROXIMATE = {
    "gelu": 1e-7,
    "swiglu": 1e-5,
    "softmax": 2e-7,
    "softmax_columns": 2e-7,
    "softmax_online": 5e-7,
    "norm_backward": 1e-8,
    "rope": 1e-7,
    "gated_scan": 1e-6,
}
"""Kernels with instructions that the hardware looks up in tables nobody publishes (ex2, rcp, rsqrt, sin, cos): how far
they may be from what it gave, as a relative RMS. All others give every bit of it."""

_HOST = {
    "cudaDevAttrMultiProcessorCount": device.HOST_FACTS.multiprocessors,
    "cudaDevAttrMaxSharedMemoryPerBlockOptin": device.HOST_FACTS.shared_memory,
}


class Record(NamedTuple):
    """What came of a sample call.

    launches  the kernels in their order: name, blocks, and a digest of the code and of the arguments' values
    outputs   of each output its shape, dtype and checksum
    samples   of each output at most KEPT elements, evenly from all of it, as words
    """

    launches: list[list[Any]]
    outputs: list[list[Any]]
    samples: list[Array]


def chosen() -> list[Spec]:
    """The specializations that are recorded."""
    first: dict[str, Spec] = {}
    for spec in kgen.select():
        first.setdefault(spec.kernel.name, spec)
    return [first[name] for name in KERNELS if name in first]


def case_of(spec: Spec) -> Case:
    """Its first sample call, whose arrays are as aligned on a GPU as they are here."""
    return cases_of(spec)[0]


def run(spec: Spec, *, gpu: bool) -> tuple[Record, tuple[Array, ...]]:
    """A record of the sample call, and its results."""
    case = case_of(spec)
    with kgen.backend("gpu" if gpu else "cpu"), _watched(gpu) as steps:
        results = call(case)
    outputs, samples = [], []
    for result in results:
        words = np.ascontiguousarray(result).reshape(-1).view(f"u{result.dtype.itemsize}")
        outputs.append([list(result.shape), result.dtype.name, zlib.crc32(words.tobytes())])
        samples.append(words[:: -(-words.size // KEPT) or 1])
    return Record([_told(step) for step in steps], outputs, samples), results


def differing(found: Record, expected: Record) -> float:
    """The largest relative RMS difference of an output: more than 0 where a bit differs, infinite at another NaN."""
    worst = 0.0
    for ours, theirs, x, y in zip(found.outputs, expected.outputs, found.samples, expected.samples, strict=True):
        if ours[:2] != theirs[:2]:
            return float("inf")
        if ours[2] != theirs[2]:
            a, b = (words.view(dtype_of(ours[1]).numpy).astype(np.float64) for words in (x, y))
            error = rms_error(a, b) if np.isfinite(b).all() else float("inf")
            worst = max(worst, error, 1e-12)
    return worst


def changed(record: Record) -> bool:
    """Whether the code of one of its kernels is no longer the one that was recorded."""
    return any(text != _digest(spec) for name, _, text, _ in record.launches if (spec := _known(name)))


def _known(name: str) -> Spec | None:
    """A kernel of the catalogue, and none that an operator makes when it is called."""
    try:
        return kgen.parse(name)
    except SpecError:
        return None


def _told(step: Step) -> list[Any]:
    return [step.spec.name, step.blocks, _digest(step.spec), step.packed()[1].hex()]


def _digest(spec: Spec) -> str:
    """Of the code alone: comments, the header with its hashes of templates among them, decide nothing."""
    lines = (line.partition("//")[0].rstrip() for line in source_of(spec).split("\n"))
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


@contextmanager
def _watched(gpu: bool) -> Iterator[list[Step]]:
    """The launches that are planned inside the block; a GPU counts as the device that the executor claims to be."""
    steps: list[Step] = []
    owner, bind = (Launcher, Launcher.bind) if gpu else (cpu, cpu.bind)

    def noted(*about: Any) -> Any:
        steps.append(about[-1])
        return bind(*about)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(owner, "bind", noted))
        stack.enter_context(mock.patch.object(Operator, "_plan", fresh_plan))
        stack.enter_context(mock.patch.object(device, "_attribute", lambda name, number: _HOST[name]))
        yield steps


def save(path: Path, records: dict[str, Record]) -> None:
    """Write records to a file of NumPy's."""
    about = {name: [record.launches, record.outputs] for name, record in records.items()}
    samples = {f"{name}/{at}": x for name, record in records.items() for at, x in enumerate(record.samples)}
    np.savez_compressed(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **samples)


def load(path: Path) -> dict[str, Record]:
    """The records of a file, by specialization."""
    with np.load(path) as file:
        about = json.loads(file["about"].tobytes())
        return {
            name: Record(launches, outputs, [file[f"{name}/{at}"] for at in range(len(outputs))])
            for name, (launches, outputs) in about.items()
        }


def main(path: Path) -> None:
    """Record on this machine's GPU; what fails is told and left out."""
    records = {}
    for spec in chosen():
        try:
            records[spec.name] = run(spec, gpu=True)[0]
        except Exception as error:
            print(f"{spec}: {type(error).__name__}: {error}")
    save(path, records)
    print(f"{len(records)} of {len(KERNELS)} sample calls recorded in {path}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
