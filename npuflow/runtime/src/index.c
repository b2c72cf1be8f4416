/* Programs whose commands follow an index, as those of language models follow the position: commands at every
   turn, caches that stay in DATA, and several programs over one state. Where no command follows it, caches are
   states as all others, whole in every run. */

#include "internal.h"

#define MOST_TURNS (INT64_C(1) << 26)  /* of all commands, looked at when a file is opened */

/* ------------------------------------------------------------------ commands at every turn, at load */

typedef struct {
    npuflow_program *p;
    npf_visit visit;
    void *context;
    npuflow_error *error;
    int64_t left;
} walk;

/* One command, of which `count` words go on by the advances from `first` on, in all rounds of its block. */
static npuflow_status look_at(walk *k, uint32_t core, uint64_t first, uint64_t count, int32_t outer,
    uint32_t turn)
{
    const npf_core *c = &k->p->cores[core];
    const uint64_t command = c->advances[first].command;
    const int32_t inner = c->block_of[command];
    const uint32_t rounds = inner == outer ? 1 : c->blocks[inner].count;
    uint32_t words[NPF_WORDS], round;
    npuflow_status status = NPUFLOW_OK;
    uint64_t i;
    for (round = 0; round < rounds && status == NPUFLOW_OK; round++) {
        memcpy(words, c->words + command * NPF_WORDS, sizeof words);
        for (i = first; i < first + count; i++) {
            const npf_advance *a = &c->advances[i];
            words[a->word] += (a->block == outer ? turn : round) * a->step;
        }
        status = --k->left < 0
            ? npf_fail(k->error, NPUFLOW_COMMAND, "more than 2^26 commands at all indices")
            : k->visit(k->context, core, command, words);
    }
    if (status != NPUFLOW_OK && k->error) {
        k->error->core = (int)core;
        k->error->command = (long long)command;
    }
    return status;
}

npuflow_status npf_check_turns(npuflow_program *p, npf_visit visit, void *context, npuflow_error *error)
{
    walk k = {p, visit, context, error, MOST_TURNS};
    uint32_t core;
    for (core = 0; core < p->core_count; core++) {
        const npf_core *c = &p->cores[core];
        uint64_t first, end;
        for (first = 0; first < c->advance_count; first = end) {
            const int32_t inner = c->block_of[c->advances[first].command];
            const int32_t outer = c->blocks[inner].parent < 0 ? inner : c->blocks[inner].parent;
            const npf_block *b = &c->blocks[outer];
            const uint32_t *repeat = c->words + b->repeat * NPF_WORDS;
            uint32_t turn, last;
            end = first;
            while (end < c->advance_count && c->advances[end].command == c->advances[first].command)
                end++;
            if (!b->turns)
                continue;
            last = npf_turn(repeat, b->turns - 1, b->reading < 0 ? p->index_most : p->lengths[b->reading].most);
            for (turn = npf_turn(repeat, b->turns - 1, 0); turn <= last; turn++) {
                const npuflow_status status = look_at(&k, core, first, end - first, outer, turn);
                if (status != NPUFLOW_OK)
                    return status;
            }
        }
    }
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ caches */

static uint8_t *row_at(const npuflow_program *p, const npf_cache *c, uint64_t outer, uint64_t row)
{
    return p->memory.data + c->address + (outer * c->rows + row) * c->row_bytes;
}

/* Rows that no run has written hold the codes of 0: they are read beside those that count. */
static void clear_rows(npuflow_program *p, uint64_t from, uint64_t to)
{
    uint32_t i;
    for (i = 0; from < to && i < p->cache_count; i++) {
        const npf_cache *c = &p->caches[i];
        const npuflow_tensor *t = &p->inputs[c->input];
        const uint64_t each = c->row_bytes / (t->bytes / t->elements);
        uint64_t outer;
        for (outer = 0; outer < c->outer; outer++)
            npf_write_zeros(t, p->memory.data + c->address, (outer * c->rows + from) * each,
                (to - from) * each);
    }
}

/* Rows before the position that another program has made. */
static void take_rows(npuflow_program *p, uint32_t position)
{
    const npuflow_program *from = p->shared->latest;
    uint32_t i;
    if (from && from != p && p->held < position)
        for (i = 0; i < p->cache_count; i++) {
            const npf_cache *c = &p->caches[i];
            const size_t bytes = (size_t)((position - p->held) * c->row_bytes);
            uint64_t outer;
            for (outer = 0; outer < c->outer; outer++)
                memcpy(row_at(p, c, outer, p->held), row_at(from, &from->caches[i], outer, p->held), bytes);
        }
    if (p->held < position)
        p->held = position;
}

/* ------------------------------------------------------------------ a run */

/* Where a run may begin behind so many rows: what its queries attend to lies in the rings. */
static int32_t earliest(const npuflow_program *p, int32_t count)
{
    int32_t found = 0;
    uint32_t i;
    for (i = 0; i < p->ring_count; i++)
        if (count > (int32_t)p->rings[i].rows && found < count - (int32_t)p->rings[i].back)
            found = count - (int32_t)p->rings[i].back;
    return found;
}

npuflow_status npf_begin_at(npuflow_program *p, npuflow_error *error)
{
    const int32_t position = p->shared->position;
    uint32_t i;
    uint64_t k;
    if (p->index_input < 0)
        return NPUFLOW_OK;
    if (position < 0 || (uint32_t)position > p->index_most)
        return npf_fail(error, NPUFLOW_FULL, "behind the position the caches have no room for a run");
    if (position && position < p->shared->earliest)
        return npf_fail(error, NPUFLOW_FULL, "rings of layers with windows do not hold the rows before the position");
    take_rows(p, (uint32_t)position);
    for (i = p->length_count; i < p->length_count + p->index_count; i++) {
        const uint32_t ring = p->lengths[i].ring;
        p->steps[i] = ring ? (uint32_t)position % ring : (uint32_t)position;
        memcpy(p->memory.data + p->lengths[i].address, &p->steps[i], 4);
    }
    for (i = 0; i < p->place_count; i++) {
        const npuflow_tensor *t = &p->places[i].codes;
        const uint64_t bytes = t->bytes / t->elements;
        npuflow_tensor one = *t;
        one.elements = 1;
        for (k = 0; k < t->elements; k++) {
            const int64_t number = position + p->places[i].more[k];
            const float real = (float)number;
            uint8_t *to = p->memory.data + t->address + k * bytes;
            if (npuflow_quantize(&one, &real, to) != NPUFLOW_OK)
                memcpy(to, &number, (size_t)bytes);
        }
    }
    return NPUFLOW_OK;
}

void npf_end_at(npuflow_program *p, int done)
{
    npf_shared *s = p->shared;
    npuflow_program *one;
    uint32_t position;
    if (p->index_input < 0)
        return;
    position = (uint32_t)s->position;
    if (!done) {
        clear_rows(p, position, (uint64_t)position + p->index_new);
        p->held = position;
        return;
    }
    for (one = s->first; one; one = one->beside)
        if (one->held > position)
            one->held = position;
    p->held = position + p->index_new;
    s->latest = p;
    if (p->inputs[p->index_input].state >= 0) {
        const int32_t behind = earliest(p, s->position + (int32_t)p->index_new);
        if (!position || s->earliest < behind)
            s->earliest = behind;
        s->position += (int32_t)p->index_new;
    }
}

/* ------------------------------------------------------------------ one state of several programs */

static int same_tensor(const npuflow_tensor *a, const npuflow_tensor *b)
{
    return !strcmp(a->name, b->name) && a->rank == b->rank && a->bytes == b->bytes
        && !memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) && npf_same_codes(a, b);
}

static npuflow_status other_state(npuflow_error *error)
{
    return npf_fail(error, NPUFLOW_USAGE,
        "the program keeps another state than the one that it is opened beside");
}

npuflow_status npf_share(npuflow_program *p, npuflow_error *error)
{
    npuflow_program *of = p->options.state_of;
    uint32_t i, k, kept = 0, theirs = 0;
    if (!of) {
        p->shared = (npf_shared *)npf_take(p, sizeof *p->shared);
        if (!p->shared)
            return npf_fail(error, NPUFLOW_MEMORY, "no memory for the state");
        p->shared->first = p;
        return NPUFLOW_OK;
    }
    if (of->index_input >= 0 && p->index_input >= 0 && !of->cache_count != !p->cache_count)
        return npf_fail(error, NPUFLOW_USAGE,
            "one program follows the position, and the other reads all rows of its caches: "
            "build both with [program] index = false");
    if (strcmp(of->target, p->target) || of->cache_count != p->cache_count
        || (of->index_input < 0) != (p->index_input < 0))
        return other_state(error);
    for (i = 0; i < of->input_count; i++)
        theirs += of->inputs[i].state >= 0;
    for (i = 0; i < p->input_count; i++) {
        if (p->inputs[i].state < 0)
            continue;
        kept++;
        for (k = 0; k < of->input_count; k++)
            if (of->inputs[k].state >= 0 && same_tensor(&of->inputs[k], &p->inputs[i]))
                break;
        if (k == of->input_count || !of->state[k] != !p->state[i])
            return other_state(error);
        p->state[i] = of->state[k];
    }
    for (i = 0; i < p->cache_count; i++)
        if (!same_tensor(&p->inputs[p->caches[i].input], &of->inputs[of->caches[i].input])
            || p->caches[i].outer != of->caches[i].outer || p->caches[i].rows != of->caches[i].rows)
            return other_state(error);
    if (kept != theirs)
        return other_state(error);
    p->shared = of->shared;
    return NPUFLOW_OK;
}

void npf_join(npuflow_program *p)
{
    npuflow_program *last = p->shared->first;
    uint32_t i;
    if (last == p) {
        npuflow_reset(p);
        return;
    }
    while (last->beside)
        last = last->beside;
    last->beside = p;
    for (i = 0; i < p->cache_count; i++)
        npf_write_zeros(&p->inputs[p->caches[i].input], p->memory.data + p->caches[i].address, 0,
            p->inputs[p->caches[i].input].elements);
}

void npf_leave(npuflow_program *p)
{
    npf_shared *s = p->shared;
    npuflow_program *one;
    if (!s || s->first == p)
        return;
    for (one = s->first; one && one->beside != p; one = one->beside)
        ;
    if (!one)
        return;
    one->beside = p->beside;
    if (s->latest == p) {
        take_rows(s->first, s->position > 0 ? (uint32_t)s->position : 0);
        s->latest = s->first;
    }
}

void npuflow_reset(npuflow_program *p)
{
    npuflow_program *one;
    uint32_t i;
    for (i = 0; i < p->input_count; i++)
        if (p->inputs[i].state >= 0 && p->state[i])
            npf_write_zeros(&p->inputs[i], p->state[i], 0, p->inputs[i].elements);
    for (one = p->shared->first; one; one = one->beside) {
        for (i = 0; i < one->cache_count; i++) {
            const npuflow_tensor *t = &one->inputs[one->caches[i].input];
            npf_write_zeros(t, one->memory.data + t->address, 0, t->elements);
        }
        one->held = 0;
    }
    p->shared->position = p->shared->earliest = 0;
    p->shared->latest = NULL;
}

/* ------------------------------------------------------------------ the position */

npuflow_status npuflow_position(const npuflow_program *p, npuflow_index *index)
{
    if (p->index_input < 0)
        return NPUFLOW_USAGE;
    index->name = p->inputs[p->index_input].name;
    index->position = (uint32_t)p->shared->position;
    index->most = p->index_most;
    index->added = p->index_new;
    return NPUFLOW_OK;
}

npuflow_status npuflow_trim(npuflow_program *p, uint32_t position)
{
    npuflow_program *one;
    if (p->index_input < 0 || p->shared->position < 0 || position > (uint32_t)p->shared->position)
        return NPUFLOW_USAGE;
    if (position && position < (uint32_t)p->shared->earliest)
        return NPUFLOW_FULL;
    for (one = p->shared->first; one; one = one->beside)
        if (one->held > position) {
            clear_rows(one, position, one->held);
            one->held = position;
        }
    p->shared->position = (int32_t)position;
    return NPUFLOW_OK;
}
