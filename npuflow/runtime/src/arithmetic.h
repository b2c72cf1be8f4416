/* Exact arithmetic: rounding of 64-bit numbers, and numbers of 128 bits where products need them. */

#ifndef NPF_ARITHMETIC_H
#define NPF_ARITHMETIC_H

#include "internal.h"

enum { ROUND_HALF_UP, ROUND_HALF_EVEN, ROUND_HALF_AWAY, ROUND_TRUNCATE };

#define NPF_FAR (INT64_C(1) << 40)     /* what no code reaches: results beyond it saturate */
#define NPF_NARROW (INT64_C(1) << 61)

typedef struct npf_wide { uint64_t low; int64_t high; } npf_wide;

static inline int64_t npf_shift_down(int64_t v, int n)
{
    return v >= 0 ? v >> n : ~(~v >> n);
}

/* Whether a floor goes up. `rest` is what was cut off, `half` half of what could be. */
static inline int npf_up_from(int64_t floor, uint64_t rest, uint64_t half, int negative, int mode)
{
    switch (mode) {
    case ROUND_HALF_UP: return rest >= half;
    case ROUND_HALF_EVEN: return rest > half || (rest == half && (floor & 1));
    case ROUND_HALF_AWAY: return rest > half || (rest == half && !negative);
    default: return negative && rest;
    }
}

/* R(v / 2^n) for n from -32 to 62, |v| below 2^61 (and so small that a shift to the left stays below 2^63). */
static inline int64_t npf_rounded(int64_t v, int n, int mode)
{
    int64_t floor;
    if (n <= 0)
        return v * (INT64_C(1) << -n);
    floor = npf_shift_down(v, n);
    return floor + npf_up_from(floor, (uint64_t)v & ((UINT64_C(1) << n) - 1), UINT64_C(1) << (n - 1), v < 0, mode);
}

static inline uint64_t npf_size(int64_t v) { return v < 0 ? 0 - (uint64_t)v : (uint64_t)v; }

static inline npf_wide npf_negative(npf_wide a)
{
    npf_wide r;
    r.low = 0 - a.low;
    r.high = (int64_t)(0 - (uint64_t)a.high - (a.low != 0));
    return r;
}

static inline npf_wide npf_sum(npf_wide a, npf_wide b)
{
    npf_wide r;
    r.low = a.low + b.low;
    r.high = (int64_t)((uint64_t)a.high + (uint64_t)b.high + (r.low < a.low));
    return r;
}

static inline npf_wide npf_widened(int64_t v)
{
    npf_wide r;
    r.low = (uint64_t)v;
    r.high = v < 0 ? -1 : 0;
    return r;
}

/* a * b for |b| below 2^33; the caller knows that it fits. */
npf_wide npf_times(npf_wide a, int64_t b);
/* R(v / 2^n) for n from -32 to 62, or +-2^40 where it lies beyond. */
int64_t npf_wide_rounded(npf_wide v, int n, int mode);
/* R(a / (b * 2^n)), +-2^40 beyond; of b = 0 it has the sign of a. */
int64_t npf_quotient(npf_wide a, int64_t b, int n, int mode);

static inline int64_t npf_clamped(int64_t v, int64_t lo, int64_t hi)
{
    const int64_t up = v > lo ? v : lo;
    return up < hi ? up : hi;
}

#endif
