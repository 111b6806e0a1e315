"""`kgen.workspace`: the memory of a call, stated without computing anything."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.backend import HOST
from kgen.device import multiprocessors
from kgen.ops.histogram.parts import parts_for
from kgen.scratch import listing

pytestmark = pytest.mark.usefixtures("shared_cache")


def arrays(xp: ModuleType, *shape: int, count: int = 4) -> list[Any]:
    rng = np.random.default_rng(0)
    return [xp.asarray(-rng.random(shape).astype("f")) for _ in range(count)]


CALLS: dict[str, Callable[[ModuleType], tuple[Any, ...]]] = {
    "gla, the article's": lambda xp: (kgen.gla, arrays(xp, 1, 2, 40, 20), {"mode": "article"}),
    "gla_backward": lambda xp: (kgen.gla_backward, arrays(xp, 1, 2, 40, 20, count=5), {}),
    "linear_attention_step": lambda xp: (
        kgen.linear_attention_step,
        [*arrays(xp, 3, 2, 20, count=3), xp.zeros((3, 2, 20, 20), "f")],
        {"normalizer": xp.zeros((3, 2, 20), "f")},
    ),
    "softmax of a wide row that begins anywhere": lambda xp: (kgen.softmax, [arrays(xp, 1, 300_001)[0][:, 1:]], {}),
    "softmax of a wide row": lambda xp: (kgen.softmax, arrays(xp, 1, 300_000, count=1), {}),
    "transpose": lambda xp: (kgen.transpose, arrays(xp, 30, 50, count=1), {}),
    "relu": lambda xp: (kgen.relu, arrays(xp, 30, 50, count=1), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_what_a_call_takes(xp: ModuleType, name: str) -> None:
    operator, given, options = CALLS[name](xp)
    stated = kgen.workspace(operator, *given, **options)
    operator(*given, **options)  # so that its kernels are bound
    with listing() as pieces:
        operator(*given, **options)
    assert stated == sum(pieces)
    if name != "softmax of a wide row":  # for which a stream keeps memory, where blocks may meet
        assert (stated > 0) == (name not in ("transpose", "relu"))


def test_it_leaves_nothing_behind_that_does_not_compute(xp: ModuleType) -> None:
    q, k, v, g = arrays(xp, 1, 2, 33, 12)
    kgen.workspace(kgen.gla, q, k, v, g)
    assert bool((kgen.gla(q, k, v, g) != 0).all())


def test_copies_into_rows_are_counted(xp: ModuleType) -> None:
    q, k, v, _ = (x[..., ::2] for x in arrays(xp, 1, 2, 40, 20))
    assert kgen.workspace(kgen.causal_dot_product, q, k, v) == 3 * 2 * 40 * 10 * 4


def test_it_computes_and_compiles_nothing(xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise AssertionError("a kernel was loaded")

    monkeypatch.setattr("kgen.launch.load", refuse)
    monkeypatch.setattr("kgen.cpu.bind", refuse)
    assert kgen.workspace(kgen.gla_backward, *arrays(xp, 1, 1, 40, 24, count=5)) > 0


@pytest.mark.parametrize("operator", [kgen.linear_attention, kgen.simple_gla, kgen.gla, kgen.rwkv6])
def test_a_long_sequence_takes_a_tenth_of_its_inputs_and_result_at_most(
    xp: ModuleType, operator: Callable[..., Any]
) -> None:
    x = xp.zeros((1, 2, 65536, 64), "e")
    gates = {kgen.simple_gla: (x[..., 0],), kgen.gla: (x,), kgen.rwkv6: (x, x[0, :, 0])}.get(operator, ())
    taken = 4 * x.nbytes + sum(gate.nbytes for gate in gates)
    assert kgen.workspace(operator, x, x, x, *gates) < taken / 10


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(TypeError, match="print> is no operator of kgen's"):
        kgen.workspace(print, 3)


def test_of_a_call_of_several_operators_it_is_what_the_largest_takes(xp: ModuleType) -> None:
    (x,) = arrays(xp, 5000, count=1)
    n, w = (abs(x) * 99).astype("i4"), x.astype("f8")
    sums = 99 * (16 + 4) + 4 + 8  # 128 bits a bin, what is not finite, and the largest weight
    assert kgen.workspace(kgen.bincount, n) == 0
    assert kgen.workspace(kgen.bincount, n, w, length=99) == sums
    assert kgen.workspace(kgen.histogram, x, 99, (-1, 0), w) == sums + 8 * (99 + 3)
    assert kgen.workspace(kgen.quantize, x) == 8  # two parts of the largest magnitude
    assert kgen.workspace(kgen.quantize, x.reshape(50, 100), axis=0) == 4 * 100


def test_weights_that_are_sorted_by_parts_of_the_bins_take_a_copy_of_them_and_of_their_places(xp: ModuleType) -> None:
    x = xp.zeros(1 << 22, "i4")
    parts = parts_for(65_536, x.size, multiprocessors(HOST if xp is np else 0))
    for weights, moved in ((xp.zeros(x.shape, "f4"), 4 + 2), (xp.zeros(x.shape, "f8"), 8 + 2)):
        sums = 65_536 * (16 + 4) + 8 * parts + 8  # 128 bits a bin, what is not finite; shares; the largest
        runs = x.size // 8192 * parts * 4
        taken = kgen.workspace(kgen.bincount, x, weights, length=65_536)
        assert sums <= taken - moved * x.size - runs < sums + 4 * 256  # each piece may begin at a multiple of 256 bytes
