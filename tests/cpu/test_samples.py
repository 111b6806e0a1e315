"""Sample calls and `kgen check`, which runs them and tells what is wrong."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import kgen
from kgen.checking import watching
from kgen.cli import main
from kgen.errors import SpecError
from kgen.samples import CASES, call, cases_of, complaint

SHAPES = {
    "lmha_e64_t1_f32": (1, 2, 40, 60, 20),
    "lmha_chunk_e64_m64_bf16": (2, 1, 70, 60, 40),
    "softmax_t128_n4_v8_bf16": (2, 4000),
    "norm_t128_n4_v8_rms_weight_bf16": (2, 4000),
    "sum_rows_g8_v4_i4_o32_f32": (290, 139),
    "add_v4_f32": (3, 700),
    "gated_scan_r4_l32_c4_w4_g2_bonus_f32": (2, 1, 20, 92, 36),
    "gated_scan_r16_l8_c8_w4_g1_posted_bf16": (2, 1, 20, 124, 36),
    "gated_chunk_k64_v64_w4_g1_f16": (2, 1, 130, 40, 24),
    "gated_chunk_state": (2, 1, 300, 24, 40),
    "gated_chunk_vector_k64_v64_bonus_f16": (2, 1, 70, 44, 20),
    "gated_prefix": (2, 1, 150, 100, 36),
    "norm_split_v8_weight_bias_channels_bf16": (2, 4, 8000),
    "gemv_v4_l32_r1_u1_f32": (100, 200),
    "take": (9, 7, 100),
    "rope": (2, 3, 50, 24),
    "transpose_ragged": (199, 331),
    "nms_rank": (300,),
}
"""A name, or that of a kernel, which stands for its first default specialization; and a shape that launches it."""

FIRST = {"take": 7}
"""What the first axis of the first input is, where it is not that of the shape."""


def check(*words: object) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, words)])


@pytest.mark.parametrize("name", SHAPES)
def test_check_runs_a_kernel_at_a_shape_in_every_order(name: str) -> None:
    full = next((spec.name for spec in kgen.select() if spec.kernel.name == name), name)
    result = check(full, *SHAPES[name], "--json")
    assert result.exit_code == 0, result.output
    runs = json.loads(result.output)["runs"]
    assert list(dict.fromkeys(run["order"] for run in runs)) == ["forward", "reverse", "random"]
    assert not any(run["wrong"] or run["findings"] for run in runs)
    batch_or_rows = {tuple(given)[:1] for run in runs for given in run["inputs"][:1]}
    assert batch_or_rows == {(FIRST.get(name, SHAPES[name][0]),)}


def test_check_tells_wrong_results_and_reports_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(case: Any) -> tuple[Any, ...]:
        return tuple(result + 1 for result in call(case))

    monkeypatch.setattr("kgen.samples.call", spoilt)
    result = check("add_v4_f32", 3, 700)
    assert result.exit_code == 1
    assert "wrong results: the relative RMS error" in result.output


def test_the_sample_call_of_every_kernel_takes_a_shape() -> None:
    assert not [make for make in CASES.values() if "shape" not in inspect.signature(make).parameters]


@pytest.mark.parametrize(("name", "shape"), [("lmha_e64_t1_f32", (3, 4)), ("nms_rank_f32", (3, 4))])
def test_a_shape_that_makes_no_sense_is_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match=name):
        cases_of(kgen.parse(name), shape)


@pytest.mark.parametrize(
    ("kernel", "shape", "said"),
    [
        ("lmha", (3, 4), "has no sample call of the shape 3 4\n  hint: `kgen check --help`"),
        ("rope", (1, 2, 3, 5), "has no sample call of the shape 1 2 3 5: rope: x has shape"),
        ("relu", (0,), "0 is not in the range x>=1"),
    ],
)
def test_a_shape_that_makes_no_sense_is_told_without_a_traceback(kernel: str, shape: Any, said: str) -> None:
    result = check(next(spec.name for spec in kgen.select() if spec.kernel.name == kernel), *shape)
    assert result.exit_code == 2
    assert said in result.output


def test_one_wrong_number_among_the_results_is_found_and_an_input_cannot_be_written_to() -> None:
    (case,) = cases_of(kgen.parse("add_v4_f32"), (3, 700))
    with kgen.backend("cpu"):
        results = call(case)
    assert not complaint(case, results)
    results[0][1, 33] += 10
    assert complaint(case, results)
    assert all(given.flags.writeable for given in case.inputs)


def test_the_same_kernel_unwatched_gives_the_same_bits() -> None:
    (case,) = cases_of(kgen.parse("lmha_e64_t1_f32"))
    with watching() as watch:
        (checked,) = call(case)
    assert watch.kernels
    with kgen.backend("cpu"):
        np.testing.assert_array_equal(call(case)[0], checked)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sqrt_v8_f16", "has no sample call\n  hint: the executor can run it"),
        ("minimum_v2_r3_x6_unaligned_f64", "has no sample call"),
        ("quantize_e5m2_v1_l4_i2_f32", "has no sample call"),
        ("lmha_chunk_e32_m64_outer_unaligned_f16", "has no sample call: linear_state: out has dtype float16"),
        ("min_columns_l1_v4_i4_ragged_i32", "has no sample call"),
        ("take_n4_l1_a4_sliced_i32", "does not launch it\n  hint: it launches take_n4_l1_a1_i32"),
    ],
)
def test_a_specialization_without_a_sample_call_is_told_without_a_traceback(name: str, said: str) -> None:
    result = check(name)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    "name",
    [
        "gemv_flat_quantized_t288_half_e4m3",
        "gemv_span_quantized_k9_t4_brain_e4m3",
        "norm_t1_n2_v4_weight_bias_f32",
        "relu_v1_t256_i64",
        "sum_short_n3_o64_fractional_i16",
        "dot_v2_i2_f64",
    ],
)
def test_specializations_that_are_no_default_have_sample_calls_of_their_kind(name: str) -> None:
    for case in cases_of(kgen.parse(name)):
        with watching() as watch:
            results = call(case)
        assert name in watch.kernels
        assert not watch.findings and not complaint(case, results)


def test_what_float16_has_no_digits_for_is_not_wrong() -> None:
    (case,) = cases_of(kgen.parse("softmax_t128_n4_v8_f16"), (2, 4000))
    tiny = case.expected / 2000  # as of longer rows
    rounded = tiny.astype(np.float16)
    assert not complaint(case._replace(expected=tiny), (rounded,))
    assert complaint(case._replace(expected=tiny), (rounded + np.float16(2**-24),))
    assert complaint(case, (case.expected.astype(np.float16) * np.float16(1.01),))
