// cvt: between floats, halves, 8-bit floats, tf32 and integers.
//
// Everything is compared with an H200 bit for bit, what NaN becomes included, but for NaN results of type f32 and f64,
// of which only that they are NaN is promised.
#pragma once

#include "round.h"

namespace kg {

static inline uint16_t saturated_half(uint16_t x) { return x > 0x7fff || x > 0x7c00 ? 0 : x > 0x3c00 ? 0x3c00 : x; }

// .relu: what is negative becomes zero. NaN has no sign here.
template <int BITS>
static inline uint32_t rectified(uint32_t code) { return code >> (BITS - 1) & 1 ? 0 : code; }

// min and max with .xorsign.abs: of the magnitudes, with the product's sign.
template <Extreme WHICH, bool NAN_WINS>
static inline float extreme_magnitude(float a, float b)
{
    const uint32_t sign = (bits_of(a) ^ bits_of(b)) & 0x80000000;
    const uint32_t x = bits_of(a) & 0x7fffffff, y = bits_of(b) & 0x7fffffff;
    const bool first = NAN_WINS ? x > 0x7f800000 : y > 0x7f800000, second = NAN_WINS ? y > 0x7f800000 : x > 0x7f800000;
    const uint32_t found = first ? x : second ? y : (x < y) == (WHICH == max) ? y : x;
    return float_of(found | sign);
}

template <typename To, Rounding R, bool FINITE = false>
static inline uint16_t narrow(float x) { return uint16_t(narrowed<f32, To, R, FINITE, uint32_t>(bits_of(x))); }
template <>
inline uint16_t narrow<f16, rn, false>(float x) { return half_of(x); }
template <>
inline uint16_t narrow<bf16, rn, false>(float x) { return bfloat_of(x); }

// From f64, a NaN keeps its sign and the payload's upper bits, and is made quiet.
template <typename To, Rounding R>
static inline uint16_t narrow(double x)
{
    const uint64_t bits = bits_of(x);
    if (x != x && bits != f64::nan) {
        const uint64_t payload = bits >> (52 - To::mantissa) & ((1u << To::mantissa) - 1);
        return uint16_t(bits >> 63 << To::sign | To::infinity | payload | 1u << (To::mantissa - 1));
    }
    return uint16_t(narrowed<f64, To, R, false, uint64_t>(bits));
}

template <typename To, Rounding R, bool FINITE = false>
static inline uint16_t narrow_relu(float x) { return uint16_t(rectified<1 + To::sign>(narrow<To, R, FINITE>(x))); }

// Two of a kind: the first operand goes to the upper half, and 8-bit floats always come so.
using Narrow = uint16_t (*)(float);
template <Narrow F> static inline uint32_t pair(float a, float b) { return pair_of(F(b), F(a)); }
template <Narrow F> static inline uint16_t byte_pair(float a, float b) { return uint16_t(F(a) << 8 | F(b)); }
template <Narrow F>
static inline uint16_t byte_pair(uint32_t a)
{
    return byte_pair<F>(float_of_half(high(a)), float_of_half(low(a)));
}
static inline uint32_t rectified_pair(uint16_t a, uint16_t b)
{
    return pair_of(uint16_t(rectified<16>(a)), uint16_t(rectified<16>(b)));
}

// Both 8-bit floats fit into a half: e5m2 is its upper byte, e4m3 has the exponent counted from another bias.
static inline uint16_t half_of_e5m2(uint8_t code) { return uint16_t((code & 0x7f) > 0x7c ? 0x7fff : code << 8); }
static inline uint16_t half_of_e4m3(uint8_t code)
{
    const uint16_t sign = uint16_t((code & 0x80) << 8), magnitude = code & 0x7f;
    if (magnitude == 0x7f) return 0x7fff;
    if (magnitude >= 8) return uint16_t(sign | ((magnitude << 7) + (8 << 10)));
    return uint16_t(sign | half_of(float(magnitude) * 0x1p-9f));
}

template <typename From>
static inline float wide(uint16_t x)
{
    return From::exponent == 5 ? float_of_half(x) : float_of_bfloat(x);
}

// f64 -> f32 to nearest is the CPU's own; the other directions are made of bits.
template <Rounding R>
static inline float narrow_to_float(double a)
{
    return float_of(uint32_t(narrowed<f64, f32, R, false, uint64_t>(bits_of(a))));
}
template <>
inline float narrow_to_float<rn>(double a) { return float(a); }

// To an integral value, in floating point.
template <Rounding R>
static inline float integral(float x)
{
    if (R == rm || R == rp) return R == rm ? __builtin_floorf(x) : __builtin_ceilf(x);
    return R == rn ? __builtin_rintf(x) : __builtin_truncf(x);
}
template <Rounding R>
static inline double integral(double x)
{
    if (R == rm || R == rp) return R == rm ? __builtin_floor(x) : __builtin_ceil(x);
    return R == rn ? __builtin_rint(x) : __builtin_trunc(x);
}
template <Rounding R>
static inline uint16_t integral_half(uint16_t a) { return half_of(integral<R>(float_of_half(a))); }
template <Rounding R>
static inline uint16_t integral_bfloat(uint16_t a) { return bfloat_of(integral<R>(float_of_bfloat(a))); }

// To an integer: clamped to what it holds; NaN becomes 0, but 2^63 where there are 64 bits, or where it is an f64: then
// the integer's top bit.
template <typename Int, Rounding R, typename Real>
static inline Int integer(Real x)
{
    using Holds = Limits<Int>;
    if (x != x) return sizeof(Int) == 8 || sizeof(Real) == 8 ? Int(uint64_t(1) << (8 * sizeof(Int) - 1)) : Int(0);
    const Real whole = integral<R>(x);
    const Real end = Real(Holds::high / 2 + 1) * Real(2);
    return whole >= end ? Holds::high : whole < (Holds::is_signed ? -end : Real(0)) ? Holds::low : Int(whole);
}

// tf32 is a float whose last 13 bits are zero.
template <Rounding R>
static inline uint32_t to_tf32(float a)
{
    const uint32_t bits = bits_of(a), magnitude = bits & 0x7fffffff;
    if (R == rna) return magnitude >= 0x7f800000 ? bits & ~0x1fffu : (bits + 0x1000) & ~0x1fffu;
    return narrowed<f32, tf32, R, false, uint32_t>(bits) << 13;
}
// One step back from infinity is the largest number; the compiler takes it from NaN too.
static inline uint32_t to_finite_tf32(float a)
{
    const uint32_t code = to_tf32<rna>(a);
    return (code & 0x7fffffff) >= 0x7f800000 ? code - 0x2000 : code;
}

// cvt.pack: two integers, clamped, the first one above the second; what c holds moves up.
template <typename Byte>
static inline uint32_t packed_bytes(int32_t a, int32_t b, uint32_t c)
{
    return c << 16 | uint32_t(uint8_t(clamped<Byte>(a))) << 8 | uint8_t(clamped<Byte>(b));
}

}  // namespace kg
