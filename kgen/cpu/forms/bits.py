"""Integer instructions that C++ has no operator for, and a few on the bits of floats."""

_BITS = "# include ops/bits.h"
_FLOAT = "# include ops/convert.h"

TABLE = f"""
bfe.u32                         | u32 | u32 u32 u32 | kg::field<uint32_t, uint32_t>(a, b & 255, c & 255) | {_BITS}
bfe.s32                         | s32 | s32 u32 u32 | kg::field<int32_t, uint32_t>(a, b & 255, c & 255) | {_BITS}
bfe.u64                         | u64 | u64 u32 u32 | kg::field<uint64_t, uint64_t>(a, b, c) | {_BITS}
bfe.s64                         | s64 | s64 u32 u32 | kg::field<int64_t, uint64_t>(a, b, c) | {_BITS}
bfi.b32                         | b32 | b32 b32 u32 u32 | kg::inserted(a, b, c & 255, d & 255) | {_BITS}
bfi.b64                         | b64 | b64 b64 u32 u32 | kg::inserted(a, b, c, d) | {_BITS}
szext.clamp.u32                 | u32 | u32 u32 | kg::zero_extended(a, b) | {_BITS}
szext.clamp.s32                 | s32 | s32 u32 | kg::sign_extended(a, b) | {_BITS}
szext.wrap.u32                  | u32 | u32 u32 | kg::zero_extended(a, b & 31) | {_BITS}
szext.wrap.s32                  | s32 | s32 u32 | kg::sign_extended(a, b & 31) | {_BITS}
bmsk.clamp.b32                  | b32 | b32 b32 | kg::ones(a, b) | {_BITS}
bmsk.wrap.b32                   | b32 | b32 b32 | kg::ones(a & 31, b & 31) | {_BITS}
prmt.b32                        | b32 | b32 b32 b32 | kg::permuted<kg::general>(a, b, c) | {_BITS}
prmt.b32.{{f4e,b4e,rc8,ecl,ecr,rc16}} | b32 | b32 b32 b32 | kg::permuted<kg::$1>(a, b, c) | {_BITS}
dp4a.{{u32,s32}}.{{u32,s32}}    | s32 | b32 b32 u32 | kg::dot<kg::byte_$1, kg::byte_$2, 0>(a, b, c) | {_BITS}
dp2a.lo.{{u32,s32}}.{{u32,s32}} | $2 | $1 $2 u32 | kg::dot<kg::half_$1, kg::byte_$2, 0>(a, b, c) | {_BITS}
dp2a.hi.{{u32,s32}}.{{u32,s32}} | $2 | $1 $2 u32 | kg::dot<kg::half_$1, kg::byte_$2, 2>(a, b, c) | {_BITS}
add.{{u16x2,s16x2}}             | b32 | b32 b32 | kg::each_sum(a, b) | {_BITS}
{{min,max}}.{{u16,s16}}x2       | b32 | b32 b32 | kg::each_extreme<kg::$1, kg::$2, false>(a, b) | {_BITS}
{{min,max}}.relu.s16x2          | b32 | b32 b32 | kg::each_extreme<kg::$1, kg::s16, true>(a, b) | {_BITS}
{{min,max}}.xorsign.abs.f32     | f32 | f32 f32 | kg::extreme_magnitude<kg::$1, false>(a, b) | {_FLOAT}
{{min,max}}.NaN.xorsign.abs.f32 | f32 | f32 f32 | kg::extreme_magnitude<kg::$1, true>(a, b) | {_FLOAT}
mul24.lo.{{u32,s32}}            | $1 | $1 $1 | kg::low_24(a, b) | {_BITS}
mul24.hi.{{u32,s32}}            | $1 | $1 $1 | kg::high_24(a, b) | {_BITS}
mad24.lo.{{u32,s32}}            | $1 | $1 $1 $1 | kg::low_24(a, b) + c | {_BITS}
mad24.hi.{{u32,s32}}            | $1 | $1 $1 $1 | kg::high_24(a, b) + c | {_BITS}
mad24.hi.sat.s32                | s32 | s32 s32 s32 | kg::clamped<int32_t>((int64_t)kg::high_24(a, b) + c) | {_BITS}
mad.hi.sat.s32                  | s32 | s32 s32 s32 | kg::clamped<int32_t>(((int64_t)a * b >> 32) + c) | {_BITS}
mad.hi.u16                      | u16 | u16 u16 u16 | ((uint32_t)a * b >> 16) + c | {_BITS}
mad.hi.s16                      | s16 | s16 s16 s16 | ((int32_t)a * b >> 16) + c | {_BITS}
rem.{{u16,s16,u32,s32,u64,s64}} | $1 | $1 $1 | kg::remainder_of(a, b) | {_BITS}
slct.ftz.{{f32,u32,s32,b32}}.f32 | $1 | $1 $1 f32 | kg::flushed(c) >= 0.0f ? a : b | {_FLOAT}
"""
