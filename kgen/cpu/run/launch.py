"""Launches: arguments packed as CUDA packs them, blocks spread over this machine's threads, errors with their lines."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from kgen.arch import Arch
from kgen.cpu.check import watch
from kgen.cpu.check.checked import Outcome, run_checked
from kgen.cpu.check.report import finding
from kgen.cpu.compiler import cores
from kgen.cpu.library import ARCH, Library, library_of, library_of_text, runtime
from kgen.cpu.run import limits
from kgen.cpu.run.buffers import Fresh, buffers_of
from kgen.cpu.run.frame import PATIENCE, LaunchStruct, message_buffer, number_of_order, pack
from kgen.cpu.translate.program import Program
from kgen.errors import ExecutionError
from kgen.notice import notice
from kgen.spec import Spec


class StepLike(Protocol):
    """What `bind` reads of a launch: kgen.launch.Step."""

    @property
    def spec(self) -> Spec: ...
    @property
    def blocks(self) -> int: ...
    @property
    def pointers(self) -> int: ...
    def packed(self) -> tuple[list[int], bytes]: ...


class Kernel:
    """The kernels of one source, ready to run on host memory."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def launch(
        self,
        name: str | None = None,
        *,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any] = (),
        shared: int = 0,
        cluster: tuple[int, ...] | None = None,
        workers: int | None = None,
        order: str = "forward",
        seed: int = 0,
    ) -> None:
        """Run one kernel to its end.

        name     which kernel; may be left out where there is one
        args     NumPy arrays, which pass as pointers and are changed in place, and scalars, converted to the parameter
        shared   dynamic shared memory, bytes
        workers  how many threads of this machine share the blocks; None: all that there are
        order    "forward", "reverse" or "random" (by `seed`) order of blocks and warps

        Inside `kgen.checking.watching()` the launch is a checked one, in the order that was asked for there.

        Raises ExecutionError for a kernel that traps or waits for ever, and ValueError for one that is to be watched
        and was not compiled for checks.
        """
        program = self.program(name)
        made = self.prepare(program, args, grid, block, shared=shared, cluster=cluster, order=order, seed=seed)
        launch, _frame = made
        launch.threads = workers or launch.threads
        watched = watch.current()
        if watched is None:
            start(launch, self.library, program)
            return
        self._require_checks()
        for array in args:
            if isinstance(array, np.ndarray):
                notice(array)
        watched.run(launch, self.library, program)

    def check(
        self,
        name: str | None = None,
        *,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        timeout: float = 60.0,
        **options: Any,
    ) -> Outcome:
        """As `launch`, under watch and in a process of its own; says what is wrong.

        args     arrays that are not writeable (`flags.writeable`) are inputs, and a write to one is an error
        outputs  those among them that nobody has written yet, and which the kernel must not read before it does
        timeout  seconds
        """
        self._require_checks()
        program = self.program(name)
        for out in outputs:
            out.view(np.uint8)[...] = 0xFF
        launch, _frame = self.prepare(program, args, grid, block, **options)
        buffers = buffers_of([x for x in args if isinstance(x, np.ndarray)], [Fresh(out) for out in outputs])
        return run_checked(launch, self.library, program, buffers, timeout=timeout)

    def _require_checks(self) -> None:
        if not self.library.checked:
            raise ValueError("this kernel was not compiled for checks: compile it with check=True")

    def prepare(
        self,
        program: Program,
        args: Sequence[Any],
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *,
        shared: int = 0,
        cluster: tuple[int, ...] | None = None,
        order: str = "forward",
        seed: int = 0,
    ) -> tuple[LaunchStruct, Any]:
        """A launch that has not begun, and its packed arguments, which must live as long."""
        frame = pack(program, args)
        launch = _described(self.library, program, frame, _three(grid), _three(block), shared, cluster)
        launch.order, launch.seed = number_of_order(order), seed
        return launch, frame

    def program(self, name: str | None) -> Program:
        programs = self.library.programs
        if name is None and len(programs) == 1:
            return next(iter(programs.values()))
        if name not in programs:
            raise ValueError(f"there is no kernel {name!r}; there are {', '.join(programs)}")
        return programs[name]


def compile_cuda(text: str, *, arch: str = "sm_90a", check: bool = False) -> Kernel:
    """The kernels of CUDA source text; for checks, too, with `check` or inside `kgen.checking.watching()`."""
    return Kernel(library_of_text(text, Arch.parse(arch), check=check or watch.current() is not None))


def compile_ptx(text: str, *, check: bool = False) -> Kernel:
    """The kernels of PTX text, compiled as by `compile_cuda`."""
    return Kernel(library_of_text(text, check=check or watch.current() is not None))


def compile_spec(spec: Spec, *, arch: Arch = ARCH, check: bool = False) -> Kernel:
    """The kernel of one specialization, compiled as by `compile_cuda`."""
    return Kernel(library_of(spec, arch, check=check or watch.current() is not None))


def bind(step: StepLike) -> Callable[[Sequence[int], int], None]:
    """Fix all but the pointers of a launch: `bound(pointers, stream)` runs it at once, on host memory.

    It is what kgen.launch.bind gives for a GPU, for the device HOST; the stream is ignored.
    """
    library_of(step.spec, check=watch.current() is not None)  # compiled now rather than at the first call
    pointers = struct.Struct(f"={step.pointers}Q")
    _, tail = step.packed()
    runtime()

    def launch(given: Sequence[int], stream: int) -> None:
        watched = watch.current()
        library = library_of(step.spec, check=watched is not None)
        program = library.programs[step.spec.symbol]
        frame = ctypes.create_string_buffer(pointers.pack(*given) + tail)
        grid, block = (step.blocks, 1, 1), (step.spec.threads, 1, 1)
        made = _described(library, program, frame, grid, block, step.spec.dynamic_smem)
        if watched:
            watched.run(made, library, program)
        else:
            start(made, library, program)

    return launch


def _described(
    library: Library,
    program: Program,
    frame: Any,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    shared: int,
    cluster: tuple[int, ...] | None = None,
) -> LaunchStruct:
    """The launch; ValueError for one that no GPU makes."""
    together = _three(cluster or program.cluster)
    limits.check(program, grid, block, together, shared)
    return LaunchStruct(
        list=ctypes.addressof(library.lists[program.name]),
        args=ctypes.addressof(frame),
        grid=grid,
        block=block,
        cluster=together,
        shared_end=program.shared,
        dynamic_shared=shared,
        stack=program.stack,
        threads=cores(),
        patience=PATIENCE,
    )


def start(launch: LaunchStruct, library: Library, program: Program) -> None:
    """Run a launch; other threads of Python go on meanwhile. Raises ExecutionError with what the runtime says."""
    message = message_buffer(launch)
    if runtime().kg_launch(ctypes.byref(launch)):
        raise ExecutionError(finding(message.value.decode(), library, program).text)


def _three(extent: int | tuple[int, ...]) -> tuple[int, int, int]:
    given = (extent,) if isinstance(extent, int) else tuple(extent)
    x, y, z = (*given, 1, 1, 1)[:3]
    return int(x), int(y), int(z)
