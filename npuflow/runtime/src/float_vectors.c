/* Commands of the vector unit on floats. */

#include "floats.h"

/* Places of a box of four dimensions. */
typedef struct { int64_t dims[4], at[4]; } box;

static int next_place(box *b)
{
    int d;
    for (d = 3; d >= 0; d--) {
        if (++b->at[d] < b->dims[d])
            return 1;
        b->at[d] = 0;
    }
    return 0;
}

static box box_of(const uint32_t *dims)
{
    box b;
    int i;
    for (i = 0; i < 4; i++)
        b.dims[i] = dims[i], b.at[i] = 0;
    return b;
}

static uint8_t *place(const npf_call *c, const box *b, uint32_t address, const uint32_t *strides)
{
    uint8_t *p = npf_local(c, address);
    int i;
    for (i = 0; i < 4; i++)
        p += b->at[i] * NPF_SIGNED(strides[i]);
    return p;
}

/* ------------------------------------------------------------------ element by element */

/* Where a double loses something, the number toward zero with its last bit set. */
static double added(double a, double b)
{
    const double total = a + b, part = total - a, lost = (a - (total - part)) + (b - part);
    uint64_t bits;
    double found;
    if (!(total - total == 0) || lost == 0)
        return total;
    memcpy(&bits, &total, 8);
    bits -= (signbit(lost) != 0) != (signbit(total) != 0);
    bits |= 1;
    memcpy(&found, &bits, 8);
    return found;
}

static double combined(uint32_t op, double a, double b)
{
    switch (op) {
    case 0: return added(a, b);
    case 1: return added(a, -b);
    case 2: return a * b;
    case 3: return a / b;
    case 4: return a != a || a < b ? a : b;
    case 5: return a != a || a > b ? a : b;
    default: return a < 0 ? a * b : a;
    }
}

static npuflow_status arithmetic(const npf_call *c)
{
    const uint32_t *w = c->w;
    box b = box_of(w + FARITH_dims);
    do {
        const double x = npf_get_real(place(c, &b, w[FARITH_a], w + FARITH_a_strides), w[FARITH_a_type]);
        const double y = npf_get_real(place(c, &b, w[FARITH_b], w + FARITH_b_strides), w[FARITH_b_type]);
        *(npf_uint16 *)place(c, &b, w[FARITH_y], w + FARITH_y_strides) = npf_bounded(combined(w[FARITH_op], x, y),
            w[FARITH_y_type], w[FARITH_low], w[FARITH_high]);
    } while (next_place(&b));
    return NPUFLOW_OK;
}

static double made(uint32_t op, double x)
{
    switch (op) {
    case 0: return -x;
    case 1: return fabs(x);
    case 2: return x * x;
    case 3: return sqrt(x);
    case 4: return 1.0 / x;
    case 5: return floor(x);
    case 6: return ceil(x);
    default: return rint(x);
    }
}

static npuflow_status unary(const npf_call *c)
{
    const uint32_t *w = c->w;
    box b = box_of(w + FUNARY_dims);
    do {
        const double x = npf_get_real(place(c, &b, w[FUNARY_x], w + FUNARY_x_strides), w[FUNARY_x_type]);
        *(npf_uint16 *)place(c, &b, w[FUNARY_y], w + FUNARY_y_strides) = npf_bounded(made(w[FUNARY_op], x),
            w[FUNARY_y_type], w[FUNARY_low], w[FUNARY_high]);
    } while (next_place(&b));
    return NPUFLOW_OK;
}

static npuflow_status cast(const npf_call *c)
{
    const uint32_t *w = c->w, from = w[FCAST_x_type], to = w[FCAST_y_type];
    const double factor = (double)npf_single(w[FCAST_factor]);
    const int64_t zero = NPF_SIGNED(w[FCAST_zero]);
    box b = box_of(w + FCAST_dims);
    do {
        const uint8_t *x = place(c, &b, w[FCAST_x], w + FCAST_x_strides);
        uint8_t *y = place(c, &b, w[FCAST_y], w + FCAST_y_strides);
        double v;
        if (!NPF_TYPE[from].is_float)
            v = (double)(npf_get(x, from) - zero) * factor;
        else
            v = npf_get_real(x, from);
        if (NPF_TYPE[to].is_float)
            npf_put(y, to, npf_bounded(v, to, w[FCAST_low], w[FCAST_high]));
        else {
            v = rint(v * factor);
            v = v != v ? 0 : v > 1e18 ? 1e18 : v < -1e18 ? -1e18 : v;
            v = v + (double)zero;
            v = v < (double)NPF_SIGNED(w[FCAST_low]) ? (double)NPF_SIGNED(w[FCAST_low]) : v;
            v = v > (double)NPF_SIGNED(w[FCAST_high]) ? (double)NPF_SIGNED(w[FCAST_high]) : v;
            npf_put(y, to, (int64_t)v);
        }
    } while (next_place(&b));
    return NPUFLOW_OK;
}

static npuflow_status table(const npf_call *c)
{
    const uint32_t *w = c->w, top = w[FLUT_x_type] == TYPE_float16 ? 0x7C00 : 0x7F80;
    const uint8_t *entries = npf_local(c, w[FLUT_table]);
    box b = box_of(w + FLUT_dims);
    do {
        const uint32_t x = *(const npf_uint16 *)place(c, &b, w[FLUT_x], w + FLUT_x_strides);
        const int64_t size = x & 0x7FFF, s = x >> 15, first = w[FLUT_first + s], last = w[FLUT_last + s];
        const int64_t start = 5 + (s ? (int64_t)w[FLUT_last] - w[FLUT_first] + 1 : 0);
        const double below = (double)npf_single(w[FLUT_below + s]), above = (double)npf_single(w[FLUT_above + s]);
        const double factor = size < first ? below : size > last ? above : 0;
        int64_t index = start + (size < first ? first : size > last ? last : size) - first;
        uint16_t y;
        if (size == 0) index = s;
        else if (size == top) index = 2 + s;
        else if (size > top) index = 4;
        y = *(const npf_uint16 *)(entries + 2 * index);
        if (size > 0 && size < top && factor != 0)
            y = npf_pattern(npf_real((uint16_t)x, w[FLUT_x_type]) * factor, w[FLUT_y_type]);
        *(npf_uint16 *)place(c, &b, w[FLUT_y], w + FLUT_y_strides) = y;
    } while (next_place(&b));
    return NPUFLOW_OK;
}

static npuflow_status rounding(const npf_call *c)
{
    const uint32_t *w = c->w;
    const uint8_t *acc = npf_local(c, w[FROUND_acc]);
    box b = box_of(w + FROUND_dims);
    do {
        const int64_t channel = 2 * b.at[w[FROUND_channel_axis]];
        const uint32_t low = w[FROUND_lows] == NPF_NONE ? w[FROUND_low]
            : *(const npf_uint16 *)(npf_local(c, w[FROUND_lows]) + channel);
        const uint32_t high = w[FROUND_highs] == NPF_NONE ? w[FROUND_high]
            : *(const npf_uint16 *)(npf_local(c, w[FROUND_highs]) + channel);
        *(npf_uint16 *)place(c, &b, w[FROUND_y], w + FROUND_y_strides) = npf_bounded(
            (double)*(const npf_float *)acc / (double)w[FROUND_divisor], w[FROUND_y_type], low, high);
        acc += 4;
    } while (next_place(&b));
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ windows */

static int64_t counted(const npf_window *v, const uint32_t *w, int axis, int64_t out)
{
    const int64_t low = NPF_SIGNED(w[FPOOL_count_lo + axis]), high = NPF_SIGNED(w[FPOOL_count_hi + axis]);
    int64_t i, found = 0;
    for (i = 0; i < v->kernel[axis]; i++) {
        const int64_t at = out * v->stride[axis] + i * v->dilation[axis] + v->origin[axis];
        found += at >= low && at < high;
    }
    return found;
}

static npuflow_status pool(const npf_call *c)
{
    const uint32_t *w = c->w;
    const npf_window v = npf_window_of(w);
    double *terms = (double *)(void *)c->memory->scratch;
    uint32_t dims[4];
    box b;
    dims[0] = (uint32_t)v.n, dims[1] = (uint32_t)v.channels, dims[2] = (uint32_t)v.out[0], dims[3] = (uint32_t)v.out[1];
    b = box_of(dims);
    do {
        int64_t n = 0, i, j;
        double best = -(double)INFINITY;
        for (i = 0; i < v.kernel[0]; i++)
            for (j = 0; j < v.kernel[1]; j++) {
                box at = b;
                at.at[2] = b.at[2] * v.stride[0] + i * v.dilation[0] + v.origin[0];
                at.at[3] = b.at[3] * v.stride[1] + j * v.dilation[1] + v.origin[1];
                if (at.at[2] < 0 || at.at[3] < 0 || at.at[2] >= v.extent[0] || at.at[3] >= v.extent[1])
                    continue;
                terms[n] = npf_get_real(place(c, &at, w[FPOOL_x], w + FPOOL_x_strides), w[FPOOL_x_type]);
                best = best != best || best > terms[n] ? best : terms[n];
                n++;
            }
        if (!w[FPOOL_maximum]) {
            const double total = n ? (double)npf_exact(terms, NULL, n) : 0;
            best = total / (double)(counted(&v, w, 0, b.at[2]) * counted(&v, w, 1, b.at[3]));
        } else
            best += 0.0;
        *(npf_uint16 *)place(c, &b, w[FPOOL_y], w + FPOOL_y_strides) = npf_bounded(best, w[FPOOL_y_type], w[FPOOL_low],
            w[FPOOL_high]);
    } while (next_place(&b));
    return NPUFLOW_OK;
}

static npuflow_status resize(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int64_t height = w[FRESIZE_out_height], width = w[FRESIZE_out_width], most = INT64_C(1) << w[FRESIZE_weight_bits];
    const uint8_t *tables[2];
    uint32_t dims[4];
    int axis, k;
    int64_t i;
    box b;
    tables[0] = npf_local(c, w[FRESIZE_rows]), tables[1] = npf_local(c, w[FRESIZE_columns]);
    for (axis = 0; axis < 2; axis++)
        for (i = 0; i < (axis ? width : height); i++)
            for (k = 0; k < 2; k++) {
                const int64_t at = npf_get(tables[axis] + 16 * i + 4 * k, TYPE_int32)
                    + NPF_SIGNED(w[FRESIZE_origin + axis]);
                const int64_t weight = npf_get(tables[axis] + 16 * i + 8 + 4 * k, TYPE_int32);
                if (at < 0 || at >= w[FRESIZE_x_dims + 2 + axis])
                    return npf_fault(c, "FRESIZE: a table names a row or column outside of the tile");
                if (weight > most || weight < -most)
                    return npf_fault(c, "FRESIZE: a weight is too large");
            }
    dims[0] = w[FRESIZE_x_dims], dims[1] = w[FRESIZE_x_dims + 1], dims[2] = (uint32_t)height, dims[3] = (uint32_t)width;
    b = box_of(dims);
    do {
        const uint8_t *row = tables[0] + 16 * b.at[2], *column = tables[1] + 16 * b.at[3];
        double terms[4];
        for (k = 0; k < 4; k++) {
            const int64_t weight = npf_get(row + 8 + 4 * (k / 2), TYPE_int32)
                * npf_get(column + 8 + 4 * (k % 2), TYPE_int32);
            box at = b;
            at.at[2] = npf_get(row + 4 * (k / 2), TYPE_int32) + NPF_SIGNED(w[FRESIZE_origin]);
            at.at[3] = npf_get(column + 4 * (k % 2), TYPE_int32) + NPF_SIGNED(w[FRESIZE_origin + 1]);
            terms[k] = weight ? npf_get_real(place(c, &at, w[FRESIZE_x], w + FRESIZE_x_strides), w[FRESIZE_x_type])
                * ldexp((double)weight, -2 * (int)w[FRESIZE_weight_bits]) : 0;
        }
        *(npf_uint16 *)place(c, &b, w[FRESIZE_y], w + FRESIZE_y_strides) = npf_bounded(
            (double)npf_one_nan(0.0f + npf_exact(terms, NULL, 4)), w[FRESIZE_y_type], w[FRESIZE_low], w[FRESIZE_high]);
    } while (next_place(&b));
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ along dimensions */

static npuflow_status reduce(const npf_call *c)
{
    const uint32_t *w = c->w;
    double *terms = (double *)(void *)c->memory->scratch;
    uint8_t *acc = npf_local(c, w[FREDUCE_acc]);
    uint32_t kept[4], gone[4];
    int i;
    box outer, inner;
    for (i = 0; i < 4; i++) {
        kept[i] = w[FREDUCE_axes] >> i & 1 ? 1 : w[FREDUCE_dims + i];
        gone[i] = w[FREDUCE_axes] >> i & 1 ? w[FREDUCE_dims + i] : 1;
    }
    outer = box_of(kept);
    do {
        npf_float *to = (npf_float *)acc;
        double best = 0;
        int64_t n = 0;
        float total = w[FREDUCE_accumulate] ? *to : 0.0f;
        inner = box_of(gone);
        do {
            box at = outer;
            for (i = 0; i < 4; i++)
                at.at[i] += inner.at[i];
            terms[n] = npf_get_real(place(c, &at, w[FREDUCE_x], w + FREDUCE_x_strides), w[FREDUCE_x_type]);
            best = n && (best != best || best > terms[n]) ? best : terms[n];
            n++;
        } while (next_place(&inner));
        if (w[FREDUCE_maximum]) {
            best += 0.0;
            if (w[FREDUCE_accumulate])
                best = (best != best || best > (double)*to ? best : (double)*to) + 0.0;
            total = (float)best;
        } else
            total = npf_chunked(terms, NULL, n, w[FREDUCE_chunk], total);
        *to = npf_one_nan(total);
        acc += 4;
    } while (next_place(&outer));
    return NPUFLOW_OK;
}

static double exponential(const npf_call *c, const uint8_t *x, double top)
{
    const uint32_t type = c->w[FSOFTMAX_y_type];
    const double d = npf_real(npf_pattern(top - npf_get_real(x, c->w[FSOFTMAX_x_type]), type), type);
    return (double)(float)expl(-(long double)d);
}

static npuflow_status softmax(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int64_t rows = w[FSOFTMAX_dims + 1], chunk = w[FSOFTMAX_chunk];
    double *terms = (double *)(void *)c->memory->scratch;
    int64_t xs[3], ys[3], a, i, r;
    for (i = 0; i < 3; i++)
        xs[i] = NPF_SIGNED(w[FSOFTMAX_x_strides + i]), ys[i] = NPF_SIGNED(w[FSOFTMAX_y_strides + i]);
    for (a = 0; a < w[FSOFTMAX_dims]; a++)
        for (i = 0; i < w[FSOFTMAX_dims + 2]; i++) {
            const uint8_t *x = npf_local(c, w[FSOFTMAX_x]) + a * xs[0] + i * xs[2];
            uint8_t *y = npf_local(c, w[FSOFTMAX_y]) + a * ys[0] + i * ys[2];
            double top = npf_get_real(x, w[FSOFTMAX_x_type]);
            float total;
            for (r = 1; r < rows; r++) {
                const double v = npf_get_real(x + r * xs[1], w[FSOFTMAX_x_type]);
                top = top != top || top > v ? top : v;
            }
            for (r = 0; r < rows; r++)
                terms[r] = exponential(c, x + r * xs[1], top);
            total = npf_chunked(terms, NULL, rows, chunk, 0.0f);
            for (r = 0; r < rows; r++)
                *(npf_uint16 *)(y + r * ys[1]) = npf_pattern(terms[r] / (double)total, w[FSOFTMAX_y_type]);
        }
    return NPUFLOW_OK;
}

npuflow_status npf_float_vectors(const npf_call *c)
{
    switch (npf_opcode(c->w)) {
    case OP_FARITH: return arithmetic(c);
    case OP_FUNARY: return unary(c);
    case OP_FCAST: return cast(c);
    case OP_FLUT: return table(c);
    case OP_FROUND: return rounding(c);
    case OP_FPOOL: return pool(c);
    case OP_FRESIZE: return resize(c);
    case OP_FREDUCE: return reduce(c);
    case OP_FSOFTMAX: return softmax(c);
    default: return npf_fail(c->error, NPUFLOW_OPCODE, "an opcode that this runtime does not know");
    }
}
