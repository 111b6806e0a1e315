"""What loading and launching say where they cannot: with no GPU, and with a driver that refuses."""

from __future__ import annotations

import contextlib
import importlib

import numpy as np
import pytest

import kgen
from kgen.arch import Arch
from kgen.errors import ArchError, DeviceError
from kgen.launch import Step

cupy = pytest.importorskip("cupy", reason="kernels are loaded through CuPy")
launch = importlib.import_module("kgen.launch")


@pytest.fixture
def no_gpu() -> None:
    if cupy.cuda.is_available():
        pytest.skip("there is a GPU here")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("operator", [kgen.causal_dot_product, lambda *x: kgen.linear_state(*x[:2])])
def test_an_operator_without_a_gpu_says_so_and_what_works_all_the_same(operator, monkeypatch):
    monkeypatch.setenv("KGEN_BACKEND", "gpu")
    x = np.ones((1, 1, 4, 8), "f")
    with pytest.raises(DeviceError, match="no NVIDIA GPU is usable here") as caught:
        operator(x, x, x)
    assert "CPU executor computes NumPy arrays" in str(caught.value)


def test_a_driver_that_refuses_a_cubin_is_named_with_what_to_do(monkeypatch):
    class Refusal(cupy.cuda.driver.CUDADriverError):
        def __init__(self) -> None:  # the real one asks the driver for its words
            RuntimeError.__init__(self, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION")

    def refuse(spec, cubin):
        raise Refusal

    monkeypatch.setattr(launch, "Launcher", refuse)
    monkeypatch.setattr(launch, "_refuse_capture", lambda spec: None)
    monkeypatch.setattr(launch, "device_arch", lambda device: Arch.parse("sm_90a"))
    monkeypatch.setattr(cupy.cuda, "Device", lambda device: contextlib.nullcontext())
    with pytest.raises(DeviceError, match="device 7 refuses lmha_e64_t1_s1_f32 for sm_90a") as caught:
        kgen.load(kgen.parse("lmha_e64_t1_s1_f32"), 7)
    assert "update the driver" in str(caught.value)


def test_a_device_older_than_the_compiler_knows_is_refused(monkeypatch):
    class Old:
        compute_capability = "61"

    monkeypatch.setattr(cupy.cuda, "Device", lambda device: Old)
    with pytest.raises(ArchError, match=r"compute capability 61; 7\.5"):
        launch.device_arch(9876)


def test_arguments_are_packed_as_the_driver_reads_them(monkeypatch):
    import ctypes

    seen = []

    def fake(function, x, y, z, threads, ty, tz, smem, stream, addresses, extra):
        slots = (ctypes.c_void_p * 7).from_address(addresses)
        pointers = [ctypes.c_uint64.from_address(slots[i]).value for i in range(2)]
        ints = [ctypes.c_int32.from_address(slots[i]).value for i in range(2, 5)]
        longs = [ctypes.c_int64.from_address(slots[i]).value for i in range(5, 7)]
        seen.append((function, x, threads, smem, stream, pointers, ints, longs, slots[5] % 8))
        return 0

    class Function:
        ptr = 42

    spec = kgen.parse("lmha_chunk_e64_m64_f32")
    launcher = object.__new__(launch.Launcher)
    launcher.spec, launcher.function, launcher.smem, launcher.module = spec, Function, spec.dynamic_smem, None
    monkeypatch.setattr(launch, "_cu_launch_kernel", lambda: fake)
    bound = launcher.bind(Step(spec, 9, 2, (1, -2, 3), (-4, 5 << 40)))
    for shift in (0, 1):  # the second call reuses the first one's buffer
        bound((10 + shift, 2**63 + shift), 5)
    assert seen == [
        (42, 9, spec.threads, spec.dynamic_smem, 5, [10 + shift, 2**63 + shift], [1, -2, 3], [-4, 5 << 40], 0)
        for shift in (0, 1)
    ]
