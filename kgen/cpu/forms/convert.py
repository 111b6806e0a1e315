"""cvt: between floats, halves, 8-bit floats, tf32 and integers, in every direction of rounding."""

_ROUNDINGS = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]

_NARROW = """
cvt.{rn,rz,rm,rp}.{f16,bf16}.{f32,f64}      | $2 | $3 | kg::narrow<kg::$2, kg::$1>(a)
cvt.{rn,rz}.satfinite.{f16,bf16}.f32        | $2 | f32 | kg::narrow<kg::$2, kg::$1, true>(a)
cvt.{rn,rz}.relu.{f16,bf16}.f32             | $2 | f32 | kg::narrow_relu<kg::$2, kg::$1>(a)
cvt.{rn,rz}.relu.satfinite.{f16,bf16}.f32   | $2 | f32 | kg::narrow_relu<kg::$2, kg::$1, true>(a)
cvt.{rn,rz}.{f16,bf16}x2.f32                | $2x2 | f32 f32 | kg::pair<kg::narrow<kg::$2, kg::$1>>(a, b)
cvt.{rn,rz}.satfinite.{f16,bf16}x2.f32      | $2x2 | f32 f32 | kg::pair<kg::narrow<kg::$2, kg::$1, true>>(a, b)
cvt.{rn,rz}.relu.{f16,bf16}x2.f32           | $2x2 | f32 f32 | kg::pair<kg::narrow_relu<kg::$2, kg::$1>>(a, b)
cvt.{rn,rz}.relu.satfinite.{f16,bf16}x2.f32 | $2x2 | f32 f32 | kg::pair<kg::narrow_relu<kg::$2, kg::$1, true>>(a, b)
cvt.{rn,rz}.sat.f16.f32             | f16 | f32 | kg::narrow<kg::f16, kg::$1>(kg::saturated(a))
cvt.{rn,rz,rm,rp}.f32.f64           | f32 | f64 | kg::narrow_to_float<kg::$1>(a)
cvt.{rn,rz,rm,rp}.bf16.f16          | bf16 | f16 | kg::narrow<kg::bf16, kg::$1>(kg::float_of_half(a))
cvt.{rn,rz,rm,rp}.f16.bf16          | f16 | bf16 | kg::narrow<kg::f16, kg::$1>(kg::float_of_bfloat(a))
cvt.{rna,rn,rz}.tf32.f32            | tf32 | f32 | kg::to_tf32<kg::$1>(a)
cvt.{rn,rz}.relu.tf32.f32           | tf32 | f32 | kg::rectified<32>(kg::to_tf32<kg::$1>(a))
cvt.rna.satfinite.tf32.f32          | tf32 | f32 | kg::to_finite_tf32(a)
cvt.pack.sat.{u16,s16}.s32          | b32 | s32 s32 | kg::pair_of(kg::clamped<kg::$1>(b), kg::clamped<kg::$1>(a))
cvt.pack.sat.{u8,s8}.s32.b32        | b32 | s32 s32 b32 | kg::packed_bytes<kg::$1>(a, b, c)
cvt.rn.satfinite.{e4m3,e5m2}x2.f32  | $1x2 | f32 f32 | kg::byte_pair<kg::narrow<kg::$1, kg::rn, true>>(a, b)
cvt.rn.satfinite.relu.{e4m3,e5m2}x2.f32 | $1x2 | f32 f32 | kg::byte_pair<kg::narrow_relu<kg::$1, kg::rn, true>>(a, b)
cvt.rn.satfinite.{e4m3,e5m2}x2.f16x2 | $1x2 | f16x2 | kg::byte_pair<kg::narrow<kg::$1, kg::rn, true>>(a)
cvt.rn.satfinite.relu.{e4m3,e5m2}x2.f16x2 | $1x2 | f16x2 | kg::byte_pair<kg::narrow_relu<kg::$1, kg::rn, true>>(a)
cvt.rn.f16x2.{e4m3,e5m2}x2          | f16x2 | $1x2 | kg::pair_of(kg::half_of_$1(a & 255), kg::half_of_$1(a >> 8))
cvt.rn.relu.f16x2.{e4m3,e5m2}x2     | f16x2 | $1x2 | kg::rectified_pair(kg::half_of_$1(a & 255), kg::half_of_$1(a >> 8))
"""

_WIDEN = """
cvt.{f32,f64}.{f16,bf16}            | $1 | $2 | kg::wide<kg::$2>(a)
cvt.f64.f32                         | f64 | f32 | (double)a
cvt.f32.f32                         | f32 | f32 | a
cvt.f16.f16                         | f16 | f16 | kg::half_of(kg::float_of_half(a))
cvt.sat.f16.f16                     | f16 | f16 | kg::half_of(kg::saturated(kg::float_of_half(a)))
"""


def _integral() -> str:
    """Floats to integral values and to integers."""
    lines = []
    for name, mode in _ROUNDINGS.items():
        whole = f"kg::integral<kg::{mode}>"
        lines += [
            f"cvt.{name}.f32.f32 | f32 | f32 | {whole}(a)",
            f"cvt.{name}.f64.f64 | f64 | f64 | {whole}(a)",
            f"cvt.{name}.f16.f16 | f16 | f16 | kg::integral_half<kg::{mode}>(a)",
            f"cvt.{name}.bf16.bf16 | bf16 | bf16 | kg::integral_bfloat<kg::{mode}>(a)",
        ]
        for kind in _INTEGERS:
            convert = f"kg::integer<kg::{kind}, kg::{mode}>"
            lines += [
                f"cvt.{name}.{kind}.{{f32,f64}} | {kind} | $1 | {convert}(a)",
                f"cvt.{name}.sat.{kind}.f32 | {kind} | f32 | {convert}(a)",
                f"cvt.{name}.{kind}.f16 | {kind} | f16 | {convert}(kg::float_of_half(a))",
                f"cvt.{name}.{kind}.bf16 | {kind} | bf16 | {convert}(kg::float_of_bfloat(a))",
            ]
    return "\n".join(lines)


def _from_integers() -> str:
    """Integers to floats and to other integers."""
    lines = []
    for kind in _INTEGERS:
        wide = f"({'u' * (kind[0] == 'u')}int64_t)a"
        bits = "kg::from_integer<kg::{}, kg::$1>(" + wide + ")"
        lines += [
            f"cvt.rn.{{f32,f64}}.{kind} | $1 | {kind} | a",
            f"cvt.{{rz,rm,rp}}.f32.{kind} | f32 | {kind} | kg::float_of((uint32_t){bits.format('f32')})",
            f"cvt.{{rz,rm,rp}}.f64.{kind} | f64 | {kind} | kg::double_of({bits.format('f64')})",
            f"cvt.{{rn,rz,rm,rp}}.f16.{kind} | f16 | {kind} | {bits.format('f16')}",
            f"cvt.{{rn,rz,rm,rp}}.bf16.{kind} | bf16 | {kind} | {bits.format('bf16')}",
        ]
        for to in _INTEGERS:
            lines += [
                f"cvt.{to}.{kind} | {to} | {kind} | a",
                f"cvt.sat.{to}.{kind} | {to} | {kind} | kg::clamped<kg::{to}>(a)",
            ]
    return "\n".join(lines)


TABLE = "\n".join(
    f"{line} | # include ops/convert.h"
    for line in (_NARROW + _WIDEN + _integral() + "\n" + _from_integers()).splitlines()
    if line
)
