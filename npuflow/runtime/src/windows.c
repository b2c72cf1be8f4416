/* Commands that look through windows, and that resize: integers. */

#include "kernels.h"

/* The part of a line of outputs whose place of the window lies in the tile, from output `x` on. */
static int64_t inside(const npf_window *v, int64_t x, int64_t j, int64_t n, int64_t *low, int64_t *left)
{
    int64_t high;
    *left = x * v->stride[1] + j * v->dilation[1] + v->origin[1];
    *low = *left >= 0 ? 0 : npf_up(-*left, v->stride[1]);
    high = v->extent[1] - *left <= 0 ? 0 : npf_up(v->extent[1] - *left, v->stride[1]);
    return high < n ? high : n;
}

static int64_t counted(const npf_window *v, const uint32_t *w, int axis, int64_t out)
{
    const int64_t low = NPF_SIGNED(w[AVGPOOL_count_lo + axis]), high = NPF_SIGNED(w[AVGPOOL_count_hi + axis]);
    int64_t i, found = 0;
    for (i = 0; i < v->kernel[axis]; i++) {
        const int64_t at = out * v->stride[axis] + i * v->dilation[axis] + v->origin[axis];
        found += at >= low && at < high;
    }
    return found;
}

static void average(const npf_call *c, const npf_window *v, int64_t y, int64_t x, int64_t n, int64_t *line)
{
    const uint32_t *w = c->w;
    const int64_t reach = npf_reach(w[AVGPOOL_x_type], NPF_SIGNED(w[AVGPOOL_x_zero])) * v->kernel[0] * v->kernel[1];
    const int64_t rows = counted(v, w, 0, y);
    npf_end end;
    int64_t k;
    end.zero = NPF_SIGNED(w[AVGPOOL_zero]), end.lo = NPF_SIGNED(w[AVGPOOL_lo]), end.hi = NPF_SIGNED(w[AVGPOOL_hi]);
    end.shift = (int)NPF_SIGNED(w[AVGPOOL_shift]), end.mode = (int)w[AVGPOOL_rounding];
    for (k = 0; k < n; k++) {
        const int64_t at = rows * counted(v, w, 1, x + k);
        end.multiplier = npf_get(npf_local(c, w[AVGPOOL_multipliers]) + at * 4, TYPE_uint32);
        if (npf_narrow(reach, end.multiplier, end.shift))
            npf_end_row(&end, line + k, 1);
        else
            line[k] = npf_ended(npf_widened(line[k]), &end);
    }
}

/* A line of outputs of MAXPOOL or AVGPOOL, of one plane. */
static void pooled_line(const npf_call *c, const npf_window *v, const uint8_t *plane, int64_t y, int64_t x, int64_t n,
    int64_t *line)
{
    const uint32_t *w = c->w;
    const int largest = npf_opcode(w) == OP_MAXPOOL;
    const uint32_t type = w[largest ? MAXPOOL_x_type : AVGPOOL_x_type];
    const uint32_t *strides = w + (largest ? MAXPOOL_x_strides : AVGPOOL_x_strides);
    const int64_t zero = largest ? 0 : NPF_SIGNED(w[AVGPOOL_x_zero]), s2 = NPF_SIGNED(strides[2]);
    const int64_t s3 = NPF_SIGNED(strides[3]);
    int64_t buffer[NPF_CHUNK], i, j, k, low, left;
    for (k = 0; k < n; k++)
        line[k] = largest ? -NPF_FAR : 0;
    for (i = 0; i < v->kernel[0]; i++) {
        const int64_t sy = y * v->stride[0] + i * v->dilation[0] + v->origin[0];
        for (j = 0; sy >= 0 && sy < v->extent[0] && j < v->kernel[1]; j++) {
            const int64_t high = inside(v, x, j, n, &low, &left);
            if (low >= high)
                continue;
            npf_get_row(plane + sy * s2 + (left + low * v->stride[1]) * s3, type, v->stride[1] * s3, high - low, zero,
                buffer);
            for (k = 0; k < high - low; k++)
                if (!largest)
                    line[low + k] += buffer[k];
                else if (buffer[k] > line[low + k])
                    line[low + k] = buffer[k];
        }
    }
    if (!largest) {
        average(c, v, y, x, n, line);
        return;
    }
    for (k = 0; k < n; k++)
        line[k] = line[k] == -NPF_FAR ? NPF_SIGNED(w[MAXPOOL_lo])
            : npf_clamped(line[k], NPF_SIGNED(w[MAXPOOL_lo]), NPF_SIGNED(w[MAXPOOL_hi]));
}

static npuflow_status pool(const npf_call *c)
{
    const uint32_t *w = c->w;
    const int largest = npf_opcode(w) == OP_MAXPOOL;
    const uint32_t *xs = w + (largest ? MAXPOOL_x_strides : AVGPOOL_x_strides);
    const uint32_t *ys = w + (largest ? MAXPOOL_y_strides : AVGPOOL_y_strides);
    const uint32_t type = w[largest ? MAXPOOL_y_type : AVGPOOL_y_type];
    const npf_window v = npf_window_of(w);
    int64_t line[NPF_CHUNK], n, k, y, x;
    for (n = 0; n < v.n; n++)
        for (k = 0; k < v.channels; k++) {
            const uint8_t *from = npf_local(c, w[largest ? MAXPOOL_x : AVGPOOL_x]) + n * NPF_SIGNED(xs[0])
                + k * NPF_SIGNED(xs[1]);
            uint8_t *to = npf_local(c, w[largest ? MAXPOOL_y : AVGPOOL_y]) + n * NPF_SIGNED(ys[0])
                + k * NPF_SIGNED(ys[1]);
            for (y = 0; y < v.out[0]; y++)
                for (x = 0; x < v.out[1]; x += NPF_CHUNK) {
                    const int64_t count = v.out[1] - x < NPF_CHUNK ? v.out[1] - x : NPF_CHUNK;
                    pooled_line(c, &v, from, y, x, count, line);
                    npf_put_row(to + y * NPF_SIGNED(ys[2]) + x * NPF_SIGNED(ys[3]), type, NPF_SIGNED(ys[3]), count,
                        line);
                }
        }
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ RESIZE */

typedef struct { int64_t at[2], weight[2]; } taps;

static taps taps_of(const npf_call *c, uint32_t address, int64_t i, int64_t origin)
{
    const uint8_t *p = npf_local(c, address) + 16 * i;
    taps t;
    int k;
    for (k = 0; k < 2; k++) {
        t.at[k] = npf_get(p + 4 * k, TYPE_int32) + origin;
        t.weight[k] = npf_get(p + 8 + 4 * k, TYPE_int32);
    }
    return t;
}

static int named(const npf_call *c, uint32_t address, int64_t count, int64_t origin, int64_t extent)
{
    int64_t i;
    for (i = 0; i < count; i++) {
        const taps t = taps_of(c, address, i, origin);
        if (t.at[0] < 0 || t.at[1] < 0 || t.at[0] >= extent || t.at[1] >= extent)
            return 0;
    }
    return 1;
}

static npuflow_status resize(const npf_call *c)
{
    const uint32_t *w = c->w, *xs = w + RESIZE_x_strides, *ys = w + RESIZE_y_strides;
    const int64_t height = w[RESIZE_out_height], width = w[RESIZE_out_width];
    const int64_t top = NPF_SIGNED(w[RESIZE_origin]), left = NPF_SIGNED(w[RESIZE_origin + 1]);
    const int64_t zero = NPF_SIGNED(w[RESIZE_x_zero]), reach = npf_reach(w[RESIZE_x_type], zero);
    int64_t n, k, y, x;
    npf_end end;
    if (!named(c, w[RESIZE_rows], height, top, w[RESIZE_x_dims + 2])
        || !named(c, w[RESIZE_columns], width, left, w[RESIZE_x_dims + 3]))
        return npf_fault(c, "RESIZE: a table names a row or column outside of the tile");
    end.multiplier = w[RESIZE_multiplier], end.zero = NPF_SIGNED(w[RESIZE_zero]);
    end.lo = NPF_SIGNED(w[RESIZE_lo]), end.hi = NPF_SIGNED(w[RESIZE_hi]);
    end.shift = (int)(2 * (int64_t)w[RESIZE_weight_bits] + NPF_SIGNED(w[RESIZE_shift]));
    end.mode = (int)w[RESIZE_rounding];
    for (n = 0; n < w[RESIZE_x_dims]; n++)
        for (k = 0; k < w[RESIZE_x_dims + 1]; k++)
            for (y = 0; y < height; y++) {
                const taps r = taps_of(c, w[RESIZE_rows], y, top);
                for (x = 0; x < width; x++) {
                    const taps s = taps_of(c, w[RESIZE_columns], x, left);
                    const uint64_t up = npf_size(r.weight[0]) + npf_size(r.weight[1]);
                    const uint64_t across = npf_size(s.weight[0]) + npf_size(s.weight[1]);
                    const int narrow = reach < 1 << 20 && up < 1 << 20 && across < 1 << 20
                        && npf_narrow(reach * (int64_t)up * (int64_t)across, end.multiplier, end.shift);
                    int64_t total = 0;
                    npf_wide wide = {0, 0};
                    int i, j;
                    for (i = 0; i < 2; i++)
                        for (j = 0; j < 2; j++) {
                            const int64_t v = npf_get(npf_local(c, w[RESIZE_x]) + n * NPF_SIGNED(xs[0])
                                + k * NPF_SIGNED(xs[1]) + r.at[i] * NPF_SIGNED(xs[2]) + s.at[j] * NPF_SIGNED(xs[3]),
                                w[RESIZE_x_type]) - zero;
                            if (narrow)
                                total += v * r.weight[i] * s.weight[j];
                            else
                                wide = npf_sum(wide, npf_times(npf_times(npf_widened(v), r.weight[i]), s.weight[j]));
                        }
                    if (narrow)
                        npf_end_row(&end, &total, 1);
                    else
                        total = npf_ended(wide, &end);
                    npf_put(npf_local(c, w[RESIZE_y]) + n * NPF_SIGNED(ys[0]) + k * NPF_SIGNED(ys[1])
                        + y * NPF_SIGNED(ys[2]) + x * NPF_SIGNED(ys[3]), w[RESIZE_y_type], total);
                }
            }
    return NPUFLOW_OK;
}

npuflow_status npf_windows(const npf_call *c)
{
    return npf_opcode(c->w) == OP_RESIZE ? resize(c) : pool(c);
}
