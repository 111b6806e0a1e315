"""How an operator's first call is prepared and the next are recognised, on arrays over memory that nobody touches."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
import textwrap
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen import driver, streams
from kgen.dtypes import F16, F32, FLOATS, I32, I64
from kgen.launch import Launcher, Run, Step, picked
from kgen.operand import Operand, extent
from kgen.ops import again as again_module
from kgen.ops import calls, kinds, libraries
from kgen.ops.again import Call, Form, text, written
from kgen.ops.calls import Operator, Plan
from kgen.scratch import listing

cupy = pytest.importorskip("cupy", reason="operands are read through CuPy")
launch = importlib.import_module("kgen.launch")

STREAM = 7


class Recorded:
    """An operator that adds two arrays, in so far as it says when it is prepared and launched."""

    written_out = False
    patch: pytest.MonkeyPatch

    def __init__(self, **traits: Any) -> None:
        self.prepared: list[tuple[Any, ...]] = []
        self.launched: list[tuple[list[int], int]] = []
        self.refusals: list[int] = []
        self.run = self.bound() if self.written_out else self.record
        self.operator = Operator("recorded", ("x", "y"), ("scale",), self.results, self.prepare, **traits)

    def results(self, op, given, scale):
        if given[1] and given[0].shape != given[1].shape:
            raise ValueError(f"{op}: y has shape {given[1].shape}")
        return [(given[0].shape, given[0].dtype)]

    def prepare(self, op, given, results, scale):
        self.prepared.append((given[0].shape, scale))
        return Plan(self.run, ("step",), "why")

    def record(self, pointers, stream):
        self.launched.append((list(pointers), stream))

    def bound(self) -> Run:
        """A launch as every kernel has it, which a repeated call writes out; the pointers come in another order."""

        @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
        def start(at, function, addresses, extra):
            if self.refusals:
                return self.refusals.pop()
            places = (ctypes.c_void_p * 3).from_address(addresses)
            out, *inputs = (ctypes.c_uint64.from_address(place).value for place in places)
            self.record([*inputs, out], driver.Configuration.from_address(at).stream or 0)
            return 0

        launcher = object.__new__(Launcher)
        launcher.spec, launcher.smem, launcher.overlaps = kgen.parse("lmha_chunk_e64_m64_f32"), 0, False
        launcher.function = types.SimpleNamespace(ptr=42)
        self.patch.setattr(driver, "library", lambda: types.SimpleNamespace(cuLaunchKernelEx=start))
        return picked(launcher.bind(Step(launcher.spec, 1, 3)), (2, 0, 1))

    def __call__(self, x, y, out, scale=1, stream=None):
        return self.operator((x, y), (out,), (scale,), stream)[0]


def array(address, shape=(4, 8), dtype="f", strides=None):
    memory = cupy.cuda.UnownedMemory(address, 1 << 16, None, device_id=0)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0), strides=strides)


X, Y, OUT = 1 << 20, 2 << 20, 3 << 20


@pytest.fixture(params=["called", "written out"])
def recorded(monkeypatch, request):
    monkeypatch.setattr(Recorded, "written_out", request.param == "written out")
    monkeypatch.setattr(Recorded, "patch", monkeypatch, raising=False)
    cuda = types.SimpleNamespace(get_current_stream=lambda device: types.SimpleNamespace(ptr=STREAM))
    streams.cupy()  # or it would keep the one that follows
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=cupy.ndarray, cuda=cuda))
    monkeypatch.setattr(libraries, "current_device", lambda: None)
    libraries.library.cache_clear()  # or it would keep the real one, or this one
    monkeypatch.setattr(calls, "stream_for", lambda kind, given, stream=None: STREAM if stream is None else stream)
    monkeypatch.setattr(calls, "on", lambda device, stream: contextlib.nullcontext())
    monkeypatch.setattr(calls, "on_device", lambda device: contextlib.nullcontext())
    yield Recorded()
    calls.OPERATORS.pop("recorded")
    libraries.library.cache_clear()


@pytest.fixture
def recorded_with(recorded):
    """The same with other traits."""
    return Recorded


def test_a_second_call_of_a_kind_is_launched_with_no_check_but_overlap(recorded, monkeypatch):
    out = array(OUT)
    assert recorded(array(X), array(Y), out) is out
    monkeypatch.setattr(calls, "adopt", None)  # whatever would look at the arrays again fails
    again = array(OUT + 4096)
    assert recorded(array(X + 4096), array(Y), again) is again
    assert recorded.prepared == [((4, 8), 1)]
    assert recorded.launched == [([X, Y, OUT], STREAM), ([X + 4096, Y, OUT + 4096], STREAM)]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (2, 16)},
        {"dtype": "e"},
        {"strides": (64, 4)},
        {"address": X + 4},  # loads that were aligned no longer are
    ],
)
def test_a_call_of_another_kind_is_prepared_anew(recorded, change):
    recorded(array(X), array(Y), array(OUT))
    like = {"shape": change.get("shape", (4, 8)), "dtype": change.get("dtype", "f")}
    x = array(change.get("address", X), **like, strides=change.get("strides"))
    recorded(x, array(Y, **like), array(OUT, **like))
    assert len(recorded.prepared) == len(recorded.launched) == 2


@pytest.mark.parametrize("stream", [None, 11], ids=["recognised", "planned"])
@pytest.mark.parametrize(
    ("first", "second"),
    [((4, 0, 0), (0, 4, 0)), ((4, 0, 0), (0, 0, 4)), ((4, 0, 0), (4, 4, 0)), ((8, 4, 0), (4, 8, 0))],
)
def test_alignment_is_that_of_each_array_and_not_of_all_together(recorded, first, second, stream):
    """A kernel may load from one array in wide words while another starts anywhere, or shift one against another."""
    for offsets in (first, second):
        recorded(*(array(at + offset) for at, offset in zip((X, Y, OUT), offsets)), stream=stream)
    assert len(recorded.prepared) == 2


def test_what_the_driver_refuses_is_launched_the_plain_way_which_raises(recorded, monkeypatch):
    monkeypatch.setattr(launch, "_refused", lambda result: RuntimeError(f"result {result}"))
    recorded(array(X), array(Y), array(OUT))
    recorded.refusals = [1]
    recorded(array(X), array(Y), array(OUT))
    assert recorded.launched == [([X, Y, OUT], STREAM)] * 2
    if recorded.written_out:
        recorded.refusals = [719, 1]  # the last comes first
        with pytest.raises(RuntimeError, match="result 719"):
            recorded(array(X), array(Y), array(OUT))


def test_an_option_makes_another_kind(recorded):
    recorded(array(X), array(Y), array(OUT))
    recorded(array(X), array(Y), array(OUT), scale=2)
    assert [scale for _, scale in recorded.prepared] == [1, 2]


def test_an_out_that_overlaps_is_refused_in_the_second_call_too(recorded):
    recorded(array(X), array(Y), array(OUT))
    with pytest.raises(ValueError, match="out shares memory with y"):
        recorded(array(X), array(Y), array(Y + 64))
    assert len(recorded.launched) == 1


class Places:
    """A library of arrays that are places, all alike."""

    kinds = (types.SimpleNamespace,)
    pointer, queue = "{}.ptr", "stream({})"
    current = None

    def alike(self, arrays):
        return "True", {}

    def stream(self, device):
        return STREAM


@st.composite
def placed(draw):
    """The shape, strides in elements, dtype and address of an array, all near one another."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    strides = draw(st.tuples(st.integers(-4, 4), st.integers(-4, 4)))
    return shape, strides, draw(st.sampled_from([F16, F32])), 1024 + 2 * draw(st.integers(0, 40))


@given(st.lists(placed(), min_size=2, max_size=4), st.lists(placed(), min_size=2, max_size=2), st.booleans())
@settings(deadline=None)
def test_a_call_is_recognised_exactly_where_no_result_touches_the_bytes_between_others_ends(arrays, moved, in_place):
    """Two results that were passed, any inputs; then the same kind of call at other places."""

    def operands(places):
        return [
            Operand(place, shape, strides, dtype, 0, "cupy", "x", types.SimpleNamespace(ptr=place), None)
            for place, (shape, strides, dtype, _) in zip(places, (*arrays, *moved))
        ]

    def touched(x):
        low, high = extent(x.shape, x.strides)
        return set(range(x.ptr + low * x.dtype.itemsize, x.ptr + high * x.dtype.itemsize))

    now = operands([place for *_, place in (*arrays, *moved)])
    inputs = len(arrays)
    given, outs = (tuple(x.array for x in part) for part in (now[:inputs], now[inputs:]))
    call = Call(lambda pointers, stream: None, given, outs, tuple(now), inputs, ("x",) if in_place else ())
    again = written(call, Places())

    def same(x, y):
        return in_place and (x.ptr, x.shape, x.strides, x.dtype) == (y.ptr, y.shape, y.strides, y.dtype)

    fine = not any(
        touched(result) & touched(other) and not (at < inputs and same(result, other))
        for place, result in enumerate(now[inputs:], inputs)
        for at, other in enumerate(now[:place])
    )
    assert (again(given, outs) is not None) == fine


def test_the_documented_function_of_a_kind_is_what_is_written():
    pairs = ((2, 0, True), (2, 1, True))
    terms = "alike(x0, x1, x2)", (0, 0, 0), pairs, "{}.data_ptr()", "stream(0)"
    found = text(Form(2, 2, (0, 1, 2), *terms, device=None, places=(0, 1, 2)))
    assert textwrap.indent(found, "    ") in str(again_module.__doc__)


def test_an_explicit_stream_shares_the_plan_and_takes_its_stream(recorded):
    recorded(array(X), array(Y), array(OUT))
    recorded(array(X), array(Y), array(OUT), stream=11)
    assert len(recorded.prepared) == 1
    assert recorded.launched[1] == ([X, Y, OUT], 11)


def test_what_does_not_fit_is_neither_prepared_nor_remembered(recorded):
    for _ in range(2):
        with pytest.raises(ValueError, match="y has shape"):
            recorded(array(X), array(Y, shape=(4, 9)), array(OUT))
    assert recorded.prepared == recorded.launched == []


def test_a_result_may_be_an_input_itself_where_the_operator_says_so(recorded_with):
    recorded = recorded_with(in_place=True)
    for _ in range(2):
        recorded(array(X), array(Y), array(X))
    assert recorded.launched == [([X, Y, X], STREAM)] * 2


def test_a_result_may_be_the_one_input_that_the_operator_names_and_no_other(recorded_with):
    recorded = recorded_with(in_place=("y",))
    for _ in range(2):
        recorded(array(X), array(Y), array(Y))
        with pytest.raises(ValueError, match="out shares memory with x"):
            recorded(array(X), array(Y), array(X))
    assert recorded.launched == [([X, Y, Y], STREAM)] * 2


@pytest.mark.parametrize("calls_before", [0, 1])
@pytest.mark.parametrize("out", [array(X, (4, 8), strides=(4, 16)), array(X + 32)], ids=["transposed", "shifted"])
def test_in_place_means_element_for_element(recorded_with, calls_before, out):
    recorded = recorded_with(in_place=True, rows=False)
    for _ in range(calls_before):
        recorded(array(X), array(Y), array(OUT, (4, 8), strides=out.strides))
    with pytest.raises(ValueError, match="out shares memory with x"):
        recorded(array(X), array(Y), out)


def test_an_input_that_may_be_missing_comes_as_none_and_a_null_pointer(recorded_with):
    recorded = recorded_with(optional=("y",))
    for _ in range(2):
        recorded(array(X), None, array(OUT))
    assert recorded.launched == [([X, 0, OUT], STREAM)] * 2
    assert len(recorded.prepared) == 1


def test_which_inputs_there_are_may_decide_how_many_results_there_are(recorded_with, monkeypatch):
    recorded = recorded_with(optional=("y",))
    one = [((4, 8), F32)]
    monkeypatch.setattr(recorded.operator, "results", lambda op, given, scale: one * (1 + (given[1] is not None)))
    x, y, outs = array(X), array(Y), (array(OUT), array(OUT + 4096))
    for inputs in ((x, None), (x, y)) * 2:
        assert len(recorded.operator(inputs, outs[: 1 + (inputs[1] is not None)], (1,), None)) == 1 + (inputs[1] is y)
    assert len(recorded.prepared) == 2


def test_an_input_that_may_not_be_missing_is_refused(recorded):
    with pytest.raises(TypeError, match="recorded: y is a NoneType"):
        recorded(array(X), None, array(OUT))


def test_each_input_may_take_dtypes_of_its_own(recorded_with):
    recorded = recorded_with(takes={"x": FLOATS, "y": (I32, I64)}, mixed=True)
    recorded(array(X), array(Y, dtype="i"), array(OUT))
    with pytest.raises(TypeError, match="recorded: y has dtype float32; it takes int32 or int64"):
        recorded(array(X), array(Y), array(OUT))


def test_what_is_remembered_is_bounded(recorded, monkeypatch):
    monkeypatch.setattr(kinds, "REMEMBERED", 3)
    for length in range(1, 9):
        recorded(*(array(at, (length,)) for at in (X, Y, OUT)))
    assert len(recorded.operator.kinds.last) <= 3
    assert len(recorded.operator.kinds._alike) <= 3
    assert len(recorded.operator._plans) <= 3


def test_what_is_prepared_to_stand_idle_is_not_remembered(recorded):
    """An operator that another one calls, while the other's workspace is asked for."""
    with listing():
        recorded(array(X), array(Y), array(OUT))
    for _ in range(2):
        recorded(array(X), array(Y), array(OUT))
    assert len(recorded.prepared) == 2


NUMBERS = [2, 2.0, True, 0, 0.0, -0.0, False, np.float32(2), np.float64(0.0), float("nan"), np.float32("nan")]


@pytest.mark.parametrize("behind", [(), (0.5, 1)], ids=["", "before parameters"])
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_number_among_the_operands_is_recognised_by_its_type_and_its_bits(recorded, number, behind, monkeypatch):
    """As `Elementwise` is called: what the caller says may be more than there are inputs."""
    read = []

    def call(number):
        read.clear()
        recorded.operator.call((array(X), number, *behind), (array(OUT),), ("a key",), None)
        return not read

    def reading(said, options):
        read.append(options)
        return (said[0], None), (repr(said[1]),)

    monkeypatch.setattr(recorded.operator, "read", reading)
    monkeypatch.setattr(recorded.operator, "optional", ("y",))
    call(number)
    assert call(number)
    alike = [other for other in NUMBERS if call(other)]
    assert [(type(other), repr(other)) for other in alike] == [(type(number), repr(number))]
    assert [call(other) for other in NUMBERS] == [True] * len(NUMBERS)
    assert recorded.launched == [([X, 0, OUT], STREAM)] * (2 + 2 * len(NUMBERS))


# torch, by the names that kgen goes by


class Tensor:
    __module__ = "torch"

    def __init__(self, address, shape=(4, 8), device=0, requires_grad=False):
        self.address, self.shape, self.device, self.requires_grad = address, shape, device, requires_grad
        self.dtype, self.is_cuda = "float32", device >= 0

    def data_ptr(self):
        return self.address

    def stride(self):
        return (self.shape[1], 1)

    def is_contiguous(self):
        return True

    def get_device(self):
        return self.device

    def is_neg(self):
        return False


class Parameter(Tensor):
    __module__ = "torch.nn.parameter"


@pytest.fixture
def torch(monkeypatch, recorded):
    """A torch whose current stream is 8, and which records gradients where `grad` is set."""
    module = types.SimpleNamespace(
        Tensor=Tensor,
        nn=types.SimpleNamespace(Parameter=Parameter),
        grad=True,
        is_grad_enabled=lambda: module.grad,
        _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 8),
        empty=lambda shape, dtype, device: Tensor(OUT + 8192, shape),
        device=lambda name, index: (name, index),
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    libraries.library.cache_clear()
    return module


def test_a_second_call_on_tensors_is_launched_on_torchs_stream_with_no_check(torch, recorded, monkeypatch):
    monkeypatch.setattr(calls, "allocate", lambda *what: calls.adopt(Tensor(OUT), "recorded", "the result"))
    for out in (Tensor(OUT), None):
        recorded(Tensor(X), Tensor(Y), out)
    monkeypatch.setattr(calls, "adopt", None)
    out = Tensor(OUT + 4096)
    assert recorded(Tensor(X + 4096), Tensor(Y), out) is out
    assert recorded(Tensor(X), Tensor(Y), None).address == OUT + 8192
    assert recorded.launched[2:] == [([X + 4096, Y, OUT + 4096], 8), ([X, Y, OUT + 8192], 8)]
    assert len(recorded.prepared) == 1


def test_a_result_of_another_layout_than_the_inputs_is_no_copy_of_theirs(torch, recorded, monkeypatch):
    monkeypatch.setattr(calls, "allocate", lambda *what: calls.adopt(Tensor(OUT, (2, 3)), "recorded", "the result"))
    monkeypatch.setattr(recorded.operator, "results", lambda op, given, scale: [((2, 3), given[0].dtype)])
    recorded(Tensor(X), Tensor(Y), None)
    again = recorded(Tensor(X), Tensor(Y), None)
    assert (again.address, again.shape) == (OUT + 8192, (2, 3))


def test_a_tensor_that_requires_grad_is_refused_in_every_call(torch, recorded):
    recorded(Tensor(X), Tensor(Y), Tensor(OUT))
    weight = Parameter(Y, requires_grad=True)
    with pytest.raises(TypeError, match="recorded: y requires grad"):
        recorded(Tensor(X), weight, Tensor(OUT))
    torch.grad = False
    for _ in range(2):
        recorded(Tensor(X), weight, Tensor(OUT))
    assert recorded.launched[2] == ([X, Y, OUT], 8)
    torch.grad = True
    with pytest.raises(TypeError, match="recorded: y requires grad"):
        recorded(Tensor(X), weight, Tensor(OUT))


def test_an_array_that_came_twice_is_another_kind(torch, recorded_with):
    """What torch tests tensors with passes no tensor twice."""
    recorded = recorded_with(in_place=True)
    x, y = Tensor(X), Tensor(Y)
    for arguments in ((x, y, x), (x, x, y), (x, y, Tensor(OUT))) * 2:
        recorded(*arguments)
    assert [stream for _, stream in recorded.launched] == [STREAM] * 3 + [8] * 3


def test_a_tensor_on_the_host_is_refused_in_every_call(torch, recorded):
    for _ in range(2):
        with pytest.raises(TypeError, match="recorded: y is a torch tensor on -1"):
            recorded(Tensor(X), Tensor(Y, device=-1), Tensor(OUT))


def test_tensors_and_cupy_arrays_of_one_layout_are_kinds_apart(torch, recorded):
    recorded(Tensor(X), Tensor(Y), Tensor(OUT))
    recorded(array(X), array(Y), array(OUT))
    assert [stream for _, stream in recorded.launched] == [STREAM, STREAM]  # both were looked at
    assert len(recorded.prepared) == 1
    recorded(array(X), array(Y), array(OUT))
    assert [stream for _, stream in recorded.launched] == [STREAM, STREAM, STREAM]


def test_results_are_called_what_callers_call_them():
    q = np.ones((1, 1, 4, 8), "f")
    dq = np.empty_like(q)
    backward = kgen.causal_dot_product_backward
    with kgen.backend("cpu"):
        with pytest.raises(ValueError, match=r"out\[1\] shares memory with out\[0\]"):
            backward(q, q + 1, q + 2, q + 3, out=(dq, dq, None))
        with pytest.raises(ValueError, match=r"out\[2\] has shape \(1, 1, 4, 3\)"):
            backward(q, q + 1, q + 2, q + 3, out=(None, None, dq[..., :3]))
        with pytest.raises(TypeError, match=r"out is a ndarray; it takes a tuple \(dq, dk, dv\)"):
            backward(q, q + 1, q + 2, q + 3, out=dq)
