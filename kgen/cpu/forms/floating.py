"""Arithmetic on float and double, comparisons, and conversions between them and integers.

The plain operations are IEEE's, which C++ has; `.ftz` and `.sat` are put around them by the translator.
"""

COMPARISONS = {"eq": "a == b", "ne": "a < b || a > b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}
COMPARISONS |= {"equ": "!(a < b || a > b)", "neu": "a != b", "ltu": "!(a >= b)", "leu": "!(a > b)"}
COMPARISONS |= {"gtu": "!(a <= b)", "geu": "!(a < b)", "num": "a == a && b == b", "nan": "a != a || b != b"}
"""Those with a u hold where either number is a NaN."""

TABLE = r"""
add{,.rn}.{f32,f64}                 | $2 | $2 $2 | a + b
sub{,.rn}.{f32,f64}                 | $2 | $2 $2 | a - b
mul{,.rn}.{f32,f64}                 | $2 | $2 $2 | a * b
fma.rn.f32                          | f32 | f32 f32 f32 | __builtin_fmaf(a, b, c)
fma.rn.f64                          | f64 | f64 f64 f64 | __builtin_fma(a, b, c)
mad.rn.f32                          | f32 | f32 f32 f32 | __builtin_fmaf(a, b, c)
mad.rn.f64                          | f64 | f64 f64 f64 | __builtin_fma(a, b, c)
div.rn.{f32,f64}                    | $1 | $1 $1 | a / b
rcp.rn.f32                          | f32 | f32 | 1.0f / a
rcp.rn.f64                          | f64 | f64 | 1.0 / a
sqrt.rn.f32                         | f32 | f32 | __builtin_sqrtf(a)
sqrt.rn.f64                         | f64 | f64 | __builtin_sqrt(a)
neg.{f32,f64}                       | $1 | $1 | -a
abs.f32                             | f32 | f32 | __builtin_fabsf(a)
abs.f64                             | f64 | f64 | __builtin_fabs(a)
min.{f32,f64}                       | $1 | $1 $1 | kg::minimum(a, b)
max.{f32,f64}                       | $1 | $1 $1 | kg::maximum(a, b)
min.NaN.f32                         | f32 | f32 f32 | kg::minimum_nan(a, b)
max.NaN.f32                         | f32 | f32 f32 | kg::maximum_nan(a, b)
copysign.f32                        | f32 | f32 f32 | __builtin_copysignf(b, a)
copysign.f64                        | f64 | f64 f64 | __builtin_copysign(b, a)
testp.finite.{f32,f64}              | pred | $1 | __builtin_isfinite(a)
testp.infinite.{f32,f64}            | pred | $1 | __builtin_isinf(a)
testp.number.{f32,f64}              | pred | $1 | a == a
testp.notanumber.{f32,f64}          | pred | $1 | a != a
testp.normal.{f32,f64}              | pred | $1 | a == 0 || __builtin_isnormal(a)
testp.subnormal.{f32,f64}           | pred | $1 | a != 0 && __builtin_isfinite(a) && !__builtin_isnormal(a)
cvt.f64.f64                         | f64 | f64 | a
"""

for _name, _test in COMPARISONS.items():
    TABLE += f"setp.{_name}.{{f32,f64}} | pred | $1 $1 | {_test}\n"
