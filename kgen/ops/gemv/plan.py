"""Which kernel a matrix times a vector gets, by the matrix's strides."""

from __future__ import annotations

from kgen.device import multiprocessors
from kgen.errors import SpecError
from kgen.operand import INT_MAX
from kgen.ops.calls import Plan
from kgen.ops.gemv.column_plans import column_vec, cut_columns
from kgen.ops.gemv.flat import plan_flat
from kgen.ops.gemv.kernels import COLUMNS, COLUMNS_QUANTIZED, GEMV, GEMV_QUANTIZED
from kgen.ops.gemv.product import Product, carry_out, flags_of
from kgen.ops.gemv.row_plans import cut_rows, row_vec
from kgen.ops.gemv.span import plan_span
from kgen.ops.gemv.types import QUANTIZED, value_of
from kgen.registry import parse
from kgen.spec import Spec


def plan(product: Product, algorithm: str | None, op: str) -> Plan:
    """One launch, or two where sums are cut into parts that are added up after."""
    if max(product.rows, product.depth) > INT_MAX:
        raise ValueError(f"{op}: a has shape {product.a.shape}; it takes up to {INT_MAX} rows and columns")
    sms = multiprocessors(product.out.device)
    if algorithm is None:
        why = f"{product.rows} sums of {product.depth} products"
        narrow = plan_span(product, why) if product.along_rows else plan_flat(product, why)
        if narrow is not None:
            return narrow
    asked = _asked(product, algorithm, op) if algorithm else None
    made = cut_rows(product, sms, asked) if product.along_rows else cut_columns(product, sms, asked)
    return carry_out(product, *made)


def _asked(product: Product, algorithm: str, op: str) -> Spec:
    """The specialization of that name; SpecError where it does not take this problem."""
    rows, columns = (GEMV_QUANTIZED, COLUMNS_QUANTIZED) if product.a.dtype in QUANTIZED else (GEMV, COLUMNS)
    kernel = rows if product.along_rows else columns
    try:
        spec = parse(algorithm)
    except SpecError as error:
        raise SpecError(f"{op}: algorithm {algorithm!r}: {error}") from None
    if spec.kernel is not kernel:
        raise SpecError(f"{op}: this matrix's memory order takes {kernel.name}, not {spec.kernel.name}")
    if spec.dtype is not product.a.dtype or value_of(spec) is not product.x.dtype:
        raise SpecError(f"{op}: {spec.name} is for other dtypes than {product.a.dtype} and {product.x.dtype}")
    if any((name in spec.flags) != wanted for name, wanted in flags_of(product).items()) or spec["partial"]:
        raise SpecError(f"{op}: {spec.name} takes other scales than these, or computes parts only")
    vec, ragged = row_vec(product) if product.along_rows else column_vec(product)
    if spec["VEC"] > vec or (ragged and spec["VEC"] > 1 and not spec["ragged"]):
        raise SpecError(f"{op}: {spec.name} loads {spec['VEC']} elements at once, and this layout allows {vec}")
    return spec
