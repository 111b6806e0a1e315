"""Launches: arguments packed as CUDA packs them, blocks spread over this machine's threads, errors with their lines."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from kgen.arch import Arch
from kgen.cpu.library import ARCH, Library, library_of, library_of_text, runtime
from kgen.cpu.ptx import SIZES
from kgen.cpu.translate import Program
from kgen.errors import ExecutionError
from kgen.spec import Spec

ORDERS = ("forward", "reverse", "random")
"""Orders in which blocks and warps can run."""
PATIENCE = 20.0
"""Seconds without progress after which a launch counts as hung."""
_MESSAGE = 1 << 16


class LaunchStruct(ctypes.Structure):
    """`kg::Launch` of runtime/launch.h."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("shared_end", ctypes.c_uint32),
        ("dynamic_shared", ctypes.c_uint32),
        ("stack", ctypes.c_uint64),
        ("threads", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("patience", ctypes.c_double),
        ("check", ctypes.c_void_p),
        ("message", ctypes.c_void_p),
        ("message_size", ctypes.c_uint32),
    )


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

        Raises ExecutionError for a kernel that traps or waits for ever.
        """
        program = self._program(name)
        frame = pack(program, args)
        launch = LaunchStruct(
            kernel=self.library.functions[program.name],
            args=ctypes.addressof(frame),
            grid=_three(grid),
            block=_three(block),
            cluster=_three(cluster or program.cluster),
            shared_end=program.shared,
            dynamic_shared=shared,
            stack=program.stack,
            threads=workers or cores(),
            order=ORDERS.index(order),
            seed=seed,
            patience=PATIENCE,
        )
        start(launch, self.library, program)

    def _program(self, name: str | None) -> Program:
        programs = self.library.programs
        if name is None and len(programs) == 1:
            return next(iter(programs.values()))
        if name not in programs:
            raise ValueError(f"there is no kernel {name!r}; there are {', '.join(programs)}")
        return programs[name]


def compile_cuda(text: str, *, arch: str = "sm_90a", check: bool = False) -> Kernel:
    """The kernels of CUDA source text."""
    return Kernel(library_of_text(text, Arch.parse(arch), check=check))


def compile_ptx(text: str, *, check: bool = False) -> Kernel:
    """The kernels of PTX text."""
    return Kernel(library_of_text(text, check=check))


def compile_spec(spec: Spec, *, arch: Arch = ARCH, check: bool = False) -> Kernel:
    """The kernel of one specialization."""
    return Kernel(library_of(spec, arch, check=check))


def bind(step: StepLike) -> Callable[[Sequence[int], int], None]:
    """Fix all but the pointers of a launch: `bound(pointers, stream)` runs it at once, on host memory.

    It is what kgen.launch.bind gives for a GPU, for the device HOST; the stream is ignored.
    """
    library = library_of(step.spec)
    program = library.programs[step.spec.symbol]
    pointers = struct.Struct(f"={step.pointers}Q")
    _, tail = step.packed()
    runtime()

    def launch(given: Sequence[int], stream: int) -> None:
        frame = ctypes.create_string_buffer(pointers.pack(*given) + tail)
        start(
            LaunchStruct(
                kernel=library.functions[program.name],
                args=ctypes.addressof(frame),
                grid=(step.blocks, 1, 1),
                block=(step.spec.threads, 1, 1),
                cluster=program.cluster,
                shared_end=program.shared,
                dynamic_shared=step.spec.dynamic_smem,
                stack=program.stack,
                threads=cores(),
                patience=PATIENCE,
            ),
            library,
            program,
        )

    return launch


def start(launch: LaunchStruct, library: Library, program: Program) -> None:
    """Run a launch; other threads of Python go on meanwhile. Raises ExecutionError with what the runtime says."""
    message = ctypes.create_string_buffer(_MESSAGE)
    launch.message, launch.message_size = ctypes.addressof(message), _MESSAGE
    if 0 in (*launch.grid, *launch.block):
        raise ValueError(f"{program.name}: a launch of no blocks or threads: {[*launch.grid]} x {[*launch.block]}")
    if any(g % c for g, c in zip(launch.grid, launch.cluster)):
        raise ValueError(f"{program.name}: the grid {[*launch.grid]} is no multiple of the cluster {[*launch.cluster]}")
    if runtime().kg_launch(ctypes.byref(launch)):
        raise ExecutionError(explained(message.value.decode(), library, program))


def explained(message: str, library: Library, program: Program) -> str:
    """What the runtime wrote, `kind site block warp text`, with lines of the source in place of sites."""
    from kgen.cpu.report import explain

    return explain(message, library, program)


def pack(program: Program, args: Sequence[Any]) -> Any:
    """The buffer of arguments that a kernel reads."""
    if len(args) != len(program.params):
        raise TypeError(f"{program.name} takes {len(program.params)} arguments, not {len(args)}")
    end = max((at + size for at, size, _ in program.params), default=8)
    frame = bytearray(end)
    for value, (at, size, kind) in zip(args, program.params):
        frame[at : at + size] = _bytes(value, size, kind, program.name)
    return (ctypes.c_char * len(frame)).from_buffer(frame)


def _bytes(value: Any, size: int, kind: str, name: str) -> bytes:
    if isinstance(value, np.ndarray):
        return struct.pack("=Q", value.ctypes.data)
    if isinstance(value, np.generic):
        data = value.tobytes()
    elif isinstance(value, bytes):
        data = value
    elif kind in ("f32", "f64") or isinstance(value, float):
        data = struct.pack("=d" if size == 8 else "=f", float(value))
    else:
        data = (int(value) & ((1 << 8 * SIZES[kind]) - 1)).to_bytes(size, "little")
    if len(data) != size:
        raise TypeError(f"{name}: an argument has {len(data)} bytes where the kernel takes {size}")
    return data


def cores() -> int:
    """How many threads of this machine we may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _three(extent: int | tuple[int, ...]) -> tuple[int, int, int]:
    given = (extent,) if isinstance(extent, int) else tuple(extent)
    x, y, z = (*given, 1, 1, 1)[:3]
    return int(x), int(y), int(z)
