"""Softmax along axes before the last: columns in registers, in shared memory, and in parts that are read twice."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kgen
from kgen.arch import OLDEST
from kgen.device import HOST
from kgen.dtypes import BF16, DTYPES, F32, DType
from kgen.errors import SpecError
from kgen.launch import listing_steps
from kgen.ops.axes import Planes
from kgen.ops.softmax import column_plans, strip_plans
from kgen.ops.softmax.softmax import log_softmax, logsumexp, softmax
from kgen.registry import parse
from tests.ops.test_softmax import assert_close, examples, reference, reference_sum, view

AsNumpy = Callable[[Any], np.ndarray]


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype].numpy)


def poison(shape: tuple[int, ...], dtype: str, xp: ModuleType) -> Any:
    return xp.asarray(np.full(shape, np.nan, DTYPES[dtype].numpy))


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> int:
    """So few clusters, or teams of the grid's blocks, take strips in turn that rings come round."""
    monkeypatch.setattr(strip_plans, "clusters", lambda spec, device: 2)
    monkeypatch.setattr(strip_plans, "blocks", lambda device: 7)
    return 2


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are cut into as many parts as they are long enough for."""
    monkeypatch.setattr(column_plans, "held", lambda *about, **more: None)
    monkeypatch.setattr(column_plans, "WAVES", {False: 10**6, True: 10**6})
    monkeypatch.setattr(column_plans, "RESIDENT", 10**6)
    monkeypatch.setattr(column_plans, "ROUNDS", 10**6)


STRIPS = [
    ("softmax_strips_l16_n4_v4_f32", (101, 700)),
    ("softmax_strips_l16_n8_v4_c2_f32", (511, 324)),
    ("softmax_strips_l64_n4_v1_c4_f32", (2, 97, 331)),
    ("softmax_strips_l32_n8_v2_f32", (3, 99, 66)),
    ("softmax_strips_l8_n8_v8_bf16", (509, 328)),
    ("softmax_strips_l32_n4_v2_c2_f16", (2, 123, 134)),
    ("softmax_strips_l16_n4_v4_ragged_f32", (101, 701)),
    ("softmax_strips_l32_n4_v4_c2_ragged_f32", (2, 121, 703)),
    ("softmax_strips_l64_n8_v4_ragged_f32", (3, 61, 1002)),
    ("softmax_strips_l32_n4_v8_ragged_bf16", (3, 61, 1001)),
    ("softmax_strips_l64_n8_v8_ragged_bf16", (2, 61, 2001)),
    ("softmax_strips_l32_n4_v8_c2_bf16", (2, 120, 712)),
    ("softmax_strips_l16_n8_v8_c2_ragged_f16", (3, 501, 331)),
    ("softmax_strips_l16_n8_v4_grid_f32", (700, 700)),
    ("softmax_strips_l16_n8_v8_grid_bf16", (2, 511, 328)),
    ("softmax_strips_l32_n16_v4_grid_f32", (800, 400)),
    ("softmax_strips_l16_n6_v4_grid_f32", (3, 600, 68)),  # one chunk in registers
    ("softmax_strips_l16_n20_v4_grid_f32", (2, 900, 400)),  # five of them
    ("softmax_strips_l32_n6_v8_grid_f16", (330, 1104)),
]


def with_flags(algorithm: str, *flags: str) -> str:
    spec = parse(algorithm)
    values = {axis.name: spec[axis.name] for axis in spec.kernel.axes}
    return spec.kernel.spec(**values, **dict.fromkeys((*spec.flags, *flags), True), dtype=spec.dtype).name


@pytest.mark.parametrize(("algorithm", "shape"), STRIPS)
def test_strips_agree_with_float64(
    algorithm: str, shape: tuple[int, ...], clusters: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    dtype = algorithm.rpartition("_")[2]
    x, axis = numbers(shape, dtype), len(shape) - 2
    with listing_steps() as steps:
        softmax(xp.asarray(x), axis, algorithm=algorithm)
    result = asnumpy(softmax(xp.asarray(x), axis, algorithm=algorithm, out=poison(shape, dtype, xp)))
    assert_close(result, reference(x, axis), dtype, ulps=12 if dtype == "f32" else 4)
    assert [step.spec.name for step in steps] == [algorithm]
    again = asnumpy(softmax(xp.asarray(x), axis, algorithm=algorithm, out=poison(shape, dtype, xp)))
    assert result.tobytes() == again.tobytes()
    scaled = with_flags(algorithm, "log", "scaled")
    result = asnumpy(log_softmax(xp.asarray(x), axis, scale=-0.5, algorithm=scaled))
    assert_close(result, reference(x, axis, log=True, scale=-0.5), dtype, ulps=8, floor=1.0)


@pytest.mark.parametrize("algorithm", [name for name, _ in STRIPS if "ragged" in name])
def test_a_result_takes_the_place_of_columns_that_neighbours_read(
    algorithm: str, clusters: int, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    dtype = algorithm.rpartition("_")[2]
    whole = numbers((2, 59, 1300), dtype)
    given = xp.asarray(whole.copy())
    middle = given[..., 3:-4]
    assert softmax(middle, 1, algorithm=algorithm, out=middle) is middle
    result = asnumpy(given)
    assert_close(result[..., 3:-4], reference(whole[..., 3:-4], 1), dtype, ulps=12)
    assert result[..., :3].tobytes() == whole[..., :3].tobytes()
    assert result[..., -4:].tobytes() == whole[..., -4:].tobytes()


def test_strips_read_nothing_beside_rows_that_overlap(clusters: int) -> None:
    """Though these begin anywhere, at the same places in a pack as those of the result."""
    x = np.lib.stride_tricks.sliding_window_view(numbers((803,), "f32")[1:-1], 701)
    out = poison((x.size + 1,), "f32", np)[1:].reshape(x.shape)
    with kgen.backend("cpu"):
        with listing_steps() as steps:
            softmax(x, 0, algorithm="softmax_strips", out=out)
        assert "ragged" not in steps[0].spec.flags
        softmax(x, 0, algorithm="softmax_strips", out=out)
    assert_close(out, reference(x, 0), "f32", ulps=12)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("width", [96, 331])
@pytest.mark.parametrize("algorithm", ["softmax_strips", "softmax_columns"])
def test_sums_are_scaled_down_when_much_greater_numbers_come(
    algorithm: str, width: int, dtype: str, clusters: int, parts: None, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    """And not by each small step; the greatest number may come first, last, or be the lowest there is."""
    x = numbers((300, width), dtype)
    ramp = np.linspace(-1000, 1000, 300)
    x[:, :32] += ramp[:, None].astype(x.dtype)
    x[:, 32:40] -= ramp[:, None].astype(x.dtype)
    x[:, 40:48] += (ramp / 50)[:, None].astype(x.dtype)
    x[:, 50] = finfo_of(dtype)[0]
    x[:, 51] = np.where(np.arange(300) % 2, *finfo_of(dtype))
    result = asnumpy(softmax(xp.asarray(x), 0, algorithm=algorithm, out=poison(x.shape, dtype, xp)))
    assert_close(result, reference(x, 0), dtype, ulps=12)
    finite = [c for c in range(width) if c not in (50, 51)]  # of which the sum may be greater than the greatest number
    sums = asnumpy(logsumexp(xp.asarray(x), 0, out=poison((width,), dtype, xp)))[finite]
    assert_close(sums, reference_sum(x[:, finite], 0), dtype, ulps=8)


def finfo_of(dtype: str) -> tuple[float, float]:
    """The lowest and the greatest finite number."""
    most = {"f32": float(np.finfo(np.float32).max), "f16": 65504.0, "bf16": float.fromhex("0x1.fep127")}[dtype]
    return -most, most


@pytest.mark.parametrize(
    ("length", "width", "dtype", "multiprocessors"),
    [
        *((127, 1001, "bf16", 4), (61, 305, "f16", 4), (1300, 603, "f16", 4)),
        *((127, 1003, "bf16", 132), (61, 307, "f16", 132), (1300, 605, "f16", 132)),
    ],
)
def test_sums_of_columns_whose_rows_begin_anywhere_agree_with_float64(
    length: int,
    width: int,
    dtype: str,
    multiprocessors: int,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(column_plans, "multiprocessors", lambda device: multiprocessors)
    whole = numbers((2, length, width + 2), dtype)
    x = whole[..., 1:-1]
    with listing_steps() as steps:
        logsumexp(xp.asarray(whole)[..., 1:-1], 1)
    assert "ragged" in steps[0].spec.flags
    result = asnumpy(logsumexp(xp.asarray(whole)[..., 1:-1], 1, out=poison((2, width), dtype, xp)))
    assert_close(result, reference_sum(x, 1), dtype, ulps=8)


@pytest.mark.parametrize(
    ("algorithm", "dtype"),
    [
        ("softmax_strips_l16_n4_v4_c2_f32", "f32"),
        ("softmax_columns", "f32"),
        ("softmax_columns", "f16"),
        ("softmax_columns", "bf16"),
        ("softmax_strips_l8_n4_v8_bf16", "bf16"),
        ("softmax_strips_l32_n8_v4_grid_f32", "f32"),
        ("softmax_strips_l32_n8_v8_grid_f16", "f16"),
    ],
)
def test_a_column_is_nan_where_the_formula_is(
    algorithm: str, dtype: str, clusters: int, parts: None, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    x = numbers((250, 136), dtype)
    x[:, 3] = -np.inf
    x[200, 5] = np.inf
    x[7, 130] = np.nan
    x[:249, 77] = -np.inf  # the last alone is there
    x[:, 90] = 0
    x[:, 91] = np.where(np.arange(250) % 2, -1, 3) * (1e4 if dtype == "f16" else 1e30)  # no exponential overflows
    result = asnumpy(softmax(xp.asarray(x), 0, algorithm=algorithm, out=poison(x.shape, dtype, xp)))
    assert np.isnan(result[:, [3, 5, 130]].astype("d")).all()
    finite = [c for c in range(136) if c not in (3, 5, 130)]
    assert_close(result[:, finite], reference(x[:, finite], 0), dtype, ulps=12)
    assert result[249, 77] == 1


@pytest.mark.parametrize(("width", "dtype"), [(255, "bf16"), (331, "f32"), (1001, "f16")])
def test_a_result_takes_the_place_of_columns_whose_rows_begin_anywhere(
    width: int, dtype: str, parts: None, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    whole = numbers((2, 333, width + 7), dtype)
    given = xp.asarray(whole.copy())
    middle = given[..., 3:-4]
    with listing_steps() as steps:
        softmax(middle, 1, algorithm="softmax_columns", out=middle)
    assert all("ragged" in step.spec.flags for step in steps)
    assert softmax(middle, 1, algorithm="softmax_columns", out=middle) is middle
    result = asnumpy(given)
    assert_close(result[..., 3:-4], reference(whole[..., 3:-4], 1), dtype, ulps=12)
    assert result[..., :3].tobytes() == whole[..., :3].tobytes()
    assert result[..., -4:].tobytes() == whole[..., -4:].tobytes()


LENGTHS = [
    (700, 40, "f32"),
    (900, 33, "f32"),
    (2100, 136, "bf16"),
    (1100, 13, "f16"),
    (700, 131, "f16"),
    (130, 301, "bf16"),
]


@pytest.mark.parametrize(("length", "width", "dtype"), LENGTHS)
def test_parts_of_columns_agree_with_float64(
    length: int, width: int, dtype: str, parts: None, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    x = numbers((2, length, width), dtype)
    with listing_steps() as steps:
        softmax(xp.asarray(x), 1, algorithm="softmax_columns")
    result = asnumpy(softmax(xp.asarray(x), 1, algorithm="softmax_columns", out=poison(x.shape, dtype, xp)))
    more = {"ragged"} if width * x.itemsize % 16 and width * x.itemsize >= 128 else set()
    more |= {"staged"} if steps[0].spec["VEC"] * x.itemsize >= 4 else set()
    assert [step.spec.flags - more for step in steps] == [{"online", "partial"}, {"online", "apply"}]
    assert all(more <= step.spec.flags for step in steps)
    assert_close(result, reference(x, 1), dtype, ulps=12)
    again = asnumpy(softmax(xp.asarray(x), 1, algorithm="softmax_columns", out=poison(x.shape, dtype, xp)))
    assert result.tobytes() == again.tobytes()
    out = poison((2, width), dtype, xp)
    assert_close(asnumpy(logsumexp(xp.asarray(x), 1, out=out)), reference_sum(x, 1), dtype, ulps=8)
    infinite = x.copy()
    infinite[0, :, 0] = -np.inf
    infinite[1, length // 2, 0] = np.inf
    np.testing.assert_array_equal(asnumpy(logsumexp(xp.asarray(infinite), 1))[:, 0], [-np.inf, np.inf])
    result = asnumpy(log_softmax(xp.asarray(x), 1, scale=3.0, algorithm="softmax_columns"))
    assert_close(result, reference(x, 1, log=True, scale=3.0), dtype, ulps=8, floor=1.0)
    if dtype != "f32":
        result = asnumpy(softmax(xp.asarray(x), 1, dtype="float32"))
        assert_close(result, reference(x, 1), "f32", ulps=24)


@pytest.mark.parametrize(("length", "width", "dtype"), [(2100, 136, "f32"), (3001, 331, "bf16"), (1700, 35, "f32")])
def test_parts_through_which_rings_come_round_agree_with_float64(
    length: int,
    width: int,
    dtype: str,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(column_plans, "held", lambda *about, **more: None)
    monkeypatch.setattr(column_plans, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(column_plans, "WAVES", {False: 1, True: 1})
    x = numbers((length, width), dtype)
    with listing_steps() as steps:
        softmax(xp.asarray(x), 0, algorithm="softmax_columns")
    assert all("staged" in step.spec.flags for step in steps)
    result = asnumpy(softmax(xp.asarray(x), 0, algorithm="softmax_columns", out=poison(x.shape, dtype, xp)))
    assert_close(result, reference(x, 0), dtype, ulps=12)
    again = asnumpy(softmax(xp.asarray(x), 0, algorithm="softmax_columns", out=poison(x.shape, dtype, xp)))
    assert result.tobytes() == again.tobytes()
    sums = asnumpy(logsumexp(xp.asarray(x), 0, out=poison((width,), dtype, xp)))
    assert_close(sums, reference_sum(x, 0), dtype, ulps=8)


@pytest.mark.parametrize(("length", "width", "dtype"), [(700, 40, "f32"), (2100, 136, "bf16"), (700, 131, "f16")])
def test_parts_of_columns_agree_with_float64_where_nothing_is_copied_past_registers(
    length: int,
    width: int,
    dtype: str,
    parts: None,
    xp: ModuleType,
    asnumpy: AsNumpy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(column_plans, "device_arch", lambda device: OLDEST)
    x = numbers((length, width), dtype)
    with listing_steps() as steps:
        softmax(xp.asarray(x), 0, algorithm="softmax_columns")
    assert len(steps) == 2 and not any("staged" in step.spec.flags for step in steps)
    result = asnumpy(softmax(xp.asarray(x), 0, algorithm="softmax_columns", out=poison(x.shape, dtype, xp)))
    assert_close(result, reference(x, 0), dtype, ulps=12)
    sums = asnumpy(logsumexp(xp.asarray(x), 0, out=poison((width,), dtype, xp)))
    assert_close(sums, reference_sum(x, 0), dtype, ulps=8)


@examples
@given(data=st.data())
def test_columns_of_any_strides_in_strips_or_parts_agree_with_float64(
    data: st.DataObject, xp: ModuleType, asnumpy: AsNumpy
) -> None:
    draw = data.draw
    dtype = draw(st.sampled_from(["f32", "f16", "bf16"]))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 600)), draw(st.integers(1, 150)))
    given_x, x = view(draw, xp, numbers(shape, dtype, draw(st.integers(0, 99))))
    axis = draw(st.sampled_from([0, 1]))
    log = draw(st.booleans())
    function = log_softmax if log else softmax
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_plans, "WAVES", {False: 10**6, True: 10**6})
        patch.setattr(column_plans, "RESIDENT", 10**6)
        patch.setattr(column_plans, "ROUNDS", 10**6)
        patch.setattr(column_plans, "held", lambda *about, **more: None)
        patch.setattr(strip_plans, "clusters", lambda spec, device: 3)
        patch.setattr(strip_plans, "blocks", lambda device: 5)
        for algorithm in ("softmax_columns", "softmax_strips"):
            try:
                result = asnumpy(function(given_x, axis, algorithm=algorithm))
            except SpecError:  # elements are no neighbours, or too small for a copy
                continue
            floor = 1.0 if log else 0.0
            assert_close(result, reference(x, axis, log=log), dtype, ulps=16, floor=floor)


H200 = [
    (1, 4096, 65536, F32, "l16_n16_v4_c8_f32"),
    (1, 1000, 4096, BF16, "l8_n8_v8_c2_bf16"),  # as many blocks as there are
    (1, 8192, 65536, F32, "l16_n16_v4_c16_f32"),
    (1, 16384, 1024, BF16, "l8_n16_v8_c16_bf16"),
    (1, 200, 1000000, BF16, "l32_n14_v8_bf16"),  # as many rows as there are, or nearly
    (1024, 1024, 64, BF16, "l8_n16_v8_bf16"),  # no wider than they are
    (1, 1024, 65535, F32, "l32_n16_v4_c4_ragged_f32"),
    (1, 1024, 65535, BF16, "l16_n16_v8_c2_ragged_bf16"),
    (1, 128, 524287, BF16, "l64_n16_v8_ragged_bf16"),
    (1, 300, 500001, F32, "l32_n20_v4_ragged_f32"),  # rather than wider ones, of clusters
    (1, 300, 223695, F32, "l32_n20_v4_ragged_f32"),  # 80 %, of clusters 77
    (1, 352, 190649, F32, "l32_n12_v4_c2_ragged_f32"),  # 83 %, twice as wide ones 80
    (1, 300, 500001, BF16, "l32_n20_v8_ragged_bf16"),
    (1, 8000, 8191, BF16, "l8_n16_v8_c8_ragged_bf16"),  # no wider ones hold them
    (1, 32768, 2048, F32, "l16_n32_v4_grid_f32"),  # two teams rather than a shorter part of one
    (1, 65536, 2048, BF16, "l16_n32_v8_grid_bf16"),
    (1, 40000, 1676, F32, "l16_n20_v4_grid_f32"),
    (1, 131072, 512, F32, "l8_n32_v4_grid_f32"),
]


@pytest.mark.parametrize(("planes", "length", "width", "dtype", "expected"), H200)
def test_the_strips_that_take_the_least_time(
    planes: int, length: int, width: int, dtype: DType, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strip_plans, "multiprocessors", lambda device: 132)
    read = Planes(planes, length, width, length * width, width)
    vec = 16 // dtype.itemsize
    found = strip_plans.cut(read, vec, frozenset(["ragged"] if width % vec else []), dtype, HOST)
    assert found and found.name == f"softmax_strips_{expected}"


def test_teams_take_all_blocks_whose_threads_have_fewer_rows_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strip_plans, "multiprocessors", lambda device: 132)
    spec = parse("softmax_strips_l16_n32_v4_grid_f32")
    for length, teams, parts in [(65536, 1, 128), (66000, 1, 129), (20000, 3, 44), (16384, 4, 32), (67585, 0, 133)]:
        assert strip_plans._teams(spec, Planes(1, length, 4096, 0, 4096), HOST) == (teams, parts)


def test_there_are_no_strips_of_columns_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strip_plans, "multiprocessors", lambda device: 132)
    read = Planes(1, 1 << 20, 4096, 0, 4096)
    assert strip_plans.cut(read, 4, frozenset(), F32, HOST) is None
    assert strip_plans.cut(Planes(1, 300, 5001, 0, 5001), 1, frozenset(), BF16, HOST) is None  # no copy of two bytes
    assert strip_plans.cut(Planes(1, 210000, 512, 0, 512), 4, frozenset(), F32, HOST) is None  # no room
    assert strip_plans.cut(Planes(1, 65536, 64, 0, 64), 4, frozenset(), F32, HOST) is None  # two turns


def test_columns_of_rows_that_begin_anywhere_are_read_twice_rather_than_in_narrow_strips(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strip_plans, "multiprocessors", lambda device: 132)
    assert strip_plans.cut(Planes(1, 20000, 3401, 0, 3401), 4, frozenset(["ragged"]), F32, HOST) is None
    assert strip_plans.cut(Planes(1, 10000, 3401, 0, 3401), 4, frozenset(["ragged"]), F32, HOST)
    assert strip_plans.cut(Planes(1, 16000, 8191, 0, 8191), 8, frozenset(["ragged"]), BF16, HOST) is None
    assert strip_plans.cut(Planes(1, 8000, 255, 0, 255), 8, frozenset(["ragged"]), BF16, HOST) is None  # one turn


AMID = [  # measured on an H200: rows of the result that begin at multiples of so many bytes
    (20000, 3300, F32, 16, None),  # 50 %, two readings 58
    (20000, 3352, F32, 32, "l8_n20_v4_c16_f32"),
    (40000, 1676, F32, 16, None),
    (49152, 1340, F32, 16, None),  # 55 %, two readings 60
    (49152, 1336, F32, 32, "l16_n24_v4_grid_f32"),
    (49152, 2672, BF16, 32, "l16_n24_v8_grid_bf16"),
    (98304, 680, F32, 32, None),
    (150000, 448, F32, 128, "l8_n36_v4_grid_f32"),  # 66 %
    (150000, 440, F32, 32, None),  # 45 %, two readings 56
    (150000, 444, F32, 16, None),  # 33 %
    (16384, 8184, BF16, 16, None),
    (4096, 16380, F32, 16, "l16_n16_v4_c8_f32"),
    (1024, 65532, F32, 16, "l32_n16_v4_c4_f32"),  # wider than where rows begin at lines
]


@pytest.mark.parametrize(("length", "width", "dtype", "begins", "expected"), AMID)
def test_rows_that_begin_amid_lines_are_read_twice_where_strips_would_write_parts_of_too_many(
    length: int, width: int, dtype: DType, begins: int, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strip_plans, "multiprocessors", lambda device: 132)
    read = Planes(1, length, width, length * width, width)
    found = strip_plans.cut(read, 16 // dtype.itemsize, frozenset(), dtype, HOST, begins)
    assert (found and found.name) == (expected and f"softmax_strips_{expected}")


@pytest.mark.parametrize(
    ("width", "offset", "begins"), [(64, 0, 128), (48, 0, 64), (40, 0, 32), (36, 0, 16), (64, 8, 32)]
)
def test_it_is_seen_where_rows_of_the_result_begin(
    width: int, offset: int, begins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(strip_plans, "cut", lambda *about: seen.append(about[-1]))
    memory = np.empty(100 * width + 64, "f4")
    first = -memory.ctypes.data // 4 % 32 + offset
    out = memory[first : first + 100 * width].reshape(100, width)
    with kgen.backend("cpu"), pytest.raises(SpecError):
        softmax(np.zeros((100, width), "f4"), 0, out=out, algorithm="softmax_strips")
    with kgen.backend("cpu"), pytest.raises(SpecError):  # a part of a pack, which is another matter
        softmax(np.zeros((100, width), "f4")[:, :-1], 0, out=out[:, :-1], algorithm="softmax_strips")
    assert seen == [begins, 128]


def test_narrow_strips_leave_time_to_tell_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strip_plans, "multiprocessors", lambda device: 132)
    for length, there in [(9000, True), (10102, False)]:  # 51 %, two readings 58
        read = Planes(1, length, 13285, 0, 13285)
        assert bool(strip_plans.cut(read, 8, frozenset(["ragged"]), BF16, HOST)) == there


@pytest.mark.parametrize(
    ("width", "dtype", "lanes"), [(1023, F32, 32), (255, F32, 8), (255, BF16, 8), (3401, BF16, 32)]
)
def test_few_lanes_are_beside_columns_whose_rows_begin_anywhere(width: int, dtype: DType, lanes: int) -> None:
    assert column_plans._streamed_anywhere(width, dtype)["LANES"] == lanes


def test_sums_of_float32_are_of_full_packs_where_columns_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer are summed in parts, and of single numbers, of which no lane has those of others."""
    monkeypatch.setattr(column_plans, "multiprocessors", lambda device: 2)
    for width, full in [(991, False), (993, True)]:
        with kgen.backend("cpu"), listing_steps() as steps:
            logsumexp(np.zeros((400, width), "f"), 0)
        (spec,) = {step.spec for step in steps}
        assert (spec["VEC"], bool(spec["ragged"]), bool(spec["staged"])) == (4 if full else 1, full, True)


def test_explain_says_how_columns_are_kept(xp: ModuleType) -> None:
    def told(length: int, **options: Any) -> str:
        return kgen.explain(softmax, xp.zeros((length, 256), "f"), 0, **options)

    assert "softmax_columns_t" in told(40) and "1 x 256 columns of 40" in told(40)
    assert "softmax_strips_l16" in told(1000) and "4 strips of columns of 1000" in told(1000)
    assert "parts each" in told(40000, algorithm="softmax_columns")


def test_what_strips_cannot_do_is_refused(xp: ModuleType) -> None:
    x = xp.zeros((200, 64), "f")
    for call, words in [
        (lambda: softmax(x, 0, algorithm="softmax_strips_l16_n4_v4_f32"), "does not take columns of 200"),
        (lambda: softmax(x[:, :63], 0, algorithm="softmax_strips_l16_n8_v4_f32"), "packs of 1 at most"),
        (lambda: softmax(x, 1, algorithm="softmax_strips"), "softmax_strips takes axes that are not the last"),
        (lambda: softmax(xp.zeros((10**5, 8), "f"), 0, algorithm="softmax_strips"), "columns of 100000 are not for"),
    ]:
        with pytest.raises(SpecError, match=words):
            call()


@pytest.mark.parametrize(
    "name", ["t16_d16_n8_v8_bf16", "t8_d32_n8_v8_f16", "t128_d1_n8_v8_bf16", "t8_d32_n8_v8_log_bf16"]
)
def test_columns_of_16_bits_have_as_many_blocks_as_they_need_no_spills_for(name: str) -> None:
    spec = parse(f"softmax_columns_{name}")
    resources = kgen.build(spec, kgen.Arch.parse("sm_90a")).resources
    assert resources.spill_stores == resources.spill_loads == 0
    threads = spec.derived["RESIDENT"] * spec.derived["THREADS"]
    assert threads == (
        768 if spec["DEPTH"] >= 16 and not spec["log"] else 640 // spec.derived["THREADS"] * spec.derived["THREADS"]
    )
