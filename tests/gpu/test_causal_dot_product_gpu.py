"""The causal dot product on a GPU, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen import reference
from kgen.ops.causal.algorithms import ALGORITHMS
from tests.gpu.numerics import GRADIENT_SLACK, RMS_BAR, host, max_relative_error, operands, poisoned, rms_bar, rms_error

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="GPU tests need CuPy")

DTYPES = ("f32", "f16", "bf16")
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 127, 1000, 4097)
WIDTHS = (1, 16, 20, 60, 64, 80, 96, 100, 128, 153, 192, 256, 320, 512, 1024)


def check(q, k, v, *, dtype, reverse=False, layout="bhtd", algorithm=None):
    """One forward call into a poisoned output is within the bar."""
    shape = (*q.shape[:3], v.shape[3])
    out = poisoned(shape, dtype)
    result = kgen.causal_dot_product(q, k, v, reverse=reverse, layout=layout, algorithm=algorithm, out=out)
    assert result is out
    heads_first = [x.swapaxes(1, 2) if layout == "bthd" else x for x in map(host, (q, k, v))]
    expected = reference.causal_dot_product(*heads_first, reverse=reverse)
    got = host(out).swapaxes(1, 2) if layout == "bthd" else host(out)
    # What few results are may be what is left of terms that cancel, each of which has been rounded: the bar is for what
    # as many terms come to whose signs are random.
    squares = reference.causal_dot_product(*(x.astype(np.float64) ** 2 for x in heads_first), reverse=reverse)
    cancelled = max(1.0, float(np.sqrt(squares.mean() / (np.mean(np.square(expected)) + 1e-300))))
    assert rms_error(got, expected) <= rms_bar(dtype, expected.size) * cancelled


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("reverse", (False, True))
def test_every_length_matches_float64(dtype, length, reverse):
    rng = np.random.default_rng(length)
    q, k, v = operands(rng, [(2, 3, length, 64)] * 2 + [(2, 3, length, 80)], dtype)
    check(q, k, v, dtype=dtype, reverse=reverse)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("e", WIDTHS)
def test_every_feature_width_matches_float64(dtype, e):
    rng = np.random.default_rng(e)
    q, k, v = operands(rng, [(1, 2, 150, e)] * 2 + [(1, 2, 150, 33)], dtype)
    check(q, k, v, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", WIDTHS)
def test_every_value_width_matches_float64(dtype, m):
    rng = np.random.default_rng(m)
    q, k, v = operands(rng, [(1, 2, 150, 48)] * 2 + [(1, 2, 150, m)], dtype)
    check(q, k, v, dtype=dtype, reverse=True)


@settings(max_examples=60, deadline=None)
@given(
    st.data(),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 300),
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from(DTYPES),
    st.sampled_from(("bhtd", "bthd")),
    st.booleans(),
    st.sampled_from([None, *ALGORITHMS]),
)
def test_random_shapes_strides_and_algorithms_match_float64(
    data, batch, heads, length, e, m, dtype, layout, reverse, algorithm
):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))

    def lay(width):
        axes = (batch, heads, length) if layout == "bhtd" else (batch, length, heads)
        kind = data.draw(st.sampled_from(("plain", "sliced", "offset", "permuted", "expanded", "inner")))
        if kind == "sliced":
            return operands(rng, [(axes[0], axes[1] * 2, axes[2], width + 3)], dtype)[0][:, ::2, :, :width]
        if kind == "offset":
            return operands(rng, [(*axes, width + 1)], dtype)[0][..., 1:]
        if kind == "permuted":
            return operands(rng, [(axes[2], axes[0], axes[1], width)], dtype)[0].transpose(1, 2, 0, 3)
        if kind == "expanded":
            return cupy.broadcast_to(operands(rng, [(1, 1, axes[2], width)], dtype)[0], (*axes, width))
        if kind == "inner":
            return operands(rng, [(*axes[:2], width, axes[2])], dtype)[0].swapaxes(2, 3)
        return operands(rng, [(*axes, width)], dtype)[0]

    check(lay(e), lay(e), lay(m), dtype=dtype, reverse=reverse, layout=layout, algorithm=algorithm)


def test_fast_transformers_own_test_passes_forward_and_backward():
    rng = np.random.default_rng(1)
    for _ in range(20):
        e, m = rng.integers(10, 512, 2)
        q, k, v, do = operands(rng, [(4, 10, 100, e)] * 2 + [(4, 10, 100, m)] * 2, "f32", uniform=True)
        expected = reference.causal_dot_product(host(q), host(k), host(v))
        assert max_relative_error(host(kgen.causal_dot_product(q, k, v)), expected) < 1e-5
        gradients = reference.causal_dot_product_backward(*map(host, (do, q, k, v)))
        for got, wanted in zip(kgen.causal_dot_product_backward(do, q, k, v), gradients, strict=True):
            assert max_relative_error(host(got), wanted) < 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 8, 2048, 64, 64), (4, 4, 1024, 100, 100), (2, 16, 300, 128, 60), (1, 2, 200, 320, 257)]
)
@pytest.mark.parametrize("reverse", (False, True))
def test_gradients_match_float64(dtype, shape, reverse):
    *outer, e, m = shape
    rng = np.random.default_rng(e)
    do, q, k, v = operands(rng, [(*outer, m), (*outer, e), (*outer, e), (*outer, m)], dtype)
    gradients = kgen.causal_dot_product_backward(do, q, k, v, reverse=reverse)
    expected = reference.causal_dot_product_backward(*map(host, (do, q, k, v)), reverse=reverse)
    for got, wanted in zip(gradients, expected, strict=True):
        assert rms_error(host(got), wanted) <= RMS_BAR[dtype] * GRADIENT_SLACK


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 8, 2048, 64), (8, 16, 512, 128), (2, 3, 777, 200)])
def test_same_input_gives_the_same_bits_a_hundred_times(dtype, shape):
    q, k, v = operands(np.random.default_rng(0), [shape] * 3, dtype)
    first = cupy.asnumpy(kgen.causal_dot_product(q, k, v)).tobytes()
    assert all(cupy.asnumpy(kgen.causal_dot_product(q, k, v)).tobytes() == first for _ in range(100))


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", (np.inf, -np.inf, np.nan))
@pytest.mark.parametrize("where", ("q", "k", "v"))
def test_a_token_that_is_not_finite_touches_no_earlier_output(algorithm, dtype, bad, where):
    rng = np.random.default_rng(5)
    shape = (1, 2, 200, 40)
    arrays = dict(zip("qkv", operands(rng, [shape] * 3, dtype), strict=True))
    arrays[where][:, :, 77, 3] = bad
    got = host(kgen.causal_dot_product(**arrays, algorithm=algorithm))
    with np.errstate(all="ignore"):
        expected = serial(*(host(arrays[name]) for name in "qkv"))
    assert rms_error(got[:, :, :77], expected[:, :, :77]) <= RMS_BAR[dtype]
    # Which of NaN and infinity it is depends on the order in which the formula's products are taken.
    assert (np.isfinite(got) == np.isfinite(expected)).all()


def serial(q, k, v):
    """Token by token, so that nothing but the formula decides what an infinity touches."""
    state = np.zeros((*q.shape[:2], q.shape[3], v.shape[3]))
    out = np.empty_like(v)
    for t in range(q.shape[2]):
        state += k[:, :, t, :, None] * v[:, :, t, None, :]
        out[:, :, t] = (q[:, :, t, :, None] * state).sum(2)
    return out


@pytest.mark.parametrize("spread", (1e4, 1e8, 1e12))
def test_a_huge_token_spoils_no_small_one(spread):
    rng = np.random.default_rng(6)
    q, k, v = operands(rng, [(1, 2, 256, 64)] * 3, "f32")
    for array in (k, v):
        array[:, :, 100] *= spread
    expected = reference.causal_dot_product(*map(host, (q, k, v)))
    got = host(kgen.causal_dot_product(q, k, v))
    assert rms_error(got[:, :, :100], expected[:, :, :100]) <= RMS_BAR["f32"]
    assert rms_error(got[:, :, 100:], expected[:, :, 100:]) <= RMS_BAR["f32"]


@pytest.mark.parametrize("scale", (1e-15, 1e-6, 1e6, 1e10))
def test_the_scale_of_the_inputs_does_not_matter(scale):
    rng = np.random.default_rng(7)
    q, k, v = (x * np.float32(scale) for x in operands(rng, [(2, 2, 300, 64)] * 3, "f32"))
    if scale < 1e-10:  # products of three would leave float32
        q, k = q / np.float32(scale), k / np.float32(scale)
    check(q, k, v, dtype="f32")


@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_more_than_65535_heads_work(algorithm):
    q, k, v = operands(np.random.default_rng(8), [(70000, 1, 3, 4)] * 3, "f32")
    check(q, k, v, dtype="f32", algorithm=algorithm)


def test_more_than_two_to_the_31_elements_work():
    batch, length, width = 40, 262144, 256  # 2.7e9 elements of float16, 5.4 GB each
    q = cupy.zeros((batch, 1, length, width), "e")
    k, v, out = (cupy.zeros_like(q) for _ in range(3))
    rng = np.random.default_rng(9)
    tail = operands(rng, [(1, 1, 256, width)] * 3, "f16")
    for array, values in zip((q, k, v), tail, strict=True):
        array[-1:, :, -256:] = values
    kgen.causal_dot_product(q, k, v, out=out)
    expected = reference.causal_dot_product(*map(host, tail))
    assert rms_error(host(out[-1:, :, -256:]), expected) <= RMS_BAR["f16"]
    assert not out[:-1].any()


@pytest.mark.parametrize("shape", [(0, 2, 5, 4), (2, 0, 5, 4), (2, 2, 0, 4)])
def test_an_empty_array_gives_an_empty_array(shape):
    q = cupy.empty(shape, "f")
    assert kgen.causal_dot_product(q, q, q).shape == shape


def test_a_graph_replays_on_new_contents_and_a_miss_within_a_capture_says_what_to_do():
    rng = np.random.default_rng(10)
    q, k, v = operands(rng, [(1, 8, 2048, 64)] * 3, "f32")
    out = poisoned(q.shape, "f32")
    kgen.causal_dot_product(q, k, v, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        kgen.causal_dot_product(q, k, v, out=out)
        graph = stream.end_capture()
    for array in (q, k, v):
        array[...] = cupy.asarray(rng.standard_normal(array.shape).astype("f"))
    expected = reference.causal_dot_product(*map(host, (q, k, v)))
    cupy.cuda.Device().synchronize()
    junk = [cupy.full(1 << 22, np.nan, "f") for _ in range(8)]  # whoever reuses the scratch memory must not matter
    graph.launch(stream)
    stream.synchronize()
    del junk
    assert rms_error(host(out), expected) <= RMS_BAR["f32"]

    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(kgen.KgenError, match=r"capture"):
                kgen.causal_dot_product(q, k, v, algorithm="lmha_low_occupancy_e64_w16_c8_v2_f32")
        finally:
            stream.end_capture()


def test_gradients_side_by_side_are_right_on_any_stream_and_in_a_graph():
    rng = np.random.default_rng(13)
    shape = (8, 17, 1100, 64)  # long enough, and heads enough, for the scans to run beside one another
    arrays = operands(rng, [shape] * 4, "f32")
    outs = tuple(poisoned(shape, "f32") for _ in range(3))
    assert "side by side" in kgen.explain(kgen.causal_dot_product_backward, *arrays)
    first = kgen.causal_dot_product_backward(*arrays)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.wait_event(cupy.cuda.get_current_stream().record())
        stream.begin_capture()
        kgen.causal_dot_product_backward(*arrays, out=outs)
        graph = stream.end_capture()
    cupy.cuda.Device().synchronize()
    for scale in (1, 2):
        arrays[0][...] *= scale  # the gradients are linear in do
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        results = kgen.causal_dot_product_backward(*arrays, stream=stream)
        stream.synchronize()
        for out, again, once in zip(outs, results, first, strict=True):
            assert (out == once * scale).all() and (again == once * scale).all()


def test_threads_and_streams_do_not_disturb_one_another():
    from concurrent.futures import ThreadPoolExecutor

    def work(seed):
        rng = np.random.default_rng(seed)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            q, k, v = operands(rng, [(1, 4, 700 + seed, 64)] * 3, "f32")
            results = [kgen.causal_dot_product(q, k, v) for _ in range(20)]
            stream.synchronize()
            expected = reference.causal_dot_product(*map(host, (q, k, v)))
            return max(rms_error(host(result), expected) for result in results)

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(work, range(24))) <= RMS_BAR["f32"]


def test_every_device_of_the_machine_gives_the_same_bits():
    rng = np.random.default_rng(11)
    count = cupy.cuda.runtime.getDeviceCount()
    host_arrays = [rng.standard_normal((1, 4, 500, 64)).astype("f") for _ in range(3)]
    results = []
    for device in range(count):
        with cupy.cuda.Device(device):
            arrays = [cupy.asarray(x) for x in host_arrays]
        results.append(cupy.asnumpy(kgen.causal_dot_product(*arrays)).tobytes())  # whatever device is current
    assert len(set(results)) == 1


def test_numpy_in_gives_numpy_out():
    rng = np.random.default_rng(12)
    q, k, v = (rng.standard_normal((1, 2, 130, 24)).astype("f") for _ in range(3))
    result = kgen.causal_dot_product(q, k, v)
    assert isinstance(result, np.ndarray)
    assert rms_error(result, reference.causal_dot_product(q, k, v)) <= RMS_BAR["f32"]


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
def test_torch_in_gives_torch_out(dtype):
    torch = pytest.importorskip("torch", reason="no torch here")
    q, k, v = (torch.randn(1, 2, 130, 64, device="cuda", dtype=getattr(torch, dtype)) for _ in range(3))
    result = kgen.causal_dot_product(q, k, v)
    assert isinstance(result, torch.Tensor) and result.dtype == q.dtype and result.device == q.device
    expected = reference.causal_dot_product(*(x.double().cpu().numpy() for x in (q, k, v)))
    assert (
        rms_error(result.double().cpu().numpy(), expected)
        <= RMS_BAR[{"float32": "f32", "float16": "f16"}.get(dtype, "bf16")]
    )


BAD_CALLS = {
    "rank": (lambda x: kgen.causal_dot_product(x[0], x, x), ValueError, "q has shape"),
    "heads": (lambda x: kgen.causal_dot_product(x, x[:, :1], x), ValueError, "k has shape"),
    "length": (lambda x: kgen.causal_dot_product(x, x, x[:, :, 1:]), ValueError, "v has shape"),
    "integer": (lambda x: kgen.causal_dot_product(x, x, x.astype("i")), TypeError, "v has dtype int32"),
    "complex": (lambda x: kgen.causal_dot_product(x.astype("F"), x, x), TypeError, "q has dtype complex64"),
    "float64": (lambda x: kgen.causal_dot_product(x.astype("d"), x, x), TypeError, "q has dtype float64"),
    "mixed dtypes": (lambda x: kgen.causal_dot_product(x, x.astype("e"), x), TypeError, "one dtype"),
    "host and GPU": (lambda x: kgen.causal_dot_product(x, cupy.asnumpy(x), x), TypeError, "NumPy"),
    "layout": (lambda x: kgen.causal_dot_product(x, x, x, layout="bdht"), ValueError, "layout"),
    "algorithm": (lambda x: kgen.causal_dot_product(x, x, x, algorithm="lmhq"), ValueError, "no algorithm 'lmhq'"),
    "specialization": (
        lambda x: kgen.causal_dot_product(x, x, x, algorithm="lmha_low_occupancy_e64_w5_c4_f32"),
        ValueError,
        "WARPS=5",
    ),
    "its dtype": (lambda x: kgen.causal_dot_product(x, x, x, algorithm="lmha_e64_t1_f16"), ValueError, "takes f16"),
    "out's shape": (lambda x: kgen.causal_dot_product(x, x, x, out=x[:1, :, :3].copy()), ValueError, "out has shape"),
    "out's dtype": (lambda x: kgen.causal_dot_product(x, x, x, out=x.astype("e")), TypeError, "out has dtype"),
    "out is an input": (lambda x: kgen.causal_dot_product(x, x, x, out=x), ValueError, "out shares memory"),
    "no array": (lambda x: kgen.causal_dot_product(x, x, [1.0]), TypeError, "v is a list"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_gets_an_error_that_names_it(case):
    call, kind, words = BAD_CALLS[case]
    x = operands(np.random.default_rng(0), [(2, 2, 6, 8)], "f32")[0]
    with pytest.raises(kind, match=words) as caught:
        call(x)
    assert "causal_dot_product" in str(caught.value)
