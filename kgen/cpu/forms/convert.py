"""cvt: between floats, halves, 8-bit floats, tf32 and integers, in every direction of rounding."""

_ROUNDINGS = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
_C_TYPES = {kind: f"{'u' * (kind[0] == 'u')}int{kind[1:]}_t" for kind in _INTEGERS}

# Without an expression: the function of the opcode's name.
_NARROW = """
cvt.{rn,rz,rm,rp}.{f16,bf16}.{f32,f64}                          | $2 | $3
cvt.{rn,rz}.{relu,satfinite,relu.satfinite}.{f16,bf16}.f32      | $3 | f32
cvt.{rn,rz}.ftz.f16.f32             | f16 | f32 | kg::cvt_$1_f16_f32(kg::flushed(a))
cvt.{rn,rz}.sat.f16.f32             | f16 | f32 | kg::cvt_$1_f16_f32(kg::saturated(a))
cvt.{rn,rz}.ftz.sat.f16.f32         | f16 | f32 | kg::cvt_$1_f16_f32(kg::saturated(kg::flushed(a)))
cvt.{rn,rz}.{f16x2,bf16x2}.f32                                  | $2 | f32 f32
cvt.{rn,rz}.{relu,satfinite,relu.satfinite}.{f16x2,bf16x2}.f32  | $3 | f32 f32
cvt.{rn,rz,rm,rp}.f32.f64           | f32 | f64 | kg::narrow_to_float<kg::$1>(a)
cvt.{rn,rz,rm,rp}.ftz.f32.f64       | f32 | f64 | kg::flushed(kg::narrow_to_float<kg::$1>(a))
cvt.{rn,rz,rm,rp}.sat.f32.f64       | f32 | f64 | kg::saturated(kg::narrow_to_float<kg::$1>(a))
cvt.{rn,rz,rm,rp}.ftz.sat.f32.f64   | f32 | f64 | kg::saturated(kg::flushed(kg::narrow_to_float<kg::$1>(a)))
cvt.{rn,rz,rm,rp}.bf16.f16          | bf16 | f16 | kg::cvt_$1_bf16_f32(kg::float_of_half(a))
cvt.{rn,rz,rm,rp}.f16.bf16          | f16 | bf16 | kg::cvt_$1_f16_f32(kg::float_of_bfloat(a))
cvt.{rna,rn,rz,rn.relu,rz.relu,rna.satfinite}.tf32.f32          | tf32 | f32
cvt.pack.sat.{u16,s16}.s32          | b32 | s32 s32
cvt.pack.sat.{u8,s8}.s32.b32        | b32 | s32 s32 b32
"""

_FP8 = """
cvt.rn.{satfinite,satfinite.relu}.{e4m3x2,e5m2x2}.f32       | $2 | f32 f32
cvt.rn.{satfinite,satfinite.relu}.{e4m3x2,e5m2x2}.f16x2     | $2 | f16x2
cvt.{rn,rn.relu}.f16x2.{e4m3x2,e5m2x2}                      | f16x2 | $2
"""

_WIDEN = """
cvt.f32.{f16,bf16}                  | f32 | $1
cvt.ftz.f32.f16                     | f32 | f16 | kg::cvt_f32_f16(a)
cvt.sat.f32.f16                     | f32 | f16 | kg::saturated(kg::cvt_f32_f16(a))
cvt.f64.{f16,bf16}                  | f64 | $1 | (double)kg::cvt_f32_$1(a)
cvt.f64.f32                         | f64 | f32 | (double)a
cvt.ftz.f64.f32                     | f64 | f32 | (double)kg::flushed(a)
cvt.sat.f64.f32                     | f64 | f32 | (double)kg::saturated(a)
cvt.f32.f32                         | f32 | f32 | a
cvt.ftz.f32.f32                     | f32 | f32 | kg::flushed(a)
cvt.sat.f32.f32                     | f32 | f32 | kg::saturated(a)
cvt.ftz.sat.f32.f32                 | f32 | f32 | kg::saturated(kg::flushed(a))
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
            f"cvt.{name}.ftz.f32.f32 | f32 | f32 | {whole}(kg::flushed(a))",
            f"cvt.{name}.sat.f32.f32 | f32 | f32 | kg::saturated({whole}(a))",
            f"cvt.{name}.f16.f16 | f16 | f16 | kg::integral_half<kg::{mode}>(a)",
            f"cvt.{name}.bf16.bf16 | bf16 | bf16 | kg::integral_bfloat<kg::{mode}>(a)",
        ]
        for kind, c_type in _C_TYPES.items():
            convert = f"kg::integer<{c_type}, kg::{mode}>"
            lines += [
                f"cvt.{name}.{kind}.{{f32,f64}} | {kind} | $1 | {convert}(a)",
                f"cvt.{name}.sat.{kind}.f32 | {kind} | f32 | {convert}(a)",
                f"cvt.{name}.ftz.{kind}.f32 | {kind} | f32 | {convert}(kg::flushed(a))",
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
            f"cvt.{{rz,rm,rp}}.f32.{kind} | f32 | {kind} | kg::float_of((uint32_t){bits.format('F32')})",
            f"cvt.{{rz,rm,rp}}.f64.{kind} | f64 | {kind} | kg::double_of({bits.format('F64')})",
            f"cvt.{{rn,rz,rm,rp}}.f16.{kind} | f16 | {kind} | {bits.format('F16')}",
            f"cvt.{{rn,rz,rm,rp}}.bf16.{kind} | bf16 | {kind} | {bits.format('BF16')}",
        ]
        for to, c_type in _C_TYPES.items():
            lines += [
                f"cvt.{to}.{kind} | {to} | {kind} | a",
                f"cvt.sat.{to}.{kind} | {to} | {kind} | kg::clamped<{c_type}>(a)",
            ]
    return "\n".join(lines)


def _from(header: str, table: str) -> str:
    """The lines of a table, with the header that their expressions need."""
    return "\n".join(f"{line} | # include ops/{header}" for line in table.splitlines() if line)


TABLE = "\n".join((_from("convert.h", _NARROW + _WIDEN + _integral() + "\n" + _from_integers()), _from("fp8.h", _FP8)))
