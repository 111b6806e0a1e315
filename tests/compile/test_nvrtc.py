"""The compiler, with no GPU: every architecture, whole and reproducible cubins, and errors that show the lines."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import kgen
from kgen import nvrtc, toolkit
from kgen.arch import Arch
from kgen.build import Built, build
from kgen.dtypes import BF16, F16, F32, DType
from kgen.errors import ArchError, CompileError, ToolchainError
from kgen.nvrtc import Flags, Resources, compile_ptx, compile_source, compiler_id, supported_archs
from kgen.ops.gated.linear_chunk import LINEAR
from kgen.ops.gated.linear_team import TEAM
from kgen.render import render
from kgen.spec import Kernel, Spec
from tests.compiling import LINED, ptx_once

MakeKernel = Callable[..., Kernel]
RunPython = Callable[..., str]

SM_80, SM_90A, SM_100A = map(Arch.parse, ("sm_80", "sm_90a", "sm_100a"))
SPILLS_ALLOWED = {
    "lmha_chunk_e128_m128": 128,
    "lmha_chunk_e128_m128_adds": 160,
    "gated_scan_query": 48,
    "gated_scan_key": 40,
    "gated_chunk_k128_v128_w8": 64,
    "gated_chunk_k64_v64_w4_g1": 48,
    "linear_chunk": 16,
    "linear_chunk_outer": 32,
    "linear_chunk_g1": 28,
    "linear_chunk_k256": 40,
    "linear_team": 52,
    "gated_sum": 56,
    "gated_chunk_vector": 24,
    "gated_chunk_vector_k64": 32,
    "gated_vector_team": 120,
    "gated_chunk_vector_ends": 56,
    "gated_chunk_vector_state": 64,
    "gated_chunk_vector_gradient": 220,
    "gated_chunk_vector_gradient_r128_fsplit": 228,
    "gemv_v4_l32_r1_u1": 24,
    "norm_backward_ring_n4_v8_c4_bias_ragged": 12,
    "gemv_columns_v8_l32_u8_partial": 16,
    "gemv_columns_quantized_v16_l32_u8_inner_partial": 16,
}
"""Bytes that a thread of these may spill. lmha_chunk: 16 warps leave each thread 128 registers, the state takes 64 of
them, and where no warp can hand registers over (before sm_90) what `adds` has on its way from memory comes on top.
gated_chunk, linear_chunk and linear_team: twelve warps leave 168, or eight with two blocks 128, and the state and its
operands take most of them (the defaults of the last two multiply as the executor does; what Hopper runs is below).
gated_sum: the compiler takes 32 to 48 of 255 registers that its launch bounds leave it, too few for its four rounds.
gated_chunk_vector and gated_vector_team: of as many warps some hold a state that takes 128 registers of each thread.
The others are at the limit that their blocks per multiprocessor set, on one architecture of the three."""

pytestmark = pytest.mark.usefixtures("shared_cache")


@pytest.fixture
def spec(make_kernel: MakeKernel) -> Spec:
    return make_kernel().spec(N=64, reverse=True, dtype=F16)


def every_arch() -> list[Arch]:
    """What the devices that this compiler knows are compiled for: from Hopper on with their own features."""
    return [Arch.of_device((arch.major, arch.minor)) for arch in supported_archs()]


def built_for(arch: Arch, specs: Iterable[Spec]) -> Iterator[Built]:
    """Each of the specializations that takes an architecture; with its lines, as the executor takes it for Hopper."""
    return (build(spec, arch, flags=LINED) for spec in specs if spec.kernel.min_arch <= arch)


def one_of_every_template() -> list[Spec]:
    kernels = kgen.kernels().values()
    return list({kernel.template: kgen.parse(kernel.defaults[0]) for kernel in kernels if kernel.defaults}.values())


BESIDE_HOPPER = {SM_80: 0, SM_100A: 1}
"""Architectures that have every second default kernel each, and with which of them they begin."""


def beside_hopper(arch: Arch) -> list[Spec]:
    return [spec for spec in kgen.select()[BESIDE_HOPPER[arch] :: 2] if spec.kernel.min_arch <= arch]


@pytest.mark.parametrize("generation", ("7", "8", "10 11", "12"))
def test_one_default_of_every_template_compiles_for_every_generation(generation: str) -> None:
    """Its architectures take them in turn, but for those that one of them has below; Hopper has all of them."""
    archs = [arch for arch in every_arch() if str(arch.major) in generation.split()]
    if not archs:
        pytest.skip(f"{compiler_id()} knows none of them")
    below = {spec.kernel.template for arch in BESIDE_HOPPER if arch in archs for spec in beside_hopper(arch)}
    tried = [spec for spec in one_of_every_template() if spec.kernel.template not in below]
    for nth, arch in enumerate(archs):
        assert all(built.arch == arch for built in built_for(arch, tried[nth :: len(archs)]))


def surprises_of(built: Built) -> str | None:
    """Shared memory that its specialization does not predict, or registers that it spills."""
    found = built.resources
    if found.static_smem != built.spec.static_smem:
        return f"{found.static_smem} bytes of shared memory, not {built.spec.static_smem}"
    allowed = max((most for stem, most in SPILLS_ALLOWED.items() if built.spec.name.startswith(stem)), default=0)
    spills = max(found.spill_stores, found.spill_loads) > allowed
    return f"spills {found.spill_stores} + {found.spill_loads} bytes" if spills else None


@pytest.mark.parametrize("part", range(4))  # for workers side by side
def test_defaults_use_the_shared_memory_that_their_spec_predicts_and_do_not_spill(part: int) -> None:
    surprises = {built.spec.name: surprises_of(built) for built in built_for(SM_90A, kgen.select()[part::4])}
    assert {name: told for name, told in surprises.items() if told} == {}


@pytest.mark.parametrize("arch", BESIDE_HOPPER, ids=str)
def test_so_they_do_on_the_generations_beside_hopper(arch: Arch) -> None:
    if arch not in every_arch():
        pytest.skip(f"{compiler_id()} does not know {arch}")
    surprises = {built.spec.name: surprises_of(built) for built in built_for(arch, beside_hopper(arch))}
    assert {name: told for name, told in surprises.items() if told} == {}


@pytest.mark.parametrize(("fine", "most"), [(False, 8), (True, 0)])
def test_teams_whose_warpgroups_multiply_spill_no_more_than_two_numbers(fine: bool, most: int) -> None:
    found = compile_source(render(TEAM.spec(fine=fine, warpgroup=True)), SM_90A).resources
    assert max(found.spill_stores, found.spill_loads) <= most


@pytest.mark.parametrize("flags", [{}, {"fine": True}, {"pair": True}, {"outer": True}], ids=str)
def test_scans_whose_warpgroups_multiply_do_not_spill(flags: dict[str, bool]) -> None:
    found = compile_source(render(LINEAR.spec(**flags, warpgroup=True)), SM_90A).resources
    assert found.spill_stores == found.spill_loads == 0


def test_a_cubin_is_a_whole_elf_file(spec: Spec) -> None:
    cubin = compile_source(render(spec), SM_90A).cubin
    assert cubin[:4] == b"\x7fELF"
    offset, size, count = (int.from_bytes(cubin[a:b], "little") for a, b in ((32, 40), (54, 56), (56, 58)))
    assert offset + size * count == len(cubin), "its program headers, which stand last, end with the file"


def test_nvidias_disassembler_opens_a_cubin_and_finds_the_symbol(spec: Spec, tmp_path: Path) -> None:
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    (tmp_path / "kernel.cubin").write_bytes(compile_source(render(spec), SM_90A).cubin)
    told = subprocess.run([tool, tmp_path / "kernel.cubin"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert f".text.{spec.symbol}" in told.stdout


@cache
def disassembler() -> Path | str | None:
    wheels = find_spec("nvidia")
    folders = (wheels.submodule_search_locations if wheels else None) or []
    found = (tool for folder in folders for tool in Path(folder).glob("cu*/bin/nvdisasm"))
    return shutil.which("nvdisasm") or next(found, None)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_compiling_again_gives_the_same_bytes(make_kernel: MakeKernel, dtype: object) -> None:
    source = render(make_kernel().spec(N=64, dtype=dtype))
    one, two = compile_source(source, SM_90A), compile_source(source, SM_90A)
    assert one.cubin == two.cubin
    assert one.resources == two.resources


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_beside_a_cubin_with_its_lines_lies_the_ptx_that_the_executor_asks_for(
    make_kernel: MakeKernel, dtype: DType, tmp_path: Path
) -> None:
    source = render(make_kernel().spec(N=64, dtype=dtype))
    expected = compile_ptx(source.text, source.spec.name, SM_90A)
    with ptx_once(tmp_path / "ptx"):
        compile_source(source, SM_90A, LINED)
        (kept,) = (tmp_path / "ptx").iterdir()
        assert compile_ptx(source.text, source.spec.name, SM_90A) == expected
        assert [*(tmp_path / "ptx").iterdir()] == [kept], "it was not compiled again"


def test_threads_that_compile_side_by_side_get_what_each_would_alone(make_kernel: MakeKernel) -> None:
    sources = [render(make_kernel().spec(N=n, reverse=r, dtype=F16)) for n in (32, 64, 128) for r in (False, True)]
    alone = [compile_source(source, SM_90A).cubin for source in sources]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda source: compile_source(source, SM_90A).cubin, sources))
    assert together == alone
    assert len(set(alone)) == len(alone)


def test_resources_are_the_assemblers_account(spec: Spec) -> None:
    binary = compile_source(render(spec), SM_80)
    assert (binary.name, binary.symbol, binary.arch, binary.compiler) == (spec.name, spec.symbol, SM_80, compiler_id())
    assert binary.resources.static_smem == 4 * 64
    assert 4 <= binary.resources.registers <= 64
    assert binary.milliseconds > 0
    assert Resources(**binary.resources.as_dict()) == binary.resources


def test_a_spill_is_noticed(make_kernel: MakeKernel) -> None:
    """Or the absence of spills elsewhere would prove nothing."""
    body = "float x[64];\nfor (int i = 0; i < 64; ++i) x[i] = y[i * n];\nfor (int j = 0; j < n; ++j) {\n"
    body += "".join(f"x[{i}] = x[{i}] * x[{(i * 7 + 1) % 64}] + y[j];\n" for i in range(64))
    body += "}\nfor (int i = 0; i < 64; ++i) y[i * n] = x[i];\n"
    text = f'extern "C" __global__ void __launch_bounds__(1024, 2) {{{{ symbol }}}}(float* y, int n)\n{{\n{body}}}\n'
    found = compile_source(render(make_kernel("spiller", text).spec(N=64, dtype=F32)), SM_80).resources
    assert min(found.spill_stores, found.spill_loads, found.stack) > 0


def test_line_info_is_there_when_asked_for_and_no_folder_is_named_without(spec: Spec) -> None:
    plain, lined = (compile_source(render(spec), SM_90A, Flags(lineinfo=lineinfo)).cubin for lineinfo in (False, True))
    assert b".debug_line" in lined
    assert b".debug_line" not in plain
    assert f"{spec.name}.cu".encode() in lined
    assert str(Path.cwd()).encode() not in plain


def test_the_compiler_reads_no_file_from_the_working_folder(
    make_kernel: MakeKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kgen").mkdir()  # as in the name that the compiler is given
    for folder in (tmp_path, tmp_path / "kgen"):
        (folder / "local.h").write_text("constexpr int FROM_DISK = 1;\n")
    monkeypatch.chdir(tmp_path)
    source = render(make_kernel(template='#include "local.h"\n').spec(N=64, dtype=F32))
    with pytest.raises(CompileError, match=r"local\.h"):
        compile_source(source, SM_90A)


def test_a_users_kernel_may_use_textures_and_the_runtimes_types(make_kernel: MakeKernel) -> None:
    """NVRTC leaves them out at first."""
    text = """extern "C" __global__ void {{ symbol }}(cudaTextureObject_t picture, cudaError_t* told, float* y)
{
    y[0] = tex2D<float>(picture, 0.5f, 0.5f);
    *told = cudaSuccess;
}
"""
    source = render(make_kernel("own", text).spec(N=64, dtype=F32))
    assert compile_source(source, SM_90A).cubin
    assert "tex.2d" in compile_ptx(source.text, "own", SM_90A)


@pytest.mark.parametrize("spec", kgen.select()[::70], ids=str)
def test_what_is_left_out_changes_no_cubin(spec: Spec) -> None:
    source = render(spec)
    less = ("--gpu-architecture=sm_90a", *Flags().options, f"--include-path={toolkit.header_folder()}")
    all_names = tuple(option for option in less if option != "--minimal")
    assert len(all_names) < len(less)
    one, two = (nvrtc._nvrtc_call(source.text, "kgen/k.cu", options, "getCUBIN")[0] for options in (less, all_names))
    assert one == two


# Errors

BROKEN = """\
{% include "common/header.j2" %}

extern "C" __global__ void {{ symbol }}(float* y)
{
    const float one = 1.0f;
    y[0] = one + nonsense;
    // behind the fault
}
"""


def test_a_compile_error_shows_the_lines_the_template_the_arch_and_how_to_repeat_it(make_kernel: MakeKernel) -> None:
    source = render(make_kernel("broken", BROKEN).spec(N=64, dtype=F32))
    with pytest.raises(CompileError) as caught:
        compile_source(source, SM_90A)
    error, message = caught.value, str(caught.value)
    at = source.text.splitlines().index("    y[0] = one + nonsense;") + 1
    assert message.startswith(f"broken_n64_f32 does not compile for sm_90a ({compiler_id()})\n")
    assert f'  broken_n64_f32.cu:{at} (broken.cu.j2:6): error: identifier "nonsense" is undefined' in message
    assert f"  > {at:4} |     y[0] = one + nonsense;" in message
    assert f"    {at - 1:4} |     const float one = 1.0f;" in message
    assert f"    {at + 1:4} |     // behind the fault" in message
    assert "one + nonsense" in error.log
    assert error.hint == "rendered from broken.cu.j2; reproduce: kgen build broken_n64_f32 --arch sm_90a"


def test_a_compile_error_in_a_line_that_stands_twice_names_no_line_of_the_template(make_kernel: MakeKernel) -> None:
    twice = BROKEN.replace("    // behind the fault\n", "    y[0] = one + nonsense;\n")
    with pytest.raises(CompileError, match=r"broken_n64_f32\.cu:\d+: error: identifier"):
        compile_source(render(make_kernel("broken", twice).spec(N=64, dtype=F32)), SM_90A)


def test_many_errors_are_cut_short_and_counted(make_kernel: MakeKernel) -> None:
    lines = "".join(f"    y[{i}] = nonsense{i};\n" for i in range(9))
    text = f'extern "C" __global__ void {{{{ symbol }}}}(float* y)\n{{\n{lines}}}\n'
    with pytest.raises(CompileError, match="and 4 more") as caught:
        compile_source(render(make_kernel("broken", text).spec(N=64, dtype=F32)), SM_90A)
    assert len(re.findall(r"error: identifier", str(caught.value))) == 5


def test_what_the_assembler_refuses_is_a_compile_error_too(make_kernel: MakeKernel) -> None:
    text = 'extern "C" __global__ void {{ symbol }}(int* y)\n{\n    asm("nonsense.u32 %0;" : "=r"(y[0]));\n}\n'
    with pytest.raises(CompileError, match=r"(?s)broken_n64_f32 does not compile for sm_90a.*nonsense"):
        compile_source(render(make_kernel("broken", text).spec(N=64, dtype=F32)), SM_90A)


def test_too_much_shared_memory_is_said_without_the_assemblers_statistics(make_kernel: MakeKernel) -> None:
    text = """extern "C" __global__ void {{ symbol }}(float* y)
{
    __shared__ volatile float all[1 << 16];
    all[threadIdx.x] = y[0];
    y[1] = all[threadIdx.x ^ 1];
}
"""
    with pytest.raises(CompileError, match="uses too much shared data") as caught:
        compile_source(render(make_kernel("broken", text).spec(N=64, dtype=F32)), SM_90A)
    assert "ptxas info" not in str(caught.value) and "ptxas info" in caught.value.log


@pytest.mark.parametrize("head", ['extern "C" __global__ void saxpy', "__global__ void {{ symbol }}"])
def test_a_text_whose_kernel_has_another_name_is_refused(make_kernel: MakeKernel, head: str) -> None:
    with pytest.raises(
        CompileError, match="broken_n64_f32: the text has no kernel kgen_broken_n64_f32, but "
    ) as caught:
        compile_source(render(make_kernel("broken", f"{head}(float* y) {{ y[0] = 1; }}").spec(N=64, dtype=F32)), SM_90A)
    assert caught.value.hint == 'broken.cu.j2 must declare it as extern "C" __global__ void {{ symbol }}(...)'


def test_a_fault_within_a_toolkit_header_does_not_show_unrelated_lines(make_kernel: MakeKernel) -> None:
    text = "#define __half nonsense nonsense\n#include <cuda_fp16.h>\n" + 5000 * "// ours\n"
    with pytest.raises(CompileError) as caught:
        compile_source(render(make_kernel("broken", text).spec(N=64, dtype=F32)), SM_90A)
    assert "  > " not in str(caught.value)
    assert "cuda_fp16.h" in str(caught.value)


@pytest.mark.parametrize("arch", ["sm_99", "sm_30", "sm_80a"])
def test_an_arch_that_the_compiler_does_not_know_lists_those_that_it_does(spec: Spec, arch: str) -> None:
    spec = Spec(Kernel(**{**vars(spec.kernel), "min_arch": Arch(1, 0)}), spec.values, spec.flags, spec.dtype)
    with pytest.raises(ArchError, match=f"toy_n64_reverse_f16: the compiler does not know {arch}") as caught:
        compile_source(render(spec), Arch.parse(arch))
    assert all(str(known) in str(caught.value.hint) for known in supported_archs())
    assert compiler_id() in str(caught.value.hint)


@pytest.mark.parametrize("arch", ["sm_75", "sm_89", "sm_90"])
def test_an_arch_too_old_for_the_kernel_is_refused_before_compiling(make_kernel: MakeKernel, arch: str) -> None:
    spec = make_kernel(min_arch=SM_90A).spec(N=64, dtype=F32)
    with pytest.raises(ArchError, match=f"toy_n64_f32 needs sm_90a or later, not {arch}"):
        compile_source(render(spec), Arch.parse(arch))


def test_without_nvrtc_the_error_says_what_to_install(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy.cuda", ModuleType("cupy.cuda"))  # has no nvrtc
    with pytest.raises(ToolchainError, match="NVRTC, the compiler, cannot be loaded") as caught:
        compile_source(render(spec), SM_90A)
    assert "pip install 'kgen[cuda13]'" in str(caught.value.hint)


def test_without_the_toolkits_headers_the_error_says_what_to_install(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuda import pathfinder

    toolkit.header_folder.cache_clear()
    monkeypatch.setattr(pathfinder, "find_nvidia_header_directory", lambda name: None)
    with pytest.raises(ToolchainError, match=r"cuda_fp16\.h") as caught:
        compile_source(render(spec), SM_90A)
    assert "pip install" in str(caught.value.hint)
    monkeypatch.undo()
    toolkit.header_folder.cache_clear()


# What decides a cubin beside the text


def test_naming_the_compiler_loads_none_when_it_is_a_wheel(run_python: RunPython) -> None:
    if toolkit.wheel_version() is None:
        pytest.skip("NVRTC is not installed as a wheel")
    program = "import sys; from kgen.nvrtc import compiler_id; print(compiler_id(), 'cupy' in sys.modules)"
    assert run_python(program).split() == ["nvrtc", *compiler_id().split()[1:], "False"]


def test_the_wheel_s_library_is_open_before_cupy_asks_and_cupy_takes_the_same(run_python: RunPython) -> None:
    if toolkit.wheel_version() is None:
        pytest.skip("NVRTC is not installed as a wheel")
    program = """
import kgen.toolkit as ours

def opened():
    maps = open("/proc/self/maps").read().splitlines()
    return sorted({line.split()[-1] for line in maps if "/libnvrtc.so" in line})

before = opened()
ours.open_library()
print(before, len(opened()), opened() == (ours.nvrtc().getVersion() and opened()))
"""
    assert run_python(program).split() == ["[]", "1", "True"]


def test_a_compiler_that_is_no_wheel_is_known_by_its_banner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_version", lambda distribution: None)
    ask = compiler_id.__wrapped__
    assert re.fullmatch(r"nvrtc [0-9a-f]{12}", ask())
    assert ask() == ask()


def test_the_header_digest_covers_the_headers_and_what_goes_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toolkit.header_digest([]) == ""
    fp16, bf16 = "cuda_fp16.h", "cuda_bf16.h"
    assert len({toolkit.header_digest(names) for names in ([], [fp16], [bf16], [fp16, bf16])}) == 4
    monkeypatch.setattr(toolkit, "header_folder", lambda: tmp_path)
    digests = []
    for text in ("// one\n", "// two\n"):
        (tmp_path / "cuda_fp16.hpp").write_text(text)
        toolkit._file_digest.cache_clear()
        digests.append(toolkit.header_digest([fp16]))
    toolkit._file_digest.cache_clear()
    assert digests[0] != digests[1]
