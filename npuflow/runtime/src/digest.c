/* xxh3-128 with seed 0 and the default secret, from the public specification of xxHash. */

#include "internal.h"

#define P32_1 UINT64_C(0x9E3779B1)
#define P32_2 UINT64_C(0x85EBCA77)
#define P32_3 UINT64_C(0xC2B2AE3D)
#define P64_1 UINT64_C(0x9E3779B185EBCA87)
#define P64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P64_3 UINT64_C(0x165667B19E3779F9)
#define P64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define P64_5 UINT64_C(0x27D4EB2F165667C5)
#define MIX_1 UINT64_C(0x165667919E3779F9)
#define MIX_2 UINT64_C(0x9FB21C651E98DF25)

static const uint8_t SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e
};

typedef struct { uint64_t low, high; } pair;

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)npf_get32(p) | (uint64_t)npf_get32(p + 4) << 32;
}

static void put64(uint8_t *p, uint64_t v)
{
    int i;
    for (i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (56 - 8 * i));
}

static pair product(uint64_t a, uint64_t b)
{
    const uint64_t al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
    const uint64_t ll = al * bl, lh = al * bh, hl = ah * bl;
    const uint64_t middle = (ll >> 32) + (lh & 0xffffffffu) + (hl & 0xffffffffu);
    pair p;
    p.low = (ll & 0xffffffffu) | middle << 32;
    p.high = ah * bh + (lh >> 32) + (hl >> 32) + (middle >> 32);
    return p;
}

static uint64_t folded(uint64_t a, uint64_t b)
{
    const pair p = product(a, b);
    return p.low ^ p.high;
}

static uint64_t avalanche(uint64_t x)
{
    x ^= x >> 37;
    x *= MIX_1;
    return x ^ x >> 32;
}

static uint64_t avalanche64(uint64_t x)
{
    x ^= x >> 33;
    x *= P64_2;
    x ^= x >> 29;
    x *= P64_3;
    return x ^ x >> 32;
}

static uint64_t swapped(uint64_t v, int bytes)
{
    uint64_t found = 0;
    int i;
    for (i = 0; i < bytes; i++)
        found |= (v >> 8 * i & 0xff) << 8 * (bytes - 1 - i);
    return found;
}

static pair up_to_16(const uint8_t *p, size_t n)
{
    pair h;
    if (n == 0) {
        h.low = avalanche64(get64(SECRET + 64) ^ get64(SECRET + 72));
        h.high = avalanche64(get64(SECRET + 80) ^ get64(SECRET + 88));
    } else if (n <= 3) {
        const uint32_t all = (uint32_t)p[n - 1] | (uint32_t)n << 8 | (uint32_t)p[0] << 16
            | (uint32_t)p[n >> 1] << 24;
        const uint32_t back = (uint32_t)swapped(all, 4), turned = back << 13 | back >> 19;
        h.low = avalanche64((uint64_t)(npf_get32(SECRET) ^ npf_get32(SECRET + 4)) ^ all);
        h.high = avalanche64((uint64_t)(npf_get32(SECRET + 8) ^ npf_get32(SECRET + 12)) ^ turned);
    } else if (n <= 8) {
        const uint64_t all = npf_get32(p) | (uint64_t)npf_get32(p + n - 4) << 32;
        h = product((get64(SECRET + 16) ^ get64(SECRET + 24)) ^ all, P64_1 + (n << 2));
        h.high += h.low << 1;
        h.low ^= h.high >> 3;
        h.low ^= h.low >> 35;
        h.low *= MIX_2;
        h.low ^= h.low >> 28;
        h.high = avalanche(h.high);
    } else {
        const uint64_t first = get64(p), last = get64(p + n - 8);
        const uint64_t a = get64(SECRET + 32) ^ get64(SECRET + 40) ^ first ^ last;
        const uint64_t b = get64(SECRET + 48) ^ get64(SECRET + 56) ^ last;
        pair m = product(a, P64_1);
        m.low += (uint64_t)(n - 1) << 54;
        m.high += b + (b & 0xffffffffu) * (P32_2 - 1);
        m.low ^= swapped(m.high, 8);
        h = product(m.low, P64_2);
        h.high += m.high * P64_2;
        h.low = avalanche(h.low);
        h.high = avalanche(h.high);
    }
    return h;
}

static uint64_t mixed(const uint8_t *p, size_t at)
{
    return folded(get64(p) ^ get64(SECRET + at), get64(p + 8) ^ get64(SECRET + at + 8));
}

static void two(pair *h, const uint8_t *a, const uint8_t *b, size_t at)
{
    h->low += mixed(a, at);
    h->high += mixed(b, at + 16);
    h->low ^= get64(b) + get64(b + 8);
    h->high ^= get64(a) + get64(a + 8);
}

static pair up_to_240(const uint8_t *p, size_t n)
{
    pair h, out;
    size_t i;
    h.low = n * P64_1;
    h.high = 0;
    if (n <= 128) {
        for (i = ((n - 1) >> 5) + 1; i-- > 0;)
            two(&h, p + i * 16, p + n - i * 16 - 16, i * 32);
    } else {
        for (i = 0; i < 4; i++)
            two(&h, p + i * 32, p + i * 32 + 16, i * 32);
        h.low = avalanche(h.low);
        h.high = avalanche(h.high);
        for (i = 4; i < n >> 5; i++)
            two(&h, p + i * 32, p + i * 32 + 16, (i - 4) * 32 + 3);
        two(&h, p + n - 16, p + n - 32, 103);
    }
    out.low = avalanche(h.low + h.high);
    out.high = 0 - avalanche(h.low * P64_1 + h.high * P64_4 + n * P64_2);
    return out;
}

static void stripe(uint64_t *acc, const uint8_t *p, size_t at)
{
    int i;
    for (i = 0; i < 8; i++) {
        const uint64_t lane = get64(p + 8 * i), v = lane ^ get64(SECRET + at + 8 * i);
        acc[i ^ 1] += lane;
        acc[i] += (v & 0xffffffffu) * (v >> 32);
    }
}

static uint64_t merged(const uint64_t *acc, uint64_t start, size_t at)
{
    int i;
    for (i = 0; i < 4; i++)
        start += folded(acc[2 * i] ^ get64(SECRET + at + 16 * i), acc[2 * i + 1] ^ get64(SECRET + at + 16 * i + 8));
    return avalanche(start);
}

static pair longer(const uint8_t *p, size_t n)
{
    uint64_t acc[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    const size_t blocks = (n - 1) / 1024, rest = n - blocks * 1024;
    size_t b, s;
    int i;
    pair h;
    for (b = 0; b < blocks; b++) {
        for (s = 0; s < 16; s++)
            stripe(acc, p + b * 1024 + s * 64, s * 8);
        for (i = 0; i < 8; i++)
            acc[i] = (acc[i] ^ acc[i] >> 47 ^ get64(SECRET + 128 + 8 * i)) * P32_1;
    }
    for (s = 0; s < (rest - 1) / 64; s++)
        stripe(acc, p + blocks * 1024 + s * 64, s * 8);
    stripe(acc, p + n - 64, 192 - 71);
    h.low = merged(acc, n * P64_1, 11);
    h.high = merged(acc, ~(n * P64_2), 192 - 75);
    return h;
}

void npuflow_digest(const void *bytes, size_t size, uint8_t digest[16])
{
    const uint8_t *p = (const uint8_t *)bytes;
    const pair h = size <= 16 ? up_to_16(p, size) : size <= 240 ? up_to_240(p, size) : longer(p, size);
    put64(digest, h.high);
    put64(digest + 8, h.low);
}
