"""f16, f16x2, bf16 and bf16x2: arithmetic, comparisons and selections."""

from kgen.cpu.forms.floating import COMPARISONS

_HALF = "# include ops/half.h"
_WIDE = {"f16": "kg::float_of_half", "bf16": "kg::float_of_bfloat"}
_ONE = {"f16": "0x3c00", "bf16": "0x3f80"}

_ARITHMETIC = """
{add,sub,mul}{,.rn}.{f16,bf16}      | $3  | a, b    | kg::$1<kg::$3>
{add,sub,mul}{,.rn}.ftz.f16         | f16 | a, b    | kg::$1_ftz_f16
{add,sub,mul}{,.rn}.sat.f16         | f16 | a, b    | kg::sat<kg::$1<kg::f16>>
{add,sub,mul}{,.rn}.ftz.sat.f16     | f16 | a, b    | kg::sat<kg::$1_ftz_f16>
fma.rn.{f16,bf16}                   | $1  | a, b, c | kg::fma_rn<kg::$1>
fma.rn.ftz.f16                      | f16 | a, b, c | kg::fma_rn_ftz_f16
fma.rn.sat.f16                      | f16 | a, b, c | kg::sat<kg::fma_rn<kg::f16>>
fma.rn.relu.{f16,bf16}              | $1  | a, b, c | kg::relu<kg::fma_rn<kg::$1>>
fma.rn.ftz.{sat,relu}.f16           | f16 | a, b, c | kg::$1<kg::fma_rn_ftz_f16>
{neg,abs}.{f16,bf16}                | $2  | a       | kg::$1<kg::$2>
{neg,abs}.ftz.f16                   | f16 | a       | kg::ftz<kg::$1<kg::f16>>
"""
"""Functions of halves, whose forms of f16x2 and bf16x2 do the same with each half of a register."""


def _extremes() -> str:
    """min and max: with .NaN a NaN wins, with .xorsign.abs magnitudes are compared."""
    lines = []
    for nan in ("", ".NaN"):
        for sign in ("", ".xorsign.abs"):
            for flush, kind, name in (("", "{f16,bf16}", "$2"), (".ftz", "f16", "f16")):
                function = f"kg::extreme<kg::{name}, kg::$1, {'true' if nan else 'false'}>"
                function = f"kg::xorsign_abs<{function}>" if sign else function
                function = f"kg::flushing<{function}>" if flush else function
                lines.append(f"{{min,max}}{flush}{nan}{sign}.{kind} | {name} | a, b | {function}")
    return "\n".join(lines)


def _functions() -> list[str]:
    lines = []
    for line in (_ARITHMETIC + _extremes()).splitlines()[1:]:
        pattern, kind, operands, function = (column.strip() for column in line.split(" | "))
        count = operands.count(",") + 1
        lines += [
            f"{pattern} | {kind} | {' '.join([kind] * count)} | {function}({operands})",
            f"{pattern}x2 | {kind}x2 | {' '.join([f'{kind}x2'] * count)} | kg::each<{function}>({operands})",
        ]
    return lines


def _comparisons() -> list[str]:
    """A comparison is that of the floats which the halves are; where it holds, set gives 1.0 or all bits."""
    lines = []
    for name, formula in COMPARISONS.items():
        test = f"[&](float x, float y) {{ return {formula.replace('a', 'x').replace('b', 'y')}; }}"
        for kind, wide in _WIDE.items():
            holds = f"{test}({wide}(a), {wide}(b))"
            low, high = (f"{test}({wide}(kg::{half}(a)), {wide}(kg::{half}(b)))" for half in ("low", "high"))
            lines.append(f"setp.{name}.{kind} | pred | {kind} {kind} | {holds}")
            for to, one in ((kind, _ONE[kind]), ("u16", "0xffff"), ("u32", "~0u")):
                lines.append(f"set.{name}.{to}.{kind} | {to} | {kind} {kind} | {holds} ? {one} : 0")
            for to, one in ((f"{kind}x2", _ONE[kind]), ("u32", "0xffff")):
                both = f"kg::pair_of({low} ? {one} : 0, {high} ? {one} : 0)"
                lines.append(f"set.{name}.{to}.{kind}x2 | {to} | {kind}x2 {kind}x2 | {both}")
        flushed = (f"kg::float_of_half(kg::flushed_half({x}))" for x in "ab")
        lines.append(f"setp.{name}.ftz.f16 | pred | f16 f16 | {test}({', '.join(flushed)})")
    return lines


TABLE = "\n".join(f"{line} | {_HALF}" for line in (*_functions(), *_comparisons()))
