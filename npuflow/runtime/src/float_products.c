/* Sums of products of floats: convolutions and matrices, with weights as floats, in blocks or in groups. */

#include "floats.h"

typedef struct product product;
struct product {
    const npf_call *c;
    int64_t terms, chunk;
    npf_window v;
    int64_t per, block, taps;          /* channels of a group; of FCONV: `block` and `taps`, of blocks: their size */
    uint32_t x_type, w_type;
    const uint8_t *x, *w;
    int64_t x_strides[4], w_strides[3];
    int64_t group, group_bytes, offset, zero, columns, outputs;
    void (*weights)(const product *t, int64_t output, double *out);
    void (*column)(const product *t, int64_t place, double *out);
};

/* ------------------------------------------------------------------ convolutions */

/* Where channel `ch` of a group lies for a tap of the window; NULL: outside of the tile. */
static const uint8_t *seen(const product *t, int64_t place, int64_t tap, int64_t ch)
{
    const npf_window *v = &t->v;
    const int64_t y = place / v->out[1] * v->stride[0] + tap / v->kernel[1] * v->dilation[0] + v->origin[0];
    const int64_t x = place % v->out[1] * v->stride[1] + tap % v->kernel[1] * v->dilation[1] + v->origin[1];
    if (y < 0 || x < 0 || y % v->insert[0] || x % v->insert[1] || y / v->insert[0] >= v->extent[0]
        || x / v->insert[1] >= v->extent[1])
        return NULL;
    return t->x + ch * t->x_strides[1] + y / v->insert[0] * t->x_strides[2] + x / v->insert[1] * t->x_strides[3];
}

/* The order of K: block of channels, tap (gathered ones first), channel; as places in the dense weight. */
static int64_t ordered(const product *t, int64_t *block, int64_t *tap, int64_t *ch)
{
    const int64_t area = t->v.kernel[0] * t->v.kernel[1], all = t->per / t->taps, taps = t->taps * area;
    const int64_t end = *block + t->block < all ? *block + t->block : all;
    const int64_t at = *ch * taps + *tap;
    if (++*ch < end)
        return at;
    *ch = *block;
    if (++*tap < taps)
        return at;
    *tap = 0;
    *ch = *block = end;
    return at;
}

static void dense_weights(const product *t, int64_t output, double *out)
{
    int64_t block = 0, tap = 0, ch = 0, k;
    for (k = 0; k < t->terms; k++)
        out[k] = npf_get_real(t->w + 2 * (output * t->terms + ordered(t, &block, &tap, &ch)), t->w_type);
}

static void window_column(const product *t, int64_t place, double *out)
{
    const int64_t area = t->v.kernel[0] * t->v.kernel[1];
    int64_t block = 0, tap = 0, ch = 0, k;
    for (k = 0; k < t->terms; k++) {
        const int64_t at = ordered(t, &block, &tap, &ch);
        const uint8_t *p = seen(t, place, at % area, at / area);
        out[k] = p ? npf_get_real(p, t->x_type) : 0;
    }
}

static void block_weights(const product *t, int64_t output, double *out)
{
    const int64_t count = npf_up(t->per, t->block), area = t->v.kernel[0] * t->v.kernel[1];
    int64_t k;
    for (k = 0; k < count * area; k++)
        npf_block_numbers(t->w + (output * count * area + k) * NPF_TYPE[t->w_type].block_bytes, t->w_type,
            out + k * t->block);
}

static void block_column(const product *t, int64_t place, double *out)
{
    const int64_t count = npf_up(t->per, t->block), area = t->v.kernel[0] * t->v.kernel[1];
    int64_t k, tap, i;
    for (k = 0; k < count; k++)
        for (tap = 0; tap < area; tap++, out += t->block) {
            const int64_t left = t->per - k * t->block < t->block ? t->per - k * t->block : t->block;
            const uint8_t *p = seen(t, place, tap, k * t->block);
            uint16_t patterns[32];
            for (i = 0; i < t->block; i++)
                out[i] = 0;
            if (!p)
                continue;
            for (i = 0; i < left; i++)
                patterns[i] = *(const npf_uint16 *)(p + i * t->x_strides[1]);
            npf_take_block(patterns, left, t->w_type, out);
        }
}

/* ------------------------------------------------------------------ matrices */

static void row_of_a(const product *t, int64_t place, double *out)
{
    int64_t k;
    for (k = 0; k < t->terms; k++)
        out[k] = npf_get_real(t->x + place * t->x_strides[1] + k * t->x_strides[2], t->x_type);
}

static void column_of_b(const product *t, int64_t output, double *out)
{
    int64_t k;
    for (k = 0; k < t->terms; k++)
        out[k] = npf_get_real(t->w + k * t->w_strides[1] + output * t->w_strides[2], t->x_type);
}

/* Numbers in blocks along k, `step` bytes from one to the next; `terms` are whole blocks, `per` all numbers. */
static void taken(const product *t, const uint8_t *p, int64_t step, double *out)
{
    uint16_t patterns[32];
    int64_t k, i;
    for (k = 0; k < t->terms; k += t->block) {
        const int64_t left = t->per - k < t->block ? t->per - k : t->block;
        for (i = 0; i < left; i++)
            patterns[i] = *(const npf_uint16 *)(p + (k + i) * step);
        npf_take_block(patterns, left, t->w_type, out + k);
    }
}

static void blocks_of_a(const product *t, int64_t place, double *out)
{
    taken(t, t->x + place * t->x_strides[1], t->x_strides[2], out);
}

static void blocks_of_b(const product *t, int64_t output, double *out)
{
    taken(t, t->w + output * t->w_strides[2], t->w_strides[1], out);
}

static void held_blocks(const product *t, int64_t output, double *out)
{
    const int64_t count = t->terms / t->block, bytes = NPF_TYPE[t->w_type].block_bytes;
    int64_t k;
    for (k = 0; k < count; k++)
        npf_block_numbers(t->w + (t->columns ? output * count + k : k * t->outputs + output) * bytes, t->w_type,
            out + k * t->block);
}

/* A number rounded once to a float of 16 bits: away from its limits by the digits that are dropped. */
static double as_stored(double v, uint32_t type)
{
    const int drop = type == TYPE_float16 ? 42 : 45, reach = type == TYPE_float16 ? 14 : 126;
    uint64_t bits;
    int exponent;
    memcpy(&bits, &v, 8);
    exponent = (int)(bits >> 52 & 2047) - 1023;
    if (exponent < -reach || exponent >= reach)
        return npf_real(npf_pattern(v, type), type);
    bits += (UINT64_C(1) << (drop - 1)) - 1 + (bits >> drop & 1);
    bits &= ~((UINT64_C(1) << drop) - 1);
    memcpy(&v, &bits, 8);
    return v;
}

/* Groups of codes behind their scales: what a code of 4 bits stands for is found once a group. */
static void grouped_weights(const product *t, int64_t output, double *out)
{
    const npf_type_row *type = &NPF_TYPE[t->w_type];
    const uint8_t *p = t->w + output * npf_up(t->terms, t->group) * t->group_bytes;
    int64_t k, i;
    for (k = 0; k < t->terms; k += t->group, p += t->group_bytes) {
        const uint8_t *codes = p + 2 + t->offset;
        const int64_t left = t->terms - k < t->group ? t->terms - k : t->group;
        const double scale = npf_real((uint16_t)(p[0] | p[1] << 8), TYPE_float16);
        const int64_t own = type->is_signed ? (int8_t)p[2] : p[2];
        const int64_t zero = t->offset == 1 ? own : t->offset ? 0 : t->zero;
        const double least = t->offset == 2 ? npf_real((uint16_t)(p[2] | p[3] << 8), TYPE_float16) : 0;
        double numbers[16];
        for (i = 0; type->bits == 4 && i < 16; i++) {
            const int64_t code = type->is_signed && i > 7 ? i - 16 : i;
            const double v = scale * (double)(code - zero);
            numbers[i] = as_stored(t->offset == 2 ? v + least : v, t->x_type);
        }
        for (i = 0; i < left; i++) {
            if (type->bits == 4)
                out[k + i] = numbers[codes[i / 2] >> 4 * (i & 1) & 15];
            else {
                const double v = scale * (double)(npf_get(codes + i, t->w_type) - zero);
                out[k + i] = as_stored(t->offset == 2 ? v + least : v, t->x_type);
            }
        }
    }
}

/* ------------------------------------------------------------------ sums */

/* Every sum: acc[output * step + place * across] of float32. */
static void sums(const product *t, uint8_t *acc, const uint8_t *bias, int accumulate, int64_t outputs, int64_t places,
    int64_t step, int64_t across)
{
    double *weights = (double *)(void *)t->c->memory->scratch, *column = weights + t->terms;
    int64_t o, p;
    if (places == 1)
        t->column(t, 0, column);
    for (o = 0; o < outputs; o++) {
        t->weights(t, o, weights);
        for (p = 0; p < places; p++) {
            npf_float *to = (npf_float *)(acc + 4 * (o * step + p * across));
            const float start = accumulate ? *to : bias ? *(const npf_float *)(bias + 4 * o) : 0.0f;
            if (places > 1)
                t->column(t, p, column);
            *to = npf_chunked(weights, column, t->terms, t->chunk, start);
        }
    }
}

static npuflow_status convolve(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int blocks = npf_opcode(w) == OP_BCONV;
    const int64_t groups = w[FCONV_groups], out = w[FCONV_out_channels], each = out / groups;
    int64_t n, g, i, places, area;
    product t;
    memset(&t, 0, sizeof t);
    t.c = c;
    t.v = npf_window_of(w);
    places = t.v.out[0] * t.v.out[1], area = t.v.kernel[0] * t.v.kernel[1];
    t.per = t.v.channels / groups;
    t.x_type = w[FCONV_x_type], t.w_type = w[FCONV_w_type];
    t.block = blocks ? NPF_TYPE[t.w_type].block : (int64_t)w[FCONV_block];
    t.taps = blocks ? 1 : (int64_t)w[FCONV_taps];
    t.chunk = blocks ? t.block : (int64_t)w[FCONV_chunk];
    t.terms = (blocks ? npf_up(t.per, t.block) * t.block : t.per) * area;
    t.weights = blocks ? block_weights : dense_weights;
    t.column = blocks ? block_column : window_column;
    for (i = 0; i < 4; i++)
        t.x_strides[i] = NPF_SIGNED(w[FCONV_x_strides + i]);
    for (n = 0; n < t.v.n; n++)
        for (g = 0; g < groups; g++) {
            const int64_t bytes = blocks ? t.terms / t.block * NPF_TYPE[t.w_type].block_bytes : 2 * t.terms;
            t.x = npf_local(c, w[FCONV_x]) + n * t.x_strides[0] + g * t.per * t.x_strides[1];
            t.w = npf_local(c, w[FCONV_w]) + g * each * bytes;
            sums(&t, npf_local(c, w[FCONV_acc]) + 4 * (n * out + g * each) * places,
                w[FCONV_bias] == NPF_NONE ? NULL : npf_local(c, w[FCONV_bias]) + 4 * g * each,
                w[FCONV_accumulate] != 0, each, places, places, 1);
        }
    return NPUFLOW_OK;
}

#define SIZES_OF(OP) \
    batch = w[OP##_batch], m = w[OP##_m], t.per = w[OP##_k], n = w[OP##_n]; \
    acc = w[OP##_acc], bias = w[OP##_bias], accumulate = w[OP##_accumulate] != 0; \
    t.x_type = w[OP##_a_type]; \
    for (i = 0; i < 3; i++) t.x_strides[i] = NPF_SIGNED(w[OP##_a_strides + i]);

static npuflow_status multiply(const npf_call *c)
{
    const uint32_t *w = c->w;
    uint32_t acc, bias, held;
    int64_t batch, m, n, b, i;
    int accumulate;
    product t;
    memset(&t, 0, sizeof t);
    t.c = c;
    switch (npf_opcode(w)) {
    case OP_FMATMUL:
        SIZES_OF(FMATMUL)
        t.chunk = w[FMATMUL_chunk], held = w[FMATMUL_b];
        t.weights = column_of_b, t.column = row_of_a;
        for (i = 0; i < 3; i++)
            t.w_strides[i] = NPF_SIGNED(w[FMATMUL_b_strides + i]);
        break;
    case OP_BPAIRS:
        SIZES_OF(BPAIRS)
        t.w_type = w[BPAIRS_held_type], held = w[BPAIRS_b];
        t.weights = blocks_of_b, t.column = blocks_of_a;
        for (i = 0; i < 3; i++)
            t.w_strides[i] = NPF_SIGNED(w[BPAIRS_b_strides + i]);
        break;
    case OP_BMATMUL:
        SIZES_OF(BMATMUL)
        t.w_type = w[BMATMUL_b_type], held = w[BMATMUL_b], t.columns = w[BMATMUL_columns];
        t.weights = held_blocks, t.column = blocks_of_a;
        break;
    default:
        SIZES_OF(FGROUPMATMUL)
        t.chunk = w[FGROUPMATMUL_chunk], held = w[FGROUPMATMUL_b], t.w_type = w[FGROUPMATMUL_b_type];
        t.group = w[FGROUPMATMUL_group], t.offset = w[FGROUPMATMUL_offset], t.zero = NPF_SIGNED(w[FGROUPMATMUL_zero]);
        t.group_bytes = 2 + t.offset + t.group * NPF_TYPE[t.w_type].bits / 8;
        t.weights = grouped_weights, t.column = row_of_a;
    }
    t.terms = t.per;
    t.outputs = n;
    if (!t.chunk) {
        t.block = t.chunk = NPF_TYPE[t.w_type].block;
        t.terms = npf_up(t.per, t.block) * t.block;
    }
    for (b = 0; b < batch; b++) {
        t.x = npf_local(c, w[FMATMUL_a]) + b * t.x_strides[0];
        t.w = npf_local(c, held) + b * t.w_strides[0];
        sums(&t, npf_local(c, acc) + 4 * b * m * n, bias == NPF_NONE ? NULL : npf_local(c, bias), accumulate, n, m, 1, n);
    }
    return NPUFLOW_OK;
}

npuflow_status npf_float_products(const npf_call *c)
{
    const uint32_t op = npf_opcode(c->w);
    return op == OP_FCONV || op == OP_BCONV ? convolve(c) : multiply(c);
}
