"""The forms of mma.sync: shapes, types, and how many registers each operand takes."""

from __future__ import annotations

import itertools


def _mma(shape: str, types: str, out: str, a: tuple[str, int], b: tuple[str, int], c: int, more: str = "") -> str:
    """A line for mma.sync: how many registers of which type each of a, b, and c with d takes."""
    sizes = (c, a[1], b[1], c)
    starts = [sum(sizes[:i]) for i in range(4)]
    lists = [", ".join(f"${i}" for i in range(start, start + size)) for start, size in zip(starts, sizes)]
    vectors = ", ".join(f"{{{each}}}" for each in lists)
    given = [f"mma:{a[0]}"] * a[1] + [f"mma:{b[0]}"] * b[1] + [f"mma:{out}"] * c
    columns = (
        f"mma.sync.aligned.{shape}.row.col.{more}{types} {vectors}",
        " ".join([out] * c),
        " ".join(given),
        "warp",
    )
    return " | ".join(columns)


def products() -> str:
    """The table of every type and shape."""
    lines = []
    for half in ("f16", "bf16"):
        for k, n in ((8, 2), (16, 4)):
            a, b = (f"{half}x2", n), (f"{half}x2", n // 2)
            lines.append(_mma(f"m16n8k{k}", f"f32.{half}.{half}.f32", "f32", a, b, 4))
            if half == "f16":
                lines.append(_mma(f"m16n8k{k}", "f16.f16.f16.f16", "f16x2", a, b, 2))
    for k, n in ((4, 2), (8, 4)):
        lines.append(_mma(f"m16n8k{k}", "f32.tf32.tf32.f32", "f32", ("tf32", n), ("tf32", n // 2), 4))
    for left, right, more in itertools.product(("s8", "u8"), ("s8", "u8"), ("", "satfinite.")):
        for shape, of_a, of_b, of_c in (("m8n8k16", 1, 1, 2), ("m16n8k16", 2, 1, 4), ("m16n8k32", 4, 2, 4)):
            lines.append(_mma(shape, f"s32.{left}.{right}.s32", "s32", ("s8x4", of_a), ("s8x4", of_b), of_c, more))
    doubles = (("m8n8k4", 1, 1, 2), ("m16n8k4", 2, 1, 4), ("m16n8k8", 4, 2, 4), ("m16n8k16", 8, 4, 4))
    for shape, of_a, of_b, of_c in doubles:
        lines.append(_mma(shape, "f64.f64.f64.f64", "f64", ("f64", of_a), ("f64", of_b), of_c))
    for left, right in itertools.product(("e4m3", "e5m2"), repeat=2):
        for k, n in ((16, 2), (32, 4)):
            a, b = (f"{left}x4", n), (f"{right}x4", n // 2)
            lines.append(_mma(f"m16n8k{k}", f"f32.{left}.{right}.f32", "f32", a, b, 4))
            lines.append(_mma(f"m16n8k{k}", f"f16.{left}.{right}.f16", "f16x2", a, b, 2))
    return "\n".join(lines)
