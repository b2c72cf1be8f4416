/* Commands of the vector unit that work element by element on integers, and those that move bytes. */

#include "kernels.h"

/* ------------------------------------------------------------------ two operands */

typedef struct {
    uint32_t op, a_type, b_type, y_type, maximum;
    int64_t a_zero, b_zero, a_factor, b_factor;
    int narrow, below_narrow;
    npf_end end, below;                /* below: of a number under zero */
} two;

static void wide_row(const two *t, const int64_t *a, const int64_t *b, int64_t *v, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) {
        npf_wide x = npf_widened(a[i]);
        switch (t->op) {
        case OP_ADD: case OP_ABSDIFFERENCE: case OP_RESCALE:
            x = npf_sum(npf_times(x, t->a_factor), npf_times(npf_widened(b[i]), t->b_factor));
            if (t->op == OP_ABSDIFFERENCE && x.high < 0)
                x = npf_negative(x);
            break;
        case OP_MUL:
            x = npf_times(x, b[i]);
            break;
        case OP_PRELU:
            if (a[i] < 0)
                x = npf_times(x, b[i]);
            break;
        default:
            break;
        }
        if (t->op == OP_DIV)
            v[i] = npf_clamped(npf_quotient(npf_times(x, t->a_factor), b[i], t->end.shift, t->end.mode)
                + t->end.zero, t->end.lo, t->end.hi);
        else
            v[i] = npf_ended(x, t->op == OP_PRELU && a[i] < 0 ? &t->below : &t->end);
    }
}

static void narrow_prelu(const two *t, const int64_t *a, const int64_t *b, int64_t *v, int64_t n)
{
    int64_t above[NPF_CHUNK], under[NPF_CHUNK], i;
    for (i = 0; i < n; i++) {
        above[i] = a[i] < 0 ? 0 : a[i];
        under[i] = a[i] < 0 ? a[i] * b[i] : 0;
    }
    npf_end_row(&t->end, above, n);
    npf_end_row(&t->below, under, n);
    for (i = 0; i < n; i++)
        v[i] = a[i] < 0 ? under[i] : above[i];
}

static void narrow_quotient(const two *t, const int64_t *a, const int64_t *b, int64_t *v, int64_t n)
{
    const int64_t up = t->end.shift < 0 ? INT64_C(1) << -t->end.shift : 1;
    const int64_t down = t->end.shift > 0 ? INT64_C(1) << t->end.shift : 1;
    int64_t i;
    for (i = 0; i < n; i++) {
        int64_t p = a[i] * t->a_factor * up, q = b[i] * down, floor, rest;
        if (q < 0)
            p = -p, q = -q;
        if (!q)
            floor = p > 0 ? NPF_FAR : p < 0 ? -NPF_FAR : 0;
        else {
            floor = p / q - (p % q < 0);
            rest = p - floor * q;
            if (t->end.mode == ROUND_TRUNCATE)
                floor += p < 0 && rest;
            else if (rest > q - rest)
                floor++;
            else if (rest == q - rest)
                floor += t->end.mode == ROUND_HALF_UP
                    || (t->end.mode == ROUND_HALF_EVEN ? (int)(floor & 1) : p >= 0);
        }
        v[i] = npf_clamped(npf_clamped(floor, -NPF_FAR, NPF_FAR) + t->end.zero, t->end.lo, t->end.hi);
    }
}

static void two_row(const void *context, const npf_loop *loop, uint8_t *const *at, int64_t n)
{
    const two *t = (const two *)context;
    int64_t a[NPF_CHUNK], b[NPF_CHUNK], i;
    npf_get_row(at[0], t->a_type, loop->strides[0][5], n, t->a_zero, a);
    npf_get_row(at[1], t->b_type, loop->strides[1][5], n, t->b_zero, b);
    if (t->op == OP_MINMAX) {
        for (i = 0; i < n; i++)
            a[i] = npf_clamped((a[i] > b[i]) == (t->maximum != 0) ? a[i] : b[i], t->end.lo, t->end.hi);
    } else if (!t->narrow)
        wide_row(t, a, b, a, n);
    else if (t->op == OP_PRELU)
        narrow_prelu(t, a, b, a, n);
    else if (t->op == OP_DIV)
        narrow_quotient(t, a, b, a, n);
    else {
        if (t->op == OP_MUL)
            for (i = 0; i < n; i++)
                a[i] *= b[i];
        else
            for (i = 0; i < n; i++)
                a[i] = a[i] * t->a_factor + b[i] * t->b_factor;
        if (t->op == OP_ABSDIFFERENCE)
            for (i = 0; i < n; i++)
                a[i] = a[i] < 0 ? -a[i] : a[i];
        npf_end_row(&t->end, a, n);
    }
    npf_put_row(at[2], t->y_type, loop->strides[2][5], n, a);
}

#define END_OF(OP) \
    t.end.lo = NPF_SIGNED(w[OP##_lo]), t.end.hi = NPF_SIGNED(w[OP##_hi]); dims = OP##_dims;
#define ROUND_OF(OP) \
    t.end.shift = (int)NPF_SIGNED(w[OP##_shift]), t.end.mode = (int)w[OP##_rounding], \
    t.end.zero = NPF_SIGNED(w[OP##_zero]);
#define ZEROS_OF(OP) t.a_zero = NPF_SIGNED(w[OP##_a_zero]), t.b_zero = NPF_SIGNED(w[OP##_b_zero]);

static int small(int64_t reach) { return reach < (INT64_C(1) << 30); }

/* Words 10 on hold operands of address, type and four strides each, the result last. */
static npuflow_status two_operands(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int single = npf_opcode(w) == OP_RESCALE;
    int64_t a, b;
    int dims = 0, i;
    npf_loop loop;
    two t;
    memset(&t, 0, sizeof t);
    t.op = npf_opcode(w);
    t.end.multiplier = 1;
    t.a_type = w[11], t.b_type = w[single ? 11 : 17], t.y_type = w[single ? 17 : 23];
    switch (t.op) {
    case OP_ADD:
        END_OF(ADD) ROUND_OF(ADD) ZEROS_OF(ADD)
        t.a_factor = NPF_SIGNED(w[ADD_a_multiplier]), t.b_factor = NPF_SIGNED(w[ADD_b_multiplier]);
        break;
    case OP_ABSDIFFERENCE:
        END_OF(ABSDIFFERENCE) ROUND_OF(ABSDIFFERENCE) ZEROS_OF(ABSDIFFERENCE)
        t.a_factor = NPF_SIGNED(w[ABSDIFFERENCE_a_multiplier]);
        t.b_factor = NPF_SIGNED(w[ABSDIFFERENCE_b_multiplier]);
        break;
    case OP_MUL:
        END_OF(MUL) ROUND_OF(MUL) ZEROS_OF(MUL)
        t.end.multiplier = w[MUL_multiplier];
        break;
    case OP_DIV:
        END_OF(DIV) ROUND_OF(DIV) ZEROS_OF(DIV)
        t.a_factor = w[DIV_multiplier];
        break;
    case OP_PRELU:
        END_OF(PRELU) ROUND_OF(PRELU)
        t.a_zero = NPF_SIGNED(w[PRELU_x_zero]), t.b_zero = NPF_SIGNED(w[PRELU_slope_zero]);
        t.end.multiplier = w[PRELU_multiplier];
        t.below = t.end;
        t.below.multiplier = NPF_SIGNED(w[PRELU_negative]);
        t.below.shift = (int)NPF_SIGNED(w[PRELU_negative_shift]);
        break;
    case OP_RESCALE:
        END_OF(RESCALE) ROUND_OF(RESCALE)
        t.a_zero = t.b_zero = NPF_SIGNED(w[RESCALE_x_zero]);
        t.a_factor = w[RESCALE_multiplier];
        break;
    default:
        END_OF(MINMAX)
        t.maximum = w[MINMAX_maximum];
    }
    a = npf_reach(t.a_type, t.a_zero), b = npf_reach(t.b_type, t.b_zero);
    t.narrow = small(a) && small(b);
    if (t.op == OP_MUL)
        t.narrow = t.narrow && npf_narrow(a * b, t.end.multiplier, t.end.shift);
    else if (t.op == OP_PRELU)
        t.narrow = t.narrow && npf_narrow(a, t.end.multiplier, t.end.shift)
            && npf_narrow(a * b, t.below.multiplier, t.below.shift);
    else if (t.op == OP_DIV)
        t.narrow = t.narrow && npf_narrow(a, t.a_factor, t.end.shift < 0 ? t.end.shift : 0)
            && t.end.shift < 30;
    else if (t.op != OP_MINMAX)        /* two terms of at most 2^30 * 2^32 */
        t.narrow = t.narrow && npf_narrow(a, 2 * t.a_factor, t.end.shift) && npf_narrow(b, 2 * t.b_factor, t.end.shift);
    loop.operands = 0;
    for (i = 0; i < 4; i++)
        loop.dims[i] = w[dims + i];
    npf_operand(&loop, npf_local(c, w[10]), w + 12, 4);
    npf_operand(&loop, npf_local(c, w[single ? 10 : 16]), w + (single ? 12 : 18), 4);
    npf_operand(&loop, npf_local(c, w[single ? 16 : 22]), w + (single ? 18 : 24), 4);
    npf_merge(&loop, 4);
    npf_rows(&loop, two_row, &t);
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ REQUANT */

typedef struct {
    uint32_t acc_type, bias_type, y_type;
    int bias, bias_shift, multipliers, los, his;       /* places of operands; 0: none */
    npf_end end;
} requant;

/* A parameter of every element: one a channel, or one for all. */
static void parameters(const npf_loop *loop, uint8_t *const *at, int place, uint32_t type, int64_t otherwise, int64_t n,
    int64_t *out)
{
    int64_t i;
    if (place)
        npf_get_row(at[place], type, loop->strides[place][5], n, 0, out);
    else
        for (i = 0; i < n; i++)
            out[i] = otherwise;
}

static void requant_row(const void *context, const npf_loop *loop, uint8_t *const *at, int64_t n)
{
    const requant *t = (const requant *)context;
    const int64_t most = INT64_C(1) << 28;
    const int shift = t->end.shift, y = loop->operands - 1;
    int64_t v[NPF_CHUNK], b[NPF_CHUNK], m[NPF_CHUNK], lo[NPF_CHUNK], hi[NPF_CHUNK], i;
    uint64_t far = 0;
    npf_get_row(at[0], t->acc_type, loop->strides[0][5], n, 0, v);
    parameters(loop, at, t->bias, t->bias_type, 0, n, b);
    parameters(loop, at, t->multipliers, TYPE_uint32, t->end.multiplier, n, m);
    parameters(loop, at, t->los, TYPE_int32, t->end.lo, n, lo);
    parameters(loop, at, t->his, TYPE_int32, t->end.hi, n, hi);
    for (i = 0; i < n; i++)            /* sums below 2^29, multipliers below 2^32 */
        far |= ((uint64_t)v[i] + (uint64_t)most) >> 29 | ((uint64_t)b[i] + (uint64_t)most) >> 29;
    if (!far && !t->bias_shift && shift > 0 && t->end.mode == ROUND_HALF_UP) {
        const uint64_t up = (UINT64_C(1) << (shift - 1)) + (UINT64_C(1) << 63);
        const int64_t less = (int64_t)(UINT64_C(1) << 63 >> shift) - t->end.zero;
        for (i = 0; i < n; i++)
            v[i] = npf_clamped((int64_t)(((uint64_t)((v[i] + b[i]) * m[i]) + up) >> shift) - less, lo[i], hi[i]);
    } else if (!far && !t->bias_shift && shift > 0)
        for (i = 0; i < n; i++)
            v[i] = npf_clamped(npf_rounded((v[i] + b[i]) * m[i], shift, t->end.mode) + t->end.zero, lo[i], hi[i]);
    else
        for (i = 0; i < n; i++) {
            npf_end end = t->end;
            end.multiplier = m[i], end.lo = lo[i], end.hi = hi[i];
            v[i] = npf_ended(npf_sum(npf_widened(v[i]),
                npf_times(npf_widened(b[i]), INT64_C(1) << t->bias_shift)), &end);
        }
    npf_put_row(at[y], t->y_type, loop->strides[y][5], n, v);
}

/* One parameter a channel as an operand. */
static int parameter(npf_loop *loop, const npf_call *c, uint32_t address, uint32_t axis, int64_t size)
{
    if (address == NPF_NONE)
        return 0;
    memset(loop->strides[loop->operands], 0, sizeof loop->strides[0]);
    loop->strides[loop->operands][axis] = size;
    loop->at[loop->operands] = npf_local(c, address);
    return loop->operands++;
}

static npuflow_status requantise(const npf_call *c)
{
    const uint32_t *w = c->w, axis = w[REQUANT_channel_axis];
    int64_t step;
    npf_loop loop;
    requant t;
    int i;
    loop.operands = 1;
    loop.at[0] = npf_local(c, w[REQUANT_acc]);
    t.acc_type = w[REQUANT_acc_type], t.bias_type = w[REQUANT_bias_type], t.y_type = w[REQUANT_y_type];
    for (i = 3, step = NPF_TYPE[t.acc_type].bytes; i >= 0; i--) {
        loop.dims[i] = w[REQUANT_dims + i];
        loop.strides[0][i] = step;
        step *= loop.dims[i];
    }
    t.bias = parameter(&loop, c, w[REQUANT_bias], axis, NPF_TYPE[t.bias_type].bytes);
    t.bias_shift = (int)w[REQUANT_bias_shift];
    t.multipliers = parameter(&loop, c, w[REQUANT_multipliers], axis, 4);
    t.los = parameter(&loop, c, w[REQUANT_los], axis, 4);
    t.his = parameter(&loop, c, w[REQUANT_his], axis, 4);
    npf_operand(&loop, npf_local(c, w[REQUANT_y]), w + REQUANT_y_strides, 4);
    t.end.multiplier = w[REQUANT_multiplier], t.end.zero = NPF_SIGNED(w[REQUANT_zero]);
    t.end.lo = NPF_SIGNED(w[REQUANT_lo]), t.end.hi = NPF_SIGNED(w[REQUANT_hi]);
    t.end.shift = (int)NPF_SIGNED(w[REQUANT_shift]), t.end.mode = (int)w[REQUANT_rounding];
    npf_merge(&loop, 4);
    npf_rows(&loop, requant_row, &t);
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ bytes */

static void copy_row(const void *context, const npf_loop *loop, uint8_t *const *at, int64_t n)
{
    const int64_t size = *(const int64_t *)context, from = loop->strides[0][5], to = loop->strides[1][5];
    int64_t i;
    if (from == size && to == size) {
        memmove(at[1], at[0], (size_t)(n * size));
        return;
    }
    for (i = 0; i < n; i++) {
        const uint8_t *p = at[0] + i * from;
        uint8_t *q = at[1] + i * to;
        switch (size) {
        case 1: *q = *p; break;
        case 2: memmove(q, p, 2); break;
        case 4: memmove(q, p, 4); break;
        default: memmove(q, p, 8);
        }
    }
}

/* Fields of LOAD, STORE and COPY: extents and strides of six dimensions. */
static npuflow_status move(uint8_t *from, uint8_t *to, const uint32_t *dims, const uint32_t *from_strides,
    const uint32_t *to_strides, int64_t element)
{
    npf_loop loop;
    int i;
    loop.operands = 0;
    for (i = 0; i < 6; i++)
        loop.dims[i] = dims[i];
    npf_operand(&loop, from, from_strides, 6);
    npf_operand(&loop, to, to_strides, 6);
    npf_merge(&loop, 6);
    npf_rows(&loop, copy_row, &element);
    return NPUFLOW_OK;
}

static npuflow_status transfer(const npf_call *c)
{
    const uint32_t *w = c->w;
    npf_memory *m = c->memory;
    if (npf_opcode(w) == OP_COPY)
        return move(npf_local(c, w[COPY_x]), npf_local(c, w[COPY_y]), w + COPY_dims, w + COPY_x_strides,
            w + COPY_y_strides, w[COPY_element]);
    if (npf_opcode(w) == OP_STORE)
        return move(npf_local(c, w[STORE_local]), m->data + w[STORE_external], w + STORE_dims,
            w + STORE_local_strides, w + STORE_external_strides, w[STORE_element]);
    /* constants are read alone */
    return move((w[LOAD_space] ? (uint8_t *)(uintptr_t)m->constants : m->data) + w[LOAD_external],
        npf_local(c, w[LOAD_local]), w + LOAD_dims, w + LOAD_external_strides, w + LOAD_local_strides,
        w[LOAD_element]);
}

typedef struct { uint32_t type; int64_t value; } filling;

static void fill_row(const void *context, const npf_loop *loop, uint8_t *const *at, int64_t n)
{
    const filling *t = (const filling *)context;
    int64_t v[NPF_CHUNK], i;
    for (i = 0; i < n; i++)
        v[i] = t->value;
    npf_put_row(at[0], t->type, loop->strides[0][5], n, v);
}

static npuflow_status fill(const npf_call *c)
{
    const uint32_t *w = c->w;
    filling t;
    npf_loop loop;
    int i;
    t.type = w[FILL_y_type], t.value = NPF_SIGNED(w[FILL_value]);
    loop.operands = 0;
    for (i = 0; i < 4; i++)
        loop.dims[i] = w[FILL_dims + i];
    npf_operand(&loop, npf_local(c, w[FILL_y]), w + FILL_y_strides, 4);
    npf_merge(&loop, 4);
    npf_rows(&loop, fill_row, &t);
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ REDUCE */

static npuflow_status reduce(const npf_call *c)
{
    const uint32_t *w = c->w, x_type = w[REDUCE_x_type], type = w[REDUCE_acc_type];
    const int64_t outer = w[REDUCE_dims], rows = w[REDUCE_dims + 1], inner = w[REDUCE_dims + 2];
    const int64_t zero = NPF_SIGNED(w[REDUCE_x_zero]), sa = NPF_SIGNED(w[REDUCE_x_strides]);
    const int64_t sr = NPF_SIGNED(w[REDUCE_x_strides + 1]), si = NPF_SIGNED(w[REDUCE_x_strides + 2]);
    const int largest = w[REDUCE_maximum] != 0;
    uint8_t *acc = npf_local(c, w[REDUCE_acc]);
    int64_t a, i, r;
    for (a = 0; a < outer; a++)
        for (i = 0; i < inner; i++, acc += NPF_TYPE[type].bytes) {
            const uint8_t *p = npf_local(c, w[REDUCE_x]) + a * sa + i * si;
            int64_t v = npf_get(p, x_type) - zero;
            for (r = 1; r < rows; r++) {
                const int64_t d = npf_get(p + r * sr, x_type) - zero;
                v = largest ? (d > v ? d : v) : v + d;
            }
            if (w[REDUCE_accumulate]) {
                const int64_t old = npf_get(acc, type);
                v = largest ? (old > v ? old : v) : (int64_t)((uint64_t)v + (uint64_t)old);
            }
            npf_put(acc, type, v);
        }
    return NPUFLOW_OK;
}

npuflow_status npf_vectors(const npf_call *c)
{
    switch (npf_opcode(c->w)) {
    case OP_LOAD: case OP_STORE: case OP_COPY: return transfer(c);
    case OP_FILL: return fill(c);
    case OP_REQUANT: return requantise(c);
    case OP_REDUCE: return reduce(c);
    default: return two_operands(c);
    }
}
