// The approximate functions. The hardware interpolates in tables that nobody publishes; here each is computed in double
// and rounded, within the special cases and the steps (scaling, flushing, reduction) that the compiler puts around it.
//
// How far from an H200 (every float of one or two octaves, and two million over the whole range):
//     ex2 2 ulp, rcp 1, sqrt 1, rsqrt 2, div.approx and div.full 3, tanh 140 (the hardware is that far off),
//     lg2 3 ulp or 2^-22, sin and cos 2^-21 after their reduction, of halves 1 ulp of a half.
#pragma once

#include "half.h"

namespace kg {

// A number cut off to a multiple of 2^-BITS, as the hardware's fixed-point arguments are.
template <int BITS>
static inline double fixed(double x) { return double(int64_t(x * double(1 << BITS))) * (1.0 / double(1 << BITS)); }

// 2^x to double's first 30 bits: x = n + f, and the series of e^(f ln 2).
static inline double exp2_of(float argument)
{
    const double x = fixed<23>(argument);
    const double shifter = 0x1.8p52;  // leaves n in the last bits
    const double n = (x + shifter) - shifter;
    const double f = (x - n) * 0.69314718055994530942;
    double sum = 1.0 / 40320;
    sum = sum * f + 1.0 / 5040;
    sum = sum * f + 1.0 / 720;
    sum = sum * f + 1.0 / 120;
    sum = sum * f + 1.0 / 24;
    sum = sum * f + 1.0 / 6;
    sum = sum * f + 0.5;
    sum = sum * f + 1.0;
    sum = sum * f + 1.0;
    return sum * double_of(uint64_t(int64_t(n) + 1023) << 52);
}

static inline float ex2_approx_f32(float x)
{
    if (x != x) return x;
    return x >= 128.0f ? __builtin_inff() : x < -151.0f ? 0.0f : float(exp2_of(x));
}

static inline float rcp_approx_f32(float x) { return 1.0f / x; }
static inline float sqrt_approx_f32(float x) { return __builtin_sqrtf(x); }
static inline float rsqrt_approx_f32(float x) { return float(1.0 / __builtin_sqrt(double(x))); }
static inline float lg2_approx_f32(float x) { return x == 0.0f ? -__builtin_inff() : float(__builtin_log2(double(x))); }
static inline float tanh_approx_f32(float x)
{
    return __builtin_fabsf(x) < 0x1p-8f ? x : float(__builtin_tanh(double(x)));
}

// Quotients are products with the reciprocal, which is zero from 2^126 on; small divisors are scaled, and by `full`
// large ones.
static inline float div_approx_f32(float a, float b)
{
    if (__builtin_fabsf(b) < 0x1p-126f) a *= 0x1p24f, b *= 0x1p24f;
    return a * flushed(1.0f / b);
}
static inline float div_full_f32(float a, float b)
{
    if (__builtin_fabsf(b) > 0x1p126f) a *= 0.25f, b *= 0.25f;
    return div_approx_f32(a, b);
}
// Turns are counted first: x / 2 pi, cut off to a float and then to 25 bits after the point.
static inline double angle(float x)
{
    const double turns = double_of(bits_of(double(x) * 0.15915493667125701904) & ~uint64_t(0x1fffffff));
    if (!(__builtin_fabs(turns) < 0x1p23)) return turns - turns;  // whole, or NaN
    const double cut = fixed<25>(turns), shifter = 0x1.8p52;
    return (cut - ((cut + shifter) - shifter)) * 6.28318530717958647692;
}
static inline float sin_approx_f32(float x)
{
    const float result = float(__builtin_sin(angle(x)));
    return result == 0.0f ? __builtin_copysignf(result, x) : result;
}
static inline float cos_approx_f32(float x) { return float(__builtin_cos(angle(x))); }

// Of halves: the float's upper bits, cut off.
static inline uint16_t cut_to_half(float x)
{
    const uint16_t code = narrow<f16, rz>(x);
    return __builtin_fabsf(x) >= 0x1p16f ? uint16_t((code & 0x8000) | 0x7c00) : code;
}
static inline uint16_t cut_to_bfloat(float x) { return x != x ? 0x7fff : uint16_t(bits_of(x) >> 16); }
static inline uint16_t ex2_approx_f16(uint16_t a) { return cut_to_half(ex2_approx_f32(float_of_half(a))); }
static inline uint16_t tanh_approx_f16(uint16_t a) { return cut_to_half(tanh_approx_f32(float_of_half(a))); }
static inline uint16_t ex2_approx_ftz_bf16(uint16_t a)
{
    return cut_to_bfloat(flushed(ex2_approx_f32(float_of_bfloat(a))));
}
static inline uint16_t tanh_approx_bf16(uint16_t a) { return cut_to_bfloat(tanh_approx_f32(float_of_bfloat(a))); }

// Of doubles, which are taken and given as their upper 32 bits.
static inline double upper_word(double x) { return double_of(bits_of(x) & 0xffffffff00000000); }
static inline double rcp_approx_ftz_f64(double x)
{
    x = upper_word(x);
    if (x != x) return x;
    if (__builtin_fabs(x) < 0x1p-1022) x = __builtin_copysign(0.0, x);
    const double result = upper_word(1.0 / x);
    return __builtin_fabs(result) < 0x1p-1022 ? __builtin_copysign(0.0, result) : result;
}
static inline double rsqrt_approx_ftz_f64(double x)
{
    x = upper_word(x);
    if (x != x) return x;
    if (__builtin_fabs(x) < 0x1p-1022) x = __builtin_copysign(0.0, x);
    return upper_word(1.0 / __builtin_sqrt(x));
}

}  // namespace kg
