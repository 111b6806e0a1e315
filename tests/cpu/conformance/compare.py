"""Results against golden data: which sampled lanes differ, and whether any lane does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.cpu.conformance.form import Form
from tests.cpu.conformance.golden import Golden, canonical, digests, sampled
from tests.cpu.conformance.inputs import inputs_of
from tests.cpu.conformance.tiles import Words

_SHOWN = 4


def complaint(form: Form, outs: Sequence[Words], golden: Golden) -> str:
    """What is wrong with these results of a form, or nothing."""
    expected = golden[form]
    lanes = sampled(form)
    lines = []
    for at, (kind, out, wanted) in enumerate(zip(form.outs, outs, expected.samples)):
        got, wanted = canonical(kind, out[lanes]), canonical(kind, wanted)
        wrong = np.flatnonzero(~_near(form, kind, got, wanted))
        for lane in wrong[:_SHOWN]:
            given = " ".join(f"{int(words[lanes[lane]]):x}" for words in inputs_of(form))
            lines.append(f"    {given} -> output {at}: {int(got[lane]):x}, on the GPU {int(wanted[lane]):x}")
    if not lines and not form.ulp:
        blocks = np.flatnonzero(digests(form, outs) != expected.digests)
        if len(blocks):
            lines.append(
                f"    a lane that was not sampled differs, in parts {blocks.tolist()} of {len(expected.digests)}"
            )
    return "\n".join([f"{form.name}:", *lines]) if lines else ""


def _near(form: Form, kind: str, got: Words, wanted: Words) -> Any:
    """For each lane, whether it is near enough."""
    if not form.ulp:
        return got == wanted
    if kind.endswith("x2"):
        low, high = np.uint64(0xFFFF), np.uint64(16)
        half = kind.removesuffix("x2")
        return _near(form, half, got & low, wanted & low) & _near(form, half, got >> high, wanted >> high)
    bits = {"f32": 31, "f64": 63}.get(kind, 15)
    steps = np.abs(_ordered(got, bits) - _ordered(wanted, bits)) <= form.ulp
    if not form.within:
        return steps
    with np.errstate(invalid="ignore"):
        distance = np.abs(got.astype("u4").view("f4") - wanted.astype("u4").view("f4"))
    return steps | (distance <= form.within)


def _ordered(words: Words, bits: int) -> Any:
    """Floats' patterns as integers in the numbers' order."""
    magnitude = (words & np.uint64(2**bits - 1)).astype(np.int64)
    return np.where(words >> np.uint64(bits) != 0, -magnitude, magnitude)
