"""What the templates of reductions need beside numbers: the types, and the code that depends on operation and type."""

from __future__ import annotations

from typing import Any

from kgen.dtypes import BF16, BOOL, F16, F32, F64, FLOATS, I8, I16, I32, I64, U32, U64, UNSIGNED, DType

FLOATING = (F64, *FLOATS)
NARROWING = {
    (F16, F32): "__float2half_rn",
    (F16, F64): "__double2half",
    (BF16, F32): "__float2bfloat16_rn",
    (BF16, F64): "__double2bfloat16",
}
"""The function that rounds, by the type that it gives and the one that it takes."""
SIGNED = {64: I64, 32: I32, 16: I16, 8: I8}

GREATEST = {
    F32: "__int_as_float(0x7f800000)",
    F64: "__longlong_as_double(0x7ff0000000000000)",
    I32: "2147483647",
    I64: "9223372036854775807LL",
    U32: "0xffffffff",
    U64: "0xffffffffffffffff",
}
LEAST = {
    F32: "__int_as_float(0xff800000)",
    F64: "__longlong_as_double(0xfff0000000000000)",
    I32: "-2147483647 - 1",
    I64: "-9223372036854775807LL - 1",
    U32: "0",
    U64: "0",
}
"""The bounds of the types in which extremes are found."""


def result_of_bits(dtype: DType, bits: int, *, fractional: bool, brain: bool) -> DType:
    """The type of a sum or product with so many bits, as the name of a kernel says it."""
    if dtype in FLOATING or fractional:
        return {64: F64, 32: F32, 16: BF16 if brain else F16}[bits]
    return SIGNED[bits]


def carried_as_double(op: str, dtype: DType, bits: int) -> bool:
    """Whether what the tiles of a sum add up to is carried on as a double: where a float32 comes of it.

    `bits` are those of the result.
    """
    return op == "sum" and dtype in FLOATS and bits == 32


def rounded_once(op: str, dtype: DType, result: DType) -> bool:
    """Whether nothing is rounded but the result: sums of float32 that are float32."""
    return op == "sum" and dtype is result is F32


def text_of_sum(op: str, dtype: DType, result: DType) -> dict[str, Any]:
    """For a "sum" or "prod" of elements of `dtype`.

    Integers are added to 64 bits even where their sum becomes a fraction, unless these 64 bits may not do.
    """
    real = F64 if F64 in (dtype, result) else F32
    accumulator = real if dtype in FLOATING else I64
    if dtype not in FLOATING and result in FLOATING and (op == "prod" or dtype.itemsize == 8):
        accumulator = F64
    real = F64 if F64 in (accumulator, result) else F32
    carried = carried_as_double(op, dtype, 8 * result.itemsize)
    exact = rounded_once(op, dtype, result)
    return {
        **_types(dtype, accumulator, result),
        "sign": "*" if op == "prod" else "+",
        "identity": "1" if op == "prod" else "0",
        "integral": accumulator is I64,
        "fraction": result in FLOATING,  # and divided
        "real": real.c,
        "narrow": NARROWING.get((result, accumulator), "static_cast<Result>"),
        "extreme": False,
        "ARG": False,
        "carried": carried,
        "exact": exact,
        "divisor": "factor" if exact else "divisor",
        "combiner": "Add" if carried else "Combine",
        "small_sums": op == "sum" and accumulator is I64 and dtype.itemsize <= 2,
        "pairs": None,
        "packed": None,
        "packed_halves": None,
    }


def text_of_extreme(op: str, dtype: DType) -> dict[str, Any]:
    """For the greatest or least element, or, with "arg" before it, where that stands."""
    greatest, arg = op.endswith("max"), op.startswith("arg")
    accumulator = F32 if dtype in FLOATS else I32 if dtype.itemsize < 4 else dtype
    unsigned = dtype in (BOOL, *UNSIGNED)
    least = LEAST[U32 if unsigned else accumulator]
    return {
        **_types(dtype, accumulator, I64 if arg else dtype),
        "extreme": True,
        "integral": False,
        "ARG": arg,
        "exact": False,
        "combiner": "Extreme" if arg else "Combine",
        "sign": ">" if greatest else "<",
        "opposite": "<=" if greatest else ">=",
        "identity": least if greatest else GREATEST[accumulator],
        "narrow": NARROWING.get((dtype, accumulator), "static_cast<Result>"),
        "small_sums": False,
        "pairs": {F16: "__half2", BF16: "__nv_bfloat162"}.get(dtype),
        "floats": dtype in FLOATS,
        "twice": {F16: "__float2half2_rn", BF16: "__float2bfloat162_rn"}.get(dtype),
        **_of_words(dtype, greatest=greatest),
        "extreme_of_pairs": "__hmax2_nan" if greatest else "__hmin2_nan",
        "beyond_mask": "__hgtu2_mask" if greatest else "__hltu2_mask",
    }


def _of_words(dtype: DType, *, greatest: bool) -> dict[str, str | None]:
    """The functions that find the extremes of, and compare, as many small integers at once as a word has.

    `packed_halves` takes the bytes two at a time, for less than the four at once.
    """
    if dtype in FLOATING or dtype.itemsize > 2:
        return dict.fromkeys(("packed", "packed_halves", "packed_equal", "packed_identity"))
    unsigned, count, bits = dtype in (BOOL, *UNSIGNED), 4 // dtype.itemsize, 8 * dtype.itemsize
    lowest, highest = (0, (1 << bits) - 1) if unsigned else (1 << (bits - 1), (1 << (bits - 1)) - 1)
    identity = lowest if greatest else 1 if dtype is BOOL else highest
    return {
        "packed": f"__v{'max' if greatest else 'min'}{'u' if unsigned else 's'}{count}",
        "packed_halves": f"__v{'max' if greatest else 'min'}{'u' if unsigned else 's'}2" if bits == 8 else None,
        "packed_equal": f"__vcmpeq{count}",
        "packed_identity": "0x" + count * f"{identity:0{bits // 4}x}",
    }


def _types(dtype: DType, accumulator: DType, result: DType) -> dict[str, Any]:
    return {
        "accumulator": accumulator.c,
        "result": result.c,
        "half": F16 in (dtype, result),
        "bfloat16": BF16 in (dtype, result),
        "floating": dtype in FLOATING,
        "widen": {F16: "__half2float(x)", BF16: "__bfloat162float(x)"}.get(dtype, "static_cast<Accumulator>(x)"),
    }
