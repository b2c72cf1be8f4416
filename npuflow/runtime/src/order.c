/* The order of commands: queues with waits, blocks that repeat, barriers and loads of several cores. */

#include "internal.h"

enum { AT_INDEX = 2 };                 /* `late` of a block that is issued once, at an index */

/* ------------------------------------------------------------------ a core's commands, at load */

static npuflow_status wrong(npuflow_error *error, uint32_t core, uint64_t command, const char *text)
{
    npf_fail(error, NPUFLOW_COMMAND, text);
    if (error) {
        error->core = (int)core;
        error->command = (long long)command;
    }
    return NPUFLOW_COMMAND;
}

/* Every REPEAT with its block; the first pass counts, the second one fills. */
static npuflow_status find_blocks(npf_core *c, uint32_t core, int fill, npuflow_error *error)
{
    int32_t stack[NPF_DEPTH];
    int depth = 0;
    uint64_t i;
    c->block_count = 0;
    for (i = 0; i < c->count;) {
        const uint32_t *w = c->words + i * NPF_WORDS;
        npf_block b;
        while (fill && depth && i >= c->blocks[stack[depth - 1]].end)
            depth--;
        if (npf_opcode(w) == OP_ADVANCE)
            return wrong(error, core, i, "an ADVANCE that no REPEAT announces");
        if (npf_opcode(w) != OP_REPEAT) {
            i++;
            continue;
        }
        memset(&b, 0, sizeof b);
        b.repeat = i;
        b.first = i + 1 + w[REPEAT_advances];
        b.end = b.first + w[REPEAT_length];
        b.count = w[REPEAT_count];
        b.parent = -1;
        b.reading = -1;
        if (b.count < 1 || w[REPEAT_length] < 1 || b.end > c->count)
            return wrong(error, core, i, "a REPEAT whose block is empty or ends behind the program");
        if (w[REPEAT_most] && (!w[REPEAT_each] || w[REPEAT_late] > AT_INDEX
            || w[REPEAT_least] > b.count - (w[REPEAT_late] == AT_INDEX)))
            return wrong(error, core, i, "a REPEAT whose rounds cannot be read");
        if (w[REPEAT_most] && w[REPEAT_late] == AT_INDEX) {
            b.turns = b.count;
            b.skipped = b.turns - 1;
            b.count = 1;
        }
        if (fill) {
            uint64_t k;
            if (depth) {
                b.parent = stack[depth - 1];
                if (depth == NPF_DEPTH || b.end > c->blocks[b.parent].end)
                    return wrong(error, core, i, "blocks lie too deep in each other, or overlap");
                if (w[REPEAT_most])
                    return wrong(error, core, i, "a block in a block has a constant count");
            }
            for (k = i + 1; k < b.first; k++)
                if (npf_opcode(c->words + k * NPF_WORDS) != OP_ADVANCE)
                    return wrong(error, core, k, "a REPEAT announces an ADVANCE here");
            c->blocks[c->block_count] = b;
            stack[depth++] = (int32_t)c->block_count;
        }
        c->block_count++;
        i = b.first;
    }
    return NPUFLOW_OK;
}

static npuflow_status find_advances(npf_core *c, uint32_t core, int fill, npuflow_error *error)
{
    uint32_t b;
    uint64_t k;
    int e;
    c->advance_count = 0;
    for (b = 0; b < c->block_count; b++)
        for (k = c->blocks[b].repeat + 1; k < c->blocks[b].first; k++) {
            const uint32_t *w = c->words + k * NPF_WORDS;
            for (e = 0; e < ADVANCE_words - ADVANCE_commands; e++) {
                const uint32_t command = w[ADVANCE_commands + e], word = w[ADVANCE_words + e];
                const uint32_t step = w[ADVANCE_steps + e];
                const uint64_t at = c->blocks[b].first + command;
                if (!step)
                    continue;
                if (at >= c->blocks[b].end || word < NPF_HEADER_WORDS || word >= NPF_WORDS)
                    return wrong(error, core, k, "an ADVANCE of no field of its block");
                if (npf_opcode(c->words + at * NPF_WORDS) >= OP_REPEAT)
                    return wrong(error, core, k, "an ADVANCE of a REPEAT or an ADVANCE");
                if (c->blocks[b].turns && (npf_opcode(c->words + at * NPF_WORDS) == OP_BARRIER
                    || (npf_opcode(c->words + at * NPF_WORDS) == OP_LOAD && word == LOAD_mask)))
                    return wrong(error, core, k, "which cores meet does not depend on an index");
                if (fill) {
                    npf_advance *a = &c->advances[c->advance_count];
                    a->command = (uint32_t)at, a->word = word, a->step = step, a->block = (int32_t)b;
                }
                c->advance_count++;
            }
        }
    return NPUFLOW_OK;
}

/* Shell sort by command: entries of one command stay together, in any order. */
static void sort_advances(npf_core *c)
{
    uint64_t gap, i, j;
    for (gap = c->advance_count / 2; gap; gap /= 2)
        for (i = gap; i < c->advance_count; i++) {
            const npf_advance one = c->advances[i];
            for (j = i; j >= gap && c->advances[j - gap].command > one.command; j -= gap)
                c->advances[j] = c->advances[j - gap];
            c->advances[j] = one;
        }
}

/* Commands of a round by queue, those of inner blocks in all their rounds; inner blocks come behind outer. */
static npuflow_status count_rounds(npf_core *c, uint32_t core, npuflow_error *error)
{
    uint32_t b, q;
    uint64_t i;
    for (b = c->block_count; b-- > 0;) {
        npf_block *one = &c->blocks[b];
        for (i = one->first; i < one->end; i++)
            if (c->block_of[i] == (int32_t)b && npf_opcode(c->words + i * NPF_WORDS) < OP_REPEAT)
                one->each[npf_queue(c->words + i * NPF_WORDS) % NPF_QUEUES]++, one->length++;
        for (i = b + 1; i < c->block_count && c->blocks[i].repeat < one->end; i++)
            if (c->blocks[i].parent == (int32_t)b) {
                for (q = 0; q < NPF_QUEUES; q++)
                    one->each[q] += c->blocks[i].each[q] * c->blocks[i].count;
                one->length += c->blocks[i].length * c->blocks[i].count;
            }
        if (one->length * one->count > NPF_MOST_COMMANDS)
            return wrong(error, core, one->repeat, "more than 2^22 commands of all rounds");
        one->rounds = one->count;
    }
    return NPUFLOW_OK;
}

/* LOAD, STORE, TENSOR or VECTOR: the queues of a core in the order of waits. */
static uint32_t npf_kind(uint32_t queue, uint32_t count)
{
    return queue >= count - 2 ? queue - count + 4 : queue >= (count - 2) / 2;
}

static npuflow_status build(npuflow_program *p, uint32_t core, npuflow_error *error)
{
    npf_core *c = &p->cores[core];
    uint64_t i, fill[NPF_QUEUES] = {0};
    uint32_t b, q, open[NPF_DEPTH], depth = 0;
    npuflow_status status;
    for (i = 0; i < c->count; i++) {
        status = npf_check_fields(c->words + i * NPF_WORDS, core, error);
        if (status != NPUFLOW_OK) {
            if (error) {
                error->core = (int)core;
                error->command = (long long)i;
            }
            return status;
        }
        q = npf_queue(c->words + i * NPF_WORDS);
        if (npf_opcode(c->words + i * NPF_WORDS) >= OP_REPEAT)
            continue;
        if (q >= p->queue_count)
            return wrong(error, core, i, "a queue that the target has not");
        if (NPF_OPCODE[npf_opcode(c->words + i * NPF_WORDS)].queue < 4
            && NPF_OPCODE[npf_opcode(c->words + i * NPF_WORDS)].queue != npf_kind(q, p->queue_count))
            return wrong(error, core, i, "a command in a queue of another kind");
        for (b = p->queue_count; b < NPF_QUEUES; b++)
            if (npf_wait(c->words + i * NPF_WORDS, b))
                return wrong(error, core, i, "it waits for a queue that the target has not");
        c->queued_count[q]++;
    }
    if ((status = find_blocks(c, core, 0, error)) != NPUFLOW_OK)
        return status;
    if (c->block_count) {
        c->blocks = (npf_block *)npf_take(p, c->block_count * sizeof *c->blocks);
        c->block_of = (int32_t *)npf_take(p, c->count * sizeof *c->block_of);
        if (!c->blocks || !c->block_of)
            return npf_fail(error, NPUFLOW_MEMORY, "no memory for the blocks of commands");
        if ((status = find_blocks(c, core, 1, error)) != NPUFLOW_OK)
            return status;
        memset(c->block_of, 0xff, c->count * sizeof *c->block_of);
        for (b = 0; b < c->block_count; b++)
            for (i = c->blocks[b].first; i < c->blocks[b].end; i++)
                c->block_of[i] = (int32_t)b;
        if ((status = find_advances(c, core, 0, error)) != NPUFLOW_OK)
            return status;
        c->advances = (npf_advance *)npf_take(p, (c->advance_count + 1) * sizeof *c->advances);
        if (!c->advances)
            return npf_fail(error, NPUFLOW_MEMORY, "no memory for the blocks of commands");
        find_advances(c, core, 1, error);
        sort_advances(c);
        if ((status = count_rounds(c, core, error)) != NPUFLOW_OK)
            return status;
    }
    for (q = 0; q < NPF_QUEUES; q++) {
        c->queued[q] = (uint64_t *)npf_take(p, (c->queued_count[q] + 1) * sizeof **c->queued);
        if (!c->queued[q])
            return npf_fail(error, NPUFLOW_MEMORY, "no memory for the queues");
    }
    for (b = 0, i = 0; i < c->count; i++) {
        for (; depth && c->blocks[open[depth - 1]].end == i; depth--)
            memcpy(c->blocks[open[depth - 1]].high, fill, sizeof fill);
        if (b < c->block_count && c->blocks[b].first == i) {
            memcpy(c->blocks[b].low, fill, sizeof fill);
            open[depth++] = b++;
        }
        if (npf_opcode(c->words + i * NPF_WORDS) < OP_REPEAT) {
            q = npf_queue(c->words + i * NPF_WORDS);
            c->queued[q][fill[q]++] = i;
        }
    }
    while (depth--)
        memcpy(c->blocks[open[depth]].high, fill, sizeof fill);
    return NPUFLOW_OK;
}

npuflow_status npf_build_cores(npuflow_program *p, npuflow_error *error)
{
    uint32_t core;
    npuflow_status status;
    for (core = 0; core < p->core_count; core++)
        if ((status = build(p, core, error)) != NPUFLOW_OK)
            return status;
    p->order.cores = p->cores;
    p->order.core_count = p->core_count;
    p->order.queue_count = p->queue_count;
    p->order.cursors = (npf_cursor *)npf_take(p, (uint64_t)p->core_count * p->queue_count * sizeof(npf_cursor));
    return p->order.cursors ? NPUFLOW_OK : npf_fail(error, NPUFLOW_MEMORY, "no memory for the queues");
}

uint32_t npf_turn(const uint32_t *repeat, uint32_t count, uint32_t steps)
{
    const int64_t more = (int64_t)steps - NPF_SIGNED(repeat[REPEAT_before]), each = repeat[REPEAT_each];
    int64_t rounds = more > 0 ? (more + each - 1) / each : -(-more / each);
    if (rounds < (int64_t)repeat[REPEAT_least])
        rounds = repeat[REPEAT_least];
    return rounds < (int64_t)count ? (uint32_t)rounds : count;
}

/* How many rounds every block that reads them has in the next run, and which one those at an index have. */
void npf_choose_rounds(npuflow_program *p)
{
    uint32_t core, b;
    for (core = 0; core < p->core_count; core++)
        for (b = 0; b < p->cores[core].block_count; b++) {
            npf_block *one = &p->cores[core].blocks[b];
            const uint32_t *w = p->cores[core].words + one->repeat * NPF_WORDS;
            if (one->reading < 0)
                continue;
            if (one->turns)
                one->skipped = npf_turn(w, one->turns - 1, p->steps[one->reading]);
            else {
                one->rounds = npf_turn(w, one->count, p->steps[one->reading]);
                one->skipped = w[REPEAT_late] ? one->count - one->rounds : 0;
            }
        }
}

/* ------------------------------------------------------------------ queues on their way */

void npf_order_begin(npf_order *order)
{
    uint32_t i;
    for (i = 0; i < order->core_count * order->queue_count; i++) {
        npf_cursor *c = &order->cursors[i];
        memset(c, 0, sizeof *c);
        c->core = &order->cores[i / order->queue_count];
        c->queue = i % order->queue_count;
        c->block[0] = c->block[1] = -1;
    }
}

/* Blocks that a cursor has come to; those without rounds are passed over. */
static void enter(npf_cursor *c)
{
    const npf_core *core = c->core;
    while (core->block_count && c->at < core->queued_count[c->queue]) {
        const int32_t inner = core->block_of[core->queued[c->queue][c->at]];
        const int32_t outer = inner < 0 ? -1 : core->blocks[inner].parent < 0 ? inner : core->blocks[inner].parent;
        if (outer >= 0 && c->block[0] < 0) {
            if (!core->blocks[outer].rounds) {
                c->at = core->blocks[outer].high[c->queue];
                continue;
            }
            c->block[0] = outer;
            c->round[0] = 0;
        }
        if (inner != outer && c->block[1] < 0) {
            c->block[1] = inner;
            c->round[1] = 0;
        }
        return;
    }
}

/* From one command of the queue to the next, round by round. */
static void step(npf_cursor *c)
{
    int level;
    c->at++;
    for (level = NPF_DEPTH - 1; level >= 0; level--) {
        const npf_block *b;
        if (c->block[level] < 0)
            continue;
        b = &c->core->blocks[c->block[level]];
        if (c->at < b->high[c->queue])
            break;
        if (++c->round[level] < b->rounds) {
            c->at = b->low[c->queue];
            break;
        }
        c->block[level] = -1;
    }
    c->ready = 0;
}

/* The counts that the next command waits for. A count of 0 is none; blocks add what their rounds have had. */
static void find_waits(npf_cursor *c, uint64_t command)
{
    const npf_core *core = c->core;
    const uint32_t *w = core->words + command * NPF_WORDS;
    uint32_t q, asked;
    int level;
    for (; c->passed < core->block_count && core->blocks[c->passed].repeat < command; c->passed++) {
        const npf_block *b = &core->blocks[c->passed];
        if (b->parent < 0 && b->end > command)
            break;
        for (q = 0; b->parent < 0 && q < NPF_QUEUES; q++)
            c->missing[q] += (b->count - b->rounds) * b->each[q];
    }
    c->wait_count = 0;
    for (q = 0; q < NPF_QUEUES; q++) {
        uint32_t n = npf_wait(w, q);
        n = n ? (n - c->missing[q]) & 0xffff : 0;
        for (level = 0, asked = n; level < NPF_DEPTH; level++)
            if (asked && c->block[level] >= 0)
                n = (n + c->round[level] * core->blocks[c->block[level]].each[q]) & 0xffff;
        c->waits[q] = n;
        if (n)
            c->wait_count = q + 1;
    }
    c->ready = 1;
}

/* The next command of a queue within a part; the end of the section: there is none. */
static uint64_t head(npf_cursor *c, uint64_t end)
{
    uint64_t command;
    if (!c->ready)
        enter(c);
    if (c->at >= c->core->queued_count[c->queue])
        return NPF_MOST_BYTES;
    command = c->core->queued[c->queue][c->at];
    if (command >= end)
        return NPF_MOST_BYTES;
    if (!c->ready)
        find_waits(c, command);
    return command;
}

static int waiting(const npf_order *order, const npf_cursor *c, uint32_t core)
{
    const npf_cursor *all = order->cursors + (uint64_t)core * order->queue_count;
    uint32_t q;
    for (q = 0; q < c->wait_count; q++) {
        const uint32_t ahead = (c->waits[q] - (q < order->queue_count ? all[q].retired : 0)) & 0xffff;
        if (ahead && ahead < 0x8000)
            return 1;
    }
    return 0;
}

/* The words of a command in this round: as the file has them, or, where some go on, in `own`. */
static const uint32_t *words_of(const npf_cursor *c, uint64_t command, uint32_t *own)
{
    const npf_core *core = c->core;
    const uint32_t *w = core->words + command * NPF_WORDS;
    uint64_t low = 0, high = core->advance_count;
    if (c->block[0] < 0)
        return w;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (core->advances[middle].command < command)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == core->advance_count || core->advances[low].command != command)
        return w;
    memcpy(own, w, NPF_WORDS * sizeof *w);
    for (; low < core->advance_count && core->advances[low].command == command; low++) {
        const npf_advance *a = &core->advances[low];
        const int level = a->block == c->block[0] ? 0 : 1;
        own[a->word] += (c->round[level] + core->blocks[a->block].skipped) * a->step;
    }
    return own;
}

/* ------------------------------------------------------------------ the order */

typedef struct {
    npf_order *order;
    const npuflow_part *part;
    npf_visit visit;
    void *context;
    npuflow_error *error;
} walk;

static npf_cursor *cursor(const walk *k, uint32_t core, uint32_t queue)
{
    return &k->order->cursors[(uint64_t)core * k->order->queue_count + queue];
}

static uint64_t end_of(const walk *k, uint32_t core)
{
    return k->part->first[core] + k->part->count[core];
}

static npuflow_status done(const walk *k, npf_cursor *c, uint32_t core, uint64_t command)
{
    uint32_t own[NPF_WORDS];
    const npuflow_status status = k->visit(k->context, core, command, words_of(c, command, own));
    if (status != NPUFLOW_OK) {
        if (k->error) {
            k->error->core = (int)core;
            k->error->command = (long long)command;
        }
        return status;
    }
    c->retired++;
    step(c);
    return NPUFLOW_OK;
}

/* Whether the head of a queue is a command of this opcode with this mask that nothing holds up. */
static int arrived(const walk *k, uint32_t core, uint32_t queue, const uint32_t *wanted, uint32_t *words)
{
    npf_cursor *c = cursor(k, core, queue);
    const uint64_t command = head(c, end_of(k, core));
    const uint32_t *w;
    if (command == NPF_MOST_BYTES)
        return 0;
    w = words_of(c, command, words);
    if (w != words)
        memcpy(words, w, NPF_WORDS * sizeof *w);
    if (npf_opcode(words) != npf_opcode(wanted))
        return 0;
    if (npf_opcode(words) == OP_BARRIER
        ? words[BARRIER_id] != wanted[BARRIER_id] || words[BARRIER_mask] != wanted[BARRIER_mask]
        : words[LOAD_mask] != wanted[LOAD_mask])
        return 0;
    return !waiting(k->order, c, core);
}

/* A barrier or a load of several cores: 1 when all have arrived, and then it is done; 0: not yet; else a
   status, negative. */
static int together(const walk *k, uint32_t core, uint32_t queue, const uint32_t *w)
{
    const int barrier = npf_opcode(w) == OP_BARRIER;
    const uint32_t mask = barrier ? w[BARRIER_mask] : w[LOAD_mask];
    uint32_t at[NPUFLOW_MOST_CORES], other[NPF_WORDS], r, q;
    if ((k->order->core_count < 32 && mask >> k->order->core_count) || core > 31 || !(mask >> core & 1))
        return -(int)wrong(k->error, core, head(cursor(k, core, queue), end_of(k, core)),
            "a mask without its own core, or with cores that the program has not");
    for (r = 0; r < k->order->core_count && r < 32; r++) {
        int found = 0;
        if (!(mask >> r & 1))
            continue;
        for (q = 0; q < k->order->queue_count && !found; q++)
            if ((barrier || q == queue) && arrived(k, r, q, w, other)) {
                at[r] = q;
                found = 1;
            }
        if (!found)
            return 0;
        if (!barrier && (other[LOAD_space] != w[LOAD_space] || other[LOAD_external] != w[LOAD_external]
            || memcmp(other + LOAD_element, w + LOAD_element, 4 * (LOAD_local_strides - LOAD_element))))
            return -(int)wrong(k->error, r, head(cursor(k, r, at[r]), end_of(k, r)),
                "a load of several cores that reads other bytes than another core's");
    }
    for (r = 0; r < k->order->core_count && r < 32; r++)
        if (mask >> r & 1) {
            npf_cursor *c = cursor(k, r, at[r]);
            const npuflow_status status = done(k, c, r, head(c, end_of(k, r)));
            if (status != NPUFLOW_OK)
                return -(int)status;
        }
    return 1;
}

/* As many commands of a queue as can run now; what has been done, or a status, negative. */
static int run_queue(const walk *k, uint32_t core, uint32_t queue)
{
    npf_cursor *c = cursor(k, core, queue);
    int moved = 0;
    for (;;) {
        uint32_t own[NPF_WORDS];
        const uint64_t command = head(c, end_of(k, core));
        const uint32_t *w;
        if (command == NPF_MOST_BYTES || waiting(k->order, c, core))
            return moved;
        w = words_of(c, command, own);
        if (npf_opcode(w) == OP_BARRIER || (npf_opcode(w) == OP_LOAD && w[LOAD_mask])) {
            const int found = together(k, core, queue, w);
            if (found <= 0)
                return found < 0 ? found : moved;
        } else {
            const npuflow_status status = done(k, c, core, command);
            if (status != NPUFLOW_OK)
                return -(int)status;
        }
        moved = 1;
    }
}

npuflow_status npf_order_part(npf_order *order, const npuflow_part *part, npf_visit visit, void *context,
    npuflow_error *error)
{
    const walk k = {order, part, visit, context, error};
    uint32_t core, queue;
    int moved = 1;
    while (moved) {
        moved = 0;
        for (core = 0; core < order->core_count; core++)
            for (queue = 0; queue < order->queue_count; queue++) {
                const int found = run_queue(&k, core, queue);
                if (found < 0)
                    return (npuflow_status)-found;
                moved |= found;
            }
    }
    for (core = 0; core < order->core_count; core++)
        for (queue = 0; queue < order->queue_count; queue++) {
            const uint64_t command = head(cursor(&k, core, queue), end_of(&k, core));
            if (command != NPF_MOST_BYTES) {
                wrong(error, core, command, "a command waits for what never happens");
                if (error)
                    error->status = NPUFLOW_DEADLOCK;
                return NPUFLOW_DEADLOCK;
            }
        }
    return NPUFLOW_OK;
}
