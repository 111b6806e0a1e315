"""Repeated calls on a GPU: what a call gives does not depend on which calls were made before it, or beside it."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

import kgen

pytestmark = pytest.mark.gpu

NUMBERS = (2, 2.0, True, 0, 0.0, -0.0, np.float32(0.5), math.inf, -3)
PLAIN = 0  # a stream that is named: such a call is looked at from the start


@pytest.fixture(params=["cupy", "torch"])
def calls(request):
    """Functions of a stream, None for the current one, which give an array that is not written again."""
    library = pytest.importorskip(request.param)
    numbers = np.random.default_rng(0)

    def array(*shape, dtype="f"):
        x = numbers.standard_normal(shape).astype(dtype)
        return library.asarray(x) if request.param == "cupy" else library.from_numpy(x).cuda()

    found = []

    def call(function, *args, **options):
        found.append(lambda stream: function(*args, **options, stream=stream))

    def call_in_place(function, x, *args):
        def made(stream):
            copy = x + 0
            return function(copy, *args, out=copy, stream=stream)

        found.append(made)

    for x, y in [(array(16, 24), array(16, 24)), (array(7, 3), array(3)), (array(33), array(33))]:
        call(kgen.add, x, y)
        call(kgen.add, x, x)
        call_in_place(kgen.add, x, y)
        call(kgen.clip, x, -1, 0.5)
        call(kgen.subtract, 1, x)
        call(kgen.leaky_relu, x)
        call(kgen.softmax, x, -1)
        call(kgen.sum, x, axis=-1)
        call(kgen.mean, x)
        for number in NUMBERS:
            call(kgen.multiply, x, number)
            call(kgen.leaky_relu, x, number)
            call_in_place(kgen.multiply, x, number)
    x, w = array(16, 24), array(24)
    call(kgen.rms_norm, x, w)
    call(kgen.layer_norm, x, w, w)
    call(kgen.layer_norm, x, w)
    call(kgen.softmax, x, -1, mask=x > 0)
    call(kgen.softmax, x, 0)
    call(kgen.transpose, x)
    call(kgen.relu, x[1:, 1:])
    call(kgen.relu, x.T)
    call(kgen.multiply, array(16, 24, dtype="i"), 2)
    call(kgen.multiply, array(16, 24, dtype="i"), 2.0)
    q = array(1, 2, 40, 32)
    call(kgen.causal_dot_product, q, q, q)
    call(kgen.causal_dot_product, q, q, q, reverse=True)
    return found


def bits(x):
    values = x.cpu().numpy() if hasattr(x, "cpu") else x.get()
    return values.dtype, values.shape, values.tobytes()


def wrong(calls, expected, order):
    """The places of calls that give something else than is expected."""
    return [place for place in order if bits(calls[place](None)) != expected[place]]


def test_a_call_gives_the_same_bits_whatever_was_called_before(calls):
    expected = [bits(call(PLAIN)) for call in calls]
    assert wrong(calls, expected, np.random.default_rng(1).integers(0, len(calls), 600)) == []


def test_calls_of_one_kind_in_several_threads_give_each_its_own_result(calls):
    expected = [bits(call(PLAIN)) for call in calls]
    found: list[int] = []

    def work(seed):
        found.extend(wrong(calls, expected, np.random.default_rng(seed).integers(0, len(calls), 200)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == []
