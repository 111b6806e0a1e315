"""Integer arithmetic, logic, shifts and comparisons, where C++ has an operator or a line for them."""

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}

TABLE = r"""
add.{u,s,b}{16,32,64}                       | b$2 | b$2 b$2 | a + b
sub.{u,s,b}{16,32,64}                       | b$2 | b$2 b$2 | a - b
add.sat.s32                                 | s32 | s32 s32 | kg::clamped<int32_t>((int64_t)a + b)
sub.sat.s32                                 | s32 | s32 s32 | kg::clamped<int32_t>((int64_t)a - b)
mul.lo.{u,s}{16,32,64}                      | b$2 | b$2 b$2 | a * b
mul.hi.{u16,u32}                            | $1 | $1 $1 | ((uint64_t)a * b) >> (8 * sizeof a)
mul.hi.{s16,s32}                            | $1 | $1 $1 | ((int64_t)a * b) >> (8 * sizeof a)
mul.hi.u64                                  | u64 | u64 u64 | (uint64_t)(((unsigned __int128)a * b) >> 64)
mul.hi.s64                                  | s64 | s64 s64 | (int64_t)(((__int128)a * b) >> 64)
mul.wide.u16                                | u32 | u16 u16 | (uint32_t)a * b
mul.wide.s16                                | s32 | s16 s16 | (int32_t)a * b
mul.wide.u32                                | u64 | u32 u32 | (uint64_t)a * b
mul.wide.s32                                | s64 | s32 s32 | (int64_t)a * b
mad.lo.{u,s}{16,32,64}                      | b$2 | b$2 b$2 b$2 | a * b + c
mad.hi.u32                                  | u32 | u32 u32 u32 | (uint32_t)(((uint64_t)a * b) >> 32) + c
mad.hi.s32                                  | s32 | s32 s32 s32 | (int32_t)(((int64_t)a * b) >> 32) + c
mad.hi.u64                                  | u64 | u64 u64 u64 | (uint64_t)(((unsigned __int128)a * b) >> 64) + c
mad.hi.s64                                  | s64 | s64 s64 s64 | (int64_t)(((__int128)a * b) >> 64) + c
mad.wide.u16                                | u32 | u16 u16 u32 | (uint32_t)a * b + c
mad.wide.s16                                | s32 | s16 s16 s32 | (int32_t)a * b + c
mad.wide.u32                                | u64 | u32 u32 u64 | (uint64_t)a * b + c
mad.wide.s32                                | s64 | s32 s32 s64 | (int64_t)a * b + c
div.{u16,s16,u32,s32,u64,s64}               | $1 | $1 $1 | kg::divide(a, b)
abs.{s16,s32,s64}                           | $1 | $1 | a < 0 ? -a : a
neg.s{16,32,64}                             | b$1 | b$1 | -a
min.{u16,s16,u32,s32,u64,s64}               | $1 | $1 $1 | a < b ? a : b
max.{u16,s16,u32,s32,u64,s64}               | $1 | $1 $1 | a < b ? b : a
min.relu.s32                                | s32 | s32 s32 | a < 0 || b < 0 ? 0 : a < b ? a : b
max.relu.s32                                | s32 | s32 s32 | a < 0 && b < 0 ? 0 : a < b ? b : a
sad.{u16,s16,u32,s32,u64,s64}               | $1 | $1 $1 $1 | c + (a < b ? b - a : a - b)
and.{pred,b16,b32,b64}                      | $1 | $1 $1 | a & b
or.{pred,b16,b32,b64}                       | $1 | $1 $1 | a | b
xor.{pred,b16,b32,b64}                      | $1 | $1 $1 | a ^ b
not.pred                                    | pred | pred | !a
not.{b16,b32,b64}                           | $1 | $1 | ~a
cnot.{b16,b32,b64}                          | $1 | $1 | a == 0
shl.{b16,b32,b64}                           | $1 | $1 u32 | b < 8 * sizeof a ? a << b : 0
shr.{u16,u32,u64}                           | $1 | $1 u32 | b < 8 * sizeof a ? a >> b : 0
shr.{b16,b32,b64}                           | $1 | $1 u32 | b < 8 * sizeof a ? a >> b : 0
shr.{s16,s32,s64}                           | $1 | $1 u32 | a >> (b < 8 * sizeof a ? b : 8 * sizeof a - 1)
shf.l.wrap.b32                              | b32 | b32 b32 u32 | kg::funnel(a, b, 32 - (c & 31))
shf.r.wrap.b32                              | b32 | b32 b32 u32 | kg::funnel(a, b, c & 31)
shf.l.clamp.b32                             | b32 | b32 b32 u32 | kg::funnel(a, b, 32 - (c < 32 ? c : 32))
shf.r.clamp.b32                             | b32 | b32 b32 u32 | kg::funnel(a, b, c < 32 ? c : 32)
popc.{b32,b64}                              | u32 | $1 | __builtin_popcountll(a)
clz.b32                                     | u32 | b32 | a ? __builtin_clz(a) : 32
clz.b64                                     | u32 | b64 | a ? __builtin_clzll(a) : 64
brev.{b32,b64}                              | $1 | $1 | kg::reverse_bits(a)
bfind.{u32,u64,s32,s64}                     | u32 | $1 | kg::highest_bit(a)
bfind.shiftamt.{u32,u64,s32,s64}            | u32 | $1 | kg::highest_bit_shift(a)
lop3.b32                                    | b32 | b32 b32 b32 u32 | kg::lop3(a, b, c, d)
selp.{b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64} | $1 | $1 $1 pred | c ? a : b
slct.{b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}.s32 | $1 | $1 $1 s32 | c >= 0 ? a : b
slct.{b16,u16,s16,b32,u32,s32,f32,b64,u64,s64,f64}.f32 | $1 | $1 $1 f32 | c >= 0 ? a : b
"""

for _name, _operator in (_COMPARISONS | _UNSIGNED).items():
    _types = "u16,u32,u64" if _name in _UNSIGNED else "u16,s16,b16,u32,s32,b32,u64,s64,b64"
    TABLE += f"setp.{_name}.{{{_types}}} | pred | $1 $1 | a {_operator} b\n"
