/* Floats of 16 bits as doubles and back, and exact sums of them. */

#include "floats.h"

enum { LIMBS = 26, LOWEST = -400 };    /* of exact sums: 32 bits each, from 2^-400 on */

static uint64_t bits_of(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, 8);
    return bits;
}

double npf_real(uint16_t pattern, uint32_t type)
{
    if (type == TYPE_bfloat16)
        return (double)npf_single((uint32_t)pattern << 16);
    {
        const int exponent = pattern >> 10 & 31, fraction = pattern & 1023;
        const double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
            : ldexp(fraction + (exponent ? 1024 : 0), (exponent ? exponent : 1) - 25);
        return pattern >> 15 ? -size : size;
    }
}

uint16_t npf_pattern(double value, uint32_t type)
{
    const int digits = type == TYPE_float16 ? 10 : 7, bias = type == TYPE_float16 ? 15 : 127;
    const uint64_t bits = bits_of(value);
    const uint16_t sign = (uint16_t)(bits >> 63 << 15), top = type == TYPE_float16 ? 0x7C00 : 0x7F80;
    const int exponent = (int)(bits >> 52 & 2047) - 1023;
    const uint64_t significand = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    uint64_t kept, rest, half;
    int drop = 52 - digits, field;
    if (value != value)
        return type == TYPE_float16 ? 0x7E00 : 0x7FC0;
    if (exponent == 1024 || exponent > bias)
        return (uint16_t)(sign | top);
    if (exponent == -1023)
        return sign;
    field = exponent + bias;
    if (field < 1) {
        drop += 1 - field;
        field = 0;
    }
    if (drop > 54)
        return sign;
    kept = significand >> drop;
    rest = significand & ((UINT64_C(1) << drop) - 1);
    half = UINT64_C(1) << (drop - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    kept += field ? (uint64_t)(field - 1) << digits : 0;
    return (uint16_t)(sign | (kept > top ? top : kept));
}

uint16_t npf_bounded(double value, uint32_t type, uint32_t low, uint32_t high)
{
    uint16_t made = npf_pattern(value, type);
    if (npf_real(made, type) < npf_real((uint16_t)low, type))
        made = (uint16_t)low;
    if (npf_real(made, type) > npf_real((uint16_t)high, type))
        made = (uint16_t)high;
    return made;
}

float npf_one_nan(float v) { return v != v ? npf_single(0x7FC00000u) : v; }

/* ------------------------------------------------------------------ exact sums */

static void add_exactly(int64_t *limbs, double v)
{
    const uint64_t bits = bits_of(v), field = bits >> 52 & 2047;
    const uint64_t digits = (bits & ((UINT64_C(1) << 52) - 1)) | (field ? UINT64_C(1) << 52 : 0);
    const int place = (field ? (int)field : 1) - 1075 - LOWEST, limb = place / 32, up = place % 32;
    const int64_t sign = bits >> 63 ? -1 : 1;
    uint64_t high;
    if (!digits || place < 0 || limb + 3 > LIMBS)
        return;
    high = up ? digits >> (64 - up) : 0;
    limbs[limb] += sign * (int64_t)(digits << up & 0xffffffffu);
    limbs[limb + 1] += sign * (int64_t)(digits << up >> 32);
    limbs[limb + 2] += sign * (int64_t)high;
}

/* The sum as a double with its last bit set where anything lies below it: another rounding then errs not. */
static double sum_of(int64_t *limbs)
{
    int64_t carry = 0;
    int negative, i, top, shift;
    uint64_t found;
    for (i = 0; i < LIMBS; i++) {
        const int64_t v = limbs[i] + carry;
        carry = npf_shift_down(v, 32);
        limbs[i] = v - carry * (INT64_C(1) << 32);
    }
    negative = carry < 0;
    if (negative)
        for (i = 0, carry = 1; i < LIMBS; i++) {
            const int64_t v = (0xffffffff ^ limbs[i]) + carry;
            carry = v >> 32;
            limbs[i] = v & 0xffffffff;
        }
    for (top = LIMBS - 1; top >= 0 && !limbs[top]; top--)
        ;
    if (top < 0)
        return 0;
    found = (uint64_t)limbs[top] << 32 | (top ? (uint64_t)limbs[top - 1] : 0);
    for (shift = 0; !(found >> 63); shift++)
        found <<= 1;
    if (shift && top > 1)
        found |= (uint64_t)limbs[top - 2] >> (32 - shift);
    if (top > 1 && shift < 32 && (uint64_t)limbs[top - 2] << shift & 0xffffffffu)
        found |= 1;
    for (i = top - 3; i >= 0; i--)
        if (limbs[i])
            found |= 1;
    if (found & 0x7ff)
        found = (found | 0x800) & ~UINT64_C(0x7ff);
    {
        const double size = ldexp((double)found, LOWEST + 32 * (top - 1) - shift);
        return negative ? -size : size;
    }
}

float npf_exact(const double *a, const double *b, int64_t count)
{
    double total = b ? a[0] * b[0] : a[0];
    int lossy = 0;
    int64_t i, limbs[LIMBS];
    for (i = 1; i < count; i++) {
        const double more = b ? a[i] * b[i] : a[i], now = total + more, part = now - total;
        lossy |= (total - (now - part)) + (more - part) != 0;
        total = now;
    }
    if (!lossy || !(total - total == 0))
        return (float)total + 0.0f;
    memset(limbs, 0, sizeof limbs);
    for (i = 0; i < count; i++)
        add_exactly(limbs, b ? a[i] * b[i] : a[i]);
    return (float)sum_of(limbs) + 0.0f;
}

float npf_chunked(const double *a, const double *b, int64_t count, int64_t chunk, float start)
{
    int64_t i;
    for (i = 0; i < count; i += chunk)
        start = start + npf_exact(a + i, b ? b + i : NULL, count - i < chunk ? count - i : chunk);
    return npf_one_nan(start);
}

/* ------------------------------------------------------------------ blocks that share an exponent */

static int lead_of(int64_t digits)
{
    int place = -8, k;
    for (k = 0; k < 8; k++)
        if (digits >> k > 0)
            place = k - 7;
    return place;
}

/* digits / 2^drop, to the nearest, ties to even. */
static int64_t shifted(int64_t digits, int64_t drop)
{
    const int64_t down = drop < 12 ? drop : 12, half = down > 0 ? INT64_C(1) << (down - 1) : 0;
    int64_t whole, rest;
    if (down <= 0)
        return digits;
    whole = digits >> down;
    rest = digits & ((INT64_C(1) << down) - 1);
    return whole + (rest > half || (rest == half && (whole & 1)));
}

void npf_take_block(const uint16_t *patterns, int64_t count, uint32_t type, double *out)
{
    const npf_type_row *t = &NPF_TYPE[type];
    const int64_t size = t->block;
    int64_t field[32], digits[32], top[32], highest = -300, exponent, i;
    int whole = 0;
    for (i = 0; i < size; i++) {
        const int64_t bits = i < count ? patterns[i] : 0;
        field[i] = bits >> 7 & 255;
        digits[i] = (bits & 127) + (field[i] > 0 ? 128 : 0);
        whole |= (bits & 0x7F80) == 0x7F80;
        if (!t->both)
            out[i] = npf_real((uint16_t)bits, TYPE_bfloat16);
        field[i] = field[i] > 1 ? field[i] : 1;
        top[i] = digits[i] > 0 ? field[i] + lead_of(digits[i]) : -300;
        highest = top[i] > highest ? top[i] : highest;
    }
    if (!t->both)
        return;
    exponent = highest > 127 + t->least ? highest : 127 + t->least;
    for (i = 0; i < size; i++) {
        int64_t drop = exponent - field[i] + (8 - t->bits) + 1, kept, pair = -300, k;
        if (t->pair) {
            for (k = i / t->pair * t->pair; k < (i / t->pair + 1) * t->pair; k++)
                pair = top[k] > pair ? top[k] : pair;
            drop -= pair > -300 && pair < exponent;
        }
        kept = shifted(digits[i], drop);
        if (kept > (INT64_C(1) << (t->bits - 1)) - 1)
            kept = (INT64_C(1) << (t->bits - 1)) - 1;
        out[i] = whole ? (double)NAN : ldexp((double)kept, (int)(field[i] + drop - 134));
        if (i < count && patterns[i] >> 15 && kept > 0)
            out[i] = -out[i];
    }
}

static uint64_t field_at(const uint8_t *p, int64_t first, int width)
{
    uint64_t v = 0;
    int k;
    for (k = 0; k < width; k++, first++)
        v |= (uint64_t)(p[first >> 3] >> (first & 7) & 1) << k;
    return v;
}

static double magnitude(const npf_type_row *t, uint64_t bits)
{
    const int places = t->bits - 1 - t->exponent, field = (int)(bits >> places), bias = (1 << (t->exponent - 1)) - 1;
    const int fraction = (int)(bits & ((UINT64_C(1) << places) - 1));
    if (!t->finite && field == (1 << t->exponent) - 1)
        return fraction ? (double)NAN : (double)INFINITY;
    if (t->finite && t->bits == 8 && bits == 127)
        return (double)NAN;
    return ldexp(fraction + (field ? 1 << places : 0), (field ? field : 1) - bias - places);
}

void npf_block_numbers(const uint8_t *bytes, uint32_t type, double *out)
{
    const npf_type_row *t = &NPF_TYPE[type];
    const int64_t ends = 8 + (t->pair ? t->block / t->pair : 0);
    int64_t i;
    for (i = 0; i < t->block; i++) {
        const uint64_t code = field_at(bytes, ends + i * t->bits, t->bits);
        const uint64_t size = code & ((UINT64_C(1) << (t->bits - 1)) - 1);
        const int minus = (int)(code >> (t->bits - 1));
        int exponent = (int)bytes[0] - 127;
        double value;
        if (t->pair)
            exponent -= (int)field_at(bytes, 8 + i / t->pair, 1);
        if (t->exponent)
            value = minus ? -magnitude(t, size) : magnitude(t, size);
        else if (t->magnitude)
            value = ldexp(minus ? -(double)size : (double)size, 2 - t->bits);
        else
            value = ldexp((double)size - (minus ? (double)(1 << (t->bits - 1)) : 0), 2 - t->bits);
        out[i] = bytes[0] == 255 ? (double)NAN : ldexp(value, exponent);
    }
}

/* ------------------------------------------------------------------ numbers of an application */

static uint64_t place_of(const npuflow_tensor *t, uint64_t i)
{
    uint64_t inner = 1;
    uint32_t d;
    if (t->scales <= 1)
        return 0;
    for (d = (uint32_t)t->axis + 1; d < t->rank; d++)
        inner *= (uint64_t)t->shape[d];
    return i / inner % t->scales;
}

static uint32_t type_of(const npuflow_tensor *t)
{
    static const uint32_t TYPES[] = {TYPE_int8, TYPE_uint8, TYPE_int16, TYPE_uint16, TYPE_int32, TYPE_uint32};
    return TYPES[t->type];
}

npuflow_status npuflow_quantize(const npuflow_tensor *t, const float *real, void *codes)
{
    const uint32_t type = type_of(t);
    uint64_t i;
    for (i = 0; i < t->elements; i++) {
        uint8_t *p = (uint8_t *)codes + i * NPF_TYPE[type].bytes;
        double v = real[i];
        uint64_t k;
        if (t->numbers == NPUFLOW_FLOAT16 || t->numbers == NPUFLOW_BFLOAT16) {
            npf_put(p, type, npf_pattern(v, t->numbers == NPUFLOW_FLOAT16 ? TYPE_float16 : TYPE_bfloat16));
            continue;
        }
        if (t->numbers == NPUFLOW_INTEGERS)
            return NPUFLOW_USAGE;
        k = place_of(t, i);
        v /= t->scale[k];
        v = v != v ? 0 : rint(v);
        v = v > 1099511627776.0 ? 1099511627776.0 : v < -1099511627776.0 ? -1099511627776.0 : v;
        npf_put(p, type, npf_clamped((int64_t)v + t->zero_point[k], t->least, t->most));
    }
    return NPUFLOW_OK;
}

npuflow_status npuflow_dequantize(const npuflow_tensor *t, const void *codes, float *real)
{
    const uint32_t type = type_of(t);
    uint64_t i;
    if (t->numbers == NPUFLOW_INTEGERS)
        return NPUFLOW_USAGE;
    for (i = 0; i < t->elements; i++) {
        const int64_t code = npf_get((const uint8_t *)codes + i * NPF_TYPE[type].bytes, type);
        const uint64_t k = place_of(t, i);
        if (t->numbers == NPUFLOW_CODES)
            real[i] = (float)((double)(code - t->zero_point[k]) * t->scale[k]);
        else
            real[i] = (float)npf_real((uint16_t)code, t->numbers == NPUFLOW_FLOAT16 ? TYPE_float16 : TYPE_bfloat16);
    }
    return NPUFLOW_OK;
}
