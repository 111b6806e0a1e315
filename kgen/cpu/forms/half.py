"""f16, f16x2, bf16 and bf16x2: arithmetic, comparisons and selections."""

_HALF = "# include ops/half.h"

_ARITHMETIC = """
{add,sub,mul}{,.rn}.{f16,bf16}          | $3 | $3 $3 | kg::$1<kg::$3>(a, b)
{add,sub,mul}{,.rn}.ftz.f16             | f16 | f16 f16 | kg::$1_ftz_f16(a, b)
{add,sub,mul}{,.rn}.sat.f16             | f16 | f16 f16 | kg::sat<kg::$1<kg::f16>>(a, b)
{add,sub,mul}{,.rn}.ftz.sat.f16         | f16 | f16 f16 | kg::sat<kg::$1_ftz_f16>(a, b)
{add,sub,mul}{,.rn}.{f16,bf16}x2        | $3x2 | $3x2 $3x2 | kg::each<kg::$1<kg::$3>>(a, b)
{add,sub,mul}{,.rn}.ftz.f16x2           | f16x2 | f16x2 f16x2 | kg::each<kg::$1_ftz_f16>(a, b)
{add,sub,mul}{,.rn}.sat.f16x2           | f16x2 | f16x2 f16x2 | kg::each<kg::sat<kg::$1<kg::f16>>>(a, b)
{add,sub,mul}{,.rn}.ftz.sat.f16x2       | f16x2 | f16x2 f16x2 | kg::each<kg::sat<kg::$1_ftz_f16>>(a, b)
fma.rn.{f16,bf16}                       | $1 | $1 $1 $1 | kg::fma_rn<kg::$1>(a, b, c)
fma.rn.ftz.f16                          | f16 | f16 f16 f16 | kg::fma_rn_ftz_f16(a, b, c)
fma.rn.sat.f16                          | f16 | f16 f16 f16 | kg::sat<kg::fma_rn<kg::f16>>(a, b, c)
fma.rn.relu.{f16,bf16}                  | $1 | $1 $1 $1 | kg::relu<kg::fma_rn<kg::$1>>(a, b, c)
fma.rn.ftz.{sat,relu}.f16               | f16 | f16 f16 f16 | kg::$1<kg::fma_rn_ftz_f16>(a, b, c)
fma.rn.{f16,bf16}x2                     | $1x2 | $1x2 $1x2 $1x2 | kg::each<kg::fma_rn<kg::$1>>(a, b, c)
fma.rn.ftz.f16x2                        | f16x2 | f16x2 f16x2 f16x2 | kg::each<kg::fma_rn_ftz_f16>(a, b, c)
fma.rn.sat.f16x2                        | f16x2 | f16x2 f16x2 f16x2 | kg::each<kg::sat<kg::fma_rn<kg::f16>>>(a, b, c)
fma.rn.relu.{f16,bf16}x2                | $1x2 | $1x2 $1x2 $1x2 | kg::each<kg::relu<kg::fma_rn<kg::$1>>>(a, b, c)
fma.rn.ftz.{sat,relu}.f16x2             | f16x2 | f16x2 f16x2 f16x2 | kg::each<kg::$1<kg::fma_rn_ftz_f16>>(a, b, c)
{neg,abs}.{f16,bf16}                    | $2 | $2 | kg::$1<kg::$2>(a)
{neg,abs}.ftz.f16                       | f16 | f16 | kg::ftz<kg::$1<kg::f16>>(a)
{neg,abs}.{f16,bf16}x2                  | $2x2 | $2x2 | kg::each<kg::$1<kg::$2>>(a)
{neg,abs}.ftz.f16x2                     | f16x2 | f16x2 | kg::each<kg::ftz<kg::$1<kg::f16>>>(a)
"""


def _extremes() -> str:
    """min and max: with .NaN a NaN wins, with .xorsign.abs magnitudes are compared."""
    lines = []
    for nan in ("", ".NaN"):
        for sign in ("", ".xorsign.abs"):
            for flush in ("", ".ftz"):
                kind = "f16" if flush else "{f16,bf16}"
                name = "f16" if flush else "$2"
                function = f"kg::extreme<kg::{name}, kg::$1, {'true' if nan else 'false'}>"
                function = f"kg::xorsign_abs<{function}>" if sign else function
                function = f"kg::flushing<{function}>" if flush else function
                start = f"{{min,max}}{flush}{nan}{sign}.{kind}"
                lines += [
                    f"{start} | {name} | {name} {name} | {function}(a, b)",
                    f"{start}x2 | {name}x2 | {name}x2 {name}x2 | kg::each<{function}>(a, b)",
                ]
    return "\n".join(lines)


def _comparisons() -> str:
    """A comparison is that of the floats which the halves are; where it holds, set gives 1.0 or all bits."""
    names = ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
    lines = []
    for name in names:
        for kind, wide, one in (("f16", "kg::float_of_half", "0x3c00"), ("bf16", "kg::float_of_bfloat", "0x3f80")):
            holds = f"kg::compare<kg::{name}>({wide}(a), {wide}(b))"
            both = [
                f"kg::compare<kg::{name}>({wide}(kg::{half}(a)), {wide}(kg::{half}(b)))" for half in ("low", "high")
            ]
            lines += [
                f"setp.{name}.{kind} | pred | {kind} {kind} | {holds}",
                f"set.{name}.{kind}.{kind} | {kind} | {kind} {kind} | {holds} ? {one} : 0",
                f"set.{name}.u16.{kind} | u16 | {kind} {kind} | {holds} ? 0xffff : 0",
                f"set.{name}.u32.{kind} | u32 | {kind} {kind} | {holds} ? ~0u : 0",
                f"set.{name}.{kind}x2.{kind}x2 | {kind}x2 | {kind}x2 {kind}x2 | "
                f"kg::pair_of({both[0]} ? {one} : 0, {both[1]} ? {one} : 0)",
                f"set.{name}.u32.{kind}x2 | u32 | {kind}x2 {kind}x2 | "
                f"kg::pair_of({both[0]} ? 0xffff : 0, {both[1]} ? 0xffff : 0)",
            ]
        lines.append(
            f"setp.{name}.ftz.f16 | pred | f16 f16 | kg::compare<kg::{name}>(kg::float_of_half(kg::flushed_half(a)), "
            "kg::float_of_half(kg::flushed_half(b)))"
        )
    return "\n".join(lines)


TABLE = "\n".join(
    f"{line} | {_HALF}" for line in (_ARITHMETIC + _extremes() + "\n" + _comparisons()).splitlines() if line
)
