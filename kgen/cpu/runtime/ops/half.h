// Arithmetic on binary16 and bfloat16, one number or the two of a register: every result is rounded once.
//
// A NaN result is the canonical one, 0x7fff; negating a NaN or taking its absolute value makes it canonical too.
#pragma once

#include "convert.h"

namespace kg {

// A sum or product of two halves in float, rounded again: 24 bits are enough that the first rounding does not show
// (2 * 11 + 2; Figueroa, "When is double rounding innocuous?", 1995).
template <typename H>
static inline uint16_t add(uint16_t a, uint16_t b)
{
    return narrow<H, rn>(wide<H>(a) + wide<H>(b));
}
template <typename H>
static inline uint16_t sub(uint16_t a, uint16_t b)
{
    return narrow<H, rn>(wide<H>(a) - wide<H>(b));
}

// Products are exact in double. So is a sum with a third half, or else what is lost lies so far below the half's last
// bit that only whether there is anything counts: that goes into the double's last bit (rounding to odd).
template <typename Half>
static inline uint16_t fused(float a, float b, float c)
{
    const double product = double(a) * b;
    const double sum = product + c;
    uint64_t bits = bits_of(sum);
    const double of_c = sum - product;
    const double lost = (product - (sum - of_c)) + (c - of_c);
    // Not for NaN, which compares unequal to nothing here.
    if (lost != 0.0 && lost == lost && !(bits & 1)) bits += (lost > 0.0) == (sum > 0.0) ? 1 : -1;
    return uint16_t(narrowed<f64, Half, rn, false, uint64_t>(bits));
}
template <typename H>
static inline uint16_t fma_rn(uint16_t a, uint16_t b, uint16_t c)
{
    return fused<H>(wide<H>(a), wide<H>(b), wide<H>(c));
}
template <typename H> static inline uint16_t mul(uint16_t a, uint16_t b) { return half_of(wide<H>(a) * wide<H>(b)); }
// A zero of the product's sign changes nothing but keeps that sign.
template <> inline uint16_t mul<bf16>(uint16_t a, uint16_t b) { return fma_rn<bf16>(a, b, (a ^ b) & 0x8000); }

// Minimum and maximum: -0 is less than 0, and a NaN loses. As integers, magnitudes are ordered as the numbers are.
static inline int ordered(uint16_t x) { return x & 0x8000 ? -1 - int(x & 0x7fff) : int(x); }
template <typename H> static inline bool is_nan_code(uint16_t x) { return (x & 0x7fff) > H::infinity; }
template <typename H, Extreme WHICH, bool NAN_WINS>
static inline uint16_t extreme(uint16_t a, uint16_t b)
{
    const bool not_a = is_nan_code<H>(a), not_b = is_nan_code<H>(b);
    if (NAN_WINS ? not_a || not_b : not_a && not_b) return 0x7fff;
    return not_a ? b : not_b ? a : (ordered(a) < ordered(b)) == (WHICH == max) ? b : a;
}

template <typename H> static inline uint16_t neg(uint16_t a) { return is_nan_code<H>(a) ? 0x7fff : a ^ 0x8000; }
template <typename H> static inline uint16_t abs(uint16_t a) { return is_nan_code<H>(a) ? 0x7fff : a & 0x7fff; }

// What modifiers add to a function of one, two or three halves.
using Unary = uint16_t (*)(uint16_t);
using Binary = uint16_t (*)(uint16_t, uint16_t);
using Ternary = uint16_t (*)(uint16_t, uint16_t, uint16_t);

static inline uint16_t flushed_half(uint16_t x) { return x & 0x7c00 ? x : x & 0x8000; }
static inline uint16_t rectified_half(uint16_t x) { return x >> 15 ? 0 : x; }

template <Unary F> static inline uint16_t ftz(uint16_t a) { return flushed_half(F(flushed_half(a))); }
template <Binary F>
static inline uint16_t flushing(uint16_t a, uint16_t b)
{
    return F(flushed_half(a), flushed_half(b));
}
template <Binary F> static inline uint16_t sat(uint16_t a, uint16_t b) { return saturated_half(F(a, b)); }
template <Ternary F>
static inline uint16_t sat(uint16_t a, uint16_t b, uint16_t c)
{
    return saturated_half(F(a, b, c));
}
template <Ternary F>
static inline uint16_t relu(uint16_t a, uint16_t b, uint16_t c)
{
    return rectified_half(F(a, b, c));
}
// .xorsign.abs: the magnitudes are compared; the sign is that of the product.
template <Binary F> static inline uint16_t xorsign_abs(uint16_t a, uint16_t b)
{
    const uint16_t found = F(a & 0x7fff, b & 0x7fff);
    return found == 0x7fff ? found : uint16_t(found | ((a ^ b) & 0x8000));
}

// Arithmetic with .ftz: a result is flushed if it is below the normal numbers when rounded to 11 bits wherever they
// lie, which is from the last tie on up. Sums of halves are never rounded there.
constexpr double LEAST_KEPT = 0x1.ffep-15;
static inline uint16_t add_ftz_f16(uint16_t a, uint16_t b) { return flushed_half(flushing<add<f16>>(a, b)); }
static inline uint16_t sub_ftz_f16(uint16_t a, uint16_t b) { return flushed_half(flushing<sub<f16>>(a, b)); }
static inline uint16_t mul_ftz_f16(uint16_t a, uint16_t b)
{
    const float product = float_of_half(flushed_half(a)) * float_of_half(flushed_half(b));
    return __builtin_fabsf(product) < float(LEAST_KEPT) ? (a ^ b) & 0x8000 : half_of(product);
}
static inline uint16_t fma_rn_ftz_f16(uint16_t a, uint16_t b, uint16_t c)
{
    a = flushed_half(a), b = flushed_half(b), c = flushed_half(c);
    const double sum = double(float_of_half(a)) * float_of_half(b) + float_of_half(c);
    return __builtin_fabs(sum) < LEAST_KEPT ? bits_of(sum) >> 48 & 0x8000 : fma_rn<f16>(a, b, c);
}

// The same on both halves of a register.
template <Unary F> static inline uint32_t each(uint32_t a) { return pair_of(F(low(a)), F(high(a))); }
template <Binary F>
static inline uint32_t each(uint32_t a, uint32_t b)
{
    return pair_of(F(low(a), low(b)), F(high(a), high(b)));
}
template <Ternary F> static inline uint32_t each(uint32_t a, uint32_t b, uint32_t c)
{
    return pair_of(F(low(a), low(b), low(c)), F(high(a), high(b), high(c)));
}

}  // namespace kg
