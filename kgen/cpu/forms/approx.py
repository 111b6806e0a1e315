"""The approximate functions of f32, f64 and halves; ops/approx.h says how near they are to the hardware's."""

_APPROX = "# include ops/approx.h"

TABLE = f"""
{{ex2,rcp,rsqrt,sqrt,lg2,sin,cos}}.approx.f32       | f32 | f32 | kg::$1_approx_f32(a) | {_APPROX}
tanh.approx.f32                     | f32 | f32 | kg::tanh_approx_f32(a) | {_APPROX}
div.{{approx,full}}.f32               | f32 | f32 f32 | kg::div_$1_f32(a, b) | {_APPROX}
{{rcp,rsqrt}}.approx.ftz.f64          | f64 | f64 | kg::$1_approx_ftz_f64(a) | {_APPROX}
{{ex2,tanh}}.approx.f16               | f16 | f16 | kg::$1_approx_f16(a) | {_APPROX}
{{ex2,tanh}}.approx.f16x2             | f16x2 | f16x2 | kg::each<kg::$1_approx_f16>(a) | {_APPROX}
ex2.approx.ftz.bf16                 | bf16 | bf16 | kg::ex2_approx_ftz_bf16(a) | {_APPROX}
ex2.approx.ftz.bf16x2               | bf16x2 | bf16x2 | kg::each<kg::ex2_approx_ftz_bf16>(a) | {_APPROX}
tanh.approx.bf16                    | bf16 | bf16 | kg::tanh_approx_bf16(a) | {_APPROX}
tanh.approx.bf16x2                  | bf16x2 | bf16x2 | kg::each<kg::tanh_approx_bf16>(a) | {_APPROX}
"""
