/* Numbers of 128 bits: products, rounding and quotients that 64 bits do not hold. */

#include "arithmetic.h"

npf_wide npf_times(npf_wide a, int64_t b)
{
    const int negative = (a.high < 0) != (b < 0);
    const uint64_t size = npf_size(b);
    npf_wide r = a.high < 0 ? npf_negative(a) : a;
    uint64_t limbs[4], carry = 0;
    int i;
    limbs[0] = r.low & 0xffffffffu, limbs[1] = r.low >> 32;
    limbs[2] = (uint64_t)r.high & 0xffffffffu, limbs[3] = (uint64_t)r.high >> 32;
    for (i = 0; i < 4; i++) {
        /* size may have 33 bits: its lower 32 bits, and once more the limb where the highest is set */
        const uint64_t part = limbs[i] * (size & 0xffffffffu) + (carry & 0xffffffffu);
        const uint64_t over = (carry >> 32) + (size >> 32) * limbs[i];
        limbs[i] = part & 0xffffffffu;
        carry = (part >> 32) + over;
    }
    r.low = limbs[0] | limbs[1] << 32;
    r.high = (int64_t)(limbs[2] | limbs[3] << 32);
    return negative ? npf_negative(r) : r;
}

static npf_wide shifted_up(npf_wide a, int n)
{
    npf_wide r = a;
    if (n >= 64) {
        r.high = (int64_t)(a.low << (n - 64));
        r.low = 0;
    } else if (n) {
        r.high = (int64_t)((uint64_t)a.high << n | a.low >> (64 - n));
        r.low = a.low << n;
    }
    return r;
}

int64_t npf_wide_rounded(npf_wide v, int n, int mode)
{
    const int negative = v.high < 0;
    int64_t floor;
    uint64_t rest = 0;
    if (n <= 0) {
        const npf_wide size = negative ? npf_negative(v) : v;
        if (size.high || size.low >> 40)
            return negative ? -NPF_FAR : NPF_FAR;
        floor = (int64_t)(size.low << -n);
        return npf_clamped(negative ? -floor : floor, -NPF_FAR, NPF_FAR);
    }
    rest = v.low & ((UINT64_C(1) << n) - 1);
    if (npf_shift_down(v.high, n) != 0 && npf_shift_down(v.high, n) != -1)
        return negative ? -NPF_FAR : NPF_FAR;
    floor = (int64_t)((uint64_t)v.high << (64 - n) | v.low >> n);
    if ((floor < 0) != negative || floor > NPF_FAR || floor < -NPF_FAR)
        return negative ? -NPF_FAR : NPF_FAR;
    return floor + npf_up_from(floor, rest, UINT64_C(1) << (n - 1), negative, mode);
}

static int below(npf_wide a, npf_wide b)
{
    return (uint64_t)a.high < (uint64_t)b.high || (a.high == b.high && a.low < b.low);
}

int64_t npf_quotient(npf_wide a, int64_t b, int n, int mode)
{
    npf_wide num = b < 0 ? npf_negative(a) : a, den, rest = {0, 0}, other;
    const int negative = num.high < 0, zero = !num.high && !num.low;
    uint64_t quotient = 0;
    int64_t floor;
    int i, up;
    if (!b)
        return zero ? 0 : negative ? -NPF_FAR : NPF_FAR;
    if (negative)
        num = npf_negative(num);
    if (n < 0)
        num = shifted_up(num, -n);
    den.low = npf_size(b);
    den.high = 0;
    den = shifted_up(den, n > 0 ? n : 0);
    for (i = 127; i >= 0; i--) {
        rest = shifted_up(rest, 1);
        rest.low |= (i >= 64 ? (uint64_t)num.high >> (i - 64) : num.low >> i) & 1;
        if (quotient >> 41)
            return negative ? -NPF_FAR : NPF_FAR;
        quotient <<= 1;
        if (!below(rest, den)) {
            rest = npf_sum(rest, npf_negative(den));
            quotient |= 1;
        }
    }
    if (quotient >> 40)
        return negative ? -NPF_FAR : NPF_FAR;
    floor = (int64_t)quotient;
    if (negative && (rest.low || rest.high)) {
        floor = -floor - 1;
        rest = npf_sum(den, npf_negative(rest));
    } else if (negative)
        floor = -floor;
    other = npf_sum(den, npf_negative(rest));
    if (mode == ROUND_TRUNCATE)
        up = negative && (rest.low || rest.high);
    else if (below(other, rest))
        up = 1;
    else if (below(rest, other))
        up = 0;
    else
        up = mode == ROUND_HALF_UP || (mode == ROUND_HALF_EVEN ? (int)(floor & 1) : !negative);
    return floor + up;
}
