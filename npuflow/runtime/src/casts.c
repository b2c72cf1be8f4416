/* Parts of the host that only change the type of a number, which codes have no need of: Cast nodes of ONNX. */

#include "internal.h"

typedef struct { const uint8_t *at, *end; } bytes;
typedef struct { uint32_t number; bytes body; } field;

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
    switch (key & 7) {
    case 0: varint(b); return b->at != NULL;
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

enum { GRAPH = 7, NODE = 1, INPUT = 1, OUTPUT = 2, OPERATOR = 4, DOMAIN = 7 };

/* How many nodes there are, or 0 where one is no Cast. `given`: what a node reads, or with `backwards` makes;
   `found` becomes its other side. How many nodes have it. */
static int look(const uint8_t *model, uint64_t size, npf_json given, int backwards, npf_json *found, int *nodes)
{
    bytes whole, graph;
    field f, g, h;
    int matches = 0;
    *nodes = 0;
    whole.at = model, whole.end = model + size;
    while (next(&whole, &f)) {
        if (f.number != GRAPH)
            continue;
        graph = f.body;
        while (next(&graph, &g)) {
            bytes node = g.body, from = {NULL, NULL}, to = {NULL, NULL};
            int cast = 0;
            if (g.number != NODE)
                continue;
            while (next(&node, &h)) {
                if (h.number == INPUT) from = h.body;
                else if (h.number == OUTPUT) to = h.body;
                else if (h.number == OPERATOR) cast = is(h.body, "Cast");
                else if (h.number == DOMAIN && !is(h.body, "")) return *nodes = 0;
            }
            if (!cast || !from.at || !to.at)
                return *nodes = 0;
            ++*nodes;
            if (!given.bad && same(backwards ? to : from, given)) {
                const bytes other = backwards ? from : to;
                *found = given;
                found->at = (const char *)other.at;
                found->end = (const char *)other.end;
                matches++;
            }
        }
    }
    return matches;
}

int npf_only_casts(const uint8_t *model, uint64_t size)
{
    npf_json none = npf_json_of(model, 0), found;
    int nodes;
    none.bad = 1;
    look(model, size, none, 0, &found, &nodes);
    return nodes > 0;
}

int npf_cast(const uint8_t *model, uint64_t size, npf_json given, int backwards, npf_json *found)
{
    int nodes;
    return look(model, size, given, backwards, found, &nodes);
}
