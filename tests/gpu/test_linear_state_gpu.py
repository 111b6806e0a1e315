"""States and what is read from them on a GPU, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen import reference
from kgen.launch import Step
from kgen.ops.causal.query import QUERY
from tests.gpu.numerics import RMS_BAR, host, operands, poisoned, rms_bar, rms_error

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="GPU tests need CuPy")

DTYPES = ("f32", "f16", "bf16")
LENGTHS = (1, 15, 16, 17, 33, 63, 64, 65, 127, 129, 1000, 4097)
WIDTHS = (1, 3, 16, 20, 32, 33, 60, 64, 80, 100, 128, 129, 192, 256, 320, 512, 1024)

STATE_BAR = 2e-6
"""States are float32 for every dtype: products of 16-bit numbers are exact, so only their sums are rounded."""


def heads_first(array, layout):
    return host(array).swapaxes(1, 2) if layout == "bthd" else host(array)


def check_state(k, v, *, segment=None, layout="bhtd"):
    """One call into a poisoned output is within the bar."""
    keys, values = heads_first(k, layout), heads_first(v, layout)
    expected = reference.linear_state(keys, values, segment=segment)
    out = poisoned(expected.shape, "f32")
    assert kgen.linear_state(k, v, segment=segment, layout=layout, out=out) is out
    assert rms_error(host(out), expected) <= STATE_BAR


def check_query(q, state, *, dtype, layout="bhtd"):
    expected = reference.query_state(heads_first(q, layout), host(state))
    out = poisoned((*q.shape[:3], state.shape[3]), dtype)
    assert kgen.query_state(q, state, layout=layout, out=out) is out
    assert rms_error(heads_first(out, layout), expected) <= rms_bar(dtype, expected.size)


def lay(data, rng, shape, dtype):
    """An array of this shape in one of the layouts that views make."""
    *outer, width = shape
    kind = data.draw(st.sampled_from(("plain", "sliced", "offset", "permuted", "expanded", "inner", "flipped")))
    if kind == "sliced":
        return operands(rng, [(outer[0], outer[1] * 2, outer[2], width + 3)], dtype)[0][:, ::2, :, :width]
    if kind == "offset":
        return operands(rng, [(*outer, width + 1)], dtype)[0][..., 1:]
    if kind == "permuted":
        return operands(rng, [(outer[2], outer[0], outer[1], width)], dtype)[0].transpose(1, 2, 0, 3)
    if kind == "expanded":
        return cupy.broadcast_to(operands(rng, [(1, 1, outer[2], width)], dtype)[0], shape)
    if kind == "inner":
        return operands(rng, [(*outer[:2], width, outer[2])], dtype)[0].swapaxes(2, 3)
    whole = operands(rng, [shape], dtype)[0]
    return whole[:, :, ::-1] if kind == "flipped" else whole


# linear_state


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("segment", (None, 1, 7, 64, 100, 5000))
def test_a_state_of_every_length_matches_float64(dtype, length, segment):
    k, v = operands(np.random.default_rng(length), [(2, 3, length, 48), (2, 3, length, 40)], dtype)
    check_state(k, v, segment=segment)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("segment", (None, 60))
def test_a_state_of_every_width_matches_float64(dtype, width, segment):
    rng = np.random.default_rng(width)
    check_state(*operands(rng, [(1, 2, 150, width), (1, 2, 150, 33)], dtype), segment=segment)
    check_state(*operands(rng, [(1, 2, 150, 48), (1, 2, 150, width)], dtype), segment=segment)


@settings(max_examples=60, deadline=None)
@given(
    st.data(),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 600),
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from((None, 1, 37, 128, 1000)),
    st.sampled_from(DTYPES),
    st.sampled_from(("bhtd", "bthd")),
)
def test_states_of_random_shapes_and_strides_match_float64(data, batch, heads, length, e, m, segment, dtype, layout):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    outer = (batch, heads, length) if layout == "bhtd" else (batch, length, heads)
    k, v = lay(data, rng, (*outer, e), dtype), lay(data, rng, (*outer, m), dtype)
    check_state(k, v, segment=segment, layout=layout)


@pytest.mark.parametrize("segment", (None, 4096, 16384))
@pytest.mark.parametrize("e", (64, 200))
def test_few_heads_are_cut_into_parts_that_add_up(e, segment):
    k, v = operands(np.random.default_rng(3), [(1, 1, 40000, e), (1, 1, 40000, 64)], "f32")
    assert "lmha_total" in kgen.explain(kgen.linear_state, k, v, segment=segment)
    check_state(k, v, segment=segment)


@pytest.mark.parametrize("dtype", DTYPES)
def test_states_of_segments_sum_up_to_the_state_of_the_whole(dtype):
    k, v = operands(np.random.default_rng(4), [(2, 4, 1000, 64)] * 2, dtype)
    parts = host(kgen.linear_state(k, v, segment=96))
    assert parts.shape == (2, 4, 11, 64, 64)
    assert rms_error(kgen.linear_state(k, v).get(), parts.sum(2)) <= STATE_BAR


@pytest.mark.parametrize("e", (40, 150))
def test_a_state_can_be_written_into_a_slot_of_a_larger_array(e):
    k, v = operands(np.random.default_rng(5), [(2, 3, 100, e), (2, 3, 100, 24)], "f32")
    buffer = poisoned((2, 3, 5, e, 30), "f32")
    kgen.linear_state(k, v, out=buffer[:, :, 2, :, 3:27])
    assert rms_error(host(buffer[:, :, 2, :, 3:27]), reference.linear_state(host(k), host(v))) <= STATE_BAR
    buffer[:, :, 2, :, 3:27] = np.nan
    assert cupy.isnan(buffer).all()


def test_no_time_steps_make_a_state_of_zeros_or_no_states():
    k, v = operands(np.random.default_rng(6), [(2, 3, 0, 150), (2, 3, 0, 24)], "f32")
    for out in (None, poisoned((2, 3, 150, 24), "f32"), poisoned((2, 3, 150, 30), "f32")[..., 2:26]):
        state = kgen.linear_state(k, v, out=out)
        assert state.shape == (2, 3, 150, 24)
        assert not state.any()
    assert kgen.linear_state(k, v, segment=10).shape == (2, 3, 0, 150, 24)


@pytest.mark.parametrize("bad", (np.inf, -np.inf, np.nan))
def test_what_is_not_finite_in_k_or_v_reaches_its_own_row_or_column(bad):
    k, v = operands(np.random.default_rng(7), [(1, 2, 300, 40), (1, 2, 300, 50)], "f32")
    k[:, :, 77, 3] = bad
    v[:, :, 200, 5] = bad
    with np.errstate(all="ignore"):
        expected = reference.linear_state(host(k), host(v), segment=150)
    got = host(kgen.linear_state(k, v, segment=150))
    assert (np.isnan(got) == np.isnan(expected)).all()
    assert (np.isposinf(got) == np.isposinf(expected)).all()
    finite = np.isfinite(expected)
    assert rms_error(got[finite], expected[finite]) <= STATE_BAR


# query_state


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("heads", (3, 200))
def test_a_query_of_every_length_matches_float64(dtype, length, heads):
    rng = np.random.default_rng(length)
    (q,), (state,) = operands(rng, [(2, heads, length, 48)], dtype), operands(rng, [(2, heads, 48, 40)], "f32")
    check_query(q, state, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("batch, length", [(50, 1), (1, 150)])
def test_a_query_of_every_width_matches_float64(dtype, width, batch, length):
    rng = np.random.default_rng(width)
    for e, m in ((width, 33), (48, width)):
        (q,), (state,) = operands(rng, [(batch, 2, length, e)], dtype), operands(rng, [(batch, 2, e, m)], "f32")
        check_query(q, state, dtype=dtype)


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
)
def test_queries_of_random_shapes_and_strides_match_float64(data, batch, heads, length, e, m, dtype, layout):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    outer = (batch, heads, length) if layout == "bhtd" else (batch, length, heads)
    q, state = lay(data, rng, (*outer, e), dtype), lay(data, rng, (batch, heads, e, m), "f32")
    check_query(q, state, dtype=dtype, layout=layout)


@pytest.mark.parametrize("spec", list(QUERY.specs()), ids=str)
def test_every_tile_matches_float64_at_ragged_edges(spec):
    batch, heads, length, e, m = 2, 3, 150, 44, 140
    rng = np.random.default_rng(8)
    (q,), (state,) = operands(rng, [(batch, heads, length, e)], spec.dtype.name), operands(rng, [(2, 3, e, m)], "f32")
    out = poisoned((batch, heads, length, m), spec.dtype.name)
    blocks = batch * heads * -(-length // spec["TOKENS"]) * -(-m // spec["COLUMNS"])
    strides = [x.strides[axis] // x.itemsize for x in (q, state, out) for axis in range(3)]
    bound = kgen.load(spec).bind(Step(spec, blocks, 3, (heads, length, e, m), tuple(strides)))
    bound((q.data.ptr, state.data.ptr, out.data.ptr), cupy.cuda.get_current_stream().ptr)
    assert rms_error(host(out), reference.query_state(host(q), host(state))) <= RMS_BAR[spec.dtype.name]


@pytest.mark.parametrize("width", (50, 64))
def test_what_is_not_finite_in_a_query_or_a_state_goes_where_it_goes_in_numpy(width):
    q, state = operands(np.random.default_rng(9), [(1, 2, 100, width), (1, 2, width, width)], "f32")
    q[:, :, 5, 7] = np.inf
    q[:, :, 9, 11] = np.nan
    q[:, :, 20, 30] = 0.0  # times the infinity below
    state[:, :, 30, 40] = -np.inf
    with np.errstate(all="ignore"):
        expected = reference.query_state(host(q), host(state))
    got = host(kgen.query_state(q, state))
    assert (np.isnan(got) == np.isnan(expected)).all()
    assert (np.isposinf(got) == np.isposinf(expected)).all()
    finite = np.isfinite(expected)
    assert (np.isfinite(got) == finite).all()
    assert rms_error(got[finite], expected[finite]) <= RMS_BAR["f32"]


@pytest.mark.parametrize("length", (1, 40))
def test_more_than_65535_heads_work(length):
    k, v, q = operands(np.random.default_rng(10), [(70000, 1, length, 4)] * 3, "f32")
    check_state(k, v)
    check_query(q, kgen.linear_state(k, v), dtype="f32")


def test_more_than_two_to_the_31_elements_work():
    length, width = 131072, 128
    q = cupy.zeros((130, 1, length, width), "e")  # 2.2e9 elements, 4.4 GB
    state = cupy.zeros((130, 1, width, width), "f")
    rng = np.random.default_rng(11)
    (tail,), (last,) = operands(rng, [(256, width)], "f16"), operands(rng, [(width, width)], "f32")
    q[-1, 0, -256:], state[-1] = tail, last
    out = kgen.query_state(q, state)
    assert rms_error(host(out[-1, 0, -256:]), reference.query_state(host(tail), host(last))) <= RMS_BAR["f16"]
    assert not out[:-1].any()
    got = kgen.linear_state(q, q)
    assert rms_error(host(got[-1, 0]), reference.linear_state(host(tail), host(tail))) <= STATE_BAR
    assert not got[:-1].any()


def test_nothing_to_compute_launches_nothing():
    q, state = operands(np.random.default_rng(12), [(2, 3, 0, 8), (2, 3, 8, 5)], "f32")
    assert kgen.query_state(q, state).shape == (2, 3, 0, 5)
    k, v = operands(np.random.default_rng(12), [(0, 3, 9, 8), (0, 3, 9, 5)], "f16")
    assert kgen.linear_state(k, v).shape == (0, 3, 8, 5)


# Both


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_chunked_form_built_of_both_is_the_causal_dot_product(dtype):
    segment = 128
    rng = np.random.default_rng(13)
    q, k, v = operands(rng, [(2, 3, 5 * segment, 64)] * 2 + [(2, 3, 5 * segment, 48)], dtype)
    before = cupy.cumsum(kgen.linear_state(k, v, segment=segment), axis=2)
    got = []
    for g in range(5):
        at = slice(g * segment, (g + 1) * segment)
        part = host(kgen.causal_dot_product(q[:, :, at], k[:, :, at], v[:, :, at]))
        got.append(part + host(kgen.query_state(q[:, :, at], before[:, :, g - 1])) if g else part)
    expected = reference.causal_dot_product(*map(host, (q, k, v)))
    assert rms_error(np.concatenate(got, 2), expected) <= RMS_BAR[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 8, 2048, 64), (8, 16, 512, 128), (2, 3, 777, 200)])
def test_same_input_gives_the_same_bits_every_time(dtype, shape):
    k, v, q = operands(np.random.default_rng(0), [shape] * 3, dtype)
    state = kgen.linear_state(k, v)
    first = cupy.asnumpy(state).tobytes(), cupy.asnumpy(kgen.query_state(q, state)).tobytes()
    for _ in range(30):
        again = kgen.linear_state(k, v)
        assert (cupy.asnumpy(again).tobytes(), cupy.asnumpy(kgen.query_state(q, again)).tobytes()) == first


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_repeated_call_allocates_results_of_the_right_dtype(dtype):
    k, v = operands(np.random.default_rng(14), [(1, 2, 100, 64)] * 2, dtype)
    for _ in range(3):
        state = kgen.linear_state(k, v)
        result = kgen.query_state(k, state)
        assert (state.dtype, result.dtype) == (np.float32, k.dtype)


def test_numpy_in_gives_numpy_out():
    rng = np.random.default_rng(15)
    k, v = (rng.standard_normal((1, 2, 130, 24)).astype("e") for _ in range(2))
    state = kgen.linear_state(k, v)
    assert isinstance(state, np.ndarray) and state.dtype == np.float32
    assert rms_error(state, reference.linear_state(k, v)) <= STATE_BAR
    result = kgen.query_state(k, state)
    assert isinstance(result, np.ndarray) and result.dtype == np.float16
    assert rms_error(result, reference.query_state(k, state)) <= RMS_BAR["f16"]


def test_torch_in_gives_torch_out():
    torch = pytest.importorskip("torch", reason="no torch here")
    k, v = (torch.randn(1, 2, 130, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    state = kgen.linear_state(k, v, segment=50)
    assert isinstance(state, torch.Tensor) and state.dtype == torch.float32
    expected = reference.linear_state(*(x.double().cpu().numpy() for x in (k, v)), segment=50)
    assert rms_error(state.double().cpu().numpy(), expected) <= STATE_BAR
    assert kgen.query_state(k, state[:, :, 0]).dtype == torch.bfloat16


def test_a_cuda_graph_replays_both():
    k, v = operands(np.random.default_rng(16), [(1, 2, 9000, 64)] * 2, "f32")
    state, out = poisoned((1, 2, 64, 64), "f32"), poisoned(k.shape, "f32")
    kgen.query_state(k, kgen.linear_state(k, v, out=state), out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        kgen.query_state(k, kgen.linear_state(k, v, out=state), out=out)
        graph = stream.end_capture()
    v *= 3
    expected = reference.query_state(host(k), reference.linear_state(host(k), host(v)))
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert rms_error(host(out), expected) <= RMS_BAR["f32"]


def state_of(x):
    return cupy.zeros((*x.shape[:2], x.shape[3], 5), "f")


BAD_CALLS = {
    "rank of k": (lambda x: kgen.linear_state(x[0], x), ValueError, "k has shape"),
    "heads": (lambda x: kgen.linear_state(x, x[:, :1]), ValueError, "v has shape"),
    "length": (lambda x: kgen.linear_state(x, x[:, :, 1:]), ValueError, "v has shape"),
    "dtypes": (lambda x: kgen.linear_state(x, x.astype("e")), TypeError, "one dtype"),
    "layout": (lambda x: kgen.linear_state(x, x, layout="bdht"), ValueError, "layout"),
    "no segment": (lambda x: kgen.linear_state(x, x, segment=0), ValueError, "segment is 0"),
    "half a segment": (lambda x: kgen.linear_state(x, x, segment=1.5), TypeError, "segment is a float"),
    "out's shape": (lambda x: kgen.linear_state(x, x, out=x[:1].copy()), ValueError, "out has shape"),
    "out for segments": (
        lambda x: kgen.linear_state(x, x, segment=4, out=cupy.zeros((2, 2, 8, 8), "f")),
        ValueError,
        r"the result has \(2, 2, 2, 8, 8\)",
    ),
    "out in 16 bits": (
        lambda x: kgen.linear_state(x, x, out=cupy.zeros((2, 2, 8, 8), "e")),
        TypeError,
        "out has dtype float16; the result has float32",
    ),
    "no array": (lambda x: kgen.linear_state(x, [1.0]), TypeError, "v is a list"),
    "rank of q": (lambda x: kgen.query_state(x[0], state_of(x)), ValueError, "q has shape"),
    "rank of the state": (lambda x: kgen.query_state(x, state_of(x)[0]), ValueError, "state has shape"),
    "features": (lambda x: kgen.query_state(x[..., 1:], state_of(x)), ValueError, "state has shape"),
    "state in 16 bits": (lambda x: kgen.query_state(x, state_of(x).astype("e")), TypeError, "state has dtype float16"),
    "host and GPU": (lambda x: kgen.query_state(x, cupy.asnumpy(state_of(x))), TypeError, "NumPy"),
    "out is the state": (lambda x: kgen.query_state(x.copy(), x, out=x), ValueError, "out shares memory with state"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_gets_an_error_that_names_it(case):
    call, kind, words = BAD_CALLS[case]
    x = operands(np.random.default_rng(0), [(2, 2, 8, 8)], "f32")[0]
    with pytest.raises(kind, match=words) as caught:
        call(x)
    assert "_state: " in str(caught.value)
