"""Arrays of every library to operands and back, on a device; the "kernel" is a copy on the stream of the call."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from ml_dtypes import bfloat16

from kgen.arrays import adopt
from kgen.dtypes import dtype_of
from kgen.operand import common_kind
from kgen.results import allocate, check_out, give_back
from kgen.streams import current_stream, on, stream_for
from kgen.views import contiguous_inner, device_view

pytestmark = pytest.mark.gpu

SHAPE = (3, 5, 8)
DTYPES = ["float32", "float16", "bfloat16"]


def sample(dtype="float32", shape=SHAPE):
    return np.arange(np.prod(shape)).reshape(shape).astype(bfloat16 if dtype == "bfloat16" else dtype)


def copied(x, out=None, stream=None):
    """What an operator does with its arrays, from the first to the last."""
    x = adopt(x, "copy", "x")
    kind = common_kind("copy", [x])
    on_stream = stream_for(kind, [x], stream)
    read = contiguous_inner(x, on_stream)
    if out is None:
        result = allocate(kind, x.shape, x.dtype, x.device, on_stream)
    else:
        result = check_out(out, x.shape, x.dtype, [x], "copy", on_stream)
        result = contiguous_inner(result, on_stream, write=True)
    with on(x.device, on_stream):
        device_view(result)[...] = device_view(read)
    return give_back(result, on_stream)


class Exported:
    """A CuPy array behind one protocol alone."""

    def __init__(self, array, **interface):
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | interface


class OnlyDlpack:
    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(scope="module")
def jax():
    module = pytest.importorskip("jax", reason="JAX is not installed")
    if module.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    return module


def busy(cupy, stream):
    """Keeps a stream at work for some 50 ms, so that whoever does not wait for it reads too early."""
    with stream:
        a = cupy.ones((4096, 4096), "float32")
        for _ in range(20):
            a = a @ a * 1e-4


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_comes_back_as_numpy(dtype):
    x = sample(dtype)
    got = copied(x)
    assert type(got) is np.ndarray and got.dtype == x.dtype
    np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(copied(x[:, ::-1, ::2]), x[:, ::-1, ::2])


def test_numpy_out_is_filled_whatever_its_strides():
    x = sample()
    home = np.zeros((8, 5, 6), "float32")
    out = home[:, :, ::-2].transpose(2, 1, 0)
    assert copied(x, out=out) is out
    np.testing.assert_array_equal(out, x)
    assert not home[:, :, 0].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_cupy_comes_back_as_cupy(cupy, dtype):
    x = cupy.asarray(sample(dtype))
    got = copied(x)
    assert type(got) is cupy.ndarray and got.dtype == x.dtype
    np.testing.assert_array_equal(got.get(), x.get())


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_comes_back_as_torch(torch, dtype):
    x = torch.arange(120, device="cuda").reshape(SHAPE).to(getattr(torch, dtype))
    got = copied(x)
    assert type(got) is torch.Tensor and got.dtype == x.dtype and got.device == x.device
    assert torch.equal(got, x)
    strided = x.transpose(0, 2)[::2]
    assert torch.equal(copied(strided), strided)


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_comes_back_as_jax(jax, dtype):
    x = jax.numpy.arange(120).reshape(SHAPE).astype(dtype)
    got = copied(x)
    assert isinstance(got, jax.Array) and got.dtype == x.dtype
    assert (got == x).all()
    with pytest.raises(ValueError, match="JAX arrays always are"):
        copied(x, out=x + 1)


def test_jax_under_jit_and_on_the_cpu_is_refused(jax):
    with pytest.raises(TypeError, match="traced by JAX"):
        jax.jit(copied)(jax.numpy.zeros(3))
    try:
        cpu = jax.devices("cpu")[0]
    except RuntimeError:
        pytest.skip("JAX has no CPU backend here")
    with pytest.raises(TypeError, match="not on a CUDA GPU"):
        copied(jax.device_put(np.zeros(3, "float32"), cpu))


def test_numba_arrays_are_read_in_place(cupy):
    cuda = pytest.importorskip("numba.cuda", reason="Numba is not installed")
    x = cuda.to_device(sample())
    got = adopt(x, "op", "x")
    assert got.kind == "cai" and got.ptr == x.__cuda_array_interface__["data"][0] and got.device == 0
    np.testing.assert_array_equal(copied(x).get(), sample())


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_protocols_come_back_as_cupy(cupy, dtype):
    x = cupy.asarray(sample(dtype))
    wrapped = Exported(x)
    wrapped.dtype = x.dtype
    for foreign, kind in ((wrapped, "cai"), (OnlyDlpack(x), "dlpack")):
        assert adopt(foreign, "op", "x").kind == kind
        got = copied(foreign)
        assert type(got) is cupy.ndarray
        np.testing.assert_array_equal(got.get(), x.get())


def test_foreign_out_comes_back_itself(cupy):
    x = cupy.asarray(sample())
    out = Exported(cupy.zeros_like(x))
    assert copied(x, out=out) is out
    np.testing.assert_array_equal(out.array.get(), x.get())


def test_out_with_strided_rows_is_written_through_a_copy(cupy, torch):
    x = cupy.asarray(sample())
    home = cupy.zeros((3, 5, 16), "float32")
    assert copied(x, out=home[:, :, ::2]).base is home
    np.testing.assert_array_equal(home[:, :, ::2].get(), x.get())
    assert not home[:, :, 1::2].any()
    tensor, tensor_home = torch.as_tensor(x), torch.zeros(8, 5, 3, device="cuda")
    copied(tensor, out=tensor_home.permute(2, 1, 0))
    assert torch.equal(tensor_home.permute(2, 1, 0), tensor)


def test_empty_arrays_go_through(cupy, torch):
    assert copied(cupy.zeros((0, 3), "float32")).shape == (0, 3)
    assert copied(np.zeros((2, 0), "float32")).shape == (2, 0)
    assert copied(torch.zeros(0, 3, device="cuda")).shape == (0, 3)


# Streams


def test_current_stream_is_that_of_the_arrays_library(cupy, torch):
    ours, theirs = cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    with ours, torch.cuda.stream(theirs):
        assert current_stream("cupy", 0) == current_stream("jax", 0) == current_stream("numpy", 0) == ours.ptr
        assert current_stream("torch", 0) == theirs.cuda_stream
        assert current_stream("cupy", 0, theirs) == theirs.cuda_stream
        assert current_stream("torch", 0, ours) == ours.ptr
    assert current_stream("torch", 0) == current_stream("cupy", 0) == 0


def test_call_waits_for_the_stream_that_an_array_names(cupy):
    producer = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(1 << 20, "float32")
    cupy.cuda.Device().synchronize()
    busy(cupy, producer)
    with producer:
        x.fill(1)
    assert copied(Exported(x, stream=producer.ptr), stream=cupy.cuda.Stream(non_blocking=True)).all()


def test_call_on_numpy_waits_for_its_upload(cupy):
    current = cupy.cuda.Stream(non_blocking=True)
    busy(cupy, current)
    with current:
        x = sample("float32", (1 << 20,))
        np.testing.assert_array_equal(copied(x, stream=cupy.cuda.Stream(non_blocking=True)), x)


def test_call_waits_until_a_foreign_out_may_be_written(cupy):
    producer = cupy.cuda.Stream(non_blocking=True)
    x, out = cupy.ones(1 << 20, "float32"), cupy.zeros(1 << 20, "float32")
    cupy.cuda.Device().synchronize()
    busy(cupy, producer)
    with producer:
        out.fill(2)  # must not come after the result
    copied(x, out=Exported(out, stream=producer.ptr), stream=cupy.cuda.Stream(non_blocking=True))
    cupy.cuda.Device().synchronize()
    assert (out == 1).all()


def test_call_on_jax_waits_for_what_jax_has_queued(jax, cupy):
    x = jax.numpy.ones((4096, 4096))
    for _ in range(20):
        x = x @ x * (1 / 4096)
    assert bool((copied(x, stream=cupy.cuda.Stream(non_blocking=True)) == x).all())


def test_torch_beside_cupy_is_ordered_after_both(cupy, torch):
    producer = cupy.cuda.Stream(non_blocking=True)
    x, y, seen = torch.zeros(1 << 20, device="cuda"), cupy.zeros(1 << 20, "float32"), cupy.zeros(1 << 20, "float32")
    assert not seen.all()  # compiles CuPy's reduction, which would take longer than the producer
    cupy.cuda.Device().synchronize()
    busy(cupy, producer)
    with producer:
        y.fill(1)
        pair = [adopt(x, "op", "x"), adopt(y, "op", "y")]
        stream = stream_for("torch", pair)
    cupy.cuda.runtime.memcpyAsync(seen.data.ptr, y.data.ptr, y.nbytes, cupy.cuda.runtime.memcpyDeviceToDevice, stream)
    assert seen.all()


@pytest.mark.parametrize("pointer", ["new", 0])
def test_torch_result_belongs_to_the_stream_of_the_call(torch, pointer):
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream() if pointer == "new" else pointer
    with torch.cuda.stream(torch.cuda.Stream()):  # another than both
        got = copied(x, stream=stream)
    torch.cuda.synchronize()
    assert torch.equal(got, x)


def test_nothing_of_a_cupy_call_blocks_the_host(cupy):
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.ones(SHAPE, "float32")
    copied(x, stream=stream), copied(x[..., ::2], stream=stream)  # compiles CuPy's copies
    cupy.cuda.Device().synchronize()
    for _ in range(5):
        busy(cupy, stream)
    copied(x, stream=stream), copied(x[..., ::2], stream=stream)
    assert not stream.done


def test_borrowed_stream_leaves_things_as_they_were(cupy):
    stream = cupy.cuda.Stream(non_blocking=True)
    with on(0, stream.ptr):
        assert cupy.cuda.get_current_stream().ptr == stream.ptr
    assert cupy.cuda.get_current_stream().ptr == 0 and cupy.cuda.runtime.getDevice() == 0


def test_results_are_contiguous_and_of_the_asked_dtype(cupy, torch):
    assert "torch" in sys.modules
    for kind in ("cupy", "torch", "numpy", "cai"):
        got = allocate(kind, (2, 3), dtype_of("bf16"), 0, 0)
        assert got.strides == (3, 1) and got.dtype is dtype_of("bf16") and got.ptr % 16 == 0
