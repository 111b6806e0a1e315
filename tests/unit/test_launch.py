"""What loading and launching say where they cannot: with no GPU, and with a driver that refuses."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import types

import numpy as np
import pytest

import kgen
from kgen import driver
from kgen.arch import Arch
from kgen.device import device_arch
from kgen.errors import ArchError, DeviceError
from kgen.render import render
from kgen.step import Step, parts

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

    def refuse(spec, cubin, *, overlaps):
        raise Refusal

    monkeypatch.setattr(driver, "captures_overlaps", lambda: True)
    monkeypatch.setattr(launch, "Launcher", refuse)
    monkeypatch.setattr(launch, "_refuse_capture", lambda spec: None)
    monkeypatch.setattr(launch, "device_arch", lambda device: Arch.parse("sm_90a"))
    monkeypatch.setattr(cupy.cuda, "Device", lambda device: contextlib.nullcontext())
    with pytest.raises(DeviceError, match="device 7 refuses lmha_e64_t1_s1_f32 for sm_90a") as caught:
        kgen.load(kgen.parse("lmha_e64_t1_s1_f32"), 7)
    assert "update the driver" in str(caught.value)


def stand_ins(monkeypatch, failing=()):
    """Launching without a GPU; returns which kernels are loaded, in the order in which that began."""
    loaded = []

    def load(spec, device):
        if spec in failing:
            raise RuntimeError(spec.name)
        if (spec, device) not in launch._launchers:
            loaded.append(spec)
            launch._launchers[spec, device] = types.SimpleNamespace(bind=lambda step: step.spec)
        return launch._launchers[spec, device]

    monkeypatch.setattr(launch, "load", load)
    monkeypatch.setattr(launch, "_launchers", {})
    monkeypatch.setattr(launch, "_refuse_capture", lambda spec: None)
    return loaded


FIRST, SECOND, THIRD = (
    Step(kgen.parse(name), 1, 0) for name in ("lmha_e64_t1_s1_f32", "lmha_e64_t2_s1_f32", "lmha_e64_t4_s1_f32")
)


def test_a_call_with_kernels_to_load_loads_those_of_a_later_one_too(monkeypatch):
    loaded = stand_ins(monkeypatch)
    asked = []

    def later():
        asked.append(launch.bind([SECOND], 0))
        launch.bind([THIRD, FIRST], 0)
        raise ValueError("left to the true call")

    with launch.loading_for(later):
        assert launch.bind([FIRST], 0) == [FIRST.spec]
        assert launch.bind([THIRD], 0) == [THIRD.spec]
    assert len(asked) == 1
    assert set(loaded) == {FIRST.spec, SECOND.spec, THIRD.spec}
    assert len(loaded) == 3
    with launch.loading_for(later):
        launch.bind([SECOND, FIRST], 0)
    assert len(asked) == 1, "nothing was to be loaded"


def test_a_later_call_that_cannot_be_loaded_is_left_to_itself(monkeypatch):
    loaded = stand_ins(monkeypatch, failing=[SECOND.spec])
    with launch.loading_for(lambda: launch.bind([SECOND], 0)):
        assert launch.bind([FIRST], 0) == [FIRST.spec]
    assert loaded == [FIRST.spec]
    with launch.loading_for(lambda: launch.bind([FIRST], 0)), pytest.raises(RuntimeError, match="lmha_e64_t2"):
        launch.bind([SECOND, THIRD], 0)


def test_a_device_older_than_the_compiler_knows_is_refused(monkeypatch):
    class Old:
        compute_capability = "61"

    monkeypatch.setattr(cupy.cuda, "Device", lambda device: Old)
    with pytest.raises(ArchError, match=r"compute capability 61; 7\.5"):
        device_arch(9876)


def launcher_of(monkeypatch, spec, start):
    """Of a kernel that is launched by `start`, which gets what a function in C gets."""
    launcher = object.__new__(launch.Launcher)
    launcher.spec, launcher.smem, launcher.overlaps = spec, spec.dynamic_smem, True
    launcher.function = types.SimpleNamespace(ptr=1 << 40 | 42)
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(start)
    monkeypatch.setattr(driver, "library", lambda: types.SimpleNamespace(cuLaunchKernelEx=function))
    return launcher


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("ints", [(), (1,), (1, -2, 3)])
@pytest.mark.parametrize("floats", [(), (0.5, -1.25)])
@pytest.mark.parametrize("longs", [(), (-4, 5 << 40)])
@pytest.mark.parametrize("doubles", [(), (1e300,)])
def test_arguments_are_packed_as_the_driver_reads_them(monkeypatch, cooperative, ints, floats, longs, doubles):
    seen = []
    types = [ctypes.c_uint64] * 2
    for values, kind in ((ints, "int32"), (floats, "float"), (longs, "int64"), (doubles, "double")):
        types += [getattr(ctypes, f"c_{kind}")] * len(values)

    def fake(at, function, places, extra):
        asked = driver.Configuration.from_address(at)
        addresses = (ctypes.c_void_p * len(types)).from_address(places)
        read = [kind.from_address(address).value for kind, address in zip(types, addresses, strict=True)]
        aligned = not any(address % ctypes.sizeof(kind) for kind, address in zip(types, addresses))
        attributes = [(of.id, of.value[0]) for of in asked.attributes[: asked.number_of_attributes]]
        seen.append((function, extra, *asked.grid, *asked.block, asked.smem, asked.stream, attributes, read, aligned))
        return 0

    spec = kgen.parse("lmha_chunk_e64_m64_f32")
    launcher = launcher_of(monkeypatch, spec, fake)
    bound = launcher.bind(Step(spec, 9, 2, ints, longs, floats, doubles, cooperative))
    for shift in (0, 1):  # the second call reuses the first one's buffer
        bound((10 + shift, 2**63 + shift), 5 + shift)
    sizes = 1 << 40 | 42, None, 9, 1, 1, spec.threads, 1, 1, spec.dynamic_smem
    attributes = (
        [(2, 1)] if cooperative else [(6, 1)]
    )  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE, _PROGRAMMATIC_STREAM_SERIALIZATION
    assert seen == [
        (*sizes, stream, attributes, [*pointers, *ints, *floats, *longs, *doubles], True)
        for pointers, stream in (((10, 2**63), 5), ((11, 2**63 + 1), 6))
    ]


def test_a_thread_without_a_context_gets_one_and_launches(monkeypatch):
    current: list[int] = []
    launched = []

    def fake(*arguments):
        if not current:
            return 201  # CUDA_ERROR_INVALID_CONTEXT
        launched.append(arguments)
        return 0

    runtime = types.SimpleNamespace(getDevice=lambda: 3, setDevice=current.append)
    monkeypatch.setattr(launch, "gpu", lambda: types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)))
    spec = kgen.parse("lmha_chunk_e64_m64_f32")
    bound = launcher_of(monkeypatch, spec, fake).bind(Step(spec, 1, 1))
    for _ in range(2):
        bound((5,), 0)
    assert current == [3]
    assert len(launched) == 2


def test_what_the_driver_refuses_is_raised_and_the_next_launch_is_made(monkeypatch):
    class Refusal(Exception):
        pass

    results = [719, 0]
    cuda = types.SimpleNamespace(driver=types.SimpleNamespace(CUDADriverError=Refusal))
    monkeypatch.setattr(launch, "gpu", lambda: types.SimpleNamespace(cuda=cuda))
    spec = kgen.parse("lmha_chunk_e64_m64_f32")
    bound = launcher_of(monkeypatch, spec, lambda *arguments: results.pop(0)).bind(Step(spec, 1, 1))
    with pytest.raises(Refusal, match="719"):
        bound((5,), 0)
    bound((5,), 0)
    assert results == []


@pytest.mark.parametrize(
    ("arch", "version", "overlap", "expected"),
    [
        ("sm_90a", 13000, "on", True),
        ("sm_100a", 12030, "on", True),
        ("sm_90a", 12020, "on", False),  # such a driver cannot capture it
        ("sm_89", 13000, "on", False),
        ("sm_90a", 13000, "off", False),
    ],
)
def test_a_kernel_overlaps_where_device_driver_and_user_let_it(monkeypatch, arch, version, overlap, expected):
    monkeypatch.setenv("KGEN_OVERLAP", overlap)
    monkeypatch.setattr(driver, "captures_overlaps", lambda: version >= driver.IN_GRAPHS)
    assert launch._overlaps(render(kgen.parse("softmax_t128_n4_v8_bf16")), Arch.parse(arch)) is expected


def test_a_kernel_that_does_not_wait_is_not_launched_early(monkeypatch, make_kernel):
    monkeypatch.setattr(driver, "captures_overlaps", lambda: True)
    assert not launch._overlaps(render(make_kernel().spec(N=64, dtype="f16")), Arch.parse("sm_90a"))


def test_launches_lie_in_memory_as_the_driver_reads_them():
    assert ctypes.sizeof(driver.configuration(1, 32, 0)) == 56
    made = driver.configuration(5, 64, 7, cooperative=True, overlaps=True)
    assert bytes(made)[:28] == b"".join(n.to_bytes(4, "little") for n in (5, 1, 1, 64, 1, 1, 7))
    assert type(made).stream.offset == 32
    assert bytes(made)[48:52] == (2).to_bytes(4, "little")
    at = int.from_bytes(bytes(made)[40:48], "little")
    read = [ctypes.string_at(at + 72 * i, 72) for i in range(2)]
    assert read == [bytes([of, *[0] * 7, 1, *[0] * 63]) for of in (2, 6)]


@pytest.mark.parametrize(("places", "nulls"), [([1], 0), ([2], 2), ([0, 2], 0), ([3, 0, 1], 1)])
@pytest.mark.parametrize("kind", [list, tuple])
def test_a_kernel_that_takes_some_of_the_pointers_gets_them_in_its_order(places, nulls, kind):
    seen = []
    run = launch.picked(lambda pointers, stream: seen.append((list(pointers), stream)), places, nulls)
    run(kind([10, 11, 12, 13]), 5)
    assert seen == [([10 + place for place in places] + [0] * nulls, 5)]
    assert parts(run) is None


def test_what_is_picked_twice_is_known_by_where_it_comes_from_at_first(monkeypatch):
    spec = kgen.parse("lmha_chunk_e64_m64_f32")
    bound = launcher_of(monkeypatch, spec, lambda *arguments: 0).bind(Step(spec, 1, 3))
    assert tuple(parts(bound).places) == (0, 1, 2)
    once = launch.picked(bound, (3, 1), nulls=1)
    assert parts(once).places == [3, 1, None]
    assert parts(launch.picked(once, (0, 2, 1, -1))).places == [-1, 2, None]


def test_a_launch_may_take_its_pointers_moved_on_by_bytes():
    seen = []

    def run(pointers, stream):
        seen.append((list(pointers), stream))

    assert launch.shifted(run, (0, 0)) is run
    launch.shifted(run, (0, -24))((10, 100), 5)
    assert seen == [([10, 76], 5)]
