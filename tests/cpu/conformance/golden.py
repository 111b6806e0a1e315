"""What a GPU gave for every form, small enough to be kept with the tests: some lanes in full, of the rest checksums.

One file of NumPy's: `about` (JSON: device, driver, compiler, and for each form how many bytes it has in
`samples`), `samples`, and for each form `BLOCKS` checksums of equal parts of its lanes and one of its inputs.

What counts as equal: all bits, but for a NaN of type f32 or f64 any NaN, since CPUs keep payloads and GPUs do not; NaN
of narrower types bit for bit. Where a form has a bound, the sampled lanes are compared within it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.cpu.conformance.form import Form, width
from tests.cpu.conformance.inputs import inputs_of
from tests.cpu.conformance.tiles import Words

BLOCKS = 8
SAMPLED = 64
SAMPLED_APPROXIMATE = 2048


class Expected(NamedTuple):
    """What is known of one form: the sampled lanes' outputs, and checksums of all lanes'."""

    samples: list[Words]
    digests: np.ndarray[Any, np.dtype[np.uint32]]


def sampled(form: Form) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Which lanes are kept: all over the inputs, and more of them where results are compared within a bound."""
    if form.style != "lane":
        return np.arange(SAMPLED)
    count = SAMPLED_APPROXIMATE if form.ulp else SAMPLED
    return np.arange(count) * (form.cases // count) + np.arange(count) % (form.cases // count)


def canonical(kind: str, words: Words) -> Words:
    """Words of a type, in its width, with every NaN of an f32 or f64 the same."""
    words = words & np.uint64(2 ** (8 * width(kind)) - 1)
    if kind == "f32":
        return np.where(words & np.uint64(0x7FFFFFFF) > np.uint64(0x7F800000), np.uint64(0x7FFFFFFF), words)
    if kind == "f64":
        infinity = np.uint64(0x7FF0000000000000)
        return np.where(words & np.uint64(2**63 - 1) > infinity, np.uint64(2**63 - 1), words)
    return words


def digests(form: Form, outs: Sequence[Words]) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Checksums of equal parts of the lanes, over all outputs."""
    parts = [np.array_split(_narrow(kind, canonical(kind, out)), BLOCKS) for kind, out in zip(form.outs, outs)]
    return np.array([zlib.crc32(b"".join(p[b].tobytes() for p in parts)) for b in range(BLOCKS)], np.uint32)


def save(path: Path, about: Mapping[str, Any], results: Mapping[Form, Sequence[Words]]) -> None:
    """Write the golden data of these results."""
    samples, checks, inputs, sizes = bytearray(), [], [], {}
    for form, outs in results.items():
        before = len(samples)
        for kind, out in zip(form.outs, outs):
            samples += _narrow(kind, out[sampled(form)]).tobytes()
        sizes[form.name] = len(samples) - before
        checks.append(digests(form, outs))
        inputs.append(_input_digest(form))
    np.savez_compressed(
        path,
        about=np.frombuffer(json.dumps({**about, "forms": sizes}).encode(), np.uint8),
        samples=np.frombuffer(bytes(samples), np.uint8),
        digests=np.array(checks, np.uint32),
        inputs=np.array(inputs, np.uint32),
    )


class Golden:
    """The golden data of a file, form by form."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.about: dict[str, Any] = json.loads(file["about"].tobytes())
            self._samples = file["samples"].tobytes()
            self._digests = file["digests"]
            self._inputs = file["inputs"]
        sizes = self.about.pop("forms")
        self._starts = dict(zip(sizes, np.cumsum([0, *sizes.values()])[:-1].tolist()))
        self._index = {name: at for at, name in enumerate(sizes)}

    def __contains__(self, form: Form) -> bool:
        return form.name in self._index

    def same_inputs(self, form: Form) -> bool:
        """Whether the inputs made here are those that were recorded."""
        return bool(self._inputs[self._index[form.name]] == _input_digest(form))

    def __getitem__(self, form: Form) -> Expected:
        at, samples = self._starts[form.name], []
        lanes = len(sampled(form))
        for kind in form.outs:
            size = width(kind)
            words = np.frombuffer(self._samples, f"<u{size}", lanes, at).astype(np.uint64)
            samples.append(words)
            at += size * lanes
        return Expected(samples, self._digests[self._index[form.name]])


def _narrow(kind: str, words: Words) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(words).astype(f"<u{width(kind)}")


def _input_digest(form: Form) -> int:
    return zlib.crc32(b"".join(words.tobytes() for words in inputs_of(form)))
