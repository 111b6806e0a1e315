"""Tables, cards and disassembly say what is true, and say it aligned."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgen import report
from kgen.arch import Arch
from kgen.build import Built
from kgen.errors import ToolchainError
from kgen.nvrtc import Resources, compile_source
from kgen.occupancy import occupancy
from kgen.render import Source
from kgen.spec import Axis, Flag, Kernel, Spec

HOPPER = Arch.parse("sm_90a")
KERNEL = Kernel(
    "scale",
    "y = a x, a vector at a time.",
    "y[i] = a x[i]",
    (Axis("VEC", "v", (1, 2, 4), "elements per load"),),
    lambda spec: {"THREADS": 128, "STATIC_SMEM": 2048, "DYNAMIC_SMEM": 512},
    (Flag("reverse", "walks backwards"),),
)


@pytest.fixture
def spec() -> Spec:
    return KERNEL.spec(VEC=4, dtype="f32")


def built(spec: Spec, origin: str = "compiled", milliseconds: float = 71.4) -> Built:
    resources = Resources(registers=64, spill_stores=8, spill_loads=4, stack=16, static_smem=2048)
    return Built(Source(spec, "", ()), HOPPER, b"", resources, "nvrtc", origin, milliseconds, None)


# Reference values were computed with NVIDIA's cuda_occupancy.h.
@pytest.mark.parametrize(
    ("arch", "threads", "registers", "smem", "blocks"),
    [
        ("sm_75", 256, 64, 2048, 4),
        ("sm_80", 128, 71, 4096, 7),
        ("sm_86", 64, 16, 0, 16),
        ("sm_86", 128, 40, 20000, 4),
        ("sm_89", 64, 16, 0, 24),
        ("sm_90a", 512, 64, 16384, 2),
        ("sm_90a", 128, 32, 100_000, 2),
        ("sm_100a", 1024, 64, 0, 1),
        ("sm_120a", 128, 255, 0, 2),
        ("sm_90a", 1024, 65, 0, 0),
        ("sm_90a", 1024, 16, 232_449, 0),
    ],
)
def test_occupancy_is_nvidias(arch: str, threads: int, registers: int, smem: int, blocks: int) -> None:
    found = occupancy(Arch.parse(arch), threads, registers, smem)
    assert found is not None and found.blocks == blocks


def test_occupancy_is_the_share_of_warps() -> None:
    found = occupancy(HOPPER, 512, 64, 0)
    assert found is not None and found.warps == 2 * 16 / 64


def test_an_architecture_of_the_future_has_no_occupancy_instead_of_a_guess() -> None:
    assert occupancy(Arch.parse("sm_200"), 128, 64, 0) is None


def test_a_card_is_the_compilers_account_and_the_axes(spec: Spec) -> None:
    card = report.card(built(spec))
    assert card.as_dict() == {
        "name": "scale_v4_f32",
        "arch": "sm_90a",
        "threads": 128,
        "static_smem": 2048,
        "dynamic_smem": 512,
        "registers": 64,
        "spills": 12,
        "stack": 16,
        "blocks": 8,
        "occupancy": 0.5,
        "milliseconds": 71.4,
        "origin": "compiled",
    }


def test_a_table_of_cards_is_aligned_and_dashes_what_is_not_known(spec: Spec) -> None:
    cards = [report.card(built(spec)), report.unbuilt_card(KERNEL.spec(VEC=1, reverse=True, dtype="bf16"), HOPPER)]
    assert report.card_table(cards).splitlines() == [
        "name                   arch    threads  smem  regs  spills  blocks  warps  ms  from",
        "scale_v4_f32           sm_90a      128  2.5K    64      12       8    50%  71  compiled",
        "scale_v1_reverse_bf16  sm_90a      128  2.5K     -       -       -      -   -  not built",
    ]


def test_what_comes_from_disk_is_said_to_come_from_the_cache(spec: Spec) -> None:
    card = report.card(built(spec, "disk", 0.0))
    assert (card.origin, card.milliseconds) == ("cache", None)


def test_the_facts_of_a_kernel_name_every_axis_and_flag(spec: Spec) -> None:
    lines = report.facts_table(spec).splitlines()
    assert lines[0] == "scale_v4_f32" and "y[i] = a x[i]" in lines
    assert "VEC         4  elements per load" in lines and "reverse    no  walks backwards" in lines


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1.0K"),
        (2560, "2.5K"),
        (3 << 20, "3.0M"),
        (5 << 30, "5.0G"),
        (1 << 42, "4096.0G"),
    ],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert report.size(count) == text


def test_an_empty_table_is_its_heads() -> None:
    assert report.table(("arch", "size"), []) == "arch  size"


def test_sass_is_that_of_the_kernel_and_comparable_without_addresses(spec: Spec) -> None:
    if report.find_tool("nvdisasm") is None and report.find_tool("cuobjdump") is None:
        pytest.skip("no disassembler is installed")
    text = f'extern "C" __global__ void {spec.symbol}(float* x) {{ *x = 1.0f; }}\n'
    sass = report.disassemble(compile_source(Source(spec, text, ()), HOPPER).cubin)
    assert spec.symbol in sass and "EXIT" in sass and "/*0000*/" in sass
    plain = report.comparable(sass, spec.symbol)
    assert spec.symbol not in plain and "/*0" not in plain and "EXIT" in plain


def test_without_a_disassembler_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "find_tool", lambda name: None)
    with pytest.raises(ToolchainError, match=r"kgen\[inspect\]"):
        report.disassemble(b"")


def test_bytes_that_are_no_cubin_are_an_error_with_the_tools_own_words() -> None:
    if report.find_tool("nvdisasm") is None:
        pytest.skip("no disassembler is installed")
    with pytest.raises(ToolchainError, match="nvdisasm fails"):
        report.disassemble(b"not a cubin")


def test_a_tool_that_is_nowhere_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert report.find_tool("no-such-tool") is None
