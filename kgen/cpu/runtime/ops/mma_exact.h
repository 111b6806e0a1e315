// mma.sync on int8 and double: sums of products that are exact, or fused one after another.
#pragma once

#include "value.h"

namespace kg {

typedef int32_t Columns __attribute__((vector_size(32)));  // one number for each of 8 columns

// With g = lane / 4 and t = lane % 4, register r of A holds row g + 8 (r % (M / 8)), of B column g, each four elements
// from 4 t of a block of sixteen. The sum wraps around, or is clamped at the end.
template <int M, int K, typename A, typename B, bool CLAMPED>
static inline void mma_of_integers(
    uint32_t* const* d, const uint32_t* const* a, const uint32_t* const* b, const uint32_t* const* c)
{
    constexpr int halves = M / 8;
    int32_t left[M][K], products[M][8];
    Columns right[K];
    for (int lane = 0; lane < 32; ++lane) {
        for (int k = 0; k < K / 4; ++k) {
            const int block = k / 4, i = k % 4;
            const int column = block * 16 + lane % 4 * 4 + i;
            for (int half = 0; half < halves; ++half)
                left[lane / 4 + 8 * half][column] = A(a[block * halves + half][lane] >> 8 * i);
            right[column][lane / 4] = B(b[block][lane] >> 8 * i);
        }
    }
    for (int row = 0; row < M; ++row) {
        Columns sum = {};
        for (int k = 0; k < K; ++k) sum += right[k] * left[row][k];
        memcpy(products[row], &sum, sizeof sum);
    }
    for (int lane = 0; lane < 32; ++lane) {
        for (int r = 0; r < 2 * halves; ++r) {
            const int64_t sum = int64_t(int32_t(c[r][lane])) + products[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2];
            const int64_t clamped = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            d[r][lane] = uint32_t(CLAMPED ? clamped : sum);
        }
    }
}

// One k after another, each product fused with the sum: element k lies in lane t = k % 4, register k / 4 (of A with as
// many rows of 8 as there are). Every register is of 32 doubles, whatever the pointers' type.
static inline double number(const uint32_t* x, int lane)
{
    double number;
    memcpy(&number, x + 2 * lane, 8);
    return number;
}
template <int M, int K>
static inline void mma_of_doubles(
    uint32_t* const* d, const uint32_t* const* a, const uint32_t* const* b, const uint32_t* const* c)
{
    constexpr int halves = M / 8;
    double sums[32][2 * halves];
    for (int lane = 0; lane < 32; ++lane) {
        for (int r = 0; r < 2 * halves; ++r) {
            const int row = lane / 4, half = r / 2, column = lane % 4 * 2 + r % 2;
            double sum = number(c[r], lane);
            for (int k = 0; k < K; ++k) {
                const double left = number(a[k / 4 * halves + half], row * 4 + k % 4);
                sum = __builtin_fma(left, number(b[k / 4], column * 4 + k % 4), sum);
            }
            sums[lane][r] = sum;
        }
    }
    for (int lane = 0; lane < 32; ++lane)
        for (int r = 0; r < 2 * halves; ++r) memcpy(d[r] + 2 * lane, &sums[lane][r], 8);
}

}  // namespace kg
