"""What a caller's arrays become, read from fake pointers: nothing here needs a GPU, torch or JAX."""

from __future__ import annotations

import itertools
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import kgen
from kgen import arrays, results, streams
from kgen.arrays import adopt
from kgen.dtypes import BF16, F16, F32, F64
from kgen.errors import DeviceError
from kgen.operand import Operand, aligned, common_kind, contiguous_strides, extent, one_to_one, overlaps
from kgen.results import check_out
from kgen.streams import stream_for
from kgen.views import contiguous_inner

cupy = pytest.importorskip("cupy", reason="operands are read through CuPy")

BASE = 1 << 20  # where ghost arrays begin


def ghost(shape, dtype="float32", *, at=BASE, device=0):
    """A cupy.ndarray over an address that nobody may read."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = cupy.cuda.UnownedMemory(at, size, None, device_id=device)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


def operand(shape, strides=None, *, at=BASE, dtype=F32, kind="cupy", device=0, argument="x", **more):
    strides = contiguous_strides(shape) if strides is None else strides
    return Operand(at, shape, strides, dtype, device, kind, argument, None, None, **more)


class Foreign:
    """An array of a library that kgen does not know."""

    def __init__(self, *, dtype=None, **interface):
        self.__cuda_array_interface__ = {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (BASE, False),
            "version": 3,
            **interface,
        }
        if dtype is not None:
            self.dtype = dtype


@pytest.fixture
def device_zero(monkeypatch):
    """Pointers belong to device 0, without asking a driver."""
    monkeypatch.setattr(arrays, "_device_of", lambda ptr, op, argument: 0)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(cupy.cuda, "is_available", lambda: False)
    streams.gpu.cache_clear()
    yield
    streams.gpu.cache_clear()


def test_importing_imports_no_array_library():
    check = "import sys, kgen.arrays, kgen.results; sys.exit(bool({'cupy', 'torch', 'jax'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# CuPy


@pytest.mark.parametrize(("numpy_dtype", "dtype"), [("float32", F32), ("float16", F16), (bfloat16, BF16)])
def test_cupy_array_is_read_in_place(numpy_dtype, dtype):
    x = ghost((2, 3, 4), numpy_dtype, device=5)
    got = adopt(x, "op", "x")
    assert (got.ptr, got.shape, got.strides, got.device) == (BASE, (2, 3, 4), (12, 4, 1), 5)
    assert got.dtype is dtype and got.kind == "cupy" and got.array is x and got.owner is x and not got.readonly


@pytest.mark.parametrize(
    ("view", "offset", "strides"),
    [
        (lambda x: x.transpose(2, 0, 1), 0, (1, 12, 4)),
        (lambda x: x[:, ::-1], 8, (12, -4, 1)),
        (lambda x: x[1:, :, ::2], 12, (12, 4, 2)),
        (lambda x: cupy.broadcast_to(x[:, :1], (2, 7, 4)), 0, (12, 0, 1)),
        (lambda x: x[0, 0, 0], 0, ()),
    ],
)
def test_views_keep_their_strides_in_elements(view, offset, strides):
    got = adopt(view(ghost((2, 3, 4))), "op", "x")
    assert got.strides == strides
    assert got.ptr == BASE + 4 * offset


def test_empty_arrays_are_operands():
    assert adopt(ghost((0, 3), at=0), "op", "x").ptr == 0


@pytest.mark.filterwarnings("ignore:kgen finds no GPU")
@pytest.mark.parametrize("dtype", ["float64", "int32", "complex64", "bool", ">f4"])
@pytest.mark.parametrize("make", [ghost, np.zeros], ids=["cupy", "numpy"])
def test_other_dtypes_are_refused_by_name(make, dtype):
    if make is ghost and dtype == ">f4":
        pytest.skip("CuPy has no byte-swapped arrays")
    with pytest.raises(TypeError, match=rf"softmax: x has dtype {dtype}; it takes float32, float16 or bfloat16"):
        adopt(make((2, 3), dtype=dtype), "softmax", "x")


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        ("i4", r" \(convert with .astype\('float64'\)\)"),
        ("g", r" \(convert with .astype\('float64'\)\)"),
        (">f2", r" \(convert with .astype\('float16'\)\)"),
        (">i8", r" \(convert with .astype\('float64'\)\)"),
        ("O", r" \(convert with .astype\('float64'\)\)"),
        ("c8", ""),
        ("U1", ""),
        ("M8[s]", ""),
        ([("a", "f4")], ""),
    ],
)
def test_a_conversion_is_proposed_where_it_keeps_what_numbers_mean(dtype, advice):
    with kgen.backend("cpu"), pytest.raises(TypeError, match=rf"it takes float64 or float16{advice}$"):
        adopt(np.zeros(3, dtype), "sum", "x", (F64, F16))


def test_indices_are_proposed_as_the_type_that_holds_them_all():
    with kgen.backend("cpu"), pytest.raises(TypeError, match=r"convert with .astype\('int64'\)"):
        kgen.bincount(np.ones(3, "f"))


@pytest.mark.parametrize("x", [[1.0, 2.0], 3.0, None, "x", np.float32(1)], ids=repr)
def test_what_is_no_array_is_refused_by_type(x):
    with pytest.raises(TypeError, match=rf"softmax: x is a (numpy\.)?{type(x).__name__}; it takes an array of float32"):
        adopt(x, "softmax", "x")


def test_elements_at_odd_addresses_are_refused():
    with pytest.raises(ValueError, match=r"op: x .* not at a multiple of the element size, 4"):
        adopt(ghost((4,), at=BASE + 2), "op", "x")


# NumPy


def test_numpy_array_for_a_gpu_where_there_is_none_says_so(no_gpu, monkeypatch):
    monkeypatch.setenv("KGEN_BACKEND", "gpu")
    with pytest.raises(DeviceError, match=r"no NVIDIA GPU is usable here\n  hint: .*nvidia-smi"):
        adopt(np.zeros((2, 3), "float32"), "op", "x")


def test_masked_array_is_refused():
    with pytest.raises(TypeError, match="op: x is a masked array"):
        adopt(np.ma.zeros(3, "float32"), "op", "x")


# torch


def fake_torch(monkeypatch, *, grad=True, **changes):
    """A tensor by torch's names, which is all that kgen goes by."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(is_grad_enabled=lambda: grad))
    body = {
        "__module__": "torch",
        "is_cuda": True,
        "device": "cuda:3",
        "requires_grad": False,
        "dtype": np.dtype(bfloat16),
        "shape": (2, 3),
        "data_ptr": lambda self: BASE,
        "stride": lambda self: (3, 1),
        "get_device": lambda self: 3,
        "is_neg": lambda self: False,
    }
    return type("Tensor", (), body | changes)()


def test_torch_tensor_is_read_by_its_own_attributes(monkeypatch):
    x = fake_torch(monkeypatch)
    got = adopt(x, "op", "x")
    assert (got.ptr, got.shape, got.strides, got.dtype, got.device) == (BASE, (2, 3), (3, 1), BF16, 3)
    assert got.kind == "torch" and got.array is x


def test_torch_tensor_that_requires_grad_must_be_detached(monkeypatch):
    with pytest.raises(TypeError, match=r"op: x requires grad, .* x\.detach\(\), or call under torch\.no_grad\(\)"):
        adopt(fake_torch(monkeypatch, requires_grad=True), "op", "x")
    assert adopt(fake_torch(monkeypatch, requires_grad=True, grad=False), "op", "x").kind == "torch"


def test_torch_tensor_without_memory_is_refused(monkeypatch):
    def data_ptr(self):
        raise RuntimeError("Cannot access data pointer")

    with pytest.raises(TypeError, match="op: x is a torch tensor without plain strided memory: Cannot access"):
        adopt(fake_torch(monkeypatch, data_ptr=data_ptr), "op", "x")


def test_torch_tensor_that_is_yet_to_be_negated_is_refused(monkeypatch):
    """Its memory holds the numbers with the other sign: the imaginary part of what torch conjugates when it is read."""
    with pytest.raises(TypeError, match=r"op: x is .* negated only when it is read; .*\.resolve_neg\(\)"):
        adopt(fake_torch(monkeypatch, is_neg=lambda self: True), "op", "x")


def test_torch_tensor_on_the_cpu_is_refused():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for x in (torch.zeros(3), torch.nn.Parameter(torch.zeros(3))):
        with pytest.raises(TypeError, match=r"op: x is a torch tensor on cpu; move it to the GPU with \.cuda\(\)"):
            adopt(x, "op", "x")


# __cuda_array_interface__


def test_cuda_array_interface_is_read_in_place(device_zero):
    x = Foreign(strides=(4, 8), data=(BASE, True))
    got = adopt(x, "op", "x")
    assert (got.ptr, got.shape, got.strides, got.dtype, got.readonly) == (BASE, (2, 3), (1, 2), F32, True)
    assert got.kind == "cai" and got.array is x and got.owner is x
    assert adopt(Foreign(strides=None), "op", "x").strides == (3, 1)


@pytest.mark.parametrize(("stream", "ready"), [(None, None), (1, 0), (2, 2), (0x7F00, 0x7F00)])
def test_cuda_array_interface_says_when_its_contents_are_ready(device_zero, stream, ready):
    assert adopt(Foreign(stream=stream), "op", "x").ready == ready
    assert adopt(Foreign(version=2), "op", "x").ready is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"stream": 0}, ValueError, "stream 0, which __cuda_array_interface__ forbids"),
        ({"mask": [1]}, TypeError, "masked array"),
        ({"typestr": "<V2"}, TypeError, "'<V2', which may be bfloat16 or plain bytes"),
        ({"typestr": "<f8"}, TypeError, "float64; it takes float32"),
        ({"strides": (10, 2)}, ValueError, r"strides of \(10, 2\) bytes are not multiples of the element size, 4"),
        ({"data": (0, False)}, ValueError, r"shape \(2, 3\) and a null pointer"),
        ({"data": 8}, TypeError, "has a malformed __cuda_array_interface__: TypeError"),
        ({"data": None}, TypeError, "has a malformed __cuda_array_interface__: TypeError"),
        ({"shape": 3}, TypeError, "has a malformed __cuda_array_interface__: TypeError"),
        ({"typestr": "zz"}, TypeError, "has a malformed __cuda_array_interface__: TypeError"),
    ],
    ids=str,
)
def test_cuda_array_interface_that_no_kernel_can_use_is_refused(device_zero, change, error, message):
    with pytest.raises(error, match=f"op: x .*{message}"):
        adopt(Foreign(**change), "op", "x")


def test_an_interface_without_its_entries_is_refused_by_name(device_zero):
    foreign = Foreign()
    del foreign.__cuda_array_interface__["typestr"]
    with pytest.raises(TypeError, match="op: x has a malformed __cuda_array_interface__: KeyError: 'typestr'"):
        adopt(foreign, "op", "x")


def test_a_dlpack_producer_without_a_device_is_refused_by_name():
    producer = type("Producer", (), {"__dlpack__": None})()
    with pytest.raises(TypeError, match=r"op: x is a .*Producer with a malformed __dlpack_device__: AttributeError"):
        adopt(producer, "op", "x")


def test_bfloat16_type_string_is_read_with_the_dtype_beside_it(device_zero):
    assert adopt(Foreign(typestr="<V2", dtype=np.dtype(bfloat16)), "op", "x").dtype is BF16


def test_empty_foreign_array_has_a_null_pointer(device_zero):
    assert adopt(Foreign(shape=(0, 3), data=(0, False)), "op", "x").ptr == 0


# DLPack and JAX


def exporter(name="Array", module="elsewhere", device_type=2):
    body = {"__module__": module, "__dlpack_device__": lambda self: (device_type, 0), "__dlpack__": lambda self: None}
    return type(name, (), body)()


@pytest.fixture
def dlpack_gives(monkeypatch):
    """`cupy.from_dlpack` gives a ghost; CuPy's current stream is 7."""
    monkeypatch.setattr(arrays, "gpu", lambda: SimpleNamespace(from_dlpack=lambda x: ghost((2, 3), "float16")))
    monkeypatch.setattr(arrays, "current_stream", lambda kind, device: 7)


def test_dlpack_array_is_ready_on_the_stream_it_was_asked_for(dlpack_gives):
    x = exporter()
    got = adopt(x, "op", "x")
    assert (got.kind, got.ptr, got.dtype, got.ready, got.readonly) == ("dlpack", BASE, F16, 7, False)
    assert got.array is x and got.owner is not x


@pytest.mark.parametrize(("module", "name"), [("jax", "Array"), ("jaxlib.xla_extension", "ArrayImpl")])
def test_jax_arrays_are_read_only(dlpack_gives, module, name):
    got = adopt(exporter(name, module), "op", "x")
    assert got.kind == "jax" and got.readonly


def test_dlpack_array_on_the_host_is_refused():
    with pytest.raises(TypeError, match=r"op: x is a elsewhere.Array that is not on a CUDA GPU .DLPack device type 1"):
        adopt(exporter(device_type=1), "op", "x")


def test_jax_tracer_is_refused():
    with pytest.raises(TypeError, match="op: x is being traced by JAX; call it outside jit"):
        adopt(exporter("Tracer", "jax._src.core"), "op", "x")


# Arrays that meet in one kernel


def test_result_is_of_the_first_operands_kind():
    assert common_kind("op", [operand((3,), kind="torch"), operand((3,), kind="cupy")]) == "torch"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kind": "numpy"}, TypeError, "op: k is a NumPy array and q is not; convert one"),
        ({"kind": "jax"}, TypeError, "op: k is a JAX array and q is not"),
        ({"device": 1}, ValueError, "op: q is on cuda:0 and k on cuda:1"),
        ({"dtype": F16}, TypeError, "op: q is float32 and k float16"),
    ],
    ids=str,
)
def test_operands_that_cannot_meet_are_both_named(change, error, message):
    with pytest.raises(error, match=message):
        common_kind("op", [operand((3,), argument="q"), operand((3,), argument="k", **change)])


def test_dtypes_may_differ_where_the_operator_says_so():
    common_kind("op", [operand((3,)), operand((3,), dtype=BF16)], mixed_dtypes=True)


# Streams


def test_stream_is_taken_in_every_spelling():
    protocol = type("Stream", (), {"__cuda_stream__": lambda self: (0, 9)})()
    old_torch = SimpleNamespace(cuda_stream=9)
    assert streams.stream_pointer(9) == streams.stream_pointer(protocol) == streams.stream_pointer(old_torch) == 9
    assert streams.stream_pointer(cupy.cuda.Stream.null) == streams.stream_pointer(1) == 0


@pytest.mark.parametrize("stream", [True, "default", 1.0, b"stream"], ids=repr)
def test_what_is_no_stream_is_refused(stream):
    with pytest.raises(TypeError, match=f"stream is a {type(stream).__name__}; it takes an int"):
        streams.stream_pointer(stream)


@pytest.fixture
def waits(monkeypatch):
    """Records what waits for what; CuPy's current stream is 7 and torch's 8."""
    recorded = []
    monkeypatch.setattr(streams, "wait", lambda stream, source, device: recorded.append((stream, source)))
    monkeypatch.setattr(streams, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(get_current_stream=current)))
    torch = SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 8))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return recorded


def current(device):
    return SimpleNamespace(ptr=7)


def test_call_runs_on_the_current_stream_of_the_arrays_library(waits):
    assert stream_for("cupy", [operand((3,))]) == 7
    assert stream_for("torch", [operand((3,), kind="torch")]) == 8
    assert stream_for("torch", [operand((3,), kind="torch")], stream=9) == 9
    assert waits == []


def test_call_waits_for_contents_that_become_ready_elsewhere(waits):
    assert stream_for("cai", [operand((3,), kind="cai", ready=7), operand((3,), kind="cai", ready=2)]) == 7
    assert waits == [(7, 2)]


def test_torch_beside_cupy_waits_for_both_current_streams(waits):
    assert stream_for("torch", [operand((3,), kind="torch"), operand((3,), kind="cupy")]) == 8
    assert waits == [(8, 7)]


# Results


def refused(out, *inputs, shape=(4, 8), dtype=F32):
    with pytest.raises((TypeError, ValueError)) as caught:
        check_out(out, shape, dtype, inputs, "op")
    assert str(caught.value).startswith("op: out ")
    return str(caught.value)


def test_out_of_the_right_kind_is_taken_as_it_is():
    out = ghost((4, 8), at=2 * BASE)
    got = check_out(out, (4, 8), F32, [operand((4, 8))], "op", stream=0)
    assert got.ptr == 2 * BASE and results.give_back(got, 0) is out


def test_out_of_the_wrong_kind_is_refused():
    x = operand((4, 8))
    assert "shape (4, 7); the result has (4, 8)" in refused(ghost((4, 7), at=2 * BASE), x)
    told = "dtype float16; the result has float32, and kgen does not cast it: pass an array of that dtype"
    assert told in refused(ghost((4, 8), "float16", at=2 * BASE), x)
    assert "on cuda:1 and x on cuda:0" in refused(ghost((4, 8), at=2 * BASE, device=1), x)
    assert "of NumPy and x of CuPy or its like; pass one of the same" in refused(np.zeros((4, 8), "float32"), x)
    assert "of CuPy or its like and x of NumPy" in refused(ghost((4, 8)), operand((4, 8), kind="numpy"))
    assert "of CuPy or its like and x of JAX" in refused(ghost((4, 8)), operand((4, 8), kind="jax"))
    assert "of CuPy or its like and x of torch" in refused(ghost((4, 8)), operand((4, 8), kind="torch"))


def test_out_that_cannot_be_written_is_refused(device_zero, dlpack_gives):
    x = operand((4, 8))
    assert "read-only" in refused(Foreign(shape=(4, 8), data=(2 * BASE, True)), x)
    assert "JAX arrays always are" in refused(
        exporter("Array", "jax"), operand((2, 3), kind="jax"), shape=(2, 3), dtype=F16
    )
    host = np.zeros((4, 8), "float32")
    host.flags.writeable = False
    assert "read-only" in refused(host, operand((4, 8), kind="numpy"))


def test_out_with_several_elements_at_one_address_is_refused():
    assert "several elements at one address" in refused(cupy.broadcast_to(ghost((8,)), (4, 8)), operand((4, 8), at=64))


def test_out_that_shares_memory_with_an_input_is_refused():
    assert "shares memory with x" in refused(ghost((4, 8)), operand((4, 8)))
    last_row_only = operand((4, 8), at=BASE + 3 * 8 * 4)
    assert "shares memory with x" in refused(ghost((4, 8)), last_row_only)
    host = np.zeros((5, 8), "float32")
    shifted = Operand(0, (4, 8), (8, 1), F32, 0, "numpy", "x", host[1:], None)
    assert "shares memory with x" in refused(host[:4], shifted)


def test_out_may_lie_between_the_rows_of_an_input():
    packed = ghost((4, 2, 8))
    got = check_out(packed[:, 1], (4, 8), F32, [adopt(packed[:, 0], "op", "x")], "op", stream=0)
    assert got.strides == (16, 1)


def test_call_waits_until_out_may_be_written(waits, device_zero):
    check_out(Foreign(data=(2 * BASE, False), stream=2), (2, 3), F32, [operand((2, 3))], "op", stream=9)
    check_out(Foreign(data=(2 * BASE, False), stream=2), (2, 3), F32, [operand((2, 3))], "op")
    assert waits == [(9, 2), (7, 2)]


def test_numpy_out_is_checked_before_the_gpu_is_asked_for(no_gpu):
    with pytest.raises(DeviceError):
        x = Operand(0, (2,), (1,), F32, 0, "numpy", "x", np.zeros(2, "float32"), None)
        check_out(np.zeros(2, "float32"), (2,), F32, [x], "op", stream=0)


@pytest.mark.parametrize("shape, strides", [((4, 8), (8, 1)), ((4, 1), (1, 5)), ((0, 8), (8, 2)), ((), ())])
def test_contiguous_rows_are_not_copied(shape, strides):
    x = operand(shape, strides)
    assert contiguous_inner(x, 0) is x


# Addresses, against brute force


@st.composite
def layouts(draw):
    """Any shape and strides of up to three axes, at any whole element near the base, of any element size."""
    axes = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(-7, 7)), max_size=3))
    dtype = draw(st.sampled_from([F32, F16]))
    at = BASE + dtype.itemsize * draw(st.integers(0, 20))
    return operand(tuple(n for n, _ in axes), tuple(s for _, s in axes), at=at, dtype=dtype)


def offsets(x):
    """The element offset of every element, from the first."""
    places = itertools.product(*map(range, x.shape))
    return [sum(place * stride for place, stride in zip(index, x.strides)) for index in places]


def addresses(x):
    """Every byte address of an operand."""
    size = x.dtype.itemsize
    return {x.ptr + offset * size + byte for offset in offsets(x) for byte in range(size)}


@given(layouts(), layouts())
def test_overlap_is_exactly_a_shared_byte(a, b):
    assert overlaps(a, b) == bool(addresses(a) & addresses(b))


@given(layouts())
def test_extent_is_the_tightest_range(x):
    every = offsets(x)
    assert extent(x.shape, x.strides) == ((min(every), max(every) + 1) if every else (0, 0))


@given(layouts())
def test_layout_that_passes_holds_each_element_apart(x):
    if one_to_one(x.shape, x.strides):
        assert len(set(offsets(x))) == len(offsets(x))


@given(st.data())
def test_every_slice_and_transpose_of_an_array_passes(data):
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    slices = [slice(None, None, data.draw(st.sampled_from([1, 2, 3, -1, -2]))) for _ in shape]
    view = np.zeros(shape, "float32")[tuple(slices)].transpose(data.draw(st.permutations(range(len(shape)))))
    assert one_to_one(view.shape, tuple(stride // 4 for stride in view.strides))


@given(layouts(), st.sampled_from([4, 8, 16]))
def test_aligned_means_that_every_row_starts_at_a_multiple(x, nbytes):
    rows = operand(x.shape[:-1], x.strides[:-1], at=x.ptr, dtype=x.dtype)
    starts = [x.ptr + offset * x.dtype.itemsize for offset in [0, *offsets(rows)]]
    if 0 not in x.shape:
        assert aligned(x, nbytes) == all(start % nbytes == 0 for start in starts)
