/* Rows of elements, loops over operands, and how exact numbers end as codes. */

#include "kernels.h"

#define GET(T) \
    if (stride == (int64_t)sizeof(T)) { \
        const T *q = (const T *)p; \
        for (i = 0; i < count; i++) out[i] = (int64_t)q[i] - zero; \
    } else \
        for (i = 0; i < count; i++) out[i] = (int64_t)*(const T *)(p + i * stride) - zero; \
    break;

void npf_get_row(const uint8_t *p, uint32_t type, int64_t stride, int64_t count, int64_t zero, int64_t *out)
{
    int64_t i;
    switch (type) {
    case TYPE_int8: GET(npf_int8)
    case TYPE_uint8: GET(npf_uint8)
    case TYPE_int16: GET(npf_int16)
    case TYPE_int32: GET(npf_int32)
    case TYPE_uint32: GET(npf_uint32)
    case TYPE_int64: GET(npf_int64)
    default: GET(npf_uint16)
    }
}

#define GET_SHORT(T) \
    if (stride == (int64_t)sizeof(T)) { \
        const T *q = (const T *)p; \
        for (i = 0; i < count; i++) out[i] = (int16_t)((int32_t)q[i] - less); \
    } else \
        for (i = 0; i < count; i++) out[i] = (int16_t)((int32_t)*(const T *)(p + i * stride) - less); \
    break;

void npf_get_short_row(const uint8_t *p, uint32_t type, int64_t stride, int64_t count, int64_t zero, int16_t *out)
{
    const int32_t less = (int32_t)zero;
    int64_t i;
    switch (type) {
    case TYPE_int8: GET_SHORT(npf_int8)
    case TYPE_uint8: GET_SHORT(npf_uint8)
    case TYPE_int16: GET_SHORT(npf_int16)
    default: GET_SHORT(npf_uint16)
    }
}

#define PUT(T) \
    if (stride == (int64_t)sizeof(T)) { \
        T *q = (T *)p; \
        for (i = 0; i < count; i++) q[i] = (T)from[i]; \
    } else \
        for (i = 0; i < count; i++) *(T *)(p + i * stride) = (T)from[i]; \
    break;

void npf_put_row(uint8_t *p, uint32_t type, int64_t stride, int64_t count, const int64_t *from)
{
    int64_t i;
    switch (NPF_TYPE[type].bytes) {
    case 1: PUT(npf_uint8)
    case 2: PUT(npf_uint16)
    case 4: PUT(npf_uint32)
    default: PUT(npf_int64)
    }
}

static int64_t bits_at(const uint8_t *p, int64_t first, int width)
{
    int64_t v = 0;
    int k;
    for (k = 0; k < width; k++, first++)
        v |= (int64_t)(p[first >> 3] >> (first & 7) & 1) << k;
    return v;
}

static int64_t with_sign(int64_t v, const npf_type_row *t)
{
    return t->is_signed && v >> (t->bits - 1) ? v - (INT64_C(1) << t->bits) : v;
}

int64_t npf_packed(const uint8_t *p, uint32_t type, int64_t at)
{
    const npf_type_row *t = &NPF_TYPE[type];
    int64_t found = 0, start, place;
    int k;
    if (!t->of) {
        const int64_t place_bits = at * t->bits;
        const int64_t low = place_bits >= 0 ? place_bits >> 3 : ~(~place_bits >> 3);
        return with_sign(bits_at(p + low, place_bits - 8 * low, t->bits), t);
    }
    place = at % t->of < 0 ? at % t->of + t->of : at % t->of;
    start = (at - place) / t->of * t->kept * (t->bits + 2);
    for (k = 0; k < t->kept; k++)
        if (bits_at(p, start + t->kept * t->bits + 2 * k, 2) == place)
            found += with_sign(bits_at(p, start + k * t->bits, t->bits), t);
    return found;
}

/* ------------------------------------------------------------------ loops */

void npf_operand(npf_loop *loop, uint8_t *at, const uint32_t *strides, int rank)
{
    int i;
    loop->at[loop->operands] = at;
    for (i = 0; i < rank; i++)
        loop->strides[loop->operands][i] = NPF_SIGNED(strides[i]);
    loop->operands++;
}

void npf_merge(npf_loop *loop, int rank)
{
    const npf_loop old = *loop;
    const int64_t *last = old.strides[old.operands - 1];
    int order[6], n = 0, kept = 0, i, j, o;
    for (i = 0; i < rank; i++)
        if (old.dims[i] > 1) {
            const int64_t size = last[i] < 0 ? -last[i] : last[i];
            for (j = n++; j > 0 && (last[order[j - 1]] < 0 ? -last[order[j - 1]] : last[order[j - 1]]) < size; j--)
                order[j] = order[j - 1];
            order[j] = i;
        }
    for (i = 0; i < n; i++) {
        int joined = kept > 0;
        for (o = 0; o < old.operands && joined; o++)
            joined = loop->strides[o][kept - 1] == old.strides[o][order[i]] * old.dims[order[i]];
        if (!joined)
            loop->dims[kept++] = 1;
        loop->dims[kept - 1] *= old.dims[order[i]];
        for (o = 0; o < old.operands; o++)
            loop->strides[o][kept - 1] = old.strides[o][order[i]];
    }
    for (i = 0; i < 6; i++)            /* outer dimensions of 1 in front */
        for (o = 0; o <= old.operands; o++) {
            int64_t *to = o < old.operands ? loop->strides[o] : loop->dims;
            const int from = 5 - i - (6 - kept);
            to[5 - i] = from >= 0 ? to[from] : o < old.operands ? 0 : 1;
        }
}

void npf_rows(const npf_loop *loop, npf_row row, const void *context)
{
    int64_t index[5] = {0, 0, 0, 0, 0}, offset[NPF_OPERANDS], done;
    uint8_t *at[NPF_OPERANDS];
    int d, o;
    for (o = 0; o < loop->operands; o++)
        offset[o] = 0;
    for (;;) {
        for (done = 0; done < loop->dims[5]; done += NPF_CHUNK) {
            const int64_t left = loop->dims[5] - done;
            for (o = 0; o < loop->operands; o++)
                at[o] = loop->at[o] + offset[o] + done * loop->strides[o][5];
            row(context, loop, at, left < NPF_CHUNK ? left : NPF_CHUNK);
        }
        for (d = 4; d >= 0; d--) {
            for (o = 0; o < loop->operands; o++)
                offset[o] += loop->strides[o][d];
            if (++index[d] < loop->dims[d])
                break;
            for (o = 0; o < loop->operands; o++)
                offset[o] -= index[d] * loop->strides[o][d];
            index[d] = 0;
        }
        if (d < 0)
            return;
    }
}

/* ------------------------------------------------------------------ results */

int64_t npf_reach(uint32_t type, int64_t zero)
{
    const npf_type_row *t = &NPF_TYPE[type];
    const int64_t top = t->bits < 63 ? (INT64_C(1) << (t->bits - t->is_signed)) - 1 : INT64_MAX;
    const int64_t low = (t->is_signed ? -top - 1 : 0) - zero, high = top - zero;
    return -low > high ? -low : high;
}

int npf_narrow(int64_t peak, int64_t multiplier, int shift)
{
    int64_t factor = multiplier < 0 ? -multiplier : multiplier;
    if (shift < 0)
        factor = factor >> (60 + shift) ? NPF_NARROW : factor << -shift;
    return peak < NPF_NARROW && (!factor || peak <= (NPF_NARROW - 1) / factor);
}

int64_t npf_ended(npf_wide v, const npf_end *end)
{
    return npf_clamped(npf_wide_rounded(npf_times(v, end->multiplier), end->shift, end->mode) + end->zero,
        end->lo, end->hi);
}

void npf_end_row(const npf_end *end, int64_t *v, int64_t count)
{
    const int64_t m = end->multiplier * (end->shift < 0 ? INT64_C(1) << -end->shift : 1);
    const int n = end->shift < 0 ? 0 : end->shift;
    int64_t i;
    if (end->mode == ROUND_HALF_UP && n > 0) {
        const uint64_t half = UINT64_C(1) << (n - 1), top = UINT64_C(1) << 63;
        const int64_t less = (int64_t)(top >> n);
        for (i = 0; i < count; i++) {
            const int64_t r = (int64_t)(((uint64_t)(v[i] * m) + half + top) >> n) - less + end->zero;
            v[i] = npf_clamped(r, end->lo, end->hi);
        }
    } else
        for (i = 0; i < count; i++)
            v[i] = npf_clamped(npf_rounded(v[i] * m, n, end->mode) + end->zero, end->lo, end->hi);
}
