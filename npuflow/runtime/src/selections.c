/* Commands that look up: tables, rows, exponentials over their sum, and the largest elements. */

#include "kernels.h"

/* ------------------------------------------------------------------ LUT */

typedef struct {
    const uint8_t *table;
    uint32_t x_type, y_type, kind;
    int64_t base, entries, lo, hi;
    int bits, fraction;
    int *good;
} looked;

static void lut_row(const void *context, const npf_loop *loop, uint8_t *const *at, int64_t n)
{
    const looked *t = (const looked *)context;
    const int64_t one = INT64_C(1) << t->bits;
    const int steps = t->bits + t->fraction;
    int64_t v[NPF_CHUNK], i;
    npf_get_row(at[0], t->x_type, loop->strides[0][5], n, t->base, v);
    for (i = 0; i < n; i++) {
        const int64_t d = v[i], k = npf_shift_down(d, t->bits), part = d & (one - 1);
        int64_t low, high;
        if (k < 0 || k + (t->bits ? 1 : 0) >= t->entries) {
            *t->good = 0;
            v[i] = 0;
            continue;
        }
        low = npf_get(t->table + k * NPF_TYPE[t->kind].bytes, t->kind);
        if (!t->bits) {
            v[i] = low;
            continue;
        }
        high = npf_get(t->table + (k + 1) * 4, TYPE_int32);
        v[i] = npf_clamped(npf_shift_down(low * (one - part) + high * part + (INT64_C(1) << (steps - 1)), steps), t->lo,
            t->hi);
    }
    npf_put_row(at[1], t->y_type, loop->strides[1][5], n, v);
}

static npuflow_status look_up(const npf_call *c)
{
    const uint32_t *w = c->w;
    int good = 1, i;
    looked t;
    npf_loop loop;
    t.table = npf_local(c, w[LUT_table]);
    t.x_type = w[LUT_x_type], t.y_type = w[LUT_y_type], t.kind = w[LUT_bits] ? (uint32_t)TYPE_int32 : w[LUT_y_type];
    t.base = NPF_SIGNED(w[LUT_base]), t.entries = w[LUT_entries];
    t.lo = NPF_SIGNED(w[LUT_lo]), t.hi = NPF_SIGNED(w[LUT_hi]);
    t.bits = (int)w[LUT_bits], t.fraction = (int)w[LUT_fraction];
    t.good = &good;
    loop.operands = 0;
    for (i = 0; i < 4; i++)
        loop.dims[i] = w[LUT_dims + i];
    npf_operand(&loop, npf_local(c, w[LUT_x]), w + LUT_x_strides, 4);
    npf_operand(&loop, npf_local(c, w[LUT_y]), w + LUT_y_strides, 4);
    npf_merge(&loop, 4);
    npf_rows(&loop, lut_row, &t);
    return good ? NPUFLOW_OK : npf_fault(c, "LUT: an index outside of the table");
}

/* ------------------------------------------------------------------ SOFTMAX */

typedef struct { const uint8_t *low, *high; int64_t low_count, high_count; int bits; } exponentials;

/* -1: an index outside of a table. */
static int64_t exponential(const exponentials *e, int64_t d)
{
    const int64_t fine = e->high ? d & ((INT64_C(1) << e->bits) - 1) : d, coarse = d >> e->bits;
    if (fine >= e->low_count || (e->high && coarse >= e->high_count))
        return -1;
    if (!e->high)
        return npf_get(e->low + 4 * fine, TYPE_uint32);
    return (int64_t)((uint64_t)npf_get(e->low + 4 * fine, TYPE_uint32)
        * (uint64_t)npf_get(e->high + 4 * coarse, TYPE_uint32) >> 15);
}

/* floor((2 e m + s) / (2 s)): the quotient of e m / s, ties up. */
static int64_t share(int64_t e, int64_t m, int64_t s)
{
    if (e < INT64_C(1) << 29 && s < INT64_C(1) << 60)
        return (2 * e * m + s) / (2 * s);
    return npf_quotient(npf_times(npf_widened(e), m), s, 0, ROUND_HALF_UP);
}

static npuflow_status softmax(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int64_t outer = w[SOFTMAX_dims], rows = w[SOFTMAX_dims + 1], inner = w[SOFTMAX_dims + 2];
    const int64_t zero = NPF_SIGNED(w[SOFTMAX_zero]), lo = NPF_SIGNED(w[SOFTMAX_lo]), hi = NPF_SIGNED(w[SOFTMAX_hi]);
    int64_t xs[3], ys[3], a, i, r;
    exponentials e;
    for (i = 0; i < 3; i++)
        xs[i] = NPF_SIGNED(w[SOFTMAX_x_strides + i]), ys[i] = NPF_SIGNED(w[SOFTMAX_y_strides + i]);
    e.bits = (int)w[SOFTMAX_low_bits];
    e.low = npf_local(c, w[SOFTMAX_low]);
    e.high = w[SOFTMAX_high] == NPF_NONE ? NULL : npf_local(c, w[SOFTMAX_high]);
    e.low_count = e.high ? INT64_C(1) << e.bits : (int64_t)w[SOFTMAX_entries];
    e.high_count = w[SOFTMAX_entries];
    for (a = 0; a < outer; a++)
        for (i = 0; i < inner; i++) {
            const uint8_t *x = npf_local(c, w[SOFTMAX_x]) + a * xs[0] + i * xs[2];
            uint8_t *y = npf_local(c, w[SOFTMAX_y]) + a * ys[0] + i * ys[2];
            int64_t top = npf_get(x, w[SOFTMAX_x_type]), total = 0;
            for (r = 1; r < rows; r++) {
                const int64_t v = npf_get(x + r * xs[1], w[SOFTMAX_x_type]);
                top = v > top ? v : top;
            }
            for (r = 0; r < rows; r++) {
                const int64_t v = exponential(&e, top - npf_get(x + r * xs[1], w[SOFTMAX_x_type]));
                if (v < 0)
                    return npf_fault(c, "SOFTMAX: an index outside of a table");
                total += v;
            }
            if (total <= 0)
                return npf_fault(c, "SOFTMAX: the sum of exponentials is 0");
            for (r = 0; r < rows; r++) {
                const int64_t v = exponential(&e, top - npf_get(x + r * xs[1], w[SOFTMAX_x_type]));
                npf_put(y + r * ys[1], w[SOFTMAX_y_type],
                    npf_clamped(share(v, w[SOFTMAX_multiplier], total) + zero, lo, hi));
            }
        }
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ rows that indices mean */

static int64_t row_meant(int64_t index, int64_t entries, int64_t wrap)
{
    if (index < 0)
        index += wrap;
    return index < 0 || index >= entries ? entries - 1 : index;
}

static npuflow_status gather(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int64_t entries = w[GATHER_entries], wrap = w[GATHER_wrap];
    int64_t xs[3], ks[3], ys[3], a, j, i;
    for (i = 0; i < 3; i++) {
        xs[i] = NPF_SIGNED(w[GATHER_x_strides + i]), ks[i] = NPF_SIGNED(w[GATHER_index_strides + i]);
        ys[i] = NPF_SIGNED(w[GATHER_y_strides + i]);
    }
    for (a = 0; a < w[GATHER_dims]; a++)
        for (j = 0; j < w[GATHER_dims + 1]; j++)
            for (i = 0; i < w[GATHER_dims + 2]; i++) {
                const uint8_t *index = npf_local(c, w[GATHER_index]) + a * ks[0] + j * ks[1] + i * ks[2];
                const int64_t row = row_meant(npf_get(index, w[GATHER_index_type]), entries, wrap);
                npf_put(npf_local(c, w[GATHER_y]) + a * ys[0] + j * ys[1] + i * ys[2], w[GATHER_y_type],
                    npf_get(npf_local(c, w[GATHER_x]) + a * xs[0] + row * xs[1] + i * xs[2], w[GATHER_x_type]));
            }
    return NPUFLOW_OK;
}

static npuflow_status load_rows(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int64_t entries = w[LOADROWS_entries], wrap = w[LOADROWS_wrap], size = w[LOADROWS_element];
    const uint8_t *table = (w[LOADROWS_space] ? c->memory->constants : c->memory->data) + w[LOADROWS_external];
    int64_t j, i;
    for (j = 0; j < w[LOADROWS_dims]; j++) {
        int64_t index = 0, row;        /* may lie at any byte */
        memcpy(&index, npf_local(c, w[LOADROWS_index]) + j * NPF_SIGNED(w[LOADROWS_index_step]),
            NPF_TYPE[w[LOADROWS_index_type]].bytes);
        row = row_meant(npf_get((const uint8_t *)&index, w[LOADROWS_index_type]), entries, wrap);
        for (i = 0; i < w[LOADROWS_dims + 1]; i++)
            memmove(npf_local(c, w[LOADROWS_y]) + j * NPF_SIGNED(w[LOADROWS_y_strides])
                + i * NPF_SIGNED(w[LOADROWS_y_strides + 1]), table + row * w[LOADROWS_row] + i * size, (size_t)size);
    }
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ TOPK */

/* What decides on the order, the highest first; of floats NaN comes before all. */
static int64_t key(int64_t v, uint32_t type, int largest)
{
    if (NPF_TYPE[type].is_float) {
        const int64_t size = v & 0x7FFF;
        if (size > (type == TYPE_float16 ? 0x7C00 : 0x7F80))
            return 0x10000;
        v = v & 0x8000 ? -size : size;
    }
    return largest ? v : -v;
}

/* The next behind the one that was taken: `best` its key, `found` its place; the first where found is -1. */
static int64_t next_of(const uint8_t *x, uint32_t type, int64_t step, int64_t rows, const uint32_t *w, int64_t *best,
    int64_t found)
{
    const int largest = w[TOPK_maximum] != 0, last = w[TOPK_last] != 0;
    int64_t r, place = -1, top = 0;
    for (r = 0; r < rows; r++) {
        const int64_t k = key(npf_get(x + r * step, type), type, largest);
        if (found >= 0 && (k > *best || (k == *best && (last ? r >= found : r <= found))))
            continue;
        if (place < 0 || k > top || (last && k == top))
            place = r, top = k;
    }
    *best = top;
    return place;
}

static npuflow_status select_top(const npf_call *c)
{
    const uint32_t *w = c->w, type = w[TOPK_x_type];
    int64_t xs[3], ys[3], ps[3], a, i, k;
    for (i = 0; i < 3; i++) {
        xs[i] = NPF_SIGNED(w[TOPK_x_strides + i]), ys[i] = NPF_SIGNED(w[TOPK_y_strides + i]);
        ps[i] = NPF_SIGNED(w[TOPK_at_strides + i]);
    }
    for (a = 0; a < w[TOPK_dims]; a++)
        for (i = 0; i < w[TOPK_dims + 2]; i++) {
            const uint8_t *x = npf_local(c, w[TOPK_x]) + a * xs[0] + i * xs[2];
            int64_t best = 0, found = -1;
            for (k = 0; k < w[TOPK_count]; k++) {
                found = next_of(x, type, xs[1], w[TOPK_dims + 1], w, &best, found);
                if (w[TOPK_y] != NPF_NONE)
                    npf_put(npf_local(c, w[TOPK_y]) + a * ys[0] + k * ys[1] + i * ys[2], type,
                        npf_get(x + found * xs[1], type));
                if (w[TOPK_at] != NPF_NONE)
                    npf_put(npf_local(c, w[TOPK_at]) + a * ps[0] + k * ps[1] + i * ps[2], w[TOPK_at_type], found);
            }
        }
    return NPUFLOW_OK;
}

npuflow_status npf_selections(const npf_call *c)
{
    switch (npf_opcode(c->w)) {
    case OP_LUT: return look_up(c);
    case OP_SOFTMAX: return softmax(c);
    case OP_GATHER: return gather(c);
    case OP_LOADROWS: return load_rows(c);
    default: return select_top(c);
    }
}
