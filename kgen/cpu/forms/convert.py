"""cvt: between floats, halves, 8-bit floats, tf32 and integers, in every direction of rounding."""

_ROUNDINGS = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_CONVERT = "# include ops/convert.h"
_INTEGERS = "u8 s8 u16 s16 u32 s32 u64 s64".split()

_NARROW = f"""
cvt.{{rn,rz,rm,rp}}.{{f16,bf16}}.{{f32,f64}}                                | $2 | $3 |  | {_CONVERT}
cvt.{{rn,rz}}.{{relu,satfinite,relu.satfinite}}.{{f16,bf16}}.f32            | $3 | f32 |  | {_CONVERT}
cvt.{{rn,rz}}.ftz.f16.f32               | f16 | f32 | kg::cvt_$1_f16_f32(kg::flushed(a)) | {_CONVERT}
cvt.{{rn,rz}}.sat.f16.f32               | f16 | f32 | kg::cvt_$1_f16_f32(kg::saturated(a)) | {_CONVERT}
cvt.{{rn,rz}}.ftz.sat.f16.f32           | f16 | f32 | kg::cvt_$1_f16_f32(kg::saturated(kg::flushed(a))) | {_CONVERT}
cvt.{{rn,rz}}.{{f16x2,bf16x2}}.f32                                      | $2 | f32 f32 |  | {_CONVERT}
cvt.{{rn,rz}}.{{relu,satfinite,relu.satfinite}}.{{f16x2,bf16x2}}.f32    | $3 | f32 f32 |  | {_CONVERT}
cvt.{{rn,rz,rm,rp}}.f32.f64             | f32 | f64 | kg::narrow_to_float<kg::$1>(a) | {_CONVERT}
cvt.{{rn,rz,rm,rp}}.ftz.f32.f64         | f32 | f64 | kg::flushed(kg::narrow_to_float<kg::$1>(a)) | {_CONVERT}
cvt.{{rn,rz,rm,rp}}.sat.f32.f64         | f32 | f64 | kg::saturated(kg::narrow_to_float<kg::$1>(a)) | {_CONVERT}
cvt.{{rn,rz,rm,rp}}.ftz.sat.f32.f64     | f32 | f64 | kg::saturated(kg::flushed(kg::narrow_to_float<kg::$1>(a))) | {_CONVERT}
cvt.{{rn,rz,rm,rp}}.bf16.f16            | bf16 | f16 | kg::cvt_$1_bf16_f32(kg::float_of_half(a)) | {_CONVERT}
cvt.{{rn,rz,rm,rp}}.f16.bf16            | f16 | bf16 | kg::cvt_$1_f16_f32(kg::float_of_bfloat(a)) | {_CONVERT}
cvt.{{rna,rn,rz,rn.relu,rz.relu,rna.satfinite}}.tf32.f32 | tf32 | f32 |  | {_CONVERT}
cvt.rn.{{satfinite,satfinite.relu}}.{{e4m3x2,e5m2x2}}.f32   | $2 | f32 f32 |  | # include ops/fp8.h
cvt.rn.{{satfinite,satfinite.relu}}.{{e4m3x2,e5m2x2}}.f16x2 | $2 | f16x2 |  | # include ops/fp8.h
cvt.{{rn,rn.relu}}.f16x2.{{e4m3x2,e5m2x2}}                  | f16x2 | $2 |  | # include ops/fp8.h
cvt.pack.sat.{{u16,s16}}.s32            | b32 | s32 s32 |  | {_CONVERT}
cvt.pack.sat.{{u8,s8}}.s32.b32          | b32 | s32 s32 b32 |  | {_CONVERT}
"""

_WIDEN = f"""
cvt.f32.{{f16,bf16}}                    | f32 | $1 |  | {_CONVERT}
cvt.ftz.f32.f16                         | f32 | f16 | kg::cvt_f32_f16(a) | {_CONVERT}
cvt.sat.f32.f16                         | f32 | f16 | kg::saturated(kg::cvt_f32_f16(a)) | {_CONVERT}
cvt.f64.{{f16,bf16}}                    | f64 | $1 | (double)kg::cvt_f32_$1(a) | {_CONVERT}
cvt.f64.f32                             | f64 | f32 | (double)a | {_CONVERT}
cvt.ftz.f64.f32                         | f64 | f32 | (double)kg::flushed(a) | {_CONVERT}
cvt.sat.f64.f32                         | f64 | f32 | (double)kg::saturated(a) | {_CONVERT}
cvt.f32.f32                             | f32 | f32 | a | {_CONVERT}
cvt.ftz.f32.f32                         | f32 | f32 | kg::flushed(a) | {_CONVERT}
cvt.sat.f32.f32                         | f32 | f32 | kg::saturated(a) | {_CONVERT}
cvt.ftz.sat.f32.f32                     | f32 | f32 | kg::saturated(kg::flushed(a)) | {_CONVERT}
cvt.f16.f16                             | f16 | f16 | kg::half_of(kg::float_of_half(a)) | {_CONVERT}
cvt.sat.f16.f16                         | f16 | f16 | kg::half_of(kg::saturated(kg::float_of_half(a))) | {_CONVERT}
"""


def _integral() -> str:
    """Floats to integral values and to integers."""
    lines = []
    for name, mode in _ROUNDINGS.items():
        whole = f"kg::integral<kg::{mode}>"
        lines += [
            f"cvt.{name}.{{f32,f64}}.$1 | $1 | $1 | {whole}(a)".replace("{f32,f64}.$1", kind).replace("$1", kind[:3])
            for kind in ("f32.f32", "f64.f64")
        ]
        lines += [
            f"cvt.{name}.ftz.f32.f32 | f32 | f32 | {whole}(kg::flushed(a))",
            f"cvt.{name}.sat.f32.f32 | f32 | f32 | kg::saturated({whole}(a))",
            f"cvt.{name}.f16.f16 | f16 | f16 | kg::integral_half<kg::{mode}>(a)",
            f"cvt.{name}.bf16.bf16 | bf16 | bf16 | kg::integral_bfloat<kg::{mode}>(a)",
        ]
        for kind in _INTEGERS:
            convert = f"kg::integer<{'u' * (kind[0] == 'u')}int{kind[1:]}_t, kg::{mode}>"
            lines += [
                f"cvt.{name}.{kind}.{{f32,f64}} | {kind} | $1 | {convert}(a)",
                f"cvt.{name}.sat.{kind}.f32 | {kind} | f32 | {convert}(a)",
                f"cvt.{name}.ftz.{kind}.f32 | {kind} | f32 | {convert}(kg::flushed(a))",
                f"cvt.{name}.{kind}.f16 | {kind} | f16 | {convert}(kg::float_of_half(a))",
                f"cvt.{name}.{kind}.bf16 | {kind} | bf16 | {convert}(kg::float_of_bfloat(a))",
            ]
    return "\n".join(f"{line} | {_CONVERT}" for line in lines)


def _from_integers() -> str:
    lines = []
    for kind in _INTEGERS:
        wide = f"({'u' * (kind[0] == 'u')}int64_t)a"
        lines += [f"cvt.rn.{{f32,f64}}.{kind} | $1 | {kind} | a"]
        for name, exact in (
            ("f32", "kg::float_of((uint32_t)kg::from_integer<kg::F32, kg::$1>"),
            ("f64", "kg::double_of(kg::from_integer<kg::F64, kg::$1>"),
        ):
            lines += [f"cvt.{{rz,rm,rp}}.{name}.{kind} | {name} | {kind} | {exact}({wide}))"]
        for name in ("f16", "bf16"):
            lines += [
                f"cvt.{{rn,rz,rm,rp}}.{name}.{kind} | {name} | {kind} | kg::from_integer<kg::{name.upper()}, kg::$1>({wide})"
            ]
        for to in _INTEGERS:
            lines += [
                f"cvt.{to}.{kind} | {to} | {kind} | a",
                f"cvt.sat.{to}.{kind} | {to} | {kind} | kg::clamped<{'u' * (to[0] == 'u')}int{to[1:]}_t>(a)",
            ]
    return "\n".join(f"{line} | {_CONVERT}" for line in lines)


TABLE = "\n".join((_NARROW, _WIDEN, _integral(), _from_integers()))
