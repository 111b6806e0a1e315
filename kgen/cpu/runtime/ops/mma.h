// mma.sync on f16, bf16, tf32 and 8-bit floats, to the last bit of what an H200 gives (golden data: every bit).
//
// The tensor core adds all products of an instruction and the accumulator at once, in fixed point: each is cut off 25
// bits below the largest exponent among them (a product's is the sum of its factors', and it may reach 4 times that
// power of two), the sum is exact, and is cut off (float) or rounded to nearest even (binary16) at the end. That is the
// model of Fasi et al., "Numerical behavior of NVIDIA tensor cores", 2021; its constants were found by comparing. A
// warp's rows are taken one after another, its 8 columns side by side in a vector.
#pragma once

#include "fragments.h"

namespace kg {

// A row's terms: each column's largest exponent, the sum of the products and the accumulator in units of
// 2^(largest - BELOW_THE_LARGEST).
struct Row {
    Columns largest, products, addend;
};
template <int K>
static inline Row aligned_row(const Factors<K>& of, int row, Codes accumulators)
{
    Columns significand, exponent, products = {};
    parts<f32, 23>(accumulators, significand, exponent);
    Columns largest = exponent;
    for (int k = 0; k < K; ++k) largest = larger(largest, of.b_exponent[k] + of.a_exponent[row][k]);
    for (int k = 0; k < K; ++k) {
        const Columns product = (of.b[k] * of.a[row][k]) << (BELOW_THE_LARGEST - 20);
        products += aligned(product, largest - (of.b_exponent[k] + of.a_exponent[row][k]));
    }
    return {largest, products, aligned(significand << (BELOW_THE_LARGEST - 23), largest - exponent)};
}

// sums += a b. Returns false, with the sums as they were, where one is so large or so small that eight of them cannot
// be rounded together.
template <typename Kind, int K>
static inline bool multiply(const Factors<K>& of, Sums& sums)
{
    Sums results;
    Columns extreme = {};
    for (int row = 0; row < 16; ++row) {
        Codes accumulators;
        memcpy(&accumulators, sums[row], sizeof accumulators);
        const Row terms = aligned_row(of, row, accumulators);
        extreme |= (terms.products > 1 << 30) | (terms.products < -(1 << 30));
        const Columns sum = terms.products + terms.addend;
        const Columns sign = sum >> 31;
        const Columns magnitude = (sum ^ sign) - sign;
        Reals real = __builtin_convertvector(magnitude, Reals);  // to nearest: one less where that is more
        const Columns over = __builtin_convertvector(real, Columns) > magnitude;
        real = Reals(Columns(real) + over);
        const Columns field = terms.largest - BELOW_THE_LARGEST + 127;
        const Columns nothing = sum == 0;
        extreme |= ((field < 1) | (field > 200)) & ~nothing;
        const Reals scaled = real * Reals((field & ~nothing) << 23);
        const Columns inexact = __builtin_convertvector(real, Columns) != magnitude;
        const Reals result = Kind::rounded(Reals(Columns(scaled) | (sign & INT32_MIN)), inexact);
        memcpy(results[row], &result, sizeof result);
    }
    if (any(extreme)) return false;
    memcpy(sums, results, sizeof results);
    return true;
}

// The same number by number, for any tile: with infinities and NaN it is as in any arithmetic.
template <typename Kind, typename A, typename B, int K>
static inline void multiply_slowly(
    const Factors<K>& of, Sums& sums, const uint32_t* const* a, const uint32_t* const* b, int first)
{
    for (int row = 0; row < 16; ++row) {
        Codes accumulators;
        memcpy(&accumulators, sums[row], sizeof accumulators);
        const Row terms = aligned_row(of, row, accumulators);
        for (int column = 0; column < 8; ++column) {
            double plain = sums[row][column];
            for (int k = 0; k < K; ++k) {
                const int block = k / (4 * A::taken), t = k / A::taken % 4, i = first + k % A::taken;
                const double left = A::value(A::code(a[2 * block + row / 8][row % 8 * 4 + t], i));
                plain += left * B::value(B::code(b[block][column * 4 + t], i));
            }
            const double sum = double(terms.products[column]) + terms.addend[column];
            const double scale = double_of(uint64_t(terms.largest[column] - BELOW_THE_LARGEST + 1023) << 52);
            const bool finite = __builtin_fabs(plain) < __builtin_inf();
            sums[row][column] = !finite ? float(plain) : sum == 0.0 ? 0.0f : Kind::rounded(sum * scale);
        }
    }
}

template <typename Kind, typename A, typename B, int K>
static inline void add_products(Sums& sums, const uint32_t* const* a, const uint32_t* const* b, int first)
{
    Factors<K> factors;
    Columns special = gather<A, B, K>(factors, a, b, first);
    for (int row = 0; row < 16; ++row) {
        Columns accumulators;
        memcpy(&accumulators, sums[row], sizeof accumulators);
        special |= (accumulators & 0x7f800000) == 0x7f800000;
    }
    if (any(special) || !multiply<Kind, K>(factors, sums)) multiply_slowly<Kind, A, B, K>(factors, sums, a, b, first);
}

template <typename Kind, typename A, typename B, int K>
static inline void mma(uint32_t* const* d, const uint32_t* const* a, const uint32_t* const* b, const uint32_t* const* c)
{
    Sums sums;
    read<Kind>(sums, c);
    add_products<Kind, A, B, K>(sums, a, b, 0);
    write<Kind>(d, sums);
}

// Hopper has no mma.sync for 8-bit floats: the compiler makes halves of them, multiplies the lower and then the upper
// half of every register, and adds the accumulator last.
template <typename Kind, typename A, typename B, int K>
static inline void mma_of_bytes(
    uint32_t* const* d, const uint32_t* const* a, const uint32_t* const* b, const uint32_t* const* c)
{
    Sums sums = {}, before;
    read<Kind>(before, c);
    add_products<Kind, A, B, K / 2>(sums, a, b, 0);
    add_products<Kind, A, B, K / 2>(sums, a, b, 2);
    for (int row = 0; row < 16; ++row)
        for (int j = 0; j < 8; ++j) sums[row][j] = Kind::added(before[row][j], sums[row][j]);
    write<Kind>(d, sums);
}

}  // namespace kg
