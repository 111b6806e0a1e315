// f32 and f64 arithmetic in every direction of rounding, from exact intermediate results in 128-bit integers.
//
// For what a CPU does only after its mode was changed, which compilers do not follow: .rz, .rm and .rp; and for .ftz, which
// flushes what is below the normal numbers when rounded as if exponents had no end. Slow beside plain arithmetic, and rare.
#pragma once

#include "convert.h"

namespace kg {

using Wide = unsigned __int128;

// (-1)^negative * significand * 2^exponent; where something was lost below, the last bit is set.
struct Exact {
    bool negative;
    int exponent;
    Wide significand;
};

static inline int top_bit(Wide x)
{
    const uint64_t upper = uint64_t(x >> 64);
    return upper ? 127 - __builtin_clzll(upper) : 63 - __builtin_clzll(uint64_t(x) | 1);
}

static inline Wide sticky_shift(Wide x, int by)
{
    if (by <= 0) return x << -by;
    if (by > 127) return x != 0;
    return x >> by | ((x & ((Wide(1) << by) - 1)) != 0);
}

// The highest bit moved to 125: a sum has room above, and two numbers of like size lose nothing below.
static inline Exact normalized(Exact x)
{
    const int by = top_bit(x.significand) - 125;
    return {x.negative, x.exponent + by, sticky_shift(x.significand, by)};
}

template <typename F>
static inline Exact unpacked(uint64_t code)
{
    const uint64_t magnitude = code & ((uint64_t(1) << F::sign) - 1);
    const int field = int(magnitude >> F::mantissa);
    const uint64_t fraction = magnitude & ((uint64_t(1) << F::mantissa) - 1);
    const uint64_t significand = field ? fraction | uint64_t(1) << F::mantissa : fraction;
    return {bool(code >> F::sign & 1), (field ? field : 1) - F::bias - F::mantissa, significand};
}

template <typename F, Rounding R, bool FTZ>
static inline uint64_t packed(Exact x)
{
    const uint64_t sign = uint64_t(x.negative) << F::sign;
    if (!x.significand) return sign;
    const int highest = top_bit(x.significand) + x.exponent;
    const int least = 1 - F::bias - F::mantissa;  // the exponent of a subnormal's last bit
    const int last = highest - F::mantissa > least || FTZ ? highest - F::mantissa : least;
    const int drop = last - x.exponent;
    uint64_t kept;
    if (drop <= 0) {
        kept = uint64_t(x.significand << -drop);
    } else {
        // Four bits are enough of what lies wholly below the last bit.
        const int first = drop > 4 ? drop - 4 : 0;
        kept = uint64_t(shifted<R, Wide>(sticky_shift(x.significand, first), drop - first, x.negative));
    }
    if (FTZ && highest < 1 - F::bias) {
        const bool carried = highest == -F::bias && kept >> (F::mantissa + 1);
        return sign | (carried ? uint64_t(1) << F::mantissa : 0);
    }
    const uint64_t code = kept + (uint64_t(last - least) << F::mantissa);
    return sign | (code > F::largest ? overflowed<F, R>(x.negative) : code);
}

template <Rounding R>
static inline Exact sum(Exact x, Exact y)
{
    if (!x.significand && !y.significand) return {x.negative == y.negative ? x.negative : R == rm, 0, 0};
    if (!x.significand) return y;
    if (!y.significand) return x;
    x = normalized(x), y = normalized(y);
    if (x.exponent < y.exponent) {
        const Exact smaller = x;
        x = y, y = smaller;
    }
    const Wide aligned = sticky_shift(y.significand, x.exponent - y.exponent);
    if (x.negative == y.negative) return {x.negative, x.exponent, x.significand + aligned};
    if (x.significand == aligned) return {R == rm, 0, 0};
    if (x.significand > aligned) return {x.negative, x.exponent, x.significand - aligned};
    return {y.negative, x.exponent, aligned - x.significand};
}

static inline Exact product(Exact x, Exact y)
{
    return {x.negative != y.negative, x.exponent + y.exponent, x.significand * y.significand};
}

static inline Exact quotient(Exact x, Exact y)
{
    const int up = 120 - (x.significand ? top_bit(x.significand) : 0);
    const Wide dividend = x.significand << up, found = dividend / y.significand;
    return {x.negative != y.negative, x.exponent - up - y.exponent, found | (found * y.significand != dividend)};
}

static inline Exact root(Exact x)
{
    if (!x.significand) return x;
    int up = 124 - top_bit(x.significand);
    up -= (x.exponent - up) & 1;  // an even exponent has a half
    const Wide square = x.significand << up;
    Wide found = 0;
    for (int bit = 62; bit >= 0; --bit) {
        const Wide next = found | Wide(1) << bit;
        if (next * next <= square) found = next;
    }
    // One more bit than found, for what is below.
    return {false, (x.exponent - up) / 2 - 1, found << 1 | (found * found != square)};
}

template <typename Real> struct FormatOf;
template <> struct FormatOf<float> { using type = F32; using bits = uint32_t; };
template <> struct FormatOf<double> { using type = F64; using bits = uint64_t; };

static inline float real_of(uint32_t code) { return float_of(code); }
static inline double real_of(uint64_t code) { return double_of(code); }
static inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

// Infinities, NaN and division by zero are as in any arithmetic: `plain` is the result of it.
template <bool FTZ, typename Real> static inline Real taken(Real x) { return x; }
template <> inline float taken<true, float>(float x) { return flushed(x); }
#define KG_EXACT(name, plain, exact, unless, ...)                                                                     \
    template <Rounding R, bool FTZ = false, typename Real>                                                            \
    static inline Real name(__VA_ARGS__)                                                                              \
    {                                                                                                                 \
        using F = typename FormatOf<Real>::type;                                                                      \
        const Real result = plain;                                                                                    \
        if (unless) return result;                                                                                    \
        return real_of(typename FormatOf<Real>::bits(packed<F, R, FTZ>(exact)));                                      \
    }
#define KG_TAKEN(x) taken<FTZ>(x)
#define KG_PARTS(x) unpacked<F>(bits_of(KG_TAKEN(x)))
#define KG_FINITE(x) (__builtin_fabs(double(x)) < __builtin_inf())
KG_EXACT(exact_add, a + b, sum<R>(KG_PARTS(a), KG_PARTS(b)), !KG_FINITE(a) || !KG_FINITE(b), Real a, Real b)
KG_EXACT(exact_sub, a - b, sum<R>(KG_PARTS(a), KG_PARTS(-b)), !KG_FINITE(a) || !KG_FINITE(b), Real a, Real b)
KG_EXACT(exact_mul, KG_TAKEN(a) * KG_TAKEN(b), product(KG_PARTS(a), KG_PARTS(b)), !KG_FINITE(a) || !KG_FINITE(b), Real a, Real b)
KG_EXACT(careful_fma, fused(KG_TAKEN(a), KG_TAKEN(b), KG_TAKEN(c)), sum<R>(product(KG_PARTS(a), KG_PARTS(b)), KG_PARTS(c)),
         !KG_FINITE(a) || !KG_FINITE(b) || !KG_FINITE(c), Real a, Real b, Real c)
KG_EXACT(exact_div, KG_TAKEN(a) / KG_TAKEN(b), quotient(KG_PARTS(a), KG_PARTS(b)),
         !KG_FINITE(a) || !KG_FINITE(b) || KG_TAKEN(b) == 0, Real a, Real b)
KG_EXACT(exact_rcp, Real(1) / KG_TAKEN(a), quotient(unpacked<F>(bits_of(Real(1))), KG_PARTS(a)), !KG_FINITE(a) || KG_TAKEN(a) == 0, Real a)
KG_EXACT(exact_sqrt, Real(__builtin_sqrt(double(KG_TAKEN(a)))), root(KG_PARTS(a)), !KG_FINITE(a) || KG_TAKEN(a) <= 0, Real a)

template <Rounding R, bool FTZ = false>
static inline double exact_fma(double a, double b, double c) { return careful_fma<R, FTZ>(a, b, c); }

// Of floats, as expf has it: the product is exact in double, and so is what the sum leaves over.
template <Rounding R, bool FTZ = false>
static inline float exact_fma(float a, float b, float c)
{
    const double product = double(a) * double(b), sum = product + double(c), added = sum - product;
    const double left = (product - (sum - added)) + (double(c) - added);
    const float near = float(sum);
    if (FTZ || !(__builtin_fabsf(near) > 0x1p-100f && __builtin_fabsf(near) < 0x1p100f)) return careful_fma<R, FTZ>(a, b, c);
    const double beyond = sum != double(near) ? sum - double(near) : left;
    const bool low = R == rm || (R == rz && near > 0), high = R == rp || (R == rz && near < 0);
    const bool down = low && beyond < 0, up = high && beyond > 0;
    if (!down && !up) return near;
    return float_of(bits_of(near) + (up == (near > 0) ? 1u : -1u));
}

// To nearest with .ftz, which kernels compiled for fast arithmetic use: only results near the smallest normal number are
// looked at closely.
static inline float mul_ftz_f32(float a, float b)
{
    const float result = flushed(a) * flushed(b);
    return __builtin_fabsf(result) > 0x1p-126f || result != result ? result : exact_mul<rn, true>(a, b);
}
static inline float fma_ftz_f32(float a, float b, float c)
{
    const float result = __builtin_fmaf(flushed(a), flushed(b), flushed(c));
    return __builtin_fabsf(result) > 0x1p-126f || result != result ? result : exact_fma<rn, true>(a, b, c);
}
#undef KG_EXACT
#undef KG_TAKEN
#undef KG_PARTS
#undef KG_FINITE

}  // namespace kg
