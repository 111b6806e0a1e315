"""The kernels of usual calls: what a wheel brings for a GPU that is not here."""

from __future__ import annotations

import subprocess
import sys

import kgen


def usual(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, whose plans are for another GPU."""
    return subprocess.run([sys.executable, "-m", "kgen.usual", *words], capture_output=True, text=True, timeout=120)


def test_usual_kernels_are_the_default_ones_and_those_that_calls_take_on_that_gpu() -> None:
    hopper, ada = (set(usual(arch).stdout.split()) for arch in ("sm_90a", "sm_89"))
    default = {spec.name for spec in kgen.select()}
    ampere = [kgen.parse(name) for name in usual("sm_80").stdout.split()]
    assert ampere and all(spec.kernel.min_arch <= kgen.Arch.parse("sm_80") for spec in ampere)
    assert default < hopper
    assert all(kgen.parse(name).name == name for name in hopper | ada)
    bonus = "gated_chunk_vector_k128_v128_bonus_bf16"  # needs more shared memory than a block has on Ada
    assert bonus in hopper - ada
    assert {"linear_chunk_fine_warpgroup_bf16", "linear_team_fine_warpgroup_bf16"} < hopper  # which no executor runs
    assert any(name.startswith("gated_scan_") and name.endswith("bf16") for name in ada - default)


def test_usual_kernels_of_an_unknown_gpu_are_refused_with_those_that_are_known() -> None:
    refused = usual("sm_42")
    assert refused.returncode == 1 and "sm_90a" in refused.stderr and not refused.stdout
