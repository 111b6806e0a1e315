"""A launch as C sees it: its description, its arguments packed as CUDA packs them, and room for messages."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from kgen.cpu.translate.program import Program
from kgen.cpu.translate.ptx import SIZES

ORDERS = ("forward", "reverse", "random")
"""Orders in which blocks and warps can run."""
PATIENCE = 20.0
"""Seconds without progress after which a launch counts as hung."""
_MESSAGE = 1 << 16


class LaunchStruct(ctypes.Structure):
    """`kg::Launch` of runtime/launch.h."""

    _fields_ = (
        ("list", ctypes.c_void_p),
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


def message_buffer(launch: LaunchStruct) -> Any:
    """Room for what goes wrong in a launch."""
    message = ctypes.create_string_buffer(_MESSAGE)
    launch.message, launch.message_size = ctypes.addressof(message), _MESSAGE
    return message


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
