"""The registry: names parse to specializations, words select them, and nothing else gets through."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import kgen
from kgen import registry
from kgen.dtypes import F16, F32
from kgen.errors import SpecError
from kgen.registry import parse, register, select
from kgen.spec import Axis, Flag, Kernel, Spec

MakeKernel = Callable[..., Kernel]

pytestmark = pytest.mark.usefixtures("own_registry")


def test_the_longest_kernel_name_owns_a_name(make_kernel: MakeKernel) -> None:
    short, long = make_kernel("toy"), make_kernel("toy_low_occupancy")
    assert parse("toy_low_occupancy_n64_f16").kernel is long
    assert parse("toy_n64_f16").kernel is short
    assert kgen.parse("lmha_low_occupancy_e128_w4_c4_f16").kernel.name == "lmha_low_occupancy"


@pytest.mark.parametrize(
    ("name", "message", "taken"),
    [
        ("toi_n64_f16", "no kernel is called 'toi_n64_f16'", "toy"),
        ("toyn64_f16", "no kernel is called 'toyn64_f16'", "toy"),
        ("toy", "'toy' does not end in a dtype of toy", "toy_nN[_vVEC][_reverse][_twice]_{f32,f16,bf16}"),
        ("toy_n64", "'toy_n64' does not end in a dtype of toy", "{f32,f16,bf16}"),
        ("toy_n64_f64", "'toy_n64_f64' does not end in a dtype of toy", "{f32,f16,bf16}"),
        ("toy_f16", "toy: the axis N (numbers per block) needs a value", "one of 32, 64, 128"),
        ("toy_n48_f16", "toy: N=48 (numbers per block) is not generated", "one of 32, 64, 128"),
        ("toy_n64_n64_f16", "'toy_n64_n64_f16' gives N twice", "toy_nN[_vVEC]"),
        ("toy_n64_reverse_reverse_f16", "gives reverse twice", "[_reverse]"),
        ("toy_n64_w4_f16", "'w4' is no axis or flag of toy", "toy_nN[_vVEC]"),
        ("toy_n64_backwards_f16", "'backwards' is no axis or flag of toy", "[_reverse]"),
        ("toy_n64_f32_f16", "'f32' is no axis or flag of toy", "toy_nN"),
        ("toy_v2_n64_f16", "is not how that specialization is written", "it is toy_n64_v2_f16"),
        ("toy_n64_twice_reverse_f16", "is not how that specialization is written", "it is toy_n64_reverse_twice_f16"),
        ("toy_n64_v1_f16", "is not how that specialization is written", "it is toy_n64_f16"),
        ("toy_n064_f16", "is not how that specialization is written", "it is toy_n64_f16"),
        ("toy__n64_f16", "is not how that specialization is written", "it is toy_n64_f16"),
        ("toy_n64_f16_", "is not how that specialization is written", "it is toy_n64_f16"),
        ("toy_n64_f16 ", "does not end in a dtype of toy", "{f32,f16,bf16}"),
        ("TOY_n64_f16", "no kernel is called", "toy"),
    ],
)
def test_a_name_that_is_nearly_right_is_refused_with_what_is_taken(
    make_kernel: MakeKernel, name: str, message: str, taken: str
) -> None:
    make_kernel()
    with pytest.raises(SpecError) as caught:
        parse(name)
    first_line, hint = str(caught.value).splitlines()[0], str(caught.value.hint)
    assert message in first_line
    assert taken in hint
    assert "toy" in first_line + hint


ALPHABET = st.sampled_from(string.ascii_lowercase + string.digits + "_ =*?[]٣²\n")
WORDS = st.sampled_from(["lmha", "lmha_low_occupancy", "e64", "t1", "w4", "c4", "v1", "reverse", "f16", "f32", "", "e"])
NEARLY_NAMES = st.lists(WORDS, max_size=8).map("_".join)


@given(st.one_of(st.text(), st.text(ALPHABET), NEARLY_NAMES, st.text(ALPHABET).map("lmha_".__add__)))
@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
@example("lmha_e" + "9" * 5000 + "_f32")
def test_any_text_is_a_name_or_a_spec_error(text: str) -> None:
    try:
        spec = kgen.parse(text)
    except SpecError:
        return
    assert spec.name == text


def test_kernels_lists_those_that_are_shipped_and_those_registered(make_kernel: MakeKernel) -> None:
    assert {"lmha", "lmha_low_occupancy"} <= set(kgen.kernels())
    kernel = make_kernel("newcomer")
    assert kgen.kernels()["newcomer"] is kernel


def test_registering_a_name_again_replaces_the_kernel(make_kernel: MakeKernel) -> None:
    make_kernel("toy")
    second = make_kernel("toy", dtypes=(F32,))
    assert registry.registered()["toy"] is second
    assert parse("toy_n64_f32").kernel is second


def test_what_is_registered_cannot_be_changed_through_the_listing(make_kernel: MakeKernel) -> None:
    make_kernel("toy")
    registry.registered().clear()
    assert "toy" in registry.registered()


N = Axis("N", "n", (1, 2), "numbers")


@pytest.mark.parametrize("name", ["", "Toy", "toy-2", "2toy", "_toy", "toy_", "toy__2", "toy.x", "töy", "toy\n", "a b"])
def test_a_kernel_name_that_could_not_be_a_symbol_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="lower case"):
        register(Kernel(name, "", "", (N,), lambda spec: {}))
    assert name not in registry.registered()


@pytest.mark.parametrize("letter", ["", "N", "abc", "n2", "_", "ñ"])
def test_an_axis_letter_that_could_not_stand_before_a_number_is_refused(letter: str) -> None:
    with pytest.raises(SpecError, match="one or two of a-z"):
        register(Kernel("bad", "", "", (Axis("N", letter, (1,), ""),), lambda spec: {}))


@pytest.mark.parametrize("flag", ["", "Reverse", "no_scale", "n2", "x-y", "2x"])
def test_a_flag_that_would_not_read_back_from_a_name_is_refused(flag: str) -> None:
    with pytest.raises(SpecError, match="bad"):
        register(Kernel("bad", "", "", (N,), lambda spec: {}, flags=(Flag(flag, ""),)))


@pytest.mark.parametrize(
    ("axes", "flags"),
    [
        ((N, Axis("M", "n", (1,), "")), ()),
        ((N, Axis("N", "m", (1,), "")), ()),
        ((N,), (Flag("reverse", ""), Flag("reverse", ""))),
        ((N,), (Flag("n", ""),)),
        ((N,), (Flag("f16", ""),)),
    ],
)
def test_two_parts_that_share_a_name_are_refused(axes: tuple[Axis, ...], flags: tuple[Flag, ...]) -> None:
    with pytest.raises(SpecError, match="bad: two axes or flags share a name"):
        register(Kernel("bad", "", "", axes, lambda spec: {}, flags=flags))
    assert "bad" not in registry.registered()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"axes": N}, "bad: axes is"),
        ({"axes": (Axis("N", "n", (), ""),)}, r"bad: the axis N has the values \(\)"),
        ({"axes": (Axis("N", "n", (1, 1), ""),)}, "it takes different integers"),
        ({"axes": (Axis("N", "n", (1, "2"), ""),)}, "it takes different integers"),  # type: ignore[arg-type]
        ({"axes": (Axis("N", "n", (1, 2), "", default=3),)}, "bad: the axis N has the default 3"),
        ({"flags": ("reverse",)}, r"bad: flags is \('reverse',\); it takes a tuple of Flag"),
        ({"dtypes": ("f32",)}, "it takes a tuple of DType"),
        ({"dtypes": F32}, "bad: dtypes is f32; it takes a tuple of DType"),
        ({"dtypes": ()}, "bad: dtypes is empty"),
        ({"derive": None}, "bad: derive is None; it takes a function of a Spec"),
        ({"check": "no"}, "bad: check is 'no'; it takes a function of a Spec"),
        ({"min_arch": "sm_90"}, "bad: min_arch is 'sm_90'; it takes what Arch.parse gives"),
        ({"defaults": "bad_n1_f32"}, "bad: defaults is 'bad_n1_f32'; it takes a tuple of str"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused_at_once(part: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        register(
            Kernel(**{"name": "bad", "summary": "", "formula": "", "axes": (N,), "derive": lambda spec: {}} | part)
        )
    assert "bad" not in registry.registered()


def test_a_kernel_of_kgens_own_is_not_replaced(make_kernel: MakeKernel) -> None:
    own = kgen.kernels()["lmha"]
    with pytest.raises(SpecError, match="kgen has a kernel 'lmha' of its own"):
        make_kernel("lmha")
    assert registry.registered()["lmha"] is own
    assert make_kernel("toy") is not make_kernel("toy") is registry.registered()["toy"]


def test_a_misspelt_kernel_is_told_from_what_there_is() -> None:
    kgen.kernels()
    with pytest.raises(SpecError, match="no kernel is called 'softmx_v4_f32'\n  hint: close to it: softmax"):
        parse("softmx_v4_f32")
    for name in ("zzz", ""):
        with pytest.raises(SpecError, match="hint: `kgen list --kernels` names all"):
            parse(name)


@pytest.fixture
def toys(make_kernel: MakeKernel) -> list[Kernel]:
    return [make_kernel("toy", dtypes=(F32, F16)), make_kernel("toy_two", dtypes=(F32,), flags=())]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["toy_n64_f16"], ["toy_n64_f16"]),
        (["toy_n64_f16", "toy_n32_f32", "toy_n64_f16"], ["toy_n64_f16", "toy_n32_f32"]),
        (["toy_two"], [f"toy_two_n{n}{v}_f32" for n in (32, 64, 128) for v in ("", "_v2")]),
        (["toy_two_n*_v2_*"], [f"toy_two_n{n}_v2_f32" for n in (32, 64, 128)]),
        (["toy_n[36]?_f??"], ["toy_n32_f32", "toy_n64_f32", "toy_n32_f16", "toy_n64_f16"]),
        (["toy", "n=32,64", "v=1", "reverse=no", "twice=0", "dtype=f16"], ["toy_n32_f16", "toy_n64_f16"]),
        (["toy_two", "N=64", "VEC=2"], ["toy_two_n64_v2_f32"]),
        (["kernel=toy_two", "vec=2", "n=128"], ["toy_two_n128_v2_f32"]),
        (["reverse=yes", "twice=true", "n=32", "v=2", "dtype=f16"], ["toy_n32_v2_reverse_twice_f16"]),
        (["toy_n32_f32", "toy_n64_f16", "dtype=f16"], ["toy_n64_f16"]),
    ],
)
def test_words_select_by_name_kernel_glob_and_pairs(toys: list[Kernel], words: list[str], names: list[str]) -> None:
    assert [spec.name for spec in select(words, toys)] == names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy_n48_f16"], "N=48"),
        (["nothing_*"], "no specialization matches 'nothing_*'"),
        (["toy_n64_f16", "nothing_*"], "no specialization matches 'nothing_*'"),
        (["toy", "n=48"], "no specialization matches 'toy n=48'\n  hint: n is one of 32, 64, 128"),
        (["toy", "warps=4"], "hint: pairs are of kernel, dtype, n, v, vec, reverse, twice"),
        (["toy", "n=32", "reverse=perhaps"], "hint: reverse is one of yes, no"),
        (["toy", "dtype=f64"], "hint: dtype is one of f32, f16"),
        (["toy_n3?_*", "v=3"], "no specialization matches 'toy_n3?_* v=3'\n  hint: v is one of 1, 2"),
        (["dtype=f64"], "hint: dtype is one of f32, f16"),
        (["toy_n64_f16", "n=32"], "no specialization matches 'toy_n64_f16 n=32'\n  hint: kgen list shows"),
        (["toi"], "no kernel is called 'toi'"),
    ],
)
def test_a_word_that_matches_nothing_is_an_error(toys: list[Kernel], words: list[str], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        select(words, toys)
    assert message in str(caught.value)


# Completion


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("t", ["toy"]),
        ("toy", ["toy", "toy_n32", "toy_n64", "toy_n128"]),
        ("toy_n6", ["toy_n64_v2", "toy_n64_v4", "toy_n64_reverse", "toy_n64_f32"]),
        ("toy_n64_v2_", ["toy_n64_v2_reverse", "toy_n64_v2_f32", "toy_n64_v2_f16"]),
        ("toy_n64_v2_r", ["toy_n64_v2_reverse_f32", "toy_n64_v2_reverse_f16"]),  # nothing else can follow
        ("toy_n64_f", ["toy_n64_f32"]),
        ("toy_n64_f32", ["toy_n64_f32"]),
        ("toy_v2_", []),  # N stands before
        ("toyn", []),
        ("toy_n64_f32_", []),
    ],
)
def test_a_name_completes_word_by_word_to_what_is_legal(start: str, words: list[str]) -> None:
    def check(spec: Spec) -> str | None:
        return "vectors are for halves" if spec["VEC"] == 1 and spec.dtype is F16 else None

    axes = (Axis("N", "n", (32, 64, 128), "numbers"), Axis("VEC", "v", (1, 2, 4), "elements", default=1))
    flags = (Flag("reverse", "backwards"),)
    kernel = Kernel("toy", "", "", axes, lambda spec: {"THREADS": 32}, flags=flags, dtypes=(F32, F16), check=check)
    register(kernel)
    assert registry.completions(start, [kernel]) == words


@given(st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_every_default_name_can_be_reached_from_any_of_its_beginnings(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([spec.name for spec in kgen.select()]))
    start = name[: data.draw(st.integers(0, len(name)))]
    while start != name:
        onward = [word for word in registry.completions(start, kgen.kernels().values()) if name.startswith(word)]
        assert onward, f"nothing leads on from {start} to {name}"
        longest = max(onward, key=len)
        start = longest if longest != start else start + "_"  # beside t1 there is t16: people type on


def test_completing_enumerates_no_specializations(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are 299,520 of gated_scan."""
    monkeypatch.setattr(Kernel, "specs", None)
    assert "gated_scan_r8" in registry.completions("gated_scan_", kgen.kernels().values())


@pytest.mark.parametrize("made", [None, {}, {"THREADS": "256"}, 256, {"THREADS": 0}, {"THREADS": 2048}])
def test_constants_without_the_threads_of_a_block_are_refused(make_kernel: MakeKernel, made: object) -> None:
    spec = make_kernel(derive=lambda spec: made).spec(N=64, dtype=F32)
    with pytest.raises(SpecError, match=r"toy_n64_f32: derive gives .*\n  hint: a mapping with THREADS"):
        _ = spec.threads


def test_a_default_that_is_no_specialization_is_named(make_kernel: MakeKernel) -> None:
    make_kernel("toy", defaults=("toy_n48_f32",))
    with pytest.raises(SpecError, match="toy has a default 'toy_n48_f32': toy: N=48"):
        kgen.select()
