"""Every verb answers in text and in JSON, exits 0, 1 or 2, and says what is wrong without a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from kgen import device, doctor, registry, report, toolkit
from kgen.arch import Arch
from kgen.cli import main
from kgen.commands import common
from kgen.errors import CacheWarning, DeviceError, ToolchainError
from kgen.render import render
from kgen.spec import Axis, Kernel

N = Axis("N", "n", (32, 64), "threads")

GOOD = """// {{ name }}
constexpr int N = {{ N }};
extern "C" __global__ void {{ symbol }}(float* x)
{
    x[threadIdx.x] *= N;
}
"""
BAD = GOOD.replace("*= N", "*= {{ 'undeclared' if N == 64 else 'N' }}")


def kgen(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="kgen")


def json_of(*words: str, code: int = 0) -> Any:
    result = kgen(*words, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands run in a folder of their own."""
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def good(own_registry: None, make_kernel: Callable[..., Kernel]) -> Kernel:
    """The one kernel there is; by default both of its points are built."""
    registry._registry.clear()
    return make(make_kernel, "good", GOOD, defaults=("good_n32_f32", "good_n64_f32"))


def make(make_kernel: Callable[..., Kernel], name: str, text: str, **more: Any) -> Kernel:
    return make_kernel(name, text, axes=(N,), flags=(), derive=lambda spec: {"THREADS": spec["N"]}, **more)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ToolchainError("NVRTC cannot be loaded", hint="pip install it")

    monkeypatch.setattr(toolkit, "nvrtc", missing)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> int:
        raise DeviceError("no GPU can be used here")

    monkeypatch.setattr(device, "current_device", missing)


# All verbs


def verbs(group: click.Group = main, *path: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found += verbs(command, *path, name) if isinstance(command, click.Group) else [(*path, name)]
    return found


@pytest.mark.parametrize("verb", verbs(), ids=" ".join)
def test_every_verb_has_help_and_json(verb: tuple[str, ...]) -> None:
    result = kgen(*verb, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout


def test_help_imports_nothing_heavy(run_python: Callable[..., str]) -> None:
    program = "import sys\nfrom kgen.cli import main\nmain(['--help'], standalone_mode=False)\n"
    heavy = "[x for x in ('cupy', 'numpy', 'jinja2', 'torch', 'cuda') if x in sys.modules]"
    assert run_python(f"{program}print({heavy})").splitlines()[-1] == "[]"


def test_the_verbs_stand_in_the_order_of_work() -> None:
    looked = ["list", "build", "show", "sass", "diff"]
    assert list(main.commands) == [*looked, "check", "bench", "bandwidth", "demo", "cache", "doctor"]


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nonsense"),
        ("show", "good_n48_f32"),
        ("build", "nonsense"),
        ("list", "n=7"),
        ("build", "--arch", "ninety"),
        ("sass", "good_n32_f32", "--arch", "ninety"),
        ("bench", "nonsense"),
        ("bandwidth", "nonsense"),
        ("cache", "trim", "--max-size", "much"),
        ("cache", "trim", "--max-size", "²"),  # a digit to Python, and no number
        ("cache", "trim"),
        ("nonsense",),
        ("list", "--nonsense"),
    ],
    ids=" ".join,
)
def test_what_does_not_exist_exits_2_with_a_message_and_an_empty_stdout(words: tuple[str, ...]) -> None:
    result = kgen(*words)
    assert result.exit_code == 2
    assert result.stdout == "" and result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_shows_its_hint() -> None:
    assert kgen("show", "nonsense").stderr == "kgen: no kernel is called 'nonsense'\n  hint: known: good\n"


def test_traceback_is_there_for_who_asks() -> None:
    assert isinstance(kgen("--traceback", "show", "nonsense").exception, ValueError)


def test_a_bad_setting_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_CACHE_SIZE", "much")
    result = kgen("cache", "info")
    assert result.exit_code == 2 and "KGEN_CACHE_SIZE" in result.stderr


def test_a_folder_that_cannot_be_written_exits_1_without_a_traceback(place: Path) -> None:
    (place / "file").write_text("")
    result = kgen("build", "--out", "file/generated")
    assert result.exit_code == 1 and result.stderr.startswith("kgen: ")


def test_a_warning_is_one_line_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object) -> list[object]:
        warnings.warn("the cache is full of holes", CacheWarning, stacklevel=2)
        return []

    monkeypatch.setattr("kgen.store.Store.entries", warn)
    assert kgen("cache", "ls").stderr == "kgen: warning: the cache is full of holes\n"


def test_nothing_is_coloured_where_nobody_sees_it() -> None:
    for words in (("build",), ("show", "good_n32_f32"), ("diff", "good_n32_f32", "good_n64_f32"), ("list",)):
        assert "\x1b" not in kgen(*words).output


def test_a_reader_that_leaves_early_causes_no_noise(tmp_path: Path) -> None:
    program = "from kgen.cli import main\nmain(['list', 'lmha'], prog_name='kgen')"
    root = str(Path(common.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PYTHONPATH": root}
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_progress_shows_on_a_terminal_only_and_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with common.StatusLine() as line:
        line.say("1/2")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with common.StatusLine() as line:
        line.say("1/2")
    assert capsys.readouterr().err.endswith("  1/2\r\x1b[K")


# list


def test_list_without_words_shows_the_default_set(make_kernel: Callable[..., Kernel]) -> None:
    make(make_kernel, "other", GOOD)
    result = kgen("list", "--arch", "sm_90a")
    heads, *lines = result.stdout.splitlines()
    assert heads.split() == ["name", "arch", "threads", "smem", "regs", "spills", "blocks", "warps", "ms", "from"]
    assert [line.split()[0] for line in lines] == ["good_n32_f32", "good_n64_f32"]


def test_list_kernels_shows_how_names_are_written(make_kernel: Callable[..., Kernel]) -> None:
    make(make_kernel, "other", GOOD)
    assert "other_nN_{f32,f16,bf16}\n" in kgen("list", "--kernels").stdout
    assert {kernel["name"] for kernel in json_of("list", "--kernels")["kernels"]} >= {"good", "other"}


def test_list_kernels_by_name_and_glob_and_counts_them(make_kernel: Callable[..., Kernel]) -> None:
    make(make_kernel, "other", GOOD)
    assert kgen("list", "--kernels", "--count").stdout == "2\n"
    assert json_of("list", "--kernels", "--count", "oth*") == {"count": 1}
    assert kgen("list", "--kernels", "good").stdout.startswith("good_nN_{f32,f16,bf16}\n")
    refused = kgen("list", "--kernels", "good", "n=32")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "kgen: no kernel is called 'n=32'\n  hint: known: good, other\n"


def test_list_by_words_and_count(make_kernel: Callable[..., Kernel]) -> None:
    make(make_kernel, "other", GOOD)
    assert kgen("list", "other", "n=32", "--count").stdout == "3\n"
    assert json_of("list", "*_n64_*", "dtype=f16,f32", "--count") == {"count": 4}


def test_list_says_what_is_in_the_cache_and_what_it_takes() -> None:
    kgen("build", "good_n32_f32", "--arch", "sm_90a")
    document = json_of("list", "--arch", "sm_90a")
    assert document["arch"] == "sm_90a"
    built, unbuilt = document["kernels"]
    assert (built["name"], built["origin"], unbuilt["origin"]) == ("good_n32_f32", "cache", "not built")
    assert built["registers"] > 0 and built["milliseconds"] > 0 and unbuilt["registers"] is None
    assert {kernel["origin"] for kernel in json_of("list", "--arch", "sm_80")["kernels"]} == {"not built"}


def test_list_is_for_hopper_where_there_is_no_gpu(no_gpu: None) -> None:
    assert json_of("list")["arch"] == "sm_90a"


def test_list_is_for_the_device_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "current_device", lambda: 0)
    monkeypatch.setattr(device, "device_arch", lambda device: Arch(8, 6))
    assert json_of("list")["arch"] == "sm_86"


def test_list_survives_a_template_that_does_not_render(make_kernel: Callable[..., Kernel]) -> None:
    make(make_kernel, "broken", "{{ nonsense }}")
    assert kgen("list", "broken").exit_code == 0


# build


def test_build_emits_compiles_and_tells(place: Path, good: Kernel) -> None:
    result = kgen("build", "--arch", "sm_80,sm_90a")
    assert result.exit_code == 0 and result.stderr == ""
    folder = place / "generated" / "good"
    assert (folder / "good_n32_f32.cu").read_text() == render(good.spec(N=32, dtype="f32")).text
    assert (folder / "good_n64_f32.sm_90a.cubin").read_bytes().startswith(b"\x7fELF")
    lines = result.stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:-2]] == [
        ["good_n32_f32", "sm_80", "32"],
        ["good_n32_f32", "sm_90a", "32"],
        ["good_n64_f32", "sm_80", "64"],
        ["good_n64_f32", "sm_90a", "64"],
    ]
    assert lines[-1].startswith("2 sources written, 0 unchanged; 4 compiled, 0 from cache, 0 failed; ")


def test_a_second_build_is_byte_identical_and_from_the_cache(place: Path) -> None:
    def files() -> dict[Path, tuple[bytes, int]]:
        found = (path for path in (place / "generated").rglob("*") if path.is_file())
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}

    kgen("build", "--arch", "sm_90a")
    before = files()
    result = kgen("build", "--arch", "sm_90a")
    assert files() == before and len(before) == 5
    assert "0 sources written, 2 unchanged; 0 compiled, 2 from cache, 0 failed" in result.stdout


def test_a_forced_build_compiles_the_same_bytes_again(place: Path) -> None:
    kgen("build", "--arch", "sm_90a")
    cubin = place / "generated" / "good" / "good_n32_f32.sm_90a.cubin"
    before = cubin.read_bytes()
    assert "2 compiled, 0 from cache" in kgen("build", "--arch", "sm_90a", "--force", "-j", "1").stdout
    assert cubin.read_bytes() == before


def test_build_json_has_all_of_it() -> None:
    document = json_of("build", "good_n32_f32", "--arch", "sm_90a")
    assert document["sources"] == {"written": ["good/good_n32_f32.cu"], "unchanged": [], "removed": []}
    assert (document["skipped"], document["failed"]) == ([], [])
    (card,) = document["kernels"]
    assert (card["name"], card["arch"], card["origin"], card["spills"]) == ("good_n32_f32", "sm_90a", "compiled", 0)


def test_one_kernel_that_does_not_compile_stops_no_other(make_kernel: Callable[..., Kernel], place: Path) -> None:
    make(make_kernel, "bad", BAD)
    result = kgen("build", "bad", "good", "dtype=f32", "--arch", "sm_90a")
    assert result.exit_code == 1
    assert "3 compiled, 0 from cache, 1 failed" in result.stdout
    assert "bad_n64_f32 does not compile for sm_90a" in result.stderr and "undeclared" in result.stderr
    assert (place / "generated" / "bad" / "bad_n32_f32.sm_90a.cubin").exists()
    assert (place / "generated" / "bad" / "bad_n64_f32.cu").exists()  # to be read


def test_one_template_that_does_not_render_stops_no_other(make_kernel: Callable[..., Kernel], place: Path) -> None:
    make(make_kernel, "broken", "{{ nonsense }}", defaults=("broken_n32_f32",))
    document = json_of("build", "--arch", "sm_90a", code=1)
    assert len(document["kernels"]) == 2 and "nonsense" in document["failed"][0]


def test_a_template_that_breaks_does_not_remove_what_it_once_emitted(
    make_kernel: Callable[..., Kernel], place: Path
) -> None:
    make(make_kernel, "other", GOOD, defaults=("other_n32_f32",))
    kgen("build", "--arch", "sm_90a")
    make(make_kernel, "other", "{{ nonsense }}", defaults=("other_n32_f32",))
    kgen("build", "--arch", "sm_90a")
    assert (place / "generated" / "other" / "other_n32_f32.cu").exists()


def test_what_every_kernel_lacks_is_said_once(no_compiler: None, place: Path) -> None:
    result = kgen("build")
    assert result.exit_code == 1
    assert result.stderr.count("NVRTC cannot be loaded") == 1
    assert (place / "generated" / "good" / "good_n32_f32.cu").exists()


def test_many_failures_are_cut_short(make_kernel: Callable[..., Kernel]) -> None:
    make(make_kernel, "worse", GOOD.replace("*= N", "*= undeclared"))
    result = kgen("build", "worse", "--arch", "sm_80,sm_90a")
    assert "kgen: and 7 more failures" in result.stderr and "12 failed" in result.stdout


def test_a_kernel_is_skipped_for_architectures_that_are_too_old(make_kernel: Callable[..., Kernel]) -> None:
    make(make_kernel, "newer", GOOD, min_arch=Arch(9, 0))
    result = kgen("build", "newer", "dtype=f32", "--arch", "sm_80,sm_90a")
    assert result.exit_code == 0
    assert "skipped newer for sm_80: it needs sm_90\n" in result.stdout
    skipped = json_of("build", "newer", "good", "--arch", "sm_80")["skipped"]
    assert {"name": "newer_n32_f32", "arch": "sm_80"} in skipped


def test_a_build_of_nothing_fails(make_kernel: Callable[..., Kernel]) -> None:
    make(make_kernel, "newer", GOOD, min_arch=Arch(9, 0))
    result = kgen("build", "newer", "--arch", "sm_80,sm_86")
    assert result.exit_code == 1
    assert "skipped newer for sm_86: it needs sm_90\n" in result.stdout
    assert "kgen: nothing to build: no kernel asked for is for sm_80 or sm_86" in result.stderr
    assert json_of("build", "newer", "--arch", "sm_80", code=1)["failed"]


def test_an_architecture_that_no_kernel_is_built_for_fails_beside_others() -> None:
    result = kgen("build", "good_n32_f32", "--arch", "sm_50,sm_90a")
    assert result.exit_code == 1
    assert result.stderr == "kgen: sm_50 is too old; kgen builds for sm_75 and later\n\n"
    assert "1 compiled, 0 from cache, 1 failed" in result.stdout


def test_an_architecture_that_the_compiler_does_not_know_fails_with_those_it_does() -> None:
    result = kgen("build", "good_n32_f32", "--arch", "sm_199")
    assert result.exit_code == 1
    assert "sm_90" in result.stderr


def test_build_with_words_adds_and_without_makes_exactly_the_default_set(place: Path) -> None:
    extra = place / "generated" / "good" / "good_n32_f16.cu"
    kgen("build", "--arch", "sm_90a")
    kgen("build", "good_n32_f16", "--arch", "sm_90a")
    assert extra.exists()
    assert "1 removed" in kgen("build", "--arch", "sm_90a").stdout
    assert not extra.exists() and not extra.with_suffix(".sm_90a.cubin").exists()


# build --check


def test_check_passes_after_a_build_and_needs_no_compiler(no_compiler: None) -> None:
    kgen("build")
    result = kgen("build", "--check")
    assert result.exit_code == 0
    assert result.stdout == "2 sources in generated checked, 0 files drifted\n"
    assert json_of("build", "--check") == {"checked": 2, "drift": []}


def test_check_fails_on_modified_missing_and_stale_files(no_compiler: None, place: Path) -> None:
    kgen("build")
    folder = place / "generated" / "good"
    (folder / "good_n32_f32.cu").write_text((folder / "good_n32_f32.cu").read_text().replace("32;", "33;"))
    (folder / "good_n64_f32.cu").unlink()
    (folder / "stray.cu").write_text("")
    result = kgen("build", "--check")
    assert result.exit_code == 1
    assert "-constexpr int N = 33;\n+constexpr int N = 32;\n" in result.stdout
    assert "kgen build" in result.stderr
    found = {each["path"]: each["kind"] for each in json_of("build", "--check", code=1)["drift"]}
    assert found == {"good/good_n32_f32.cu": "modified", "good/good_n64_f32.cu": "missing", "good/stray.cu": "stale"}


def test_check_fails_where_nothing_was_built() -> None:
    assert kgen("build", "--check").exit_code == 1


def test_check_of_words_looks_at_these_only(place: Path) -> None:
    kgen("build", "--arch", "sm_90a")
    (place / "generated" / "good" / "good_n64_f32.cu").unlink()
    assert kgen("build", "good_n32_f32", "--check").exit_code == 0
    assert kgen("build", "good_n64_f32", "--check").exit_code == 1


# show, sass, diff


def test_show_prints_the_source_and_nothing_else(good: Kernel) -> None:
    source = render(good.spec(N=32, dtype="f32"))
    assert kgen("show", "good_n32_f32").stdout == source.text
    document = json_of("show", "good_n32_f32")
    assert document == {"name": "good_n32_f32", "sha256": source.sha256, "source": source.text}


def test_show_is_coloured_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.commands import look

    pytest.importorskip("pygments")
    monkeypatch.setattr(look, "in_colour", lambda: True)
    assert "\x1b[" in look._highlighted("int x = 1;\n")


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "")
    assert not common.in_colour()


def test_show_card_is_the_axes_and_what_the_compiler_says() -> None:
    text = kgen("show", "good_n32_f32", "--card", "--arch", "sm_80").stdout
    assert "N         32  threads" in text and "kgen_good_n32_f32" in text and "compiled" in text
    card = json_of("show", "good_n32_f32", "--card", "--arch", "sm_80")
    assert (card["arch"], card["origin"], card["threads"]) == ("sm_80", "cache", 32)


def test_show_path_is_the_emitted_file_or_else_the_cached_one(place: Path, tmp_path: Path) -> None:
    missing = kgen("show", "good_n32_f32", "--path")
    assert missing.exit_code == 1 and "kgen build good_n32_f32" in missing.stderr
    kgen("build", "good_n32_f32", "--arch", "sm_90a")
    emitted = kgen("show", "good_n32_f32", "--path").stdout.strip()
    assert emitted == str(Path("generated", "good", "good_n32_f32.cu"))
    cached = json_of("show", "good_n32_f32", "--path", "--out", "elsewhere", "--arch", "sm_90a")["path"]
    assert Path(cached).read_text() == Path(emitted).read_text()


def test_sass_disassembles_for_any_architecture() -> None:
    if report.find_tool("nvdisasm") is None and report.find_tool("cuobjdump") is None:
        pytest.skip("no disassembler is installed")
    assert "EXIT" in kgen("sass", "good_n32_f32", "--arch", "sm_80").stdout
    document = json_of("sass", "good_n32_f32", "--arch", "sm_90a")
    assert document["arch"] == "sm_90a" and "EXIT" in document["sass"]


def test_sass_without_a_disassembler_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "find_tool", lambda name: None)
    result = kgen("sass", "good_n32_f32", "--arch", "sm_90a")
    assert result.exit_code == 1
    assert "pip install 'kgen[inspect]'" in result.stderr


def test_diff_shows_what_tells_two_apart() -> None:
    text = kgen("diff", "good_n32_f32", "good_n64_f32").stdout
    assert "--- good_n32_f32.cu\n+++ good_n64_f32.cu\n" in text
    assert "\n-constexpr int N = 32;\n" in text and "\n+constexpr int N = 64;\n" in text
    assert kgen("diff", "good_n32_f32", "good_n32_f32").stdout == ""
    assert set(json_of("diff", "good_n32_f32", "good_n64_f32")) == {"a", "b", "of", "diff"}


def test_diff_of_sass_compares_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = iter(["/*0000*/ MOV R1, 32 ;\n/*0010*/ EXIT ;\n", "/*0000*/ MOV R1, 64 ;\n/*0010*/ EXIT ;\n"])
    monkeypatch.setattr(report, "disassemble", lambda cubin: next(texts))
    text = kgen("diff", "good_n32_f32", "good_n64_f32", "--sass", "--arch", "sm_90a").stdout
    assert "-MOV R1, 32 ;\n+MOV R1, 64 ;\n EXIT ;" in text


# bench


def test_bench_without_a_gpu_says_so(no_gpu: None) -> None:
    result = kgen("bench", "causal_dot_product")
    assert result.exit_code == 1 and "no GPU" in result.stderr


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("inexact", 0), ("wrong", 1), ("failed", 1)])
def test_bench_passes_the_choice_on_and_fails_with_a_result_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    asked: dict[str, Any] = {}

    def run(operator: str, *, on_row: Any, **choice: Any) -> None:
        asked.update(choice, operator=operator)
        place = {"shape": "9", "dtype": "f16", "pass": "forward"}
        on_row(place | {"contestant": "kgen", "status": status, "rms": 1e-7})
        on_row(place | {"contestant": "torch", "status": "wrong", "rms": float("nan")})

    monkeypatch.setattr(device, "current_device", lambda: 0)
    monkeypatch.setattr("kgen.bench.run", run)
    rows = json_of("bench", "causal_dot_product", "--quick", "--dtype", "f16", "--no-peers", code=code)
    assert rows[0]["status"] == status and rows[1]["rms"] is None
    assert (asked["operator"], asked["quick"], asked["dtypes"], asked["peers"]) == (
        "causal_dot_product",
        True,
        ("f16",),
        False,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_bench_that_is_stopped_prints_the_rows_that_stand(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def run(operator: str, *, on_row: Any, **choice: Any) -> None:
        on_row({"shape": "9", "dtype": "f32", "pass": "add", "contestant": "kgen", "status": "ok"})
        os.kill(os.getpid(), number)
        time.sleep(5)

    monkeypatch.setattr(device, "current_device", lambda: 0)
    monkeypatch.setattr("kgen.bench.run", run)
    before = signal.getsignal(number)
    assert [row["contestant"] for row in json_of("bench", "elementwise", code=128 + number)] == ["kgen"]
    assert signal.getsignal(number) is before


# cache


def test_cache_lists_measures_trims_and_clears(cache_dir: Path) -> None:
    kgen("build", "--arch", "sm_90a")
    assert [entry["name"] for entry in json_of("cache", "ls")] == ["good_n32_f32", "good_n64_f32"]
    assert "good_n64_f32" in kgen("cache", "ls").stdout
    info = json_of("cache", "info")
    assert (info["path"], info["entries"]) == (str(cache_dir), 2)
    assert kgen("cache", "info").stdout.startswith(f"{cache_dir}\n2 entries, ")
    assert len(json_of("cache", "trim", "--max-size", str(info["bytes"] - 1))) == 1
    assert json_of("cache", "trim", "--max-size", "1M") == []
    assert kgen("cache", "clear").stdout.startswith("1 entries removed, ")
    assert json_of("cache", "clear") == []


def test_cache_verify_finds_a_flipped_byte(cache_dir: Path) -> None:
    kgen("build", "--arch", "sm_90a")
    assert kgen("cache", "verify").stdout == "2 entries, 0 damaged\n"
    (cubin, _) = sorted(cache_dir.rglob("kernel.cubin"))
    cubin.write_bytes(cubin.read_bytes()[::-1])
    result = kgen("cache", "verify")
    assert result.exit_code == 1 and f"damaged  {cubin.parent}  " in result.stdout
    (problem,) = json_of("cache", "verify", code=1)
    assert problem["name"] == "good_n32_f32" and problem["problem"]


# doctor


def test_doctor_tries_everything_and_is_content_where_kernels_compile() -> None:
    result = kgen("doctor")
    assert result.exit_code == 0
    checks = {check["name"]: check for check in json_of("doctor")}
    assert checks["compiler"]["ok"] and checks["cuda_bf16.h"]["ok"] and checks["templates"]["ok"]
    assert list(checks)[:2] == ["python", "kgen"]


def test_doctor_without_a_compiler_exits_1_and_gives_the_fix(no_compiler: None) -> None:
    result = kgen("doctor")
    assert result.exit_code == 1
    assert "missing  compiler     NVRTC cannot be loaded\n" in result.stdout and "fix: pip install" in result.stdout


def test_doctor_without_a_gpu_is_content_and_says_why_there_is_none(no_gpu: None) -> None:
    (gpu,) = [check for check in doctor.checks() if check.name == "gpu"]
    assert not gpu.ok and not gpu.required and "no GPU" in gpu.detail
    assert kgen("doctor").exit_code == 0


@pytest.mark.parametrize("variable", ["KGEN_OVERLAP", "KGEN_BACKEND", "KGEN_CACHE_SIZE"])
def test_doctor_blames_a_bad_setting_and_nothing_else(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "nonsense")
    told = [check for check in doctor.checks() if check.detail.startswith(f"{variable}='nonsense'")]
    assert told and all(variable in check.fix and "KGEN_CACHE_DIR" not in check.fix for check in told)


def test_what_needs_a_gpu_says_once_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise DeviceError("no NVIDIA GPU is usable here", hint="check the driver")

    monkeypatch.setattr(device, "gpu", missing)
    assert kgen("bench", "softmax").stderr == "kgen: no NVIDIA GPU is usable here\n  hint: check the driver\n"


def test_doctor_reports_a_cache_that_cannot_be_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "file").write_text("")
    monkeypatch.setenv("KGEN_CACHE_DIR", str(place / "file" / "cache"))
    (cache,) = [check for check in doctor.checks() if check.name == "cache"]
    assert not cache.ok and "KGEN_CACHE_DIR" in cache.fix


@pytest.mark.parametrize("made", [False, True])
def test_doctor_reports_a_shelf_that_is_named_and_holds_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    if made:
        (place / "shelf").mkdir()
    monkeypatch.setenv("KGEN_SHELF", str(place / "shelf"))
    (shelf,) = [check for check in doctor.checks() if check.name == "shelf"]
    assert not shelf.ok and not shelf.required and "no kernels in" in shelf.detail and "KGEN_SHELF" in shelf.fix


def test_doctor_does_not_make_the_cache(cache_dir: Path) -> None:
    kgen("doctor")
    assert not cache_dir.exists()


# Completion


def completions(incomplete: str, *before: str) -> list[str]:
    shell = ShellComplete(main, {}, "kgen", "_KGEN_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), incomplete)]


def test_names_complete_to_kernels_and_then_to_specializations() -> None:
    assert completions("", "show") == ["good"]
    assert completions("good_n32", "show") == ["good_n32_f32", "good_n32_f16", "good_n32_bf16"]
    assert completions("go", "build") == ["good"]
    assert completions("caus", "bench") == ["causal_dot_product"]


@pytest.mark.parametrize("group", [[], ["cache"]])
def test_no_summary_in_a_list_of_commands_is_cut_short(group: list[str]) -> None:
    listed = CliRunner().invoke(main, [*group, "--help"]).output.partition("Commands:")[2]
    assert "verify" in listed if group else "doctor" in listed
    assert "..." not in listed
