"""Built -> callable: loads a cubin onto a device once, and launches it with as little Python as can be.

A loaded kernel stays loaded for the life of the process: a CUDA graph or another thread may hold it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from kgen import driver
from kgen.arch import HOPPER, Arch
from kgen.backend import HOST
from kgen.build import build
from kgen.config import config
from kgen.device import current_device, device_arch
from kgen.errors import CaptureError, DeviceError
from kgen.render import Source
from kgen.scratch import idle, listing
from kgen.spec import Spec, check_spec
from kgen.step import Frame, Parts, arguments, consists
from kgen.step import Run as Run
from kgen.step import Step as Step
from kgen.step import picked as picked
from kgen.step import shifted as shifted
from kgen.streams import gpu

_MAX_DYNAMIC_SMEM = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_LIMIT = 48 * 1024  # bytes of shared memory that a launch gets without asking
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_CLUSTER_LIMIT = 8  # blocks of a cluster that a launch gets without asking


class Launcher:
    """One specialization on one device: called with a number of blocks and the kernel's arguments, it launches.

    CuPy arrays pass as pointers, NumPy scalars with the width of their type. A hot path calls what `bind` makes of it.
    """

    __slots__ = ("function", "module", "overlaps", "smem", "spec")

    def __init__(self, spec: Spec, cubin: bytes, *, overlaps: bool = False) -> None:
        from cupy.cuda import driver as cupys
        from cupy.cuda.function import Module

        self.spec = spec
        self.module = Module()
        # From the bytes that were verified, not from the file: nobody can change them in between.
        self.module.load(cubin)
        self.function = self.module.get_function(spec.symbol)
        self.overlaps = overlaps
        self.smem = spec.dynamic_smem
        if self.smem + spec.static_smem > _STATIC_LIMIT:
            cupys.funcSetAttribute(self.function.ptr, _MAX_DYNAMIC_SMEM, self.smem)
        if spec.derived.get("CLUSTER", 1) > _CLUSTER_LIMIT:
            cupys.funcSetAttribute(self.function.ptr, _LARGE_CLUSTERS, 1)

    def __call__(self, blocks: int, *args: Any, stream: Any = None) -> None:
        """Launch asynchronously on a CuPy stream; None: the current one."""
        self.function((blocks, 1, 1), (self.spec.threads, 1, 1), args, self.smem, stream)

    def bind(self, step: Step) -> Run:
        """Fix all but the pointers and the stream of a launch; this device must be current where it is called.

        The arguments lie packed from the start and only pointers are written anew, which costs a third of what passing
        twenty Python objects does. A launch lets other threads run, so each borrows a frame of its own.
        """
        overlaps = self.overlaps and not step.cooperative
        frames: list[Frame] = []

        def make() -> Frame:
            configuration = driver.configuration(
                step.blocks, self.spec.threads, self.smem, cooperative=step.cooperative, overlaps=overlaps
            )
            slots, addresses = arguments(step)
            return slots, *driver.launch(configuration, self.function.ptr, addresses)

        def run(pointers: Sequence[int], stream: int) -> None:
            try:
                frame = frames.pop()
            except IndexError:
                frame = make()
            slots, queue, start = frame
            slots[:] = pointers
            queue.value = stream
            result = start()
            if result == _NO_CONTEXT:
                _make_context()
                result = start()
            frames.append(frame)
            if result:
                raise _refused(result)

        return consists(run, Parts(frames, make, range(step.pointers)))


def _make_context() -> None:
    """For a thread that never used CUDA: it has no context, and does not get one from the driver, only so."""
    runtime = gpu().cuda.runtime
    runtime.setDevice(runtime.getDevice())


def _refused(result: int) -> Exception:
    """CuPy's exception for what the driver says of a launch."""
    error: Exception = gpu().cuda.driver.CUDADriverError(result)
    return error


_launchers: dict[tuple[Spec, int], Launcher] = {}
_loading = threading.Lock()


def load(spec: Spec, device: int | None = None) -> Launcher:
    """The launcher of a specialization on a device (by default the current one); the first call compiles and loads it.

    Raises CaptureError if that first call is made during a CUDA graph capture, DeviceError if there is no GPU or the
    driver refuses the cubin, and what `kgen.build` raises.
    """
    import cupy

    check_spec("load", spec)
    if device is None:
        device = current_device()
    found = _launchers.get((spec, device))
    if found is not None:
        return found
    _refuse_capture(spec)
    # The build runs outside the lock, so that several threads compile different kernels side by side.
    arch = device_arch(device)
    built = build(spec, arch)
    with _loading, cupy.cuda.Device(device):
        if (spec, device) not in _launchers:
            try:
                _launchers[spec, device] = Launcher(spec, built.cubin, overlaps=_overlaps(built.source, arch))
            except cupy.cuda.driver.CUDADriverError as error:
                raise DeviceError(
                    f"device {device} refuses {spec.name} for {arch}: {error}",
                    hint=f"built by {built.compiler}; a driver older than that compiler cannot load its cubins: "
                    "update the driver, or install an older nvidia-cuda-nvrtc",
                ) from error
        return _launchers[spec, device]


def _overlaps(source: Source, arch: Arch) -> bool:
    """Whether a kernel may be launched before the one ahead of it has ended."""
    return source.waits and arch >= HOPPER and driver.captures_overlaps() and config().overlap


def _load_side_by_side(specs: Sequence[Spec], soon: Sequence[Spec], device: int) -> None:
    """Load each in a thread of its own; raises what the first of `specs` that failed raised.

    What is wanted `soon` may fail: it is loaded again, and heard, when it is wanted. Without concurrent.futures, whose
    import takes longer than a kernel from the cache.
    """
    failures: list[BaseException] = []

    def attempt(spec: Spec) -> None:
        try:
            load(spec, device)
        except BaseException as error:
            if spec in specs:
                failures.append(error)

    threads = [threading.Thread(target=attempt, args=(spec,)) for spec in dict.fromkeys((*specs, *soon))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _refuse_capture(spec: Spec) -> None:
    import cupy

    if cupy.cuda.get_current_stream().is_capturing():
        raise CaptureError(
            f"{spec.name} is not loaded yet, and a CUDA graph is being captured",
            hint="call the operator once on arrays of the same kind before the capture",
        )


_listed: ContextVar[list[Step] | None] = ContextVar("kgen_launch_listed", default=None)


@contextmanager
def listing_steps() -> Iterator[list[Step]]:
    """Inside the block kernels that are bound stand idle, and are listed with what they would be launched on."""
    steps: list[Step] = []
    token = _listed.set(steps)
    try:
        with listing():
            yield steps
    finally:
        _listed.reset(token)


_soon: ContextVar[Callable[[], object] | None] = ContextVar("kgen_launch_soon", default=None)


@contextmanager
def loading_for(later: Callable[[], object]) -> Iterator[None]:
    """Inside the block, a call that has kernels to load also loads those of a `later` one, side by side.

    The later call is made then, once, with all kernels idle, so that they are heard of; whatever it raises is left to
    the true one.
    """
    token = _soon.set(later)
    try:
        yield
    finally:
        _soon.reset(token)


def _steps_of(later: Callable[[], object] | None) -> list[Step]:
    if later is None:
        return []
    _soon.set(None)
    with listing_steps() as steps, suppress(Exception):
        later()
    return steps


def bind(steps: Sequence[Step], device: int) -> list[Run]:
    """Load the kernels of several launches side by side, and fix all but the pointers of each."""
    if idle():
        if (listed := _listed.get()) is not None:
            listed.extend(steps)
        return [lambda pointers, stream: None for _ in steps]
    if device == HOST:
        from kgen import cpu

        return [cpu.bind(step) for step in steps]
    missing = list(dict.fromkeys(step.spec for step in steps if (step.spec, device) not in _launchers))
    if missing:
        _refuse_capture(missing[0])  # here, since the threads have streams of their own
        soon = [step.spec for step in _steps_of(_soon.get())]
        if len(missing) + len(soon) > 1:
            _load_side_by_side(missing, soon, device)
    return [load(step.spec, device).bind(step) for step in steps]
