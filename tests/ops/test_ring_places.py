"""Rows taken in turn whose results begin elsewhere: where in a sector copies begin, in memory and in shared memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kgen
from kgen.catalog import parse
from kgen.device import HOST_FACTS, Facts, stand_for
from kgen.dtypes import DTYPES
from kgen.launch import listing_steps
from kgen.ops import rows_ring
from kgen.ops.norm import words
from kgen.ops.norm.norm import fused_add_rms_norm, layer_norm, rms_norm
from kgen.ops.rows import SHARED
from kgen.ops.rows_ring import SECTOR, Cut
from kgen.ops.softmax.softmax import log_softmax, softmax
from kgen.recipe import BUILTIN_TEMPLATES
from kgen.scratch import listing
from tests.ops.test_norm_words import rows_from
from tests.ops.test_rows_ring import numbers, rows_apart, surroundings

PIECE = "common/rows_pack.cuh.j2"
ADDRESS = "    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));\n"
TRAP = f"    if ((address ^ reinterpret_cast<size_t>(from)) % {SECTOR} > 0) {{\n        __trap();\n    }}\n"


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels trap where a copy begins at another place in a sector of shared memory than in one of memory."""
    text = (BUILTIN_TEMPLATES / PIECE).read_text()
    assert text.count(ADDRESS) == 1
    (tmp_path / "common").mkdir()
    (tmp_path / PIECE).write_text(text.replace(ADDRESS, ADDRESS + TRAP))
    monkeypatch.setenv("KGEN_TEMPLATES", str(tmp_path))


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize(
    ("dtype", "operator", "about", "cut"),
    [
        ("f32", softmax, {}, Cut(2, 4, 2, 2, True)),
        ("bf16", softmax, {}, Cut(2, 8, 1, 2, True, 256)),
        ("f32", log_softmax, {}, Cut(2, 4, 1, 2, True, 256)),
        ("bf16", log_softmax, {"scale": -0.5}, Cut(2, 8, 2, 1, True)),
        ("f32", softmax, {"causal": True}, Cut(2, 4, 1, 2, True)),
        ("f16", softmax, {"causal": True, "mask": True}, Cut(2, 8, 1, 2, True, 256)),
        ("f32", log_softmax, {"mask": True}, Cut(2, 4, 2, 2, True)),
        ("f32", layer_norm, {"own": "f32"}, Cut(5, 4, 2, 2, True, 256)),
        ("bf16", layer_norm, {"own": "f32"}, Cut(4, 8, 1, 2, True, 64)),
        ("bf16", layer_norm, {"own": "bf16"}, Cut(5, 8, 2, 2, True, 128)),
        ("f16", rms_norm, {"own": "f16"}, Cut(4, 8, 1, 2, True)),
        ("f32", layer_norm, {"own": "f32", "words": True}, Cut(2, 4, 1, 2, threads=128)),
        ("bf16", rms_norm, {"own": "bf16", "words": True}, Cut(2, 8, 2, 2, threads=128)),
        ("bf16", fused_add_rms_norm, {"own": "bf16", "words": True}, Cut(2, 8, 1, 2, threads=128)),
    ],
)
def test_copies_begin_at_the_same_place_in_a_sector_of_shared_memory_as_in_memory(
    dtype: str, operator: Any, about: dict[str, Any], cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows begin at all places of a sector; so do results, but for word by word."""
    about, kind = dict(about), DTYPES[dtype].numpy
    by_words, own = about.pop("words", False), about.pop("own", None)
    monkeypatch.setattr(rows_ring, "cut", lambda *given, **more: None if by_words else cut)
    monkeypatch.setattr(words, "cut", lambda *given: cut if by_words else None)
    columns, rows = cut.packs * cut.threads * cut.cluster * cut.vec - 5 * cut.vec + 1, 2 * cut.vec + 5
    x, residual, y = (rows_apart(rows, columns, 0, offset, kind) for offset in (1, 3, 0))
    x[:], residual[:] = numbers(x.shape, dtype), numbers(x.shape, dtype, 1)
    weights = [numbers((columns,), own, seed) for seed in range(1 + (operator is layer_norm))] if own else []
    given = [x, residual] if operator is fused_add_rms_norm else [x]
    if operator in (softmax, log_softmax):
        given.append(-1)
    if about.get("mask"):
        about["mask"] = np.random.default_rng(3).random(x.shape) < 0.6
    poison = surroundings(y).copy()
    with kgen.backend("cpu"):
        with listing_steps() as steps:
            operator(*given, *weights, **about, out=y)
        assert [step.spec.kernel.name.split("_")[1] for step in steps] == ["words" if by_words else "ring"]
        assert by_words or steps[0].spec["shifted"]
        operator(*given, *weights, **about, out=y)
    assert np.isfinite(y.astype("f4")).sum() > y.size // 2 and surroundings(y).tobytes() == poison.tobytes()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("operator", [softmax, log_softmax, layer_norm, rms_norm])
def test_every_width_of_a_view_has_room_for_its_rows_whose_slots_begin_with_a_sector(dtype: str, operator: Any) -> None:
    """On an H200, of x[1:]; a logarithm has three rows in shared memory."""
    kind = DTYPES[dtype].numpy
    stand_for(Facts(132, SHARED, "sm_90a"))
    ringed = 0
    try:
        with kgen.backend("cpu"), listing():
            for columns in range(4097, 2**18 + 1, 3331):
                x, y = (rows_from(np.empty(2400 * columns + 64, kind), by, (2400, columns)) for by in (1, 0))
                weights = [np.empty(columns, kind)] * {layer_norm: 2, rms_norm: 1}.get(operator, 0)
                with listing_steps() as steps:
                    operator(x, *(weights or [-1]), out=y)
                for step in steps:
                    spec = parse(step.spec.name)
                    if spec.kernel.name in ("softmax_ring", "norm_ring", "norm_words"):
                        ringed += 1
                        assert spec.static_smem % SECTOR == 0
                        assert spec.derived["STAGES"] >= (3 if operator is log_softmax else 2)
    finally:
        stand_for(HOST_FACTS)
    assert ringed > 9
