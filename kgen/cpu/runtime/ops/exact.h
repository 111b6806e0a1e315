// f32 and f64 arithmetic in every direction of rounding, in the CPU's mode: for .rz, .rm and .rp; and for .ftz, which
// flushes what is below the normal numbers when rounded as if exponents had no end. Slow beside plain arithmetic, and
// rare.
#pragma once

#include <fenv.h>

#include "convert.h"

namespace kg {

static inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline float root(float x) { return __builtin_sqrtf(x); }
static inline double root(double x) { return __builtin_sqrt(x); }

// Compilers do not follow changes of the mode: nothing may be known before, or moved out from between them.
template <typename Real>
static inline Real opaque(Real x)
{
    __asm__ volatile("" : "+m"(x));
    return x;
}
template <Rounding R, typename Function, typename... Reals>
static inline auto directed(Function function, Reals... x)
{
    fesetround(R == rz ? FE_TOWARDZERO : R == rm ? FE_DOWNWARD : R == rp ? FE_UPWARD : FE_TONEAREST);
    const auto result = opaque(function(opaque(x)...));
    fesetround(FE_TONEAREST);
    return result;
}

// Of floats, as expf has it, without a change of mode, which takes longer than all else that expf does: the product is
// exact in double, and so is what the sum leaves over.
template <Rounding R>
static inline float directed_fma(float a, float b, float c)
{
    const double product = double(a) * double(b), sum = product + double(c), added = sum - product;
    const double left = (product - (sum - added)) + (double(c) - added);
    const float near = float(sum);
    const bool usual = __builtin_fabsf(near) > 0x1p-100f && __builtin_fabsf(near) < 0x1p100f;
    if (!usual) return directed<R>([](float x, float y, float z) { return fused(x, y, z); }, a, b, c);
    const double beyond = sum != double(near) ? sum - double(near) : left;
    const bool low = R == rm || (R == rz && near > 0), high = R == rp || (R == rz && near < 0);
    const bool down = low && beyond < 0, up = high && beyond > 0;
    return down || up ? float_of(bits_of(near) + (up == (near > 0) ? 1u : -1u)) : near;
}

// In double, rounded to odd where it is not exact: rounding that to a float is right in any direction.
template <Rounding R, typename Function, typename... Floats>
static inline float directed_ftz(Function function, Floats... x)
{
    const double below = directed<rm>(function, double(flushed(x))...);
    const double above = directed<rp>(function, double(flushed(x))...);
    const double exact = directed<R>(function, double(flushed(x))...);
    const double odd = below == above ? exact : bits_of(below) & 1 ? below : above;
    const uint64_t magnitude = bits_of(odd) & ~uint64_t(0) >> 1;
    const bool least = odd == odd && double_of(shifted<R>(magnitude, 29, odd < 0) << 29) < 0x1p-126;
    if (least) return __builtin_copysignf(0.0f, float(odd));
    return directed<R>([](double y) { return float(y); }, odd);
}

// To nearest with .ftz, which kernels compiled for fast arithmetic use: only results near the smallest normal number
// are looked at closely.
template <typename Function, typename... Floats>
static inline float nearest_ftz(Function function, Floats... x)
{
    const float result = function(flushed(x)...);
    return __builtin_fabsf(result) > 0x1p-126f || result != result ? result : directed_ftz<rn>(function, x...);
}

}  // namespace kg
