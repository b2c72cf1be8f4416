/* What a command's fields must be, and the bytes that it names. */

#define NPF_TABLES
#include "internal.h"

#define MOST_ELEMENTS (INT64_C(1) << 31)

static npuflow_status refuse(npuflow_error *error, const char *text)
{
    return npf_fail(error, NPUFLOW_COMMAND, text);
}

/* ------------------------------------------------------------------ fields */

static int product_fits(const uint32_t *w, int width)
{
    int64_t product = 1;
    int i;
    for (i = 0; i < width; i++) {
        if (!w[i] || w[i] > MOST_ELEMENTS || (product *= w[i]) > MOST_ELEMENTS)
            return 0;
    }
    return 1;
}

static npuflow_status check_field(const uint32_t *w, const npf_field_check *f, npuflow_error *error)
{
    const uint32_t v = w[f->word];
    switch (f->check) {
    case CHECK_POSITIVE:
        if (!product_fits(w + f->word, f->width))
            return refuse(error, "an extent is 0, or extents span more than 2^31 elements");
        break;
    case CHECK_NAMES:
        if (v >= f->number)
            return refuse(error, "a field has none of its values");
        break;
    case CHECK_TYPE:
        if (v >= NPF_TYPES || !(NPF_TYPE[v].roles & f->number))
            return refuse(error, "an operand has a type that the opcode does not take");
        break;
    case CHECK_FLAG:
        if (v > 1)
            return refuse(error, "a flag is neither 0 nor 1");
        break;
    default:
        if (NPF_SIGNED(v) < -32 || NPF_SIGNED(v) > 62)
            return refuse(error, "a shift is outside of -32..62");
    }
    return NPUFLOW_OK;
}

static int64_t least(uint32_t type)
{
    return NPF_TYPE[type].is_signed ? -(INT64_C(1) << (NPF_TYPE[type].bits - 1)) : 0;
}

static int64_t most(uint32_t type)
{
    return NPF_TYPE[type].is_signed ? (INT64_C(1) << (NPF_TYPE[type].bits - 1)) - 1
        : (INT64_C(1) << NPF_TYPE[type].bits) - 1;
}

static npuflow_status clamp_fits(uint32_t type, uint32_t lo, uint32_t hi, npuflow_error *error)
{
    const int64_t a = NPF_SIGNED(lo), b = NPF_SIGNED(hi);
    if (a < least(type) || a > most(type) || b < least(type) || b > most(type) || a > b)
        return refuse(error, "a clamp is empty or leaves the type of the result");
    return NPUFLOW_OK;
}

static npuflow_status check_convolution(const uint32_t *w, npuflow_error *error)
{
    const uint32_t op = npf_opcode(w);
    const npf_window v = npf_window_of(w);
    const int f = op == OP_FCONV, b = op == OP_BCONV;
    const int64_t groups = w[f ? FCONV_groups : b ? BCONV_groups : CONV_groups];
    const int64_t out = w[f ? FCONV_out_channels : b ? BCONV_out_channels : CONV_out_channels];
    const int64_t batch = w[f ? FCONV_batch : b ? BCONV_batch : CONV_batch];
    if (out % groups || v.channels % groups)
        return refuse(error, "groups do not divide the channels");
    if (batch != v.n)
        return refuse(error, "the batch is not the tile's");
    if (v.kernel[0] * v.kernel[1] > 65536)
        return refuse(error, "a window above 2^16 positions");
    if (out > MOST_ELEMENTS / v.out[0] / v.out[1] / batch
        || out > (INT64_C(1) << 37) / (v.channels / groups) / (v.kernel[0] * v.kernel[1]))
        return refuse(error, "the result spans more than 2^31 elements");
    if (op == OP_SCALEDCONV && groups != 1)
        return refuse(error, "sums are scaled of one group of channels");
    if (f && (!w[FCONV_taps] || v.channels / groups % w[FCONV_taps] || !w[FCONV_block] || !w[FCONV_chunk]))
        return refuse(error, "taps, block or chunk of a convolution cannot be");
    if (b && w[BCONV_x_type] != TYPE_bfloat16)
        return refuse(error, "activations beside blocks are bfloat16");
    return NPUFLOW_OK;
}

static npuflow_status check_groups(uint32_t type, uint32_t zero, uint32_t group, uint32_t offset, npuflow_error *error)
{
    if (type != TYPE_int4 && type != TYPE_uint4 && type != TYPE_int8 && type != TYPE_uint8)
        return refuse(error, "codes of groups have another type");
    if (!group || group > MOST_ELEMENTS || (uint64_t)group * NPF_TYPE[type].bits % 8)
        return refuse(error, "a group does not fill whole bytes");
    if (NPF_SIGNED(zero) < least(type) || NPF_SIGNED(zero) > most(type) || (zero && offset))
        return refuse(error, "the zero point of groups cannot be");
    return NPUFLOW_OK;
}

static npuflow_status check_product(uint32_t batch, uint32_t m, uint32_t k, uint32_t n, npuflow_error *error)
{
    if ((int64_t)n > MOST_ELEMENTS / batch / m || k > MOST_ELEMENTS || (int64_t)k > MOST_ELEMENTS / batch / m
        || (int64_t)k > MOST_ELEMENTS / batch / n)
        return refuse(error, "a product spans more than 2^31 elements");
    return NPUFLOW_OK;
}

static npuflow_status check_selection(const uint32_t *w, npuflow_error *error)
{
    if (w[TOPK_y] == NPF_NONE && w[TOPK_at] == NPF_NONE)
        return refuse(error, "neither elements nor places");
    if (w[TOPK_y] != NPF_NONE && w[TOPK_x_type] != w[TOPK_y_type])
        return refuse(error, "elements of two types");
    if (w[TOPK_at] != NPF_NONE && (int64_t)w[TOPK_dims + 1] - 1 > most(w[TOPK_at_type]))
        return refuse(error, "places that their type does not hold");
    if (w[TOPK_count] < 1 || w[TOPK_count] > w[TOPK_dims + 1] || w[TOPK_last] > 1)
        return refuse(error, "a count outside of the elements");
    return NPUFLOW_OK;
}

#define CLAMP_OF(OP) clamp_fits(w[OP##_y_type], w[OP##_lo], w[OP##_hi], error)
#define ELEMENT_OF(OP) (w[OP##_element] == 1 || w[OP##_element] == 2 || w[OP##_element] == 4 || w[OP##_element] == 8)

/* What a float command's bounds are: patterns of 16 bits, or codes of the result's type. */
static npuflow_status bounds_fit(uint32_t type, uint32_t low, uint32_t high, npuflow_error *error)
{
    if (NPF_TYPE[type].is_float)
        return NPF_SIGNED(low) >= 0 && low < 65536 && NPF_SIGNED(high) >= 0 && high < 65536 ? NPUFLOW_OK
            : refuse(error, "bounds are no patterns of floats");
    return clamp_fits(type, low, high, error);
}

static npuflow_status check_vector(const uint32_t *w, npuflow_error *error)
{
    npuflow_status status;
    switch (npf_opcode(w)) {
    case OP_REQUANT:
        if (w[REQUANT_channel_axis] > 3 || w[REQUANT_bias_shift] > 31)
            return refuse(error, "the channel axis or the shift of a bias cannot be");
        return w[REQUANT_los] != NPF_NONE || w[REQUANT_his] != NPF_NONE ? NPUFLOW_OK : CLAMP_OF(REQUANT);
    case OP_ADD: return CLAMP_OF(ADD);
    case OP_ABSDIFFERENCE: return CLAMP_OF(ABSDIFFERENCE);
    case OP_MUL: return CLAMP_OF(MUL);
    case OP_DIV: return CLAMP_OF(DIV);
    case OP_MINMAX: return CLAMP_OF(MINMAX);
    case OP_PRELU: return CLAMP_OF(PRELU);
    case OP_RESCALE: return CLAMP_OF(RESCALE);
    case OP_MAXPOOL: return CLAMP_OF(MAXPOOL);
    case OP_AVGPOOL:
        return w[AVGPOOL_multipliers] == NPF_NONE ? refuse(error, "no multipliers") : CLAMP_OF(AVGPOOL);
    case OP_LUT:
        if (w[LUT_bits] > 15 || w[LUT_fraction] > (w[LUT_bits] ? 15u : 0u) || !w[LUT_entries])
            return refuse(error, "a table of no entries, or too many bits between them");
        return CLAMP_OF(LUT);
    case OP_SOFTMAX:
        if (w[SOFTMAX_low_bits] > 16 || !w[SOFTMAX_entries])
            return refuse(error, "a table of no entries, or too many low bits");
        return CLAMP_OF(SOFTMAX);
    case OP_RESIZE: {
        const int64_t shift = 2 * (int64_t)w[RESIZE_weight_bits] + NPF_SIGNED(w[RESIZE_shift]);
        if (w[RESIZE_weight_bits] > 20 || shift < -32 || shift > 62)
            return refuse(error, "bits of weights and a shift that cannot be");
        return CLAMP_OF(RESIZE);
    }
    case OP_FILL:
        return clamp_fits(w[FILL_y_type], w[FILL_value], w[FILL_value], error);
    case OP_GATHER:
        if (w[GATHER_x_type] != w[GATHER_y_type] || !w[GATHER_entries] || w[GATHER_entries] > MOST_ELEMENTS)
            return refuse(error, "a table without entries, or of another type");
        return NPUFLOW_OK;
    case OP_TOPK: case OP_FTOPK:
        return check_selection(w, error);
    case OP_FROUND:
        if (w[FROUND_channel_axis] > 3 || !w[FROUND_divisor] || w[FROUND_divisor] > 1u << 24)
            return refuse(error, "the channel axis or the divisor cannot be");
        return w[FROUND_lows] != NPF_NONE || w[FROUND_highs] != NPF_NONE ? NPUFLOW_OK
            : bounds_fit(w[FROUND_y_type], w[FROUND_low], w[FROUND_high], error);
    case OP_FARITH: return bounds_fit(w[FARITH_y_type], w[FARITH_low], w[FARITH_high], error);
    case OP_FUNARY: return bounds_fit(w[FUNARY_y_type], w[FUNARY_low], w[FUNARY_high], error);
    case OP_FPOOL: return bounds_fit(w[FPOOL_y_type], w[FPOOL_low], w[FPOOL_high], error);
    case OP_FRESIZE:
        if (w[FRESIZE_weight_bits] > 20)
            return refuse(error, "too many bits of weights");
        return bounds_fit(w[FRESIZE_y_type], w[FRESIZE_low], w[FRESIZE_high], error);
    case OP_FCAST:
        if (!NPF_TYPE[w[FCAST_x_type]].is_float && !NPF_TYPE[w[FCAST_y_type]].is_float)
            return refuse(error, "neither type is a float type");
        return bounds_fit(w[FCAST_y_type], w[FCAST_low], w[FCAST_high], error);
    case OP_FREDUCE:
        return !w[FREDUCE_chunk] || w[FREDUCE_axes] > 15 ? refuse(error, "axes or chunk cannot be") : NPUFLOW_OK;
    case OP_FSOFTMAX:
        return !w[FSOFTMAX_chunk] ? refuse(error, "a chunk of no terms") : NPUFLOW_OK;
    case OP_FLUT: {
        const uint32_t top = w[FLUT_x_type] == TYPE_float16 ? 0x7C00 : 0x7F80;
        int i;
        for (i = 0; i < 2; i++) {
            const uint32_t first = w[FLUT_first + i], last = w[FLUT_last + i];
            if (first > last || first < 1 || last >= top
                || (w[FLUT_below + i] & 0x7F800000) == 0x7F800000 || (w[FLUT_above + i] & 0x7F800000) == 0x7F800000)
                return refuse(error, "a table of no finite numbers");
        }
        return NPUFLOW_OK;
    }
    default:
        status = NPUFLOW_OK;
    }
    return status;
}

static npuflow_status check_rest(const uint32_t *w, npuflow_error *error)
{
    npuflow_status status = NPUFLOW_OK;
    switch (npf_opcode(w)) {
    case OP_LOAD: return ELEMENT_OF(LOAD) ? NPUFLOW_OK : refuse(error, "an element of so many bytes");
    case OP_STORE:
        return ELEMENT_OF(STORE) && w[STORE_space] == 0 ? NPUFLOW_OK : refuse(error, "STORE writes DATA only");
    case OP_COPY: return ELEMENT_OF(COPY) ? NPUFLOW_OK : refuse(error, "an element of so many bytes");
    case OP_LOADROWS:
        return ELEMENT_OF(LOADROWS) && w[LOADROWS_entries] && w[LOADROWS_entries] <= MOST_ELEMENTS
            && (int64_t)w[LOADROWS_row] * w[LOADROWS_entries] < (INT64_C(1) << 40) ? NPUFLOW_OK
            : refuse(error, "a table without entries, or an element of so many bytes");
    case OP_CONV: case OP_SCALEDCONV: case OP_FCONV: case OP_BCONV:
        status = check_convolution(w, error);
        if (status == NPUFLOW_OK && npf_opcode(w) == OP_SCALEDCONV && !w[SCALEDCONV_group])
            status = refuse(error, "a group of no channels");
        return status;
    case OP_MATMUL: case OP_SCALEDMATMUL:
        return check_product(w[MATMUL_batch], w[MATMUL_m], w[MATMUL_k], w[MATMUL_n], error);
    case OP_GROUPMATMUL:
        status = check_product(w[GROUPMATMUL_batch], w[GROUPMATMUL_m], w[GROUPMATMUL_k], w[GROUPMATMUL_n], error);
        return status != NPUFLOW_OK ? status : check_groups(w[GROUPMATMUL_b_type], w[GROUPMATMUL_zero],
            w[GROUPMATMUL_group], w[GROUPMATMUL_offset], error);
    case OP_FMATMUL:
        status = check_product(w[FMATMUL_batch], w[FMATMUL_m], w[FMATMUL_k], w[FMATMUL_n], error);
        return status != NPUFLOW_OK || w[FMATMUL_chunk] ? status : refuse(error, "a chunk of no terms");
    case OP_FGROUPMATMUL:
        status = check_product(w[FGROUPMATMUL_batch], w[FGROUPMATMUL_m], w[FGROUPMATMUL_k], w[FGROUPMATMUL_n], error);
        if (status == NPUFLOW_OK && !w[FGROUPMATMUL_chunk])
            status = refuse(error, "a chunk of no terms");
        return status != NPUFLOW_OK ? status : check_groups(w[FGROUPMATMUL_b_type], w[FGROUPMATMUL_zero],
            w[FGROUPMATMUL_group], w[FGROUPMATMUL_offset], error);
    case OP_BMATMUL:
        status = check_product(w[BMATMUL_batch], w[BMATMUL_m], w[BMATMUL_k], w[BMATMUL_n], error);
        return status != NPUFLOW_OK || (w[BMATMUL_columns] < 2 && w[BMATMUL_a_type] == TYPE_bfloat16) ? status
            : refuse(error, "activations beside blocks are bfloat16");
    case OP_BPAIRS:
        status = check_product(w[BPAIRS_batch], w[BPAIRS_m], w[BPAIRS_k], w[BPAIRS_n], error);
        return status != NPUFLOW_OK || (w[BPAIRS_a_type] == TYPE_bfloat16 && w[BPAIRS_b_type] == TYPE_bfloat16
            && NPF_TYPE[w[BPAIRS_held_type]].both) ? status
            : refuse(error, "activations beside blocks are bfloat16");
    default:
        return check_vector(w, error);
    }
}

npuflow_status npf_check_fields(const uint32_t *w, uint32_t core, npuflow_error *error)
{
    const uint32_t op = npf_opcode(w);
    const npf_opcode_row *row;
    uint32_t i;
    if (op >= NPF_OPCODES || !NPF_OPCODE[op].known)
        return npf_fail(error, NPUFLOW_OPCODE, "an opcode that this runtime does not know");
    row = &NPF_OPCODE[op];
    if ((w[0] >> 16 & 0xff) != core || w[0] >> 24)
        return refuse(error, "a command of another core, or with flags");
    for (i = row->end; i < NPF_WORDS; i++)
        if (w[i])
            return refuse(error, "a reserved word is not 0");
    for (i = 0; i < row->count; i++) {
        const npuflow_status status = check_field(w, &NPF_CHECKS[row->first + i], error);
        if (status != NPUFLOW_OK)
            return status;
    }
    return check_rest(w, error);
}

/* ------------------------------------------------------------------ regions */

static int64_t bytes_of(uint32_t type) { return NPF_TYPE[type].bytes; }

static npf_region *flat(npf_region *r, const char *name, uint32_t address, int64_t count, int64_t size)
{
    r->name = name, r->space = NPF_LOCAL, r->write = 0;
    r->address = address, r->size = size, r->rank = 1;
    r->dims[0] = count, r->strides[0] = size;
    return r + 1;
}

/* A parameter that may be absent. */
static npf_region *perhaps(npf_region *r, const char *name, uint32_t address, int64_t count, int64_t size)
{
    return address == NPF_NONE ? r : flat(r, name, address, count, size);
}

/* A tensor operand: address, type and strides follow each other in its words. */
static npf_region *tensor(npf_region *r, const char *name, const uint32_t *at, const int64_t *dims, int rank, int write)
{
    int i;
    r->name = name, r->space = NPF_LOCAL, r->write = write;
    r->address = at[0], r->size = bytes_of(at[1]), r->rank = rank;
    for (i = 0; i < rank; i++)
        r->dims[i] = dims[i], r->strides[i] = NPF_SIGNED(at[2 + i]);
    return r + 1;
}

static npf_region *sums(npf_region *r, uint32_t address, uint32_t type, int64_t count, int write)
{
    r = flat(r, "acc", address, count, bytes_of(type));
    r[-1].write = write;
    return r;
}

static npf_region *moved(npf_region *r, const char *name, int space, uint32_t address, const uint32_t *w, int dims,
    int strides, uint32_t element, int write)
{
    int i;
    r->name = name, r->space = space, r->write = write;
    r->address = address, r->size = element, r->rank = 6;
    for (i = 0; i < 6; i++)
        r->dims[i] = w[dims + i], r->strides[i] = NPF_SIGNED(w[strides + i]);
    return r + 1;
}

static void extents(const uint32_t *w, int rank, int64_t *dims)
{
    int i;
    for (i = 0; i < rank; i++)
        dims[i] = w[i];
}

/* The bytes of packed elements `first` to `last` behind an address. */
static npf_region *packed(npf_region *r, uint32_t address, uint32_t type, int64_t first, int64_t last)
{
    const npf_type_row *t = &NPF_TYPE[type];
    const int64_t whole = t->of ? t->of : 1;
    const int64_t bits = t->of ? t->kept * (t->bits + 2) / t->of : t->bits;
    int64_t low, high;
    first = (first >= 0 ? first / whole : -npf_up(-first, whole)) * whole;
    last = (last + whole) / whole * whole - 1;
    low = first * bits, high = (last + 1) * bits - 1;
    low = low >= 0 ? low / 8 : -npf_up(-low, 8);
    flat(r, "packed", 0, high / 8 - low + 1, 1);
    r->address = (int64_t)address + low;
    return r + 1;
}

#define CONV_WINDOW(OP) \
    v.n = w[OP##_x_dims], v.channels = w[OP##_x_dims + 1]; \
    for (i = 0; i < 2; i++) { \
        v.extent[i] = w[OP##_x_dims + 2 + i], v.out[i] = w[OP##_out_height + i]; \
        v.kernel[i] = w[OP##_kernel + i], v.stride[i] = w[OP##_stride + i]; \
        v.dilation[i] = w[OP##_dilation + i], v.origin[i] = NPF_SIGNED(w[OP##_origin + i]); \
        v.insert[i] = 1; \
    }

npf_window npf_window_of(const uint32_t *w)
{
    npf_window v;
    int i;
    memset(&v, 0, sizeof v);
    switch (npf_opcode(w)) {
    case OP_MAXPOOL: CONV_WINDOW(MAXPOOL) break;
    case OP_AVGPOOL: CONV_WINDOW(AVGPOOL) break;
    case OP_FPOOL: CONV_WINDOW(FPOOL) break;
    case OP_FCONV:
        CONV_WINDOW(FCONV)
        v.insert[0] = w[FCONV_insert], v.insert[1] = w[FCONV_insert + 1];
        break;
    case OP_BCONV:
        CONV_WINDOW(BCONV)
        v.insert[0] = w[BCONV_insert], v.insert[1] = w[BCONV_insert + 1];
        break;
    default:
        CONV_WINDOW(CONV)
        v.insert[0] = w[CONV_insert], v.insert[1] = w[CONV_insert + 1];
    }
    return v;
}

static npf_region *convolution(npf_region *r, const uint32_t *w)
{
    const npf_window v = npf_window_of(w);
    const uint32_t op = npf_opcode(w);
    const int64_t out = w[CONV_out_channels], area = v.kernel[0] * v.kernel[1];
    const int64_t count = out * (v.channels / w[CONV_groups]) * area;
    const int64_t pieces = op == OP_SCALEDCONV ? npf_up(v.channels, w[SCALEDCONV_group]) : 1;
    int64_t dims[4];
    extents(w + CONV_x_dims, 4, dims);
    r = tensor(r, "x", w + CONV_x, dims, 4, 0);
    if (NPF_TYPE[w[CONV_w_type]].packed)
        r = packed(r, w[CONV_w], w[CONV_w_type], 0, count - 1);
    else
        r = flat(r, "w", w[CONV_w], count, bytes_of(w[CONV_w_type]));
    r = perhaps(r, "w_zeros", w[CONV_w_zeros], out * pieces, 4);
    if (op == OP_SCALEDCONV)
        r = flat(r, "scales", w[SCALEDCONV_scales], out * pieces, bytes_of(w[SCALEDCONV_scales_type]));
    return sums(r, w[CONV_acc], w[CONV_acc_type], v.n * out * v.out[0] * v.out[1], 1);
}

static npf_region *product(npf_region *r, const uint32_t *w)
{
    const uint32_t op = npf_opcode(w);
    const int64_t a[3] = {w[MATMUL_batch], w[MATMUL_m], w[MATMUL_k]};
    const int64_t b[3] = {w[MATMUL_batch], w[MATMUL_k], w[MATMUL_n]};
    const int64_t pieces = op == OP_SCALEDMATMUL ? npf_up(a[2], w[SCALEDMATMUL_group]) : 1;
    int i;
    r = tensor(r, "a", w + MATMUL_a, a, 3, 0);
    if (NPF_TYPE[w[MATMUL_b_type]].packed) {
        int64_t first = 0, last = 0;
        for (i = 0; i < 3; i++) {
            const int64_t reach = (b[i] - 1) * NPF_SIGNED(w[MATMUL_b_strides + i]);
            first += reach < 0 ? reach : 0;
            last += reach > 0 ? reach : 0;
        }
        r = packed(r, w[MATMUL_b], w[MATMUL_b_type], first, last);
    } else
        r = tensor(r, "b", w + MATMUL_b, b, 3, 0);
    r = perhaps(r, "b_zeros", w[MATMUL_b_zeros], b[2] * pieces, 4);
    if (op == OP_SCALEDMATMUL)
        r = flat(r, "scales", w[SCALEDMATMUL_scales], b[2] * pieces, bytes_of(w[SCALEDMATMUL_scales_type]));
    return sums(r, w[MATMUL_acc], w[MATMUL_acc_type], a[0] * a[1] * b[2], 1);
}

static int64_t group_bytes(uint32_t type, uint32_t group, uint32_t offset)
{
    return 2 + (int64_t)offset + (int64_t)group * NPF_TYPE[type].bits / 8;
}

static npf_region *windowed(npf_region *r, const uint32_t *w, int x, int x_dims, int y)
{
    const npf_window v = npf_window_of(w);
    int64_t dims[4], made[4];
    extents(w + x_dims, 4, dims);
    made[0] = v.n, made[1] = v.channels, made[2] = v.out[0], made[3] = v.out[1];
    r = tensor(r, "x", w + x, dims, 4, 0);
    return tensor(r, "y", w + y, made, 4, 1);
}

static npf_region *resized(npf_region *r, const uint32_t *w, int x_dims, int y, int out, int rows)
{
    int64_t dims[4];
    extents(w + x_dims, 4, dims);
    r = tensor(r, "x", w + 10, dims, 4, 0);
    dims[2] = w[out], dims[3] = w[out + 1];
    r = flat(r, "rows", w[rows], dims[2] * 4, 4);
    r = flat(r, "columns", w[rows + 1], dims[3] * 4, 4);
    return tensor(r, "y", w + y, dims, 4, 1);
}

/* Two operands and a result, one behind the other, of the same extents. */
static npf_region *pair(npf_region *r, const uint32_t *w, int dims_at)
{
    int64_t dims[4];
    extents(w + dims_at, 4, dims);
    r = tensor(r, "a", w + 10, dims, 4, 0);
    r = tensor(r, "b", w + 16, dims, 4, 0);
    return tensor(r, "y", w + 22, dims, 4, 1);
}

static npf_region *single(npf_region *r, const uint32_t *w, int dims_at)
{
    int64_t dims[4];
    extents(w + dims_at, 4, dims);
    r = tensor(r, "x", w + 10, dims, 4, 0);
    return tensor(r, "y", w + 16, dims, 4, 1);
}

static npf_region *selected(npf_region *r, const uint32_t *w)
{
    int64_t dims[3];
    extents(w + TOPK_dims, 3, dims);
    r = tensor(r, "x", w + TOPK_x, dims, 3, 0);
    dims[1] = w[TOPK_count];
    if (w[TOPK_y] != NPF_NONE)
        r = tensor(r, "y", w + TOPK_y, dims, 3, 1);
    if (w[TOPK_at] != NPF_NONE)
        r = tensor(r, "at", w + TOPK_at, dims, 3, 1);
    return r;
}

static npf_region *float_product(npf_region *r, const uint32_t *w, int batch, int bias, int acc)
{
    const int64_t n = w[batch + 3];
    r = perhaps(r, "bias", w[bias], n, 4);
    return sums(r, w[acc], TYPE_float32, (int64_t)w[batch] * w[batch + 1] * n, 1);
}

static npf_region *float_convolution(npf_region *r, const uint32_t *w)
{
    const npf_window v = npf_window_of(w);
    const int b = npf_opcode(w) == OP_BCONV;
    const int64_t out = w[b ? BCONV_out_channels : FCONV_out_channels];
    const int64_t per = v.channels / w[b ? BCONV_groups : FCONV_groups], area = v.kernel[0] * v.kernel[1];
    int64_t dims[4];
    extents(w + FCONV_x_dims, 4, dims);
    r = tensor(r, "x", w + FCONV_x, dims, 4, 0);
    if (b) {
        const npf_type_row *t = &NPF_TYPE[w[BCONV_w_type]];
        r = flat(r, "w", w[BCONV_w], out * npf_up(per, t->block) * area * t->block_bytes, 1);
    } else
        r = flat(r, "w", w[FCONV_w], out * per * area, 2);
    r = perhaps(r, "bias", w[b ? BCONV_bias : FCONV_bias], out, 4);
    return sums(r, w[b ? BCONV_acc : FCONV_acc], TYPE_float32, v.n * out * v.out[0] * v.out[1], 1);
}

static npf_region *reduced(npf_region *r, const uint32_t *w)
{
    int64_t dims[4], kept = 1;
    int i;
    if (npf_opcode(w) == OP_REDUCE) {
        extents(w + REDUCE_dims, 3, dims);
        r = tensor(r, "x", w + REDUCE_x, dims, 3, 0);
        return sums(r, w[REDUCE_acc], w[REDUCE_acc_type], dims[0] * dims[2], 1);
    }
    extents(w + FREDUCE_dims, 4, dims);
    for (i = 0; i < 4; i++)
        kept *= w[FREDUCE_axes] >> i & 1 ? 1 : dims[i];
    r = tensor(r, "x", w + FREDUCE_x, dims, 4, 0);
    return sums(r, w[FREDUCE_acc], TYPE_float32, kept, 1);
}

static npf_region *rows(npf_region *r, const uint32_t *w)
{
    r->name = "external", r->space = w[LOADROWS_space] ? NPF_CONST : NPF_DATA, r->write = 0;
    r->address = w[LOADROWS_external], r->size = w[LOADROWS_element], r->rank = 2;
    r->dims[0] = w[LOADROWS_entries], r->dims[1] = w[LOADROWS_dims + 1];
    r->strides[0] = w[LOADROWS_row], r->strides[1] = w[LOADROWS_element];
    r++;
    flat(r, "index", w[LOADROWS_index], w[LOADROWS_dims], bytes_of(w[LOADROWS_index_type]));
    r->strides[0] = NPF_SIGNED(w[LOADROWS_index_step]);
    r->address = w[LOADROWS_index];
    r++;
    r->name = "y", r->space = NPF_LOCAL, r->write = 1;
    r->address = w[LOADROWS_y], r->size = w[LOADROWS_element], r->rank = 2;
    r->dims[0] = w[LOADROWS_dims], r->dims[1] = w[LOADROWS_dims + 1];
    r->strides[0] = NPF_SIGNED(w[LOADROWS_y_strides]), r->strides[1] = NPF_SIGNED(w[LOADROWS_y_strides + 1]);
    return r + 1;
}

static npf_region *rounded(npf_region *r, const uint32_t *w)
{
    int64_t dims[4];
    if (npf_opcode(w) == OP_REQUANT) {
        const int64_t channels = w[REQUANT_dims + w[REQUANT_channel_axis]];
        extents(w + REQUANT_dims, 4, dims);
        r = sums(r, w[REQUANT_acc], w[REQUANT_acc_type], dims[0] * dims[1] * dims[2] * dims[3], 0);
        r = perhaps(r, "bias", w[REQUANT_bias], channels, bytes_of(w[REQUANT_bias_type]));
        r = perhaps(r, "multipliers", w[REQUANT_multipliers], channels, 4);
        r = perhaps(r, "los", w[REQUANT_los], channels, 4);
        r = perhaps(r, "his", w[REQUANT_his], channels, 4);
        return tensor(r, "y", w + REQUANT_y, dims, 4, 1);
    }
    extents(w + FROUND_dims, 4, dims);
    r = sums(r, w[FROUND_acc], TYPE_float32, dims[0] * dims[1] * dims[2] * dims[3], 0);
    r = perhaps(r, "lows", w[FROUND_lows], dims[w[FROUND_channel_axis]], 2);
    r = perhaps(r, "highs", w[FROUND_highs], dims[w[FROUND_channel_axis]], 2);
    return tensor(r, "y", w + FROUND_y, dims, 4, 1);
}

static npf_region *tables(npf_region *r, const uint32_t *w)
{
    int64_t dims[3];
    switch (npf_opcode(w)) {
    case OP_LUT:
        r = flat(r, "table", w[LUT_table], w[LUT_entries], w[LUT_bits] ? 4 : bytes_of(w[LUT_y_type]));
        return single(r, w, LUT_dims);
    case OP_FLUT:
        r = flat(r, "table", w[FLUT_table],
            (int64_t)w[FLUT_last] + w[FLUT_last + 1] - w[FLUT_first] - w[FLUT_first + 1] + 7, 2);
        return single(r, w, FLUT_dims);
    default:
        extents(w + SOFTMAX_dims, 3, dims);
        r = flat(r, "low", w[SOFTMAX_low],
            w[SOFTMAX_high] != NPF_NONE ? INT64_C(1) << w[SOFTMAX_low_bits] : (int64_t)w[SOFTMAX_entries], 4);
        r = perhaps(r, "high", w[SOFTMAX_high], w[SOFTMAX_entries], 4);
        r = tensor(r, "x", w + SOFTMAX_x, dims, 3, 0);
        return tensor(r, "y", w + SOFTMAX_y, dims, 3, 1);
    }
}

static npf_region *floats(npf_region *r, const uint32_t *w)
{
    int64_t a[3], b[3];
    switch (npf_opcode(w)) {
    case OP_FMATMUL:
        a[0] = b[0] = w[FMATMUL_batch], a[1] = w[FMATMUL_m], a[2] = b[1] = w[FMATMUL_k], b[2] = w[FMATMUL_n];
        r = tensor(r, "a", w + FMATMUL_a, a, 3, 0);
        r = tensor(r, "b", w + FMATMUL_b, b, 3, 0);
        return float_product(r, w, FMATMUL_batch, FMATMUL_bias, FMATMUL_acc);
    case OP_BPAIRS:
        a[0] = b[0] = w[BPAIRS_batch], a[1] = w[BPAIRS_m], a[2] = b[1] = w[BPAIRS_k], b[2] = w[BPAIRS_n];
        r = tensor(r, "a", w + BPAIRS_a, a, 3, 0);
        r = tensor(r, "b", w + BPAIRS_b, b, 3, 0);
        return float_product(r, w, BPAIRS_batch, BPAIRS_bias, BPAIRS_acc);
    case OP_BMATMUL: {
        const npf_type_row *t = &NPF_TYPE[w[BMATMUL_b_type]];
        extents(w + BMATMUL_batch, 3, a);
        r = tensor(r, "a", w + BMATMUL_a, a, 3, 0);
        r = flat(r, "b", w[BMATMUL_b], npf_up(a[2], t->block) * w[BMATMUL_n] * t->block_bytes, 1);
        return float_product(r, w, BMATMUL_batch, BMATMUL_bias, BMATMUL_acc);
    }
    case OP_FGROUPMATMUL:
        extents(w + FGROUPMATMUL_batch, 3, a);
        r = tensor(r, "a", w + FGROUPMATMUL_a, a, 3, 0);
        r = flat(r, "b", w[FGROUPMATMUL_b], w[FGROUPMATMUL_n] * npf_up(a[2], w[FGROUPMATMUL_group])
            * group_bytes(w[FGROUPMATMUL_b_type], w[FGROUPMATMUL_group], w[FGROUPMATMUL_offset]), 1);
        return float_product(r, w, FGROUPMATMUL_batch, FGROUPMATMUL_bias, FGROUPMATMUL_acc);
    case OP_FSOFTMAX:
        extents(w + FSOFTMAX_dims, 3, a);
        r = tensor(r, "x", w + FSOFTMAX_x, a, 3, 0);
        return tensor(r, "y", w + FSOFTMAX_y, a, 3, 1);
    default:
        extents(w + GROUPMATMUL_batch, 3, a);
        r = tensor(r, "a", w + GROUPMATMUL_a, a, 3, 0);
        r = flat(r, "b", w[GROUPMATMUL_b], w[GROUPMATMUL_n] * npf_up(a[2], w[GROUPMATMUL_group])
            * group_bytes(w[GROUPMATMUL_b_type], w[GROUPMATMUL_group], w[GROUPMATMUL_offset]), 1);
        return sums(r, w[GROUPMATMUL_acc], w[GROUPMATMUL_acc_type], a[0] * a[1] * w[GROUPMATMUL_n], 1);
    }
}

static npf_region *regions_of(npf_region *r, const uint32_t *w)
{
    int64_t dims[4];
    switch (npf_opcode(w)) {
    case OP_LOAD:
        r = moved(r, "external", w[LOAD_space] ? NPF_CONST : NPF_DATA, w[LOAD_external], w, LOAD_dims,
            LOAD_external_strides, w[LOAD_element], 0);
        return moved(r, "local", NPF_LOCAL, w[LOAD_local], w, LOAD_dims, LOAD_local_strides, w[LOAD_element], 1);
    case OP_STORE:
        r = moved(r, "local", NPF_LOCAL, w[STORE_local], w, STORE_dims, STORE_local_strides, w[STORE_element], 0);
        return moved(r, "external", NPF_DATA, w[STORE_external], w, STORE_dims, STORE_external_strides,
            w[STORE_element], 1);
    case OP_COPY:
        r = moved(r, "x", NPF_LOCAL, w[COPY_x], w, COPY_dims, COPY_x_strides, w[COPY_element], 0);
        return moved(r, "y", NPF_LOCAL, w[COPY_y], w, COPY_dims, COPY_y_strides, w[COPY_element], 1);
    case OP_FILL:
        extents(w + FILL_dims, 4, dims);
        return tensor(r, "y", w + FILL_y, dims, 4, 1);
    case OP_LOADROWS: return rows(r, w);
    case OP_GATHER: {
        int64_t table[3];
        extents(w + GATHER_dims, 3, dims);
        extents(w + GATHER_dims, 3, table);
        table[1] = w[GATHER_entries];
        r = tensor(r, "x", w + GATHER_x, table, 3, 0);
        r = tensor(r, "index", w + GATHER_index, dims, 3, 0);
        return tensor(r, "y", w + GATHER_y, dims, 3, 1);
    }
    case OP_CONV: case OP_SCALEDCONV: return convolution(r, w);
    case OP_MATMUL: case OP_SCALEDMATMUL: return product(r, w);
    case OP_FCONV: case OP_BCONV: return float_convolution(r, w);
    case OP_REQUANT: case OP_FROUND: return rounded(r, w);
    case OP_ADD: return pair(r, w, ADD_dims);
    case OP_ABSDIFFERENCE: return pair(r, w, ABSDIFFERENCE_dims);
    case OP_MUL: return pair(r, w, MUL_dims);
    case OP_DIV: return pair(r, w, DIV_dims);
    case OP_MINMAX: return pair(r, w, MINMAX_dims);
    case OP_PRELU: return pair(r, w, PRELU_dims);
    case OP_FARITH: return pair(r, w, FARITH_dims);
    case OP_RESCALE: return single(r, w, RESCALE_dims);
    case OP_FCAST: return single(r, w, FCAST_dims);
    case OP_FUNARY: return single(r, w, FUNARY_dims);
    case OP_LUT: case OP_FLUT: case OP_SOFTMAX: return tables(r, w);
    case OP_MAXPOOL: return windowed(r, w, MAXPOOL_x, MAXPOOL_x_dims, MAXPOOL_y);
    case OP_AVGPOOL:
        r = flat(r, "multipliers", w[AVGPOOL_multipliers], (int64_t)w[AVGPOOL_kernel] * w[AVGPOOL_kernel + 1] + 1, 4);
        return windowed(r, w, AVGPOOL_x, AVGPOOL_x_dims, AVGPOOL_y);
    case OP_FPOOL: return windowed(r, w, FPOOL_x, FPOOL_x_dims, FPOOL_y);
    case OP_REDUCE: case OP_FREDUCE: return reduced(r, w);
    case OP_RESIZE: return resized(r, w, RESIZE_x_dims, RESIZE_y, RESIZE_out_height, RESIZE_rows);
    case OP_FRESIZE: return resized(r, w, FRESIZE_x_dims, FRESIZE_y, FRESIZE_out_height, FRESIZE_rows);
    case OP_TOPK: case OP_FTOPK: return selected(r, w);
    case OP_BARRIER: case OP_REPEAT: case OP_ADVANCE: return r;
    default: return floats(r, w);
    }
}

int npf_regions(const uint32_t *w, npf_region *found)
{
    return (int)(regions_of(found, w) - found);
}

/* Whether no byte belongs to two elements, as far as nesting the dimensions can show. */
static int distinct(const npf_region *r)
{
    int64_t reach = r->size, s[6], d[6];
    int n = 0, i, j;
    for (i = 0; i < r->rank; i++)
        if (r->dims[i] > 1) {
            const int64_t stride = r->strides[i] < 0 ? -r->strides[i] : r->strides[i];
            for (j = n++; j > 0 && (s[j - 1] > stride || (s[j - 1] == stride && d[j - 1] > r->dims[i])); j--)
                s[j] = s[j - 1], d[j] = d[j - 1];
            s[j] = stride, d[j] = r->dims[i];
        }
    for (i = 0; i < n; i++) {
        if (s[i] < reach)
            return 0;
        reach += s[i] * (d[i] - 1);
    }
    return 1;
}

npuflow_status npf_check_bounds(const uint32_t *w, const npf_memory *memory, npuflow_error *error)
{
    npf_region found[NPF_MOST_REGIONS];
    const int n = npf_regions(w, found), copies = NPF_OPCODE[npf_opcode(w)].queue < 2 || npf_opcode(w) == OP_COPY;
    int i, d;
    for (i = 0; i < n; i++) {
        const npf_region *r = &found[i];
        const uint64_t size = r->space == NPF_LOCAL ? memory->local_bytes
            : r->space == NPF_DATA ? memory->data_bytes : memory->const_bytes;
        int64_t low = r->address, high = r->address + r->size, loose = r->address;
        for (d = 0; d < r->rank; d++) {
            const int64_t reach = (r->dims[d] - 1) * r->strides[d];
            low += reach < 0 ? reach : 0;
            high += reach > 0 ? reach : 0;
            loose |= r->strides[d];
        }
        if (low < 0 || high > (int64_t)size)
            return npf_fail(error, NPUFLOW_BOUNDS, "a command names bytes outside of its memory");
        if (!copies && loose & (r->size - 1))
            return npf_fail(error, NPUFLOW_BOUNDS, "an operand does not lie on a multiple of its size");
        if (r->write && !distinct(r))
            return npf_fail(error, NPUFLOW_BOUNDS, "a command writes a byte twice");
    }
    return NPUFLOW_OK;
}
