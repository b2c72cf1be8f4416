/* Floats of 16 bits as doubles and back, and exact sums of them. Compile with -ffp-contract=off. */

#ifndef NPF_FLOATS_H
#define NPF_FLOATS_H

#include <math.h>

#include "kernels.h"

typedef float NPF_ALIAS npf_float;

double npf_real(uint16_t pattern, uint32_t type);
/* A double rounded once, ties to even. */
uint16_t npf_pattern(double value, uint32_t type);
/* y's pattern within bounds, which are patterns; comparisons with NaN are false. */
uint16_t npf_bounded(double value, uint32_t type, uint32_t low, uint32_t high);
/* The float32 nearest to the exact sum of a[i] * b[i]; b NULL: of a[i]. A sum of 0 is +0. */
float npf_exact(const double *a, const double *b, int64_t count);
/* start, and sums of `chunk` terms each, one after the other in float32; one NaN for all. */
float npf_chunked(const double *a, const double *b, int64_t count, int64_t chunk, float start);
float npf_one_nan(float v);
/* A block of numbers as the array takes them beside weights of a block type: patterns of bfloat16. */
void npf_take_block(const uint16_t *patterns, int64_t count, uint32_t type, double *out);
/* The numbers of a block's bytes. */
void npf_block_numbers(const uint8_t *bytes, uint32_t type, double *out);

static inline float npf_single(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

static inline double npf_get_real(const uint8_t *p, uint32_t type)
{
    return npf_real(*(const npf_uint16 *)p, type);
}

#endif
