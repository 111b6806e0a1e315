"""Narrow rows that begin anywhere: products along and across them, and what columns come to, beside float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgen.backend import backend
from kgen.checking import watching
from kgen.dtypes import F16, F32, DType
from kgen.ops.gemv import flat as gemv_flat
from kgen.ops.gemv import span
from kgen.ops.gemv.gemv import gemv
from kgen.ops.questions import explain
from kgen.ops.reduce import flat, narrow, passes, reduce
from kgen.ops.softmax import logsumexp as logsumexp_kernel
from kgen.ops.softmax import logsumexp_narrow
from kgen.ops.softmax.softmax import logsumexp
from tests.ops.test_gemv import QUANTIZED, assert_product, draw, on, quantized

AsNumpy = Callable[[Any], np.ndarray]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows there are."""
    for module in (span, flat):
        monkeypatch.setattr(module, "LEAST", 0)
    monkeypatch.setattr(passes, "BUSY", 0)
    monkeypatch.setattr(gemv_flat, "PAYS", {n: dict.fromkeys(own, 0) for n, own in gemv_flat.PAYS.items()})


def among_others(x: np.ndarray, ahead: int) -> np.ndarray:
    """A copy of x that begins so many elements behind a multiple of a chunk; what lies around it is NaN."""
    around = np.full(x.size + ahead + 64, np.nan if x.dtype.kind != "i" else 77).astype(x.dtype)
    begin = -(around.ctypes.data // x.dtype.itemsize) % (16 // x.dtype.itemsize) + ahead
    own = around[begin : begin + x.size].reshape(x.shape)
    own[...] = x
    return own


def matrix(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> np.ndarray:
    given_type: np.ndarray = quantized(rng, shape, kind) if kind in QUANTIZED else draw(rng, shape, kind)
    return given_type


def assert_products_agree(kind: str, shape: tuple[int, int], ahead: int, x_type: str, trans: bool, kernel: str) -> None:
    rng = np.random.default_rng(shape)
    a = among_others(matrix(rng, shape, kind), ahead)
    x, y = draw(rng, shape[0 if trans else 1], x_type), draw(rng, shape[1 if trans else 0], x_type)
    scale = rng.random(shape[0]).astype("f") if kind in QUANTIZED else None
    assert kernel in explain(gemv, a, x, y, beta=2.0, trans=trans, scale=scale)
    with watching() as watch:
        got = gemv(a, x, y, beta=2.0, trans=trans, scale=scale)
        again = gemv(a, x, y, beta=2.0, trans=trans, scale=scale)
    assert watch.findings == []
    assert got.tobytes() == again.tobytes()
    whole = a.astype(np.float64) * (1 if scale is None else scale.astype(np.float64)[:, None])
    whole = whole.T if trans else whole
    both = np.concatenate([whole, 2 * np.diag(y.astype(np.float64))], 1)
    assert_product(got, both, np.concatenate([x.astype(np.float64), np.ones(len(y))]), x_type)


examples = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
KINDS = st.sampled_from(("float32", "float16", "bfloat16", *QUANTIZED))


@examples
@given(data=st.data())
def test_products_with_narrow_rows_wherever_they_begin(everywhere: None, data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    widest = {"float32": 31, "float16": 63, "bfloat16": 63}.get(kind, 67)
    columns = data.draw(st.integers(1, widest).map(lambda half: 2 * half + 1))
    shape = (data.draw(st.integers(20, 700)), columns)
    x_type = data.draw(st.sampled_from(("float32", "float16", "bfloat16"))) if kind in QUANTIZED else kind
    with backend("cpu"):
        assert_products_agree(kind, shape, data.draw(st.integers(0, 9)), x_type, trans=False, kernel="gemv_span")


@examples
@given(data=st.data())
def test_products_with_rows_of_bytes_wherever_they_begin(everywhere: None, data: st.DataObject) -> None:
    """Of an even number of bytes in spans, of an odd one in packs, with what is left at both ends one by one."""
    kind, x_type = (
        data.draw(st.sampled_from(list(QUANTIZED))),
        data.draw(st.sampled_from(("float32", "float16", "bfloat16"))),
    )
    even, odd = st.integers(68, 127).map(lambda half: 2 * half), st.integers(68, 300).map(lambda half: 2 * half + 1)
    columns = data.draw(even | odd)
    columns += 2 * (columns % 16 == 0)
    shape = (data.draw(st.integers(20, 400)), columns)
    kernel = "gemv_span" if columns < 256 and columns % 2 == 0 else "gemv_quantized_v16_l"
    with backend("cpu"):
        ahead = math.gcd(columns, 16) * data.draw(st.integers(0, 4))
        assert_products_agree(kind, shape, ahead, x_type, trans=False, kernel=kernel)


@examples
@given(data=st.data())
def test_products_across_narrow_rows_wherever_they_begin(everywhere: None, data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    widest = 31 if kind == "float32" else 35
    columns = data.draw(st.integers(8, widest).map(lambda half: 2 * half + 1) | st.sampled_from((121, 125, 127)))
    shape = (data.draw(st.integers(4, 9000 // columns)), columns)
    x_type = data.draw(st.sampled_from(("float32", "float16", "bfloat16"))) if kind in QUANTIZED else kind
    with backend("cpu"):
        assert_products_agree(kind, shape, data.draw(st.integers(0, 9)), x_type, trans=True, kernel="gemv_flat")


@examples
@given(data=st.data())
def test_columns_of_narrow_rows_wherever_they_begin(everywhere: None, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from((np.float32, np.float16, ml_dtypes.bfloat16)))
    columns = data.draw(st.integers(8, 200).map(lambda half: 2 * half + 1))
    rows = data.draw(st.integers(4, 9000 // columns))
    x = np.random.default_rng(rows).integers(-3, 4, (rows, columns)).astype(kind)
    x = among_others(x, data.draw(st.integers(0, 7)))
    with backend("cpu"), watching() as watch:
        assert "sum_flat" in explain(reduce.sum, x, 0)
        got, again, mean = (np.asarray(op(x, 0)) for op in (reduce.sum, reduce.sum, reduce.mean))
    assert watch.findings == []
    assert got.tobytes() == again.tobytes()
    np.testing.assert_array_equal(got, x.astype("f8").sum(0).astype(got.dtype))
    bar = 4 * 2.0 ** -ml_dtypes.finfo(kind).nmant
    np.testing.assert_allclose(mean.astype("f8"), x.astype("f8").mean(0), rtol=0, atol=bar)


def with_extremes(data: st.DataObject, rng: np.random.Generator, shape: tuple[int, int], kind: Any) -> np.ndarray:
    """Few different numbers, zeros of both signs, and sometimes infinities and NaN, in more than one place."""
    x = rng.integers(-4, 5, shape).astype("f") * rng.choice((1, -0.0), shape).astype("f")
    for odd in (np.inf, -np.inf, np.nan):
        for _ in range(data.draw(st.integers(0, 3))):
            rows, columns = rng.integers(shape[0], size=2), rng.integers(shape[1], size=2)
            x[rows[0] : rows[0] + data.draw(st.integers(1, 9)), columns] = odd
    return among_others(x.astype(kind), data.draw(st.integers(0, 7)))


EXTREMES = ("max", "min", "argmax", "argmin")
NUMBERS = st.sampled_from((np.float32, np.float16, ml_dtypes.bfloat16))


def assert_extremes_are_numpys(op: str, x: np.ndarray, axis: int, kernel: str) -> None:
    assert fnmatch(explain(getattr(reduce, op), x, axis), f"*{op}_{kernel}_*")
    with watching() as watch:
        got = np.asarray(getattr(reduce, op)(x, axis))
    assert watch.findings == []
    np.testing.assert_array_equal(got.astype("f"), getattr(np, op)(x.astype("f"), axis))


@settings(parent=examples, max_examples=40)
@given(data=st.data())
def test_extremes_down_narrow_rows_wherever_they_begin(everywhere: None, data: st.DataObject) -> None:
    columns = data.draw(st.integers(8, 200).map(lambda half: 2 * half + 1) | st.just(577))
    shape = (data.draw(st.integers(2, 12000 // columns)), columns)
    kind = data.draw(
        NUMBERS.filter(lambda kind: columns < 500 or kind is np.float32)
    )  # places of 16 bits take more room
    x = with_extremes(data, np.random.default_rng(shape), shape, kind)
    with backend("cpu"):
        assert_extremes_are_numpys(data.draw(st.sampled_from(EXTREMES)), x, 0, "flat")


@settings(parent=examples, max_examples=40)
@given(data=st.data())
def test_extremes_along_rows_of_a_few_loads(everywhere: None, data: st.DataObject) -> None:
    kind = data.draw(NUMBERS)
    widest = narrow.WIDEST // np.dtype(kind).itemsize
    columns = data.draw(st.integers(narrow.FROM, widest).filter(lambda n: n * np.dtype(kind).itemsize % 16))
    shape = (data.draw(st.integers(2, 900)), columns)
    x = with_extremes(data, np.random.default_rng(shape), shape, kind)
    x = x if x.ctypes.data % 16 == 0 else among_others(x, 0)
    with backend("cpu"):
        assert_extremes_are_numpys(data.draw(st.sampled_from(EXTREMES)), x, 1, "narrow")


@examples
@given(data=st.data())
def test_places_along_rows_of_more_loads_by_several_threads_for_each(everywhere: None, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from((np.float16, ml_dtypes.bfloat16)))
    itemsize, lanes = np.dtype(kind).itemsize, data.draw(st.sampled_from(narrow.LANES.values[1:]))
    sizes = st.integers(lanes * narrow.WIDEST // 2 // itemsize + 1, lanes * narrow.WIDEST // itemsize)
    columns = data.draw(sizes.filter(lambda n: n % 8 and n <= narrow.TOGETHER[2] and not narrow.crowded(2 * n, lanes)))
    shape = (data.draw(st.integers(2, 200)), columns)
    x = with_extremes(data, np.random.default_rng(shape), shape, kind)
    x = x if x.ctypes.data % 16 == 0 else among_others(x, 0)
    with backend("cpu"):
        assert_extremes_are_numpys(data.draw(st.sampled_from(EXTREMES[2:])), x, 1, f"narrow_i*_t{lanes}")


@examples
@given(data=st.data())
def test_logarithms_of_sums_along_rows_of_a_few_loads(everywhere: None, data: st.DataObject) -> None:
    kind = data.draw(NUMBERS)
    itemsize = np.dtype(kind).itemsize
    wider = st.integers(logsumexp_kernel.OWN // itemsize + 1, narrow.WIDEST // itemsize)
    few = st.sampled_from(logsumexp_narrow.FEW[itemsize])
    columns = data.draw((few | wider).filter(lambda n: n * itemsize % 16))
    rows = data.draw(st.integers(2, 600))
    x = (4 * np.random.default_rng(rows).standard_normal((rows, columns))).astype(kind)
    x[0], x[1, -1] = -np.inf, np.nan
    x[rows // 2, : data.draw(st.integers(0, 2))] = np.inf
    x = among_others(x, 0)
    with backend("cpu"), watching() as watch, np.errstate(divide="ignore"):
        assert "logsumexp_narrow" in explain(logsumexp, x, 1)
        got = np.asarray(logsumexp(x, 1)).astype("f8")
        expected = np.log(np.exp(x.astype("f8")).sum(1))
    assert watch.findings == []
    ulp = 2.0 ** -ml_dtypes.finfo(kind).nmant
    np.testing.assert_allclose(got, expected, rtol=ulp, atol=ulp)


@examples
@given(data=st.data())
def test_sums_and_products_along_rows_of_a_few_loads(everywhere: None, data: st.DataObject) -> None:
    kind = data.draw(NUMBERS)
    columns = data.draw(st.sampled_from((9, 17, 33, 37) if kind is np.float32 else (9, 17, 33, 50, 63, 77)))
    x = np.random.default_rng(columns).choice((1.0, -1.0, 2.0, 0.5), (data.draw(st.integers(2, 700)), columns))
    x = among_others(x.astype(kind), 0)
    with backend("cpu"), watching() as watch:
        assert "sum_narrow" in explain(reduce.sum, x, 1) and "prod_narrow" in explain(reduce.prod, x, 1)
        total, product = (np.asarray(op(x, 1)) for op in (reduce.sum, reduce.prod))
    assert watch.findings == []
    np.testing.assert_array_equal(total, x.astype("f8").sum(1).astype(kind))
    np.testing.assert_array_equal(product.astype("f8"), np.clip(x.astype("f8").prod(1), None, np.inf).astype(kind))


def test_no_thread_has_more_packs_than_it_can_count(everywhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the places of extremes of 16 bits are kept in pairs."""
    narrow_one, tiled = np.ones((3000, 33), np.float16), np.ones((3000, 48), np.float16)
    with backend("cpu"):
        assert "argmax_flat" in explain(reduce.argmax, narrow_one, 0)
        before = parts_of(explain(reduce.argmax, tiled, 0))
        monkeypatch.setattr(flat, "MOST_PACKS", 10)
        assert "argmax_columns" in explain(reduce.argmax, narrow_one[:-1], 0)
        assert "max_flat" in explain(reduce.max, narrow_one[:-1], 0)
        assert parts_of(explain(reduce.argmax, tiled[:-1], 0)) > before


def parts_of(explained: str) -> int:
    return int(explained.split(" block")[0].split()[-1])


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
def test_a_nan_reaches_its_own_row_and_its_own_column(
    xp: ModuleType, asnumpy: AsNumpy, everywhere: None, shared_cache: Any, kind: Any
) -> None:
    a = np.ones((500, 33), kind)
    a[77, 32], a[78, 3] = np.nan, np.inf
    device = on(xp, a)
    along = asnumpy(gemv(device, xp.ones(33, device.dtype))).astype("f")
    across = asnumpy(gemv(device, xp.ones(500, device.dtype), trans=True)).astype("f")
    assert np.isnan(along[77]) and np.isinf(along[78]) and (np.delete(along, [77, 78]) == 33).all()
    assert np.isnan(across[32]) and np.isinf(across[3]) and (np.delete(across, [32, 3]) == 500).all()


@pytest.mark.usefixtures("everywhere")
def test_other_matrices_are_left_to_other_kernels() -> None:
    """Whose rows lie apart, or are wide, or are packs of which lanes have their share."""
    with backend("cpu"):
        for shape, kernel in (((90, 33), "gemv_span"), ((90, 65), "gemv_v"), ((90, 48), "gemv_v")):
            assert kernel in explain(gemv, np.ones(shape, "f"), np.ones(shape[1], "f"))
        apart = np.ones((90, 40), "f")[:, :33]
        assert "gemv_v" in explain(gemv, apart, np.ones(33, "f"))
        assert "gemv_columns" in explain(gemv, apart, np.ones(90, "f"), trans=True)
        for columns, flat_one in ((97, True), (257, True), (321, False), (401, False)):
            found = explain(gemv, np.ones((90, columns), "f"), np.ones(90, "f"), trans=True)
            assert ("gemv_flat" in found) is flat_one, columns
        assert "gemv_span" in explain(gemv, np.ones((90, 48), "i1"), np.ones(48, "f"))
        for columns in (64, 137, 192, 256):
            assert "gemv_span" not in explain(gemv, np.ones((90, columns), "i1"), np.ones(columns, "f")), columns
        for columns, flat_one in (
            (100, True),
            (128, False),
            (112, False),
            (520, True),
            (544, False),
            (1032, False),
            (33, True),
            (16, False),
        ):
            assert ("sum_flat" in explain(reduce.sum, np.ones((90, columns), "f"), 0)) is flat_one, columns
        for columns, flat_one in ((33, True), (128, True), (256, True), (260, True), (288, False), (16, False)):
            assert ("max_flat" in explain(reduce.max, np.ones((90, columns), "f"), 0)) is flat_one, columns
        assert "sum_flat" not in explain(reduce.sum, apart, 0)
        assert "sum_flat" not in explain(reduce.sum, np.ones((90, 33), "e"), 0, dtype="f4")


@settings(max_examples=120)
@given(st.integers(17, 600), st.integers(1, 1 << 28), st.sampled_from((F16, F32)), st.integers(1, 150))
def test_threads_meet_the_same_columns_in_all_packs(columns: int, rows: int, dtype: DType, sms: int) -> None:
    cut = flat.cut("sum", columns, rows * columns, dtype, sms, even=False)
    if cut is not None:
        vec = 16 // dtype.itemsize
        together = cut.spec.threads // cut.period * cut.period * vec
        assert together > 0 and together % columns == 0
        assert cut.parts >= 1 and (cut.parts - 1) * together < rows * columns


@pytest.mark.parametrize("patience", [0, 4096])
def test_the_last_block_does_it_all_where_others_wait_in_vain(
    everywhere: None, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block that has not begun may need the place of one that waits."""
    x = np.random.default_rng(1).integers(-9, 10, (30000 + patience, 33)).astype("f")  # of no plan that is kept
    derive = flat._derive
    impatient = replace(flat.FLAT["sum"], derive=lambda spec: {**derive(spec), "PATIENCE": patience})
    monkeypatch.setitem(flat.FLAT, "sum", impatient)
    with backend("cpu"), watching() as watch:
        assert parts_of(explain(reduce.sum, x, 0)) > 2
        for _ in range(2):  # counters are zero again
            np.testing.assert_array_equal(reduce.sum(x, 0), x.astype("f8").sum(0))
    assert watch.findings == []
