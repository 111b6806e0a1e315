"""One-instruction kernels on the executor give what a real H200 gave, for every form of the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cpu.conformance import executor
from tests.cpu.conformance.compare import complaint
from tests.cpu.conformance.form import Form, parse
from tests.cpu.conformance.golden import Golden, canonical, digests, sampled
from tests.cpu.conformance.kernels import symbol
from tests.cpu.conformance.tables import forms

GOLDEN = Golden(Path(__file__).parent / "golden" / "h200.npz")
FORMS = forms()
UNIT = 40  # forms that are compiled together
UNITS = [FORMS[at : at + UNIT] for at in range(0, len(FORMS), UNIT)]


@pytest.mark.parametrize("unit", UNITS, ids=[symbol(unit[0]).removeprefix("form_") for unit in UNITS])
def test_forms_give_what_an_h200_gave(unit):
    found = [complaint(form, outs, GOLDEN) for form, outs in executor.run(unit)]
    wrong = [text for text in found if text]
    assert not wrong, f"{len(wrong)} of {len(unit)} forms differ\n" + "\n".join(wrong)


def test_every_form_has_golden_data_of_the_inputs_that_are_made_here(capsys):
    missing = [form.name for form in FORMS if form not in GOLDEN]
    assert not missing
    changed = [form.name for form in FORMS if not GOLDEN.same_inputs(form)]
    assert not changed
    exact = sum(not form.ulp for form in FORMS)
    with capsys.disabled():
        print(
            f"\n{len(FORMS)} forms recorded on {GOLDEN.about['device']} (NVRTC {GOLDEN.about['nvrtc']}, driver API "
            f"{GOLDEN.about['driver']}), {exact} of them compared bit for bit"
        )


def test_forms_and_their_kernels_have_one_name_each():
    assert len({form.name for form in FORMS}) == len({symbol(form) for form in FORMS}) == len(FORMS)


def test_every_scalar_instruction_of_the_executor_is_tried():
    from kgen import cpu

    tried = {form.name.split(" ")[0] for form in FORMS} | {
        part.split()[0] for f in FORMS for part in f.name.split("; ")
    }
    untried = [opcode for opcode in cpu.forms() if opcode not in tried]
    # Other spellings of the same: .b32 for .u32, the default rounding left out, and the like.
    assert len(untried) < len(cpu.forms()) / 3, untried


# The comparison itself.


def made(form: Form) -> list[np.ndarray]:
    return [np.arange(form.cases, dtype=np.uint64) & np.uint64(0xFF) for _ in form.outs]


def golden_of(form: Form, outs, tmp_path: Path) -> Golden:
    from tests.cpu.conformance import golden

    golden.save(tmp_path / "golden.npz", {}, {form: outs})
    return Golden(tmp_path / "golden.npz")


def test_one_wrong_bit_in_any_lane_is_found(tmp_path):
    form = next(parse("add.u32 | u32 | u32 u32"))
    golden = golden_of(form, made(form), tmp_path)
    assert not complaint(form, made(form), golden)
    for lane in (*sampled(form)[:3], 4001, form.cases - 1):
        outs = made(form)
        outs[0][lane] ^= np.uint64(1)
        assert form.name in complaint(form, outs, golden)


def test_a_bound_is_a_bound(tmp_path):
    form = next(parse("ex2.approx.f32 | f32 | f32 | ulp=2"))
    golden = golden_of(form, made(form), tmp_path)
    lane = sampled(form)[200]
    for steps, passes in ((1, True), (2, True), (3, False)):
        outs = made(form)
        outs[0][lane] += np.uint64(steps)
        assert (not complaint(form, outs, golden)) == passes


def test_any_nan_of_a_float_equals_any_other_and_no_number():
    nans = np.array([0x7FFFFFFF, 0xFFC00000, 0x7F800001], np.uint64)
    assert len(set(canonical("f32", nans).tolist())) == 1
    assert canonical("f32", np.array([0x7F800000], np.uint64))[0] == 0x7F800000
    assert canonical("f16", np.array([0x7E00], np.uint64))[0] == 0x7E00
    form = next(parse("neg.f32 | f32 | f32"))
    same, other = np.full(form.cases, 0x7FFFFFFF, np.uint64), np.full(form.cases, 0xFFC00000, np.uint64)
    assert (digests(form, [same]) == digests(form, [other])).all()
