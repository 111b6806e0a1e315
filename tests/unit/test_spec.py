"""Specializations: one name each, and an error that says what is taken for everything else."""

from __future__ import annotations

import operator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kgen
from kgen.dtypes import BF16, F16, F32
from kgen.errors import SpecError
from kgen.spec import Axis, Kernel, Spec


@st.composite
def points(draw: st.DrawFn) -> Spec:
    """Any specialization of any kernel that kgen ships, legal or not."""
    kernel = draw(st.sampled_from(list(kgen.kernels().values())))
    values = tuple(draw(st.sampled_from(axis.values)) for axis in kernel.axes)
    flags = frozenset(flag.name for flag in kernel.flags if draw(st.booleans()))
    return Spec(kernel, values, flags, draw(st.sampled_from(kernel.dtypes)))


def specs() -> st.SearchStrategy[Spec]:
    """Any legal one."""
    return points().filter(lambda spec: spec.kernel.check(spec) is None)


ANY = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@given(specs())
@ANY
def test_name_round_trips_for_every_spec(spec: Spec) -> None:
    """So no two share a name."""
    parsed = kgen.parse(spec.name)
    assert parsed == spec
    assert parsed.name == spec.name


@given(specs())
@ANY
def test_every_name_is_an_identifier_and_fits_a_folder(spec: Spec) -> None:
    name = spec.name
    assert name.isascii() and name.isidentifier() and name.islower() and "__" not in name
    assert len(name) <= 100  # a key follows it


@given(specs())
@ANY
def test_spelling_out_the_axes_gives_the_same_spec(spec: Spec) -> None:
    values = {axis.name: value for axis, value in zip(spec.kernel.axes, spec.values, strict=True)}
    flags = {flag.name: flag.name in spec.flags for flag in spec.kernel.flags}
    assert spec.kernel.spec(dtype=spec.dtype, **values, **flags) == spec


def test_every_spec_that_a_kernel_lists_is_legal_and_listed_once(make_kernel) -> None:
    kernel = make_kernel(check=lambda spec: "too wide" if spec["N"] == 32 and spec["VEC"] == 2 else None)
    listed = list(kernel.specs())
    assert len(listed) == len(set(listed)) == 3 * 4 * (3 * 2 - 1)  # dtypes, subsets of two flags, points
    assert all(kernel.check(spec) is None for spec in listed)


def test_every_default_name_of_a_kernel_is_one_of_its_specs() -> None:
    for kernel in kgen.kernels().values():
        assert len(set(kernel.defaults)) == len(kernel.defaults)
        assert all(kgen.parse(name).kernel is kernel for name in kernel.defaults)


def test_a_launch_is_told_how_many_blocks_a_cluster_has() -> None:
    """It must ask for more than eight."""
    for spec in kgen.select():
        if "CLUSTER" in {axis.name for axis in spec.kernel.axes}:
            assert spec.derived["CLUSTER"] == spec["CLUSTER"], spec.name


def test_every_template_is_in_the_default_build() -> None:
    shown = {kernel.template for kernel in kgen.kernels().values() if kernel.defaults}
    assert {kernel.template for kernel in kgen.kernels().values()} == shown


def test_names_leave_out_defaults_and_say_flags_only_when_true(make_kernel) -> None:
    kernel = make_kernel()
    assert kernel.spec(N=64, dtype=F16).name == "toy_n64_f16"
    assert kernel.spec(N=64, VEC=1, reverse=False, dtype="f16").name == "toy_n64_f16"
    assert kernel.spec(N=64, VEC=2, twice=True, reverse=True, dtype="bf16").name == "toy_n64_v2_reverse_twice_bf16"


def test_the_symbol_is_the_name_with_a_prefix(make_kernel) -> None:
    assert make_kernel().spec(N=32, dtype=F32).symbol == "kgen_toy_n32_f32"


def test_equal_points_are_equal_and_hash_alike(make_kernel) -> None:
    kernel = make_kernel()
    one, same, other = kernel.spec(N=32, dtype=F32), kernel.spec(N=32, dtype="float32"), kernel.spec(N=64, dtype=F32)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


def test_a_spec_gives_axes_and_flags_by_name_and_refuses_others(make_kernel) -> None:
    spec = make_kernel().spec(N=64, reverse=True, dtype=F32)
    assert (spec["N"], spec["VEC"], spec["reverse"], spec["twice"]) == (64, 1, 1, 0)
    with pytest.raises(SpecError, match="toy has no axis 'WARPS'") as caught:
        spec["WARPS"]
    assert caught.value.hint == "it has N, VEC, reverse, twice"


def test_threads_and_shared_memory_are_what_the_kernel_derives(make_kernel) -> None:
    spec = make_kernel(derive=lambda spec: {"THREADS": 2 * spec["N"], "DYNAMIC_SMEM": 7}).spec(N=64, dtype=F32)
    assert (spec.threads, spec.static_smem, spec.dynamic_smem) == (128, 0, 7)


@pytest.mark.parametrize(
    ("values", "message", "taken"),
    [
        ({"N": 48, "dtype": "f32"}, "toy: N=48 (numbers per block) is not generated", "N is one of 32, 64, 128"),
        ({"dtype": "f32"}, "toy: the axis N (numbers per block) needs a value", "one of 32, 64, 128"),
        ({"N": 64}, "toy needs a dtype", "one of f32, f16"),
        ({"N": 64, "dtype": "bf16"}, "toy is not generated for bf16", "dtypes: f32, f16"),
        ({"N": 64, "WARPS": 4, "dtype": "f32"}, "toy has no axis 'WARPS'", "it has N, VEC, reverse, twice"),
        ({"WARPS": 4, "dtype": "f32"}, "toy has no axis 'WARPS'", "it has N, VEC, reverse, twice"),
        ({"N": 64, "dtype": "f64"}, "toy is not generated for f64", "dtypes: f32, f16"),
        ({"N": 128, "VEC": 2, "dtype": "f32"}, "toy_n128_v2_f32 is illegal: 256 is too many", None),
    ],
)
def test_an_illegal_point_names_the_kernel_and_what_it_takes(
    make_kernel, values: dict[str, object], message: str, taken: str | None
) -> None:
    check = lambda spec: "256 is too many" if spec["N"] * spec["VEC"] > 128 else None  # noqa: E731
    with pytest.raises(SpecError) as caught:
        make_kernel(dtypes=(F32, F16), check=check).spec(**values)
    assert str(caught.value).startswith(message)
    assert caught.value.hint == taken


@pytest.mark.parametrize("value", [64.5, "64", 32.0, None, [64]])
def test_an_axis_takes_whole_numbers_only(make_kernel, value: object) -> None:
    with pytest.raises((SpecError, TypeError)):
        make_kernel().spec(N=value, dtype=F32)


def test_a_number_of_numpy_is_a_whole_number(make_kernel) -> None:
    import numpy as np

    spec = make_kernel().spec(N=np.int64(64), dtype=np.float32)
    assert spec.name == "toy_n64_f32"
    assert type(spec.values[0]) is int


def test_the_only_dtype_of_a_kernel_need_not_be_said() -> None:
    axis = Axis("N", "n", (1, 2), "numbers")
    kernel = Kernel("single", "", "", (axis,), lambda spec: {"THREADS": 32}, dtypes=(BF16,))
    assert kernel.spec(N=operator.index(2)).name == "single_n2_bf16"
