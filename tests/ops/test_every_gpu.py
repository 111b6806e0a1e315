"""On whichever GPU, operators pick kernels that exist, for arrays of any size that begin anywhere; nothing is run."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen import device
from kgen.dtypes import DTYPES
from kgen.launch import listing_steps
from kgen.usual import GPUS

ARRAY = 5 << 30
"""Bytes of an array, at most, with what lies between two."""
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # which Python names from 3.13 on

sizes = st.one_of(
    st.integers(1, 64),
    st.integers(65, 5000),
    st.integers(5000, 400000),
    st.builds(lambda power, more: (1 << power) + more, st.integers(7, 18), st.integers(-1, 8)),
)
heights = st.sampled_from([1, 2, 7, 33, 132, 500, 4096, 70000, 1000000])


class Arrays:
    """Arrays apart from one another that nobody fills, so that they take no memory."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        space = mmap.mmap(-1, 8 * ARRAY, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
        self._bytes = np.frombuffer(space, np.uint8)
        self._draw = draw
        self._made = 0
        self.dtype = draw(st.sampled_from(["f32", "f16", "bf16"]))

    def __call__(self, *shape: int, dtype: str | None = None, apart: bool = True) -> np.ndarray[Any, Any]:
        kind = np.dtype(bool) if dtype == "bool" else DTYPES[dtype or self.dtype].numpy
        start = self._made * ARRAY + (self._draw(st.sampled_from([0, 0, 1, 3, 8])) if apart else 0) * kind.itemsize
        self._made += 1
        return self._bytes[start : start + math.prod(shape) * kind.itemsize].view(kind).reshape(shape)

    def weights(self, columns: int, count: int = 1) -> list[np.ndarray[Any, Any] | None]:
        """So many, of one dtype, or none."""
        dtype = self._draw(st.sampled_from([None, "f32", self.dtype]))
        return [dtype and self(columns, dtype=dtype, apart=False) for _ in range(count)]

    def rows(self) -> tuple[int, int]:
        columns = self._draw(sizes)
        return min(self._draw(heights), (1 << 29) // columns), columns


def masked(make: Arrays, rows: int, columns: int, draw: Any) -> None:
    x, mask = make(rows, columns), make(rows, columns, dtype="bool") if draw(st.booleans()) else None
    causal, scale = draw(st.booleans()), draw(st.sampled_from([1, -0.5]))
    kgen.softmax(x, -1, mask=mask, causal=causal, scale=scale, out=make(rows, columns))


def groups(make: Arrays, rows: int, columns: int, draw: Any) -> None:
    count, share = draw(st.sampled_from([1, 2, 32])), draw(st.sampled_from([1, 2, 3, 10, 40]))
    places = draw(st.one_of(st.sampled_from([1, 49, 64, 255, 256, 1024, 3969, 4096, 65536]), st.integers(1, 70000)))
    channels = count * share
    x = make(max(1, min(rows, (1 << 29) // (channels * places))), channels, places)
    kgen.group_norm(x, count, *make.weights(channels, 2))


def planes(make: Arrays, rows: int, columns: int, draw: Any) -> None:
    function = draw(st.sampled_from([kgen.softmax, kgen.log_softmax, kgen.logsumexp]))
    function(make(draw(st.integers(1, 50)), draw(st.integers(1, 3000)), draw(st.integers(1, 600))), 1)


def norm_gradients(make: Arrays, rows: int, columns: int, draw: Any) -> None:
    x, dy = make(rows, columns), make(rows, columns)
    mean, rstd = make(rows, dtype="f32"), make(rows, dtype="f32")
    (weight,) = make.weights(columns)
    if draw(st.booleans()):
        kgen.layer_norm_backward(dy, x, mean, rstd, weight)
    else:
        kgen.rms_norm_backward(dy, x, rstd, weight)


CALLS: dict[str, Callable[[Arrays, int, int, Any], Any]] = {
    "softmax": masked,
    "softmax along columns": lambda make, m, n, draw: kgen.softmax(make(m, n), 0, out=make(m, n)),
    "softmax of planes": planes,
    "softmax_backward": lambda make, m, n, draw: kgen.softmax_backward(make(m, n), make(m, n), -1),
    "logsumexp": lambda make, m, n, draw: kgen.logsumexp(make(m, n), draw(st.sampled_from([0, 1]))),
    "layer_norm": lambda make, m, n, draw: kgen.layer_norm(make(m, n), *make.weights(n, 2), out=make(m, n)),
    "rms_norm": lambda make, m, n, draw: kgen.rms_norm(make(m, n), *make.weights(n), out=make(m, n)),
    "fused_add_rms_norm": lambda make, m, n, draw: kgen.fused_add_rms_norm(make(m, n), make(m, n), *make.weights(n)),
    "gradients of norms": norm_gradients,
    "group_norm": groups,
    "sum": lambda make, m, n, draw: kgen.sum(make(m, n), axis=draw(st.sampled_from([0, 1, None]))),
    "argmax": lambda make, m, n, draw: kgen.argmax(make(m, n), axis=draw(st.sampled_from([0, 1]))),
    "gemv": lambda make, m, n, draw: kgen.gemv(make(m, n), make(n)),
    "gemv, transposed": lambda make, m, n, draw: kgen.gemv(make(m, n), make(m), trans=True),
    "transpose": lambda make, m, n, draw: kgen.transpose(make(m, n)),
}


@pytest.fixture(params=GPUS, ids=lambda facts: facts.arch)
def on_each_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    own = device._host
    device.stand_for(request.param)
    yield
    device.stand_for(own)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("on_each_gpu")
def test_kernels_that_are_picked_exist(name: str) -> None:
    @settings(max_examples=60)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        make = Arrays(data.draw)
        with kgen.backend("cpu"), listing_steps():
            CALLS[name](make, *make.rows(), data.draw)

    check()
