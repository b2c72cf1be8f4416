/* Sums of products of integers: convolutions and matrices, scaled by groups or with weights in groups.

   Sums are those of a two's complement container: computed modulo 2^64, stored by their low bits. Operands of at
   most 16 bits are laid out as rows and columns of their terms, `ROWS` and `COLUMNS` of them at a time. */

#include "kernels.h"

enum { ROWS = 64, COLUMNS = 32 };

typedef struct product product;
struct product {
    const npf_call *c;
    int64_t terms, piece;              /* of an output, and of a group of them with a scale of its own */
    int64_t rows, columns;             /* weights that a row is made of; places */
    uint32_t w_type, x_type, acc_type, scale_type;
    int64_t x_zero, w_zero;
    const uint8_t *x, *w, *zeros, *scales;             /* zeros, scales: NULL, or [piece, channel] */
    int64_t first, channels;           /* of these rows among all, and how many there are */
    uint8_t *acc;
    int64_t acc_row, acc_column;       /* steps, in elements */
    int accumulate;
    npf_window v;                      /* of convolutions */
    int64_t x_strides[4], w_strides[3];                /* of matrices: x [., m, k], w [., k, n] */
    int64_t w_first;                   /* of these weights: elements, of matrices with bytes of their own bytes */
    int64_t group, group_bytes, offset, group_zero;    /* of weights in groups */
    int64_t (*weight)(const product *t, int64_t row, int64_t term);
    void (*column)(const product *t, int64_t column, int64_t *out);
};

/* ------------------------------------------------------------------ terms */

static int64_t dense_weight(const product *t, int64_t row, int64_t term)
{
    const int64_t at = t->w_first + row * t->terms + term;
    return NPF_TYPE[t->w_type].packed ? npf_packed(t->w, t->w_type, at)
        : npf_get(t->w + at * NPF_TYPE[t->w_type].bytes, t->w_type);
}

static int64_t matrix_weight(const product *t, int64_t row, int64_t term)
{
    const int64_t at = term * t->w_strides[1] + row * t->w_strides[2];
    return NPF_TYPE[t->w_type].packed ? npf_packed(t->w, t->w_type, t->w_first + at)
        : npf_get(t->w + t->w_first + at, t->w_type);
}

/* A float16 in units of 2^-24; infinity and NaN count as 0. */
static int64_t whole(const uint8_t *p)
{
    const int64_t bits = p[0] | p[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    const int64_t size = (fraction + (exponent ? 1024 : 0)) << (exponent ? exponent - 1 : 0);
    return exponent == 31 ? 0 : bits >> 15 ? -size : size;
}

static int64_t group_weight(const product *t, int64_t row, int64_t term)
{
    const uint8_t *p = t->w + (row * npf_up(t->terms, t->group) + term / t->group) * t->group_bytes;
    const uint8_t *codes = p + 2 + t->offset;
    const int64_t at = term % t->group, scale = whole(p);
    const int64_t code = NPF_TYPE[t->w_type].bits == 4 ? npf_packed(codes, t->w_type, at)
        : npf_get(codes + at, t->w_type);
    if (t->offset == 2)
        return scale * code + whole(p + 2);
    return scale * (code - (t->offset == 1 ? (NPF_TYPE[t->w_type].is_signed ? (int8_t)p[2] : p[2]) : t->group_zero));
}

static void window_column(const product *t, int64_t column, int64_t *out)
{
    const npf_window *v = &t->v;
    const int64_t y = column / v->out[1], x = column % v->out[1], per = t->terms / (v->kernel[0] * v->kernel[1]);
    int64_t c, i, j;
    for (i = 0; i < v->kernel[0]; i++)
        for (j = 0; j < v->kernel[1]; j++) {
            const int64_t sy = y * v->stride[0] + i * v->dilation[0] + v->origin[0];
            const int64_t sx = x * v->stride[1] + j * v->dilation[1] + v->origin[1];
            const int64_t area = v->kernel[0] * v->kernel[1], place = i * v->kernel[1] + j;
            const uint8_t *p;
            if (sy < 0 || sx < 0 || sy % v->insert[0] || sx % v->insert[1] || sy / v->insert[0] >= v->extent[0]
                || sx / v->insert[1] >= v->extent[1]) {
                for (c = 0; c < per; c++)
                    out[c * area + place] = 0;
                continue;
            }
            p = t->x + sy / v->insert[0] * t->x_strides[2] + sx / v->insert[1] * t->x_strides[3];
            if (area == 1)
                npf_get_row(p, t->x_type, t->x_strides[1], per, t->x_zero, out);
            else
                for (c = 0; c < per; c++)
                    out[c * area + place] = npf_get(p + c * t->x_strides[1], t->x_type) - t->x_zero;
        }
}

static void matrix_column(const product *t, int64_t column, int64_t *out)
{
    npf_get_row(t->x + column * t->x_strides[1], t->x_type, t->x_strides[2], t->terms, t->x_zero, out);
}

static int64_t zero_of(const product *t, int64_t piece, int64_t row)
{
    return t->zeros ? npf_get(t->zeros + (piece * t->channels + t->first + row) * 4, TYPE_int32) : t->w_zero;
}

static int64_t scale_of(const product *t, int64_t piece, int64_t row)
{
    const int64_t at = piece * t->channels + t->first + row;
    return t->scales ? npf_get(t->scales + at * NPF_TYPE[t->scale_type].bytes, t->scale_type) : 1;
}

/* ------------------------------------------------------------------ sums */

static void ended(const product *t, int64_t row, int64_t column, uint64_t sum)
{
    uint8_t *p = t->acc + (row * t->acc_row + column * t->acc_column) * NPF_TYPE[t->acc_type].bytes;
    if (t->acc_type == TYPE_int32) {
        *(npf_uint32 *)p = (uint32_t)sum + (t->accumulate ? *(npf_uint32 *)p : 0);
        return;
    }
    if (t->accumulate)
        sum += (uint64_t)npf_get(p, t->acc_type);
    npf_put(p, t->acc_type, (int64_t)sum);
}

/* Any operands: a weight and a column at a time, as 64-bit numbers. */
static void wide_sums(const product *t)
{
    int64_t *row = (int64_t *)(void *)t->c->memory->scratch, *column = row + t->terms, r, p, k;
    for (r = 0; r < t->rows; r++) {
        for (k = 0; k < t->terms; k++)
            row[k] = (int64_t)((uint64_t)(t->weight(t, r, k) - zero_of(t, k / t->piece, r))
                * (uint64_t)scale_of(t, k / t->piece, r));
        for (p = 0; p < t->columns; p++) {
            uint64_t sum = 0;
            t->column(t, p, column);
            for (k = 0; k < t->terms; k++)
                sum += (uint64_t)row[k] * (uint64_t)column[k];
            ended(t, r, p, sum);
        }
    }
}

static int32_t dot(const int16_t *a, const int16_t *b, int64_t n)
{
    int32_t sum = 0;
    int64_t i;
    for (i = 0; i < n; i++)
        sum += (int32_t)a[i] * b[i];
    return sum;
}

/* Four columns at once, `step` elements from one to the next. */
static void dots(const int16_t *a, const int16_t *b, int64_t step, int64_t n, int32_t *out)
{
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int64_t i;
    for (i = 0; i < n; i++) {
        const int32_t v = a[i];
        s0 += v * b[i];
        s1 += v * b[step + i];
        s2 += v * b[2 * step + i];
        s3 += v * b[3 * step + i];
    }
    out[0] = s0, out[1] = s1, out[2] = s2, out[3] = s3;
}

static uint64_t long_dot(const int16_t *a, const int16_t *b, int64_t n, int64_t most)
{
    uint64_t sum = 0;
    int64_t i;
    for (i = 0; i < n; i += most)
        sum += (uint64_t)(int64_t)dot(a + i, b + i, n - i < most ? n - i : most);
    return sum;
}

typedef struct {
    int16_t *row, *column;
    int64_t *wide, most;               /* room for one column; terms whose sum fits 32 bits */
    int64_t sums[COLUMNS];             /* of columns, where weights have zero points: one piece */
} tile;

static int64_t sum_of(const int16_t *p, int64_t n)
{
    int64_t sum = 0, i;
    for (i = 0; i < n; i++)
        sum += p[i];
    return sum;
}

static uint64_t piece_by_piece(const product *t, const int16_t *row, const int16_t *column, int64_t r, int64_t most)
{
    uint64_t sum = 0;
    int64_t k, g;
    for (k = 0, g = 0; k < t->terms; k += t->piece, g++) {
        const int64_t n = t->terms - k < t->piece ? t->terms - k : t->piece, zero = zero_of(t, g, r);
        uint64_t part = long_dot(row + k, column + k, n, most);
        if (zero)
            part -= (uint64_t)zero * (uint64_t)sum_of(column + k, n);
        sum += part * (uint64_t)scale_of(t, g, r);
    }
    return sum;
}

static void tile_sums(const product *t, const tile *s, int64_t first, int64_t rows, int64_t start, int64_t columns)
{
    const int plain = t->piece >= t->terms && !t->scales && s->most >= t->terms;
    int64_t r, p;
    for (r = 0; r < rows; r++) {
        const int16_t *row = s->row + r * t->terms;
        const int64_t zero = plain ? zero_of(t, 0, first + r) : 0;
        for (p = 0; p < columns; p++) {
            int32_t four[4];
            int i;
            if (!plain) {
                ended(t, first + r, start + p, piece_by_piece(t, row, s->column + p * t->terms, first + r, s->most));
                continue;
            }
            if (p + 4 > columns) {
                ended(t, first + r, start + p, (uint64_t)(int64_t)dot(row, s->column + p * t->terms, t->terms)
                    - (uint64_t)zero * (uint64_t)s->sums[p]);
                continue;
            }
            dots(row, s->column + p * t->terms, t->terms, t->terms, four);
            for (i = 0; i < 4; i++, p++)
                ended(t, first + r, start + p, (uint64_t)(int64_t)four[i] - (uint64_t)zero * (uint64_t)s->sums[p]);
            p--;
        }
    }
}

/* Terms of weights with bytes of their own and of a column, tap by tap: sums do not ask for their order. */
static void short_row(const product *t, int64_t row, int16_t *out)
{
    const int64_t bytes = NPF_TYPE[t->w_type].bytes, area = t->v.kernel[0] * t->v.kernel[1];
    int64_t tap;
    if (t->weight == matrix_weight) {
        npf_get_short_row(t->w + t->w_first + row * t->w_strides[2], t->w_type, t->w_strides[1], t->terms, 0, out);
        return;
    }
    for (tap = 0; tap < area; tap++)
        npf_get_short_row(t->w + (t->w_first + row * t->terms + tap) * bytes, t->w_type, area * bytes, t->terms / area, 0,
            out + tap * (t->terms / area));
}

static void short_column(const product *t, int64_t column, int16_t *out)
{
    const npf_window *v = &t->v;
    int64_t i, j, y, x, per;
    if (t->weight == matrix_weight) {
        npf_get_short_row(t->x + column * t->x_strides[1], t->x_type, t->x_strides[2], t->terms, t->x_zero, out);
        return;
    }
    y = column / v->out[1], x = column % v->out[1], per = t->terms / (v->kernel[0] * v->kernel[1]);
    for (i = 0; i < v->kernel[0]; i++)
        for (j = 0; j < v->kernel[1]; j++, out += per) {
            const int64_t sy = y * v->stride[0] + i * v->dilation[0] + v->origin[0];
            const int64_t sx = x * v->stride[1] + j * v->dilation[1] + v->origin[1];
            if (sy < 0 || sx < 0 || sy % v->insert[0] || sx % v->insert[1] || sy / v->insert[0] >= v->extent[0]
                || sx / v->insert[1] >= v->extent[1])
                memset(out, 0, (size_t)per * sizeof *out);
            else
                npf_get_short_row(t->x + sy / v->insert[0] * t->x_strides[2] + sx / v->insert[1] * t->x_strides[3],
                    t->x_type, t->x_strides[1], per, t->x_zero, out);
        }
}

static void narrow_sums(const product *t, int64_t most)
{
    const int quick = t->piece >= t->terms && !NPF_TYPE[t->w_type].packed;
    tile s;
    int64_t r, k, first, start;
    s.wide = (int64_t *)(void *)t->c->memory->scratch;
    s.row = (int16_t *)(void *)(s.wide + t->terms);
    s.column = s.row + ROWS * t->terms;
    s.most = most;
    for (first = 0; first < t->rows; first += ROWS) {
        const int64_t rows = t->rows - first < ROWS ? t->rows - first : ROWS;
        for (r = 0; r < rows; r++)
            if (quick)
                short_row(t, first + r, s.row + r * t->terms);
            else
                for (k = 0; k < t->terms; k++)
                    s.row[r * t->terms + k] = (int16_t)t->weight(t, first + r, k);
        for (start = 0; start < t->columns; start += COLUMNS) {
            const int64_t columns = t->columns - start < COLUMNS ? t->columns - start : COLUMNS;
            int64_t p;
            for (p = 0; p < columns; p++) {
                if (quick) {
                    short_column(t, start + p, s.column + p * t->terms);
                    s.sums[p] = t->zeros || t->w_zero ? sum_of(s.column + p * t->terms, t->terms) : 0;
                    continue;
                }
                t->column(t, start + p, s.wide);
                for (k = 0, s.sums[p] = 0; k < t->terms; k++) {
                    s.column[p * t->terms + k] = (int16_t)s.wide[k];
                    s.sums[p] += s.wide[k];
                }
            }
            tile_sums(t, &s, first, rows, start, columns);
        }
    }
}

static int fits_16(uint32_t type, int64_t zero)
{
    const npf_type_row *r = &NPF_TYPE[type];
    const int64_t top = (INT64_C(1) << (r->bits - r->is_signed)) - 1, low = r->is_signed ? -top - 1 : 0;
    return low - zero >= -32768 && top - zero <= 32767;
}

static void sums(product *t)
{
    const int64_t room = INT64_C(1) << 30, x = npf_reach(t->x_type, t->x_zero), w = npf_reach(t->w_type, 0);
    if (!t->group && fits_16(t->x_type, t->x_zero) && fits_16(t->w_type, 0))
        narrow_sums(t, room / (x * w * (NPF_TYPE[t->w_type].of ? 2 : 1)));
    else
        wide_sums(t);
}

/* One channel in for every channel out: lines of places, by 64-bit numbers. */
static void depthwise(const product *t, int64_t out)
{
    const npf_window *v = &t->v;
    int64_t buffer[NPF_CHUNK], y, x, i, j, k;
    uint64_t line[NPF_CHUNK];
    for (y = 0; y < v->out[0]; y++)
        for (x = 0; x < v->out[1]; x += NPF_CHUNK) {
            const int64_t n = v->out[1] - x < NPF_CHUNK ? v->out[1] - x : NPF_CHUNK;
            memset(line, 0, (size_t)n * sizeof *line);
            for (i = 0; i < v->kernel[0]; i++)
                for (j = 0; j < v->kernel[1]; j++) {
                    const int64_t sy = y * v->stride[0] + i * v->dilation[0] + v->origin[0];
                    const int64_t left = x * v->stride[1] + j * v->dilation[1] + v->origin[1];
                    int64_t low = left >= 0 ? 0 : npf_up(-left, v->stride[1]);
                    int64_t high = v->extent[1] - left <= 0 ? 0 : npf_up(v->extent[1] - left, v->stride[1]);
                    const uint64_t w = (uint64_t)(t->weight(t, out, i * v->kernel[1] + j) - zero_of(t, 0, out));
                    if (sy < 0 || sy >= v->extent[0])
                        continue;
                    high = high < n ? high : n;
                    if (low >= high)
                        continue;
                    npf_get_row(t->x + sy * t->x_strides[2] + (left + low * v->stride[1]) * t->x_strides[3], t->x_type,
                        v->stride[1] * t->x_strides[3], high - low, t->x_zero, buffer);
                    for (k = 0; k < high - low; k++)
                        line[low + k] += w * (uint64_t)buffer[k];
                }
            for (k = 0; k < n; k++)
                ended(t, out, y * v->out[1] + x + k, line[k]);
        }
}

static npuflow_status convolve(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int scaled = npf_opcode(w) == OP_SCALEDCONV;
    const int64_t groups = w[CONV_groups], out = w[CONV_out_channels];
    int64_t n, g, i, area;
    product t;
    memset(&t, 0, sizeof t);
    t.c = c;
    t.v = npf_window_of(w);
    area = t.v.kernel[0] * t.v.kernel[1];
    t.terms = t.v.channels / groups * area;
    t.piece = scaled ? w[SCALEDCONV_group] * area : t.terms;
    t.rows = out / groups, t.columns = t.v.out[0] * t.v.out[1];
    t.w_type = w[CONV_w_type], t.x_type = w[CONV_x_type], t.acc_type = w[CONV_acc_type];
    t.x_zero = NPF_SIGNED(w[CONV_x_zero]), t.w_zero = NPF_SIGNED(w[CONV_w_zero]);
    t.zeros = w[CONV_w_zeros] == NPF_NONE ? NULL : npf_local(c, w[CONV_w_zeros]);
    if (scaled) {
        t.scales = npf_local(c, w[SCALEDCONV_scales]);
        t.scale_type = w[SCALEDCONV_scales_type];
    }
    t.channels = out;
    t.acc_row = t.columns, t.acc_column = 1;
    t.accumulate = w[CONV_accumulate] != 0;
    t.weight = dense_weight, t.column = window_column;
    for (i = 0; i < 4; i++)
        t.x_strides[i] = NPF_SIGNED(w[CONV_x_strides + i]);
    for (n = 0; n < t.v.n; n++)
        for (g = 0; g < groups; g++) {
            t.first = g * t.rows;
            t.x = npf_local(c, w[CONV_x]) + n * t.x_strides[0] + g * (t.v.channels / groups) * t.x_strides[1];
            t.acc = npf_local(c, w[CONV_acc]) + (n * out + t.first) * t.columns * NPF_TYPE[t.acc_type].bytes;
            t.w = npf_local(c, w[CONV_w]);
            t.w_first = g * t.rows * t.terms;
            if (t.v.channels == groups && t.v.insert[0] == 1 && t.v.insert[1] == 1 && !scaled)
                for (i = 0; i < t.rows; i++)
                    depthwise(&t, i);
            else
                sums(&t);
        }
    return NPUFLOW_OK;
}

static npuflow_status multiply(const npf_call *c)
{
    const uint32_t *w = c->w, op = npf_opcode(w);
    const int64_t batch = w[MATMUL_batch], m = w[MATMUL_m], n = w[MATMUL_n];
    int64_t b, i;
    product t;
    memset(&t, 0, sizeof t);
    t.c = c;
    t.terms = w[MATMUL_k];
    t.piece = op == OP_SCALEDMATMUL ? w[SCALEDMATMUL_group] : t.terms;
    t.rows = n, t.columns = m;
    t.w_type = w[MATMUL_b_type], t.x_type = w[MATMUL_a_type], t.acc_type = w[MATMUL_acc_type];
    t.x_zero = NPF_SIGNED(w[MATMUL_a_zero]), t.w_zero = NPF_SIGNED(w[MATMUL_b_zero]);
    t.zeros = w[MATMUL_b_zeros] == NPF_NONE ? NULL : npf_local(c, w[MATMUL_b_zeros]);
    if (op == OP_SCALEDMATMUL) {
        t.scales = npf_local(c, w[SCALEDMATMUL_scales]);
        t.scale_type = w[SCALEDMATMUL_scales_type];
    }
    t.channels = n;
    t.acc_row = 1, t.acc_column = n;
    t.accumulate = w[MATMUL_accumulate] != 0;
    t.weight = matrix_weight, t.column = matrix_column;
    for (i = 0; i < 3; i++) {
        t.x_strides[i] = NPF_SIGNED(w[MATMUL_a_strides + i]);
        t.w_strides[i] = NPF_SIGNED(w[MATMUL_b_strides + i]);
    }
    for (b = 0; b < batch; b++) {
        t.x = npf_local(c, w[MATMUL_a]) + b * t.x_strides[0];
        t.w = npf_local(c, w[MATMUL_b]);
        t.w_first = b * t.w_strides[0];
        t.acc = npf_local(c, w[MATMUL_acc]) + b * m * n * NPF_TYPE[t.acc_type].bytes;
        sums(&t);
    }
    return NPUFLOW_OK;
}

static npuflow_status multiply_groups(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int64_t batch = w[GROUPMATMUL_batch], m = w[GROUPMATMUL_m], n = w[GROUPMATMUL_n];
    int64_t b, i;
    product t;
    memset(&t, 0, sizeof t);
    t.c = c;
    t.terms = t.piece = w[GROUPMATMUL_k];
    t.rows = t.channels = n, t.columns = m;
    t.w_type = w[GROUPMATMUL_b_type], t.x_type = w[GROUPMATMUL_a_type], t.acc_type = w[GROUPMATMUL_acc_type];
    t.x_zero = NPF_SIGNED(w[GROUPMATMUL_a_zero]);
    t.acc_row = 1, t.acc_column = n;
    t.accumulate = w[GROUPMATMUL_accumulate] != 0;
    t.group = w[GROUPMATMUL_group], t.offset = w[GROUPMATMUL_offset];
    t.group_zero = NPF_SIGNED(w[GROUPMATMUL_zero]);
    t.group_bytes = 2 + t.offset + t.group * NPF_TYPE[t.w_type].bits / 8;
    t.weight = group_weight, t.column = matrix_column;
    t.w = npf_local(c, w[GROUPMATMUL_b]);
    for (i = 0; i < 3; i++)
        t.x_strides[i] = NPF_SIGNED(w[GROUPMATMUL_a_strides + i]);
    for (b = 0; b < batch; b++) {
        t.x = npf_local(c, w[GROUPMATMUL_a]) + b * t.x_strides[0];
        t.acc = npf_local(c, w[GROUPMATMUL_acc]) + b * m * n * NPF_TYPE[t.acc_type].bytes;
        sums(&t);
    }
    return NPUFLOW_OK;
}

npuflow_status npf_integer_products(const npf_call *c)
{
    switch (npf_opcode(c->w)) {
    case OP_CONV: case OP_SCALEDCONV: return convolve(c);
    case OP_GROUPMATMUL: return multiply_groups(c);
    default: return multiply(c);
    }
}

/* Bytes that rows and columns of this many terms take. */
static uint64_t laid_out(uint64_t terms)
{
    const uint64_t wide = 2 * 8 * terms, narrow = 8 * terms + 2 * (ROWS + COLUMNS) * terms;
    return wide > narrow ? wide : narrow;
}

uint64_t npf_scratch(const uint32_t *w)
{
    switch (npf_opcode(w)) {
    case OP_CONV: case OP_SCALEDCONV:
        return laid_out((uint64_t)w[CONV_x_dims + 1] / w[CONV_groups] * w[CONV_kernel] * w[CONV_kernel + 1]);
    case OP_MATMUL: case OP_SCALEDMATMUL: return laid_out(w[MATMUL_k]);
    case OP_GROUPMATMUL: return laid_out(w[GROUPMATMUL_k]);
    case OP_FCONV: case OP_BCONV:
        return 8 * 2 * ((uint64_t)w[FCONV_x_dims + 1] / w[FCONV_groups] + 64) * w[FCONV_kernel] * w[FCONV_kernel + 1];
    case OP_FMATMUL: return 8 * 2 * ((uint64_t)w[FMATMUL_k] + 64);
    case OP_FGROUPMATMUL: return 8 * 2 * ((uint64_t)w[FGROUPMATMUL_k] + 64);
    case OP_BMATMUL: return 8 * 2 * ((uint64_t)w[BMATMUL_k] + 64);
    case OP_BPAIRS: return 8 * 2 * ((uint64_t)w[BPAIRS_k] + 64);
    case OP_FPOOL: return 8 * (uint64_t)w[FPOOL_kernel] * w[FPOOL_kernel + 1];
    case OP_FSOFTMAX: return 8 * (uint64_t)w[FSOFTMAX_dims + 1];
    case OP_FREDUCE: {
        uint64_t terms = 8;
        int i;
        for (i = 0; i < 4; i++)
            terms *= w[FREDUCE_axes] >> i & 1 ? w[FREDUCE_dims + i] : 1;
        return terms;
    }
    default: return 0;
    }
}
