"""Rendering: the text depends on the specialization and the templates, on nothing else, and reads like hand-written."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kgen
from kgen.config import ConfigError
from kgen.dtypes import DTYPES, F16, F32
from kgen.errors import TemplateError
from kgen.recipe import BUILTIN_TEMPLATES
from kgen.render import render
from kgen.spec import Kernel
from tests.gpu.sanitize import let_every_thread_arrive

MakeKernel = Callable[..., Kernel]
RunPython = Callable[..., str]

DEFAULTS = [name for kernel in kgen.kernels().values() for name in kernel.defaults]

DIGESTS = """
import sys, kgen
print(*(kgen.render(s).sha256 for s in kgen.select()), *(s.name for s in kgen.select()), 'cupy' in sys.modules)
"""


@pytest.fixture(scope="module")
def told_here() -> list[str]:
    """What DIGESTS tells with this process's hash seed, which is random; selecting and rendering need no CuPy."""
    return [*(render(spec).sha256 for spec in kgen.select()), *DEFAULTS, "False"]


def test_text_is_the_same_in_every_process_whatever_the_hash_seed(run_python: RunPython, told_here: list[str]) -> None:
    assert run_python(DIGESTS, PYTHONHASHSEED="0").split() == told_here


def test_text_does_not_know_the_place_the_user_or_the_day(
    run_python: RunPython, told_here: list[str], tmp_path: Path
) -> None:
    """The same from a copy in another folder, for another user, in another time zone, with yet another hash seed."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(Path(kgen.__file__).parent, elsewhere / "kgen", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(BUILTIN_TEMPLATES, elsewhere / "templates")
    for file in elsewhere.rglob("*"):
        os.utime(file, (1, 1))
    me = {"USER": "elsewhere", "LOGNAME": "elsewhere", "HOME": str(elsewhere), "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    assert run_python(DIGESTS, root=elsewhere, PYTHONHASHSEED="4242", **me).split() == told_here


@pytest.mark.parametrize("name", DEFAULTS)
def test_generated_files_read_as_if_written_by_hand(name: str) -> None:
    source = render(kgen.parse(name))
    lines = source.text.split("\n")
    assert not re.findall(r"\{\{|\{%|\{#|#\}|%\}", source.text), "a template left something behind"
    assert lines[-1] == "", "a file ends with a newline"
    assert lines[-2] != "", "and with one only"
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\n\n\n" not in source.text
    assert "\t" not in source.text
    assert [line for line in lines if len(line) > 120] == []
    assert source.text.isascii()


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_header_says_what_the_file_is_and_how_to_make_it_again(name: str) -> None:
    spec = kgen.parse(name)
    source = render(spec)
    first, *rest = source.text.splitlines()
    header = "\n".join(rest[: next(i for i, line in enumerate(rest) if not line.startswith("//"))])
    assert first.split() == ["//", name, "generated", "by", "kgen,", "from", spec.kernel.template]
    assert f"again   kgen build {name}" in header
    assert "header.j2" not in header
    assert all(f"{axis.name} " in header for axis in spec.kernel.axes)
    assert all(f"//     {line}" in header for line in spec.formula.splitlines())
    for part, digest in source.parts:
        assert re.search(rf"{re.escape(part)}[\s/]+{digest[:8]}", header), f"{part} is not in the header"


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("norm_t128_n8_v4_f32", "y[i] = (x[i] - mean) / sqrt(variance + eps)"),
        ("norm_t128_n8_v4_bias_f32", "y[i] = (x[i] - mean) / sqrt(variance + eps) + bias[i]"),
        ("norm_t128_n4_v8_rms_weight_f16", "y[i] = x[i] / sqrt(mean of x[i]^2 + eps) * (weight[i] + weight_offset)"),
        ("norm_backward_t128_n4_v4_rms_f32", "n[i] = x[i] rstd\ndx[i] = rstd (dy[i] - n[i] mean(dy n))"),
        (
            "softmax_t128_n4_v8_log_scaled_f16",
            "m = max of scale x[j],  d = sum of exp(scale x[j] - m)\ny[i] = scale x[i] - m - log(d)",
        ),
        (
            "softmax_t128_n4_v8_causal_mask_f16",
            "m = max of x[j],  d = sum of exp(x[j] - m),  over the j that the query sees and the mask leaves\n"
            "y[i] = exp(x[i] - m) / d",
        ),
    ],
)
def test_a_formula_is_that_of_the_specialization(name: str, formula: str) -> None:
    assert kgen.parse(name).formula == formula


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_file_has_no_path_and_no_date(name: str) -> None:
    text = render(kgen.parse(name)).text
    assert not re.findall(r"(?<![\w./])/(?:home|root|tmp|usr|opt|mnt|var|work|Users)\b\S*", text)
    assert not re.findall(r"\b(?:19|20)\d\d-\d\d?-\d\d?\b|\b\d\d:\d\d:\d\d\b|\d\d/\d\d/\d\d", text)
    assert kgen.__version__ not in text


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_file_includes_the_headers_of_its_element_types_once_and_no_other(name: str) -> None:
    spec = kgen.parse(name)
    text = render(spec).text
    included = re.findall(r"^\s*#\s*include\s*(\S+)", text, re.MULTILINE)
    assert len(included) == len(set(included))
    for header in included:
        types = [dtype.c for dtype in DTYPES.values() if f"<{dtype.header}>" == header]
        assert types, f"{header} declares no element type"
        assert re.search("|".join(types), text), f"{header} is not needed"
    assert spec.dtype.header is None or f"<{spec.dtype.header}>" in included


def test_flags_and_axes_reach_the_template(make_kernel: MakeKernel) -> None:
    template = "{{ N }} {{ VEC }} {{ reverse }} {{ twice }} {{ dtype.c }} {{ THREADS }} {{ symbol }}\n"
    text = render(make_kernel(template=template).spec(N=64, twice=True, dtype=F16)).text
    assert text == "64 1 False True __half 64 kgen_toy_n64_twice_f16\n"


def test_a_shared_piece_that_changes_changes_the_text_and_its_digest(make_kernel: MakeKernel, tmp_path: Path) -> None:
    template = '{% include "common/header.j2" %}\n\n{% include "common/piece.cuh.j2" %}\n'
    spec = make_kernel(template=template).spec(N=64, dtype=F32)
    piece = tmp_path / "templates/common/piece.cuh.j2"
    piece.parent.mkdir()
    sources = []
    for text in ("// one\n", "// two\n"):
        piece.write_text(text)
        sources.append(render(spec))
    one, two = (dict(source.parts) for source in sources)
    assert one["toy.cu.j2"] == two["toy.cu.j2"]
    assert one["common/piece.cuh.j2"] != two["common/piece.cuh.j2"]
    assert [source.text.splitlines()[-1] for source in sources] == ["// one", "// two"]
    assert f"common/piece.cuh.j2 {two['common/piece.cuh.j2'][:8]}" in sources[1].text
    assert sources[0].sha256 != sources[1].sha256


def test_parts_follow_includes_of_includes_and_leave_the_header_out(make_kernel: MakeKernel, tmp_path: Path) -> None:
    common = tmp_path / "templates/common"
    common.mkdir(parents=True)
    (common / "outer.cuh.j2").write_text('{% include "common/inner.cuh.j2" %}\n')
    (common / "inner.cuh.j2").write_text("// inner\n")
    template = "".join(f'{{% include "common/{name}" %}}\n' for name in ("header.j2", "outer.cuh.j2", "inner.cuh.j2"))
    source = render(make_kernel(template=template).spec(N=64, dtype=F32))
    assert [part for part, _ in source.parts] == ["toy.cu.j2", "common/outer.cuh.j2", "common/inner.cuh.j2"]


@pytest.mark.parametrize("inside", [False, True], ids=["in the template", "in what it includes"])
def test_an_undefined_variable_names_the_template_the_line_and_what_is_defined(
    make_kernel: MakeKernel, tmp_path: Path, inside: bool
) -> None:
    body = "// fine\n\nconstexpr int X = {{ COLUMNS }};\n"
    template = '{% include "common/piece.cuh.j2" %}\n' if inside else body
    kernel = make_kernel(template=template)
    (tmp_path / "templates/common").mkdir()
    (tmp_path / "templates/common/piece.cuh.j2").write_text(body)
    with pytest.raises(TemplateError) as caught:
        render(kernel.spec(N=64, dtype=F32))
    where = "piece.cuh.j2:3" if inside else "toy.cu.j2:3"
    assert f"toy_n64_f32: {where}: 'COLUMNS' is undefined" in str(caught.value)
    assert caught.value.hint == "defined here: N, VEC, reverse, twice, THREADS, STATIC_SMEM, dtype, name, symbol"


def test_a_syntax_error_names_the_template_and_the_line(make_kernel: MakeKernel) -> None:
    kernel = make_kernel(template="// fine\n{% if reverse %}\n// never closed\n")
    with pytest.raises(TemplateError, match=r"toy_n64_f32: toy\.cu\.j2:\d: .*endif"):
        render(kernel.spec(N=64, dtype=F32))


def test_an_expression_that_cannot_be_computed_names_the_template_and_the_line(make_kernel: MakeKernel) -> None:
    kernel = make_kernel(template="// fine\n{{ N // (VEC - 1) }}\n")
    with pytest.raises(TemplateError, match=r"toy_n64_f32: toy\.cu\.j2:2: ZeroDivisionError: integer division"):
        render(kernel.spec(N=64, dtype=F32))


def test_a_missing_template_names_the_folders_that_were_searched(
    make_kernel: MakeKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("KGEN_TEMPLATES", str(tmp_path / "mine"))
    kernel = make_kernel()
    (tmp_path / "templates/toy.cu.j2").unlink()
    with pytest.raises(TemplateError, match=r"there is no template 'toy\.cu\.j2'") as caught:
        render(kernel.spec(N=64, dtype=F32))
    assert caught.value.hint == f"looked in {tmp_path / 'templates'}, {tmp_path / 'mine'}, {BUILTIN_TEMPLATES}"


def test_a_folder_of_templates_that_is_none_is_refused(
    make_kernel: MakeKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGEN_TEMPLATES", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"KGEN_TEMPLATES names .*nowhere, which is no folder"):
        render(make_kernel().spec(N=64, dtype=F32))


def test_a_missing_piece_is_named(make_kernel: MakeKernel) -> None:
    kernel = make_kernel(template='{% include "common/nowhere.cuh.j2" %}\n')
    with pytest.raises(TemplateError, match=r"toy_n64_f32: there is no template 'common/nowhere\.cuh\.j2'"):
        render(kernel.spec(N=64, dtype=F32))


def test_an_include_whose_name_is_computed_is_refused(make_kernel: MakeKernel, tmp_path: Path) -> None:
    """The cache would not notice a change of what it includes."""
    kernel = make_kernel(template='// first\n{% include dtype.name ~ ".cuh.j2" %}\n')
    (tmp_path / "templates/f32.cuh.j2").write_text("// piece\n")
    with pytest.raises(TemplateError, match=r"toy\.cu\.j2:2: .* 'f32\.cuh\.j2'") as caught:
        render(kernel.spec(N=64, dtype=F32))
    assert "in quotes" in str(caught.value.hint)


def test_an_edit_is_seen_even_if_the_file_does_not_look_newer(make_kernel: MakeKernel, tmp_path: Path) -> None:
    spec = make_kernel(template="// 0\n").spec(N=64, dtype=F32)
    template = tmp_path / "templates/toy.cu.j2"
    for text in ("// 1\n", "// 2\n", "// 1\n"):
        template.write_text(text)
        os.utime(template, (7, 7))
        assert render(spec).text == text


def test_kgen_templates_goes_before_the_built_in_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = kgen.parse(DEFAULTS[0])
    before = render(spec).text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / spec.kernel.template).write_text("// mine\n")
    monkeypatch.setenv("KGEN_TEMPLATES", str(tmp_path / "mine"))
    assert render(spec).text == "// mine\n"
    monkeypatch.delenv("KGEN_TEMPLATES")
    assert render(spec).text == before


def test_the_templates_of_one_kernel_do_not_shadow_those_of_another(make_kernel: MakeKernel, tmp_path: Path) -> None:
    shipped = kgen.parse(DEFAULTS[0])
    before = render(shipped).text
    kernel = make_kernel()
    (tmp_path / "templates/common").mkdir()
    for name in (shipped.kernel.template, "common/header.j2", "common/convert.cuh.j2"):
        (tmp_path / "templates" / name).write_text("// mine\n")
    assert render(kernel.spec(N=64, dtype=F32)).text.startswith("// mine\n\n// mine\n")
    assert render(shipped).text == before


def test_every_template_is_used_by_some_kernel() -> None:
    used = {part for spec in kgen.select() for part, _ in render(spec).parts} | {"common/header.j2"}
    there = {path.relative_to(BUILTIN_TEMPLATES).as_posix() for path in BUILTIN_TEMPLATES.rglob("*.j2")}
    assert there == used


def test_templates_decide_nothing_that_python_could() -> None:
    for path in BUILTIN_TEMPLATES.rglob("*.j2"):
        text = path.read_text()
        for line in text.splitlines():
            assert line.count("{% set") * line.count(" if ") <= 1, f"{path.name}: Kernel.derive or Kernel.text: {line}"
        whole = path.parent.name != "common"
        assert not whole or text.startswith('{% include "common/header.j2" %}\n')


@pytest.mark.parametrize(
    ("name", "own", "given"),
    [
        ("norm_ring_n5_v8_c1_weight_bias_bf16", '"n"(WARPS)', '"n"(32 * WARPS)'),
        ("norm_backward_ring_t64_n2_v8_bias_bf16", '"n"(WARPS)', '"n"(32 * WARPS)'),
        (
            "norm_ring_n4_v4_c4_weight_bias_channels_across_ragged_f32",
            "barrier.arrive %0",
            "    __syncthreads();\n    if",
        ),
        ("norm_backward_grid_n2_v4_s7_bias_f32", '"n"(WARPS)', '"n"(32 * WARPS)'),
    ],
)
def test_racecheck_is_given_texts_in_which_every_thread_arrives(
    name: str, own: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = kgen.parse(name)
    assert own in render(spec).text and given not in render(spec).text
    monkeypatch.setenv("KGEN_TEMPLATES", "")  # as it was, in the end
    let_every_thread_arrive()
    assert given in render(spec).text and own not in render(spec).text
