/* Operands as kernels see them: pointers with byte strides, rows of elements as 64-bit numbers. */

#ifndef NPF_KERNELS_H
#define NPF_KERNELS_H

#include "arithmetic.h"

#define NPF_CHUNK 256                  /* elements of a row at a time */
#define NPF_OPERANDS 6

/* Memory holds elements of several types: accesses through these may alias. */
#if defined(__GNUC__)
#define NPF_ALIAS __attribute__((may_alias))
#else
#define NPF_ALIAS
#endif
typedef int8_t NPF_ALIAS npf_int8;
typedef uint8_t NPF_ALIAS npf_uint8;
typedef int16_t NPF_ALIAS npf_int16;
typedef uint16_t NPF_ALIAS npf_uint16;
typedef int32_t NPF_ALIAS npf_int32;
typedef uint32_t NPF_ALIAS npf_uint32;
typedef int64_t NPF_ALIAS npf_int64;

/* What a kernel is given: the command, the core's memories, and where its error goes. */
typedef struct npf_call {
    const uint32_t *w;
    uint32_t core;
    npf_memory *memory;
    npuflow_error *error;
} npf_call;

static inline uint8_t *npf_local(const npf_call *c, uint32_t address)
{
    return c->memory->local[c->core] + address;
}

/* One element as a number; of types without bytes of their own: npf_packed. */
static inline int64_t npf_get(const uint8_t *p, uint32_t type)
{
    switch (type) {
    case TYPE_int8: return *(const npf_int8 *)p;
    case TYPE_uint8: return *p;
    case TYPE_int16: return *(const npf_int16 *)p;
    case TYPE_int32: return *(const npf_int32 *)p;
    case TYPE_uint32: return *(const npf_uint32 *)p;
    case TYPE_int64: return *(const npf_int64 *)p;
    default: return *(const npf_uint16 *)p;
    }
}

/* A number's low bytes as an element. */
static inline void npf_put(uint8_t *p, uint32_t type, int64_t v)
{
    switch (NPF_TYPE[type].bytes) {
    case 1: *p = (uint8_t)v; break;
    case 2: *(npf_uint16 *)p = (uint16_t)v; break;
    case 4: *(npf_uint32 *)p = (uint32_t)v; break;
    default: *(npf_int64 *)p = v;
    }
}

/* `count` elements with a byte stride, less a zero point. */
void npf_get_row(const uint8_t *p, uint32_t type, int64_t stride, int64_t count, int64_t zero, int64_t *out);
void npf_put_row(uint8_t *p, uint32_t type, int64_t stride, int64_t count, const int64_t *from);
/* The same of elements that fit 16 bits less their zero point. */
void npf_get_short_row(const uint8_t *p, uint32_t type, int64_t stride, int64_t count, int64_t zero, int16_t *out);
/* Element `at` behind an address of a packed type. */
int64_t npf_packed(const uint8_t *p, uint32_t type, int64_t at);

/* Extents with the strides of several operands, merged where all allow it, the last operand's innermost. */
typedef struct npf_loop {
    int operands;
    int64_t dims[6], strides[NPF_OPERANDS][6];
    uint8_t *at[NPF_OPERANDS];
} npf_loop;

void npf_operand(npf_loop *loop, uint8_t *at, const uint32_t *strides, int rank);
void npf_merge(npf_loop *loop, int rank);
/* A row of the innermost dimension: where each operand begins, and how many elements. */
typedef void (*npf_row)(const void *context, const npf_loop *loop, uint8_t *const *at, int64_t count);
void npf_rows(const npf_loop *loop, npf_row row, const void *context);

/* The largest size of an operand less its zero point. */
int64_t npf_reach(uint32_t type, int64_t zero);

/* Codes from exact numbers: v * multiplier / 2^shift, rounded, plus zero, clamped. */
typedef struct npf_end {
    int64_t multiplier, zero, lo, hi;
    int shift, mode;
} npf_end;
int64_t npf_ended(npf_wide v, const npf_end *end);
void npf_end_row(const npf_end *end, int64_t *v, int64_t count);    /* v * multiplier below 2^61 */
int npf_narrow(int64_t peak, int64_t multiplier, int shift);

npuflow_status npf_integer_products(const npf_call *c);
npuflow_status npf_vectors(const npf_call *c);
npuflow_status npf_windows(const npf_call *c);
npuflow_status npf_selections(const npf_call *c);
npuflow_status npf_float_products(const npf_call *c);
npuflow_status npf_float_vectors(const npf_call *c);

static inline npuflow_status npf_fault(const npf_call *c, const char *text)
{
    return npf_fail(c->error, NPUFLOW_FAULT, text);
}

#endif
