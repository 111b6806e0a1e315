"""A launch as C sees it: its description, its arguments packed as CUDA packs them, and room for messages."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from kgen.cpu.translate.program import Program

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


def number_of_order(order: str) -> int:
    """What C knows an order by; ValueError for one that there is not."""
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; it is one of {', '.join(ORDERS)}")
    return ORDERS.index(order)


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
    for number, (value, (at, size, kind)) in enumerate(zip(args, program.params), 1):
        data = _bytes(value, size, kind)
        if data is None or len(data) != size:
            given = (
                f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{value!r}, {type(value).__name__}"
            )
            raise TypeError(f"{program.name}: argument {number} is {given}; it takes {size} bytes, {kind}")
        frame[at : at + size] = data
    return (ctypes.c_char * len(frame)).from_buffer(frame)


def _bytes(value: Any, size: int, kind: str) -> bytes | None:
    """What a kernel reads; None for what is no such number."""
    if isinstance(value, np.ndarray):
        return struct.pack("=Q", value.ctypes.data)
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, bytes):
        return value
    try:
        if kind in ("f32", "f64"):
            return struct.pack("=d" if size == 8 else "=f", float(value))
        number = operator.index(value)
        return number.to_bytes(size, "little", signed=number < 0)
    except (TypeError, ValueError, OverflowError):
        return None
