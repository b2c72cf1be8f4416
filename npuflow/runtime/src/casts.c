/* Parts of the host that only change the type of a number, which codes have no need of, or add constants to
   whole numbers, as those of a language model do to the position: Cast and Add nodes of ONNX. */

#include "internal.h"

typedef struct { const uint8_t *at, *end; } bytes;
typedef struct { uint32_t number; uint64_t value; bytes body; } field;

static uint64_t varint(bytes *b)
{
    uint64_t v = 0;
    int shift;
    for (shift = 0; b->at < b->end && shift < 64; shift += 7) {
        const uint8_t c = *b->at++;
        v |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return v;
    }
    b->end = b->at = NULL;
    return 0;
}

/* The next field of a message; 0 at its end. A field without length has no body. */
static int next(bytes *b, field *f)
{
    uint64_t key, size = 0;
    if (b->at >= b->end)
        return 0;
    key = varint(b);
    f->number = (uint32_t)(key >> 3);
    f->body.at = f->body.end = NULL;
    f->value = 0;
    switch (key & 7) {
    case 0: f->value = varint(b); return b->at != NULL;
    case 1: size = 8; break;
    case 2: size = varint(b); break;
    case 5: size = 4; break;
    default: return 0;
    }
    if (!b->at || size > (uint64_t)(b->end - b->at))
        return 0;
    if ((key & 7) == 2) {
        f->body.at = b->at;
        f->body.end = b->at + size;
    }
    b->at += size;
    return 1;
}

static int is(bytes b, const char *text)
{
    const size_t n = strlen(text);
    return (size_t)(b.end - b.at) == n && (!n || !memcmp(b.at, text, n));
}

static int same(bytes b, npf_json span)
{
    return b.end - b.at == span.end - span.at && !memcmp(b.at, span.at, (size_t)(b.end - b.at));
}

static int equal(bytes a, bytes b)
{
    return a.end - a.at == b.end - b.at && !memcmp(a.at, b.at, (size_t)(a.end - a.at));
}

enum { GRAPH = 7, NODE = 1, INITIALIZER = 5, INPUT = 1, OUTPUT = 2, OPERATOR = 4, DOMAIN = 7 };
enum { DATA_TYPE = 2, NAME = 8, RAW_DATA = 9, INT32 = 6, INT64 = 7 };
enum { MOST_NODES = 16 };              /* between an index and what is made of it */

typedef struct { bytes from[2], to; int inputs, cast, add; } node;

/* Whether it is a Cast, or an Add of two values. */
static int read_node(bytes body, node *n)
{
    field f;
    memset(n, 0, sizeof *n);
    while (next(&body, &f)) {
        if (f.number == INPUT && n->inputs++ < 2) n->from[n->inputs - 1] = f.body;
        else if (f.number == OUTPUT) n->to = f.body;
        else if (f.number == OPERATOR) n->cast = is(f.body, "Cast"), n->add = is(f.body, "Add");
        else if (f.number == DOMAIN && !is(f.body, "")) return 0;
    }
    if (!n->to.at || !n->from[0].at)
        return 0;
    return (n->cast && n->inputs == 1) || (n->add && n->inputs == 2 && n->from[1].at);
}

/* The next message of this number in a model's graph. */
static int next_in_graph(bytes *whole, bytes *graph, uint32_t number, bytes *found)
{
    field f;
    for (;;) {
        while (next(graph, &f))
            if (f.number == number && f.body.at) {
                *found = f.body;
                return 1;
            }
        do
            if (!next(whole, &f))
                return 0;
        while (f.number != GRAPH);
        *graph = f.body;
    }
}

static bytes all_of(const uint8_t *model, uint64_t size)
{
    bytes b;
    b.at = model, b.end = model + size;
    return b;
}

/* A constant of whole numbers: how many, and where they are, `width` bytes each; 0: it is none. */
static uint64_t constant(const uint8_t *model, uint64_t size, bytes name, bytes *raw, int *width)
{
    bytes whole = all_of(model, size), graph = {NULL, NULL}, body;
    while (next_in_graph(&whole, &graph, INITIALIZER, &body)) {
        bytes own = {NULL, NULL}, data = {NULL, NULL};
        uint64_t type = 0;
        field f;
        while (next(&body, &f)) {
            if (f.number == DATA_TYPE) type = f.value;
            else if (f.number == NAME) own = f.body;
            else if (f.number == RAW_DATA) data = f.body;
        }
        if (!own.at || !equal(own, name))
            continue;
        *width = type == INT32 ? 4 : 8;
        *raw = data;
        if ((type != INT32 && type != INT64) || (data.end - data.at) % *width)
            return 0;
        return (uint64_t)(data.end - data.at) / (uint64_t)*width;
    }
    return 0;
}

/* Which of an Add's operands is a constant of whole numbers, if one alone is; -1: neither, or both. */
static int constant_side(const uint8_t *model, uint64_t size, const node *n)
{
    bytes raw;
    int width, i, found = -1;
    for (i = 0; i < 2; i++)
        if (constant(model, size, n->from[i], &raw, &width)) {
            if (found >= 0)
                return -1;
            found = i;
        }
    return found;
}

int npf_only_casts(const uint8_t *model, uint64_t size)
{
    bytes whole = all_of(model, size), graph = {NULL, NULL}, body;
    int nodes = 0;
    node n;
    while (next_in_graph(&whole, &graph, NODE, &body)) {
        if (!read_node(body, &n) || (n.add && constant_side(model, size, &n) < 0))
            return 0;
        nodes++;
    }
    return nodes > 0;
}

/* A value that an Add has is no other value's codes: it counts twice. */
int npf_cast(const uint8_t *model, uint64_t size, npf_json given, int backwards, npf_json *found)
{
    bytes whole = all_of(model, size), graph = {NULL, NULL}, body;
    int matches = 0;
    node n;
    while (!given.bad && next_in_graph(&whole, &graph, NODE, &body)) {
        if (!read_node(body, &n))
            continue;
        if (n.add)
            matches += same(n.to, given) && backwards ? 2 : 0;
        if (n.add && !backwards)
            matches += same(n.from[0], given) || same(n.from[1], given) ? 2 : 0;
        if (n.cast && same(backwards ? n.to : n.from[0], given)) {
            const bytes other = backwards ? n.from[0] : n.to;
            *found = given;
            found->at = (const char *)other.at;
            found->end = (const char *)other.end;
            matches++;
        }
    }
    return matches;
}

/* ------------------------------------------------------------------ what is made of an index */

/* The node that makes a value, and the model that has it. */
static int maker(const npf_sections *s, bytes name, node *n, uint32_t *host)
{
    for (*host = 0; *host < NPF_MOST_HOSTS; ++*host) {
        bytes whole, graph = {NULL, NULL}, body;
        if (!s->host[*host])
            continue;
        whole = all_of(s->host[*host], s->host_bytes[*host]);
        while (next_in_graph(&whole, &graph, NODE, &body))
            if (read_node(body, n) && equal(n->to, name))
                return 1;
    }
    return 0;
}

static int64_t whole_number(const uint8_t *p, int width)
{
    const uint64_t low = npf_get32(p), high = width == 8 ? npf_get32(p + 4) : 0;
    return width == 8 ? (int64_t)(low | high << 32) : (int64_t)(int32_t)(uint32_t)low;
}

/* The node in front of a value, and how many numbers it adds: 0 of a Cast; these are `*raw`. `at`
   becomes what it reads. 0: there is none. */
static int before(const npf_sections *s, bytes *at, bytes *raw, int *width, uint64_t *count)
{
    uint32_t host;
    node one;
    int side;
    *count = 0;
    if (!maker(s, *at, &one, &host))
        return 0;
    *at = one.from[0];
    if (one.cast)
        return 1;
    side = constant_side(s->host[host], s->host_bytes[host], &one);
    if (side < 0)
        return 0;
    *count = constant(s->host[host], s->host_bytes[host], one.from[side], raw, width);
    *at = one.from[1 - side];
    return 1;
}

int npf_follows(const npf_sections *s, npf_json name, npf_json index)
{
    bytes at, raw;
    uint64_t count;
    int steps, width;
    at.at = (const uint8_t *)name.at, at.end = (const uint8_t *)name.end;
    if (name.bad || index.bad)
        return 0;
    for (steps = 0; steps < MOST_NODES && !same(at, index); steps++)
        if (!before(s, &at, &raw, &width, &count))
            return 0;
    return same(at, index);
}

uint64_t npf_sums(const npf_sections *s, npf_json name, npf_json index, int64_t *sums, uint64_t room)
{
    const int64_t most = INT64_C(1) << 31;
    uint64_t count = 1, n, k;
    bytes at, raw;
    int width;
    if (!room || !npf_follows(s, name, index))
        return 0;
    at.at = (const uint8_t *)name.at, at.end = (const uint8_t *)name.end;
    sums[0] = 0;
    while (!same(at, index)) {
        if (!before(s, &at, &raw, &width, &n))
            return 0;
        if (n > room || (n > 1 && count > 1 && n != count))
            return 0;
        for (; count < n; count++)
            sums[count] = sums[0];
        for (k = 0; n && k < count; k++) {
            const int64_t v = whole_number(raw.at + (n == 1 ? 0 : k) * (uint64_t)width, width);
            if (v > most || v < -most || (sums[k] += v) > most || sums[k] < -most)
                return 0;
        }
    }
    return count;
}
