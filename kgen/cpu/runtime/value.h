// Plain C++ for what C++ has no operator for: bits and values, saturation, bit fields, IEEE's minimum and maximum.
#pragma once
#include <stdint.h>
#include <string.h>

namespace kg {

using u8 = uint8_t; using u16 = uint16_t; using u32 = uint32_t; using u64 = uint64_t;
using s8 = int8_t; using s16 = int16_t; using s32 = int32_t; using s64 = int64_t;

template <class To, class From> static inline To bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "bits keep their number");
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}

static inline float f32(uint32_t x) { return bits<float>(x); }
static inline double f64(uint64_t x) { return bits<double>(x); }
static inline uint32_t b32(float x) { return bits<uint32_t>(x); }
static inline uint64_t b64(double x) { return bits<uint64_t>(x); }

static inline float ftz(float x) { return (b32(x) & 0x7f800000u) == 0 ? f32(b32(x) & 0x80000000u) : x; }
static inline float sat(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }  // a NaN becomes 0
static inline double sat(double x) { return x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0; }

// Integers.

template <class T> struct Limits {
    static constexpr bool is_signed = T(-1) < T(0);
    static constexpr T high = is_signed ? T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1) : T(-1);
    static constexpr T low = is_signed ? T(-high - 1) : T(0);
};
template <class T> static inline T clamp(int64_t x)
{
    return x < (int64_t)Limits<T>::low ? Limits<T>::low : x > (int64_t)Limits<T>::high ? Limits<T>::high : (T)x;
}
// The hardware divides by zero without a trap: the quotient is all ones.
template <class T> static inline T divide(T a, T b)
{
    if (b == 0) return T(-1);
    if (Limits<T>::is_signed && b == T(-1)) return T(0) - a;
    return a / b;
}
static inline uint32_t funnel(uint32_t low, uint32_t high, uint32_t right)  // right <= 32
{
    return (uint32_t)((((uint64_t)high << 32) | low) >> right);
}
template <class T> static inline T reverse_bits(T x)
{
    T y = 0;
    for (unsigned i = 0; i < 8 * sizeof x; ++i) y |= ((x >> i) & 1) << (8 * sizeof x - 1 - i);
    return y;
}
template <class T> static inline uint32_t highest_bit(T a)
{
    uint64_t x = Limits<T>::is_signed ? (uint64_t)(int64_t)(a < 0 ? ~a : a) : (uint64_t)a;
    return x ? 63 - __builtin_clzll(x) : 0xffffffffu;
}
template <class T> static inline uint32_t highest_bit_shift(T a)
{
    uint32_t at = highest_bit(a);
    return at == 0xffffffffu ? at : (uint32_t)(8 * sizeof a - 1) - at;
}
template <class T> static inline T extract(T a, uint32_t at, uint32_t length)
{
    const int width = 8 * sizeof(T);
    int start = at & 0xff, count = length & 0xff, last = start + count - 1 < width - 1 ? start + count - 1 : width - 1;
    bool sign = Limits<T>::is_signed && count != 0 && ((uint64_t)a >> last & 1);
    uint64_t x = 0;
    for (int i = 0; i < width; ++i) {
        bool bit = i < count && start + i < width ? ((uint64_t)a >> (start + i) & 1) : sign;
        x |= (uint64_t)bit << i;
    }
    return (T)x;
}
template <class T> static inline T insert(T a, T b, uint32_t at, uint32_t length)
{
    const uint32_t width = 8 * sizeof(T);
    at &= 0xff, length &= 0xff;
    if (at >= width || length == 0) return b;
    uint32_t count = length < width - at ? length : width - at;
    T mask = (count == width ? T(-1) : T((T(1) << count) - 1)) << at;
    return (b & ~mask) | ((a << at) & mask);
}
static inline uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t x = 0;
    for (int i = 0; i < 8; ++i)
        if (table >> i & 1) x |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return x;
}
static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t choice)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t x = 0;
    for (int i = 0; i < 4; ++i) {
        uint32_t pick = choice >> (4 * i) & 15, byte = bytes >> (8 * (pick & 7)) & 255;
        if (pick & 8) byte = byte & 128 ? 255 : 0;
        x |= byte << (8 * i);
    }
    return x;
}
static inline int32_t dot4(char kind_a, char kind_b, uint32_t a, uint32_t b, int32_t c)
{
    for (int i = 0; i < 4; ++i) {
        uint32_t x = a >> (8 * i) & 255, y = b >> (8 * i) & 255;
        c += (kind_a == 's' ? (int8_t)x : (int32_t)x) * (kind_b == 's' ? (int8_t)y : (int32_t)y);
    }
    return c;
}

// Floats.

static inline uint32_t minimum(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t maximum(uint32_t a, uint32_t b) { return a < b ? b : a; }
static inline int32_t minimum(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t maximum(int32_t a, int32_t b) { return a < b ? b : a; }
template <class T> static inline T minimum(T a, T b)  // the other one where one is a NaN; -0 < +0
{
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && __builtin_signbit(a)) ? a : b;
}
template <class T> static inline T maximum(T a, T b)
{
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !__builtin_signbit(a)) ? a : b;
}
static inline float minimum_nan(float a, float b) { return a != a || b != b ? f32(0x7fffffffu) : minimum(a, b); }
static inline float maximum_nan(float a, float b) { return a != a || b != b ? f32(0x7fffffffu) : maximum(a, b); }

}  // namespace kg
