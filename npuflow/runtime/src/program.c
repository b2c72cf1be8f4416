/* Programs as an application sees them: opened, run on the reference device or a driver's, closed. */

#include <stdlib.h>

#include "kernels.h"

npuflow_status npf_fail(npuflow_error *error, npuflow_status status, const char *text)
{
    if (error) {
        size_t i;
        error->status = status;
        for (i = 0; text[i] && i + 1 < sizeof error->text; i++)
            error->text[i] = text[i];
        error->text[i] = '\0';
    }
    return status;
}

/* ------------------------------------------------------------------ memory */

typedef struct block { struct block *next; } block;

static void *from_heap(void *context, size_t bytes)
{
    (void)context;
    return calloc(1, bytes);
}

static void to_heap(void *context, void *memory)
{
    (void)context;
    free(memory);
}

void *npf_take(npuflow_program *p, uint64_t bytes)
{
    const uint64_t whole = bytes + sizeof(block) + 64;
    block *b;
    if (whole > SIZE_MAX || whole > 4 * NPF_MOST_BYTES)
        return NULL;
    b = (block *)p->options.allocate(p->options.context, (size_t)whole);
    if (!b)
        return NULL;
    b->next = (block *)p->blocks;
    p->blocks = b;
    p->taken += (size_t)whole;
    return (void *)(((uintptr_t)(b + 1) + 63) & ~(uintptr_t)63);
}

void npuflow_close(npuflow_program *p)
{
    void (*release)(void *, void *);
    void *context;
    block *b;
    if (!p)
        return;
    npf_leave(p);
    release = p->options.release;
    context = p->options.context;
    b = (block *)p->blocks;
    while (b) {
        block *next = b->next;
        release(context, b);
        b = next;
    }
    release(context, p);
}

/* ------------------------------------------------------------------ the reference device */

npuflow_status npf_execute(const uint32_t *w, uint32_t core, npf_memory *memory, npuflow_error *error)
{
    const npf_call c = {w, core, memory, error};
    switch (npf_opcode(w)) {
    case OP_BARRIER: return NPUFLOW_OK;
    case OP_LOAD: case OP_STORE: case OP_COPY: case OP_FILL: case OP_REQUANT: case OP_REDUCE: case OP_ADD: case OP_MUL:
    case OP_DIV: case OP_MINMAX: case OP_PRELU: case OP_RESCALE: case OP_ABSDIFFERENCE: return npf_vectors(&c);
    case OP_CONV: case OP_MATMUL: case OP_SCALEDCONV: case OP_SCALEDMATMUL: case OP_GROUPMATMUL:
        return npf_integer_products(&c);
    case OP_MAXPOOL: case OP_AVGPOOL: case OP_RESIZE: return npf_windows(&c);
    case OP_LUT: case OP_SOFTMAX: case OP_GATHER: case OP_LOADROWS: case OP_TOPK: case OP_FTOPK:
        return npf_selections(&c);
    case OP_FCONV: case OP_FMATMUL: case OP_FGROUPMATMUL: case OP_BCONV: case OP_BMATMUL: case OP_BPAIRS:
        return npf_float_products(&c);
    default: return npf_float_vectors(&c);
    }
}

typedef struct { npuflow_program *p; npuflow_error *error; uint64_t scratch; } running;

/* At load: every command of all rounds lies within its memories. */
static npuflow_status look(void *context, uint32_t core, uint64_t command, const uint32_t *w)
{
    running *r = (running *)context;
    npuflow_status status = npf_check_fields(w, core, r->error);
    uint64_t scratch;
    (void)command;
    if (status == NPUFLOW_OK)
        status = npf_check_bounds(w, &r->p->memory, r->error);
    if (status != NPUFLOW_OK)
        return status;
    scratch = npf_scratch(w);
    r->scratch = scratch > r->scratch ? scratch : r->scratch;
    return NPUFLOW_OK;
}

static npuflow_status execute(void *context, uint32_t core, uint64_t command, const uint32_t *w)
{
    running *r = (running *)context;
    const npuflow_status status = look(context, core, command, w);
    if (status != NPUFLOW_OK)
        return status;
    if (r->scratch > r->p->memory.scratch_bytes)
        return npf_fail(r->error, NPUFLOW_COMMAND, "a command is larger than it was at load");
    return npf_execute(w, core, &r->p->memory, r->error);
}

/* ------------------------------------------------------------------ opening */

static npuflow_status check_all(npuflow_program *p, npuflow_error *error)
{
    running r = {p, error, 0};
    npuflow_status status = NPUFLOW_OK;
    uint32_t i;
    npf_order_begin(&p->order);
    for (i = 0; i < p->part_count && status == NPUFLOW_OK; i++)
        status = npf_order_part(&p->order, &p->parts[i], look, &r, error);
    if (status == NPUFLOW_OK && p->index_count)
        status = npf_check_turns(p, look, &r, error);
    p->memory.scratch_bytes = r.scratch;
    return status;
}

static npuflow_status map(npuflow_program *p, npuflow_space space, uint64_t size, void **host, npuflow_error *error)
{
    if (!p->driver.map) {
        *host = npf_take(p, size + 64);
        return *host ? NPUFLOW_OK : npf_fail(error, NPUFLOW_MEMORY, "no memory for DATA or CONST");
    }
    if (p->driver.map(p->driver.context, space, size, host) != NPUFLOW_OK || !*host)
        return npf_fail(error, NPUFLOW_DEVICE, "the driver mapped no memory");
    return NPUFLOW_OK;
}

static npuflow_status take_memories(npuflow_program *p, npuflow_error *error)
{
    npf_memory *m = &p->memory;
    npuflow_status status;
    void *host = NULL;
    uint32_t core;
    if (m->data_bytes + p->core_count * m->local_bytes > NPF_MOST_BYTES)
        return npf_fail(error, NPUFLOW_MEMORY, "memories of more than 16 GiB");
    if ((status = map(p, NPUFLOW_DATA, m->data_bytes, &host, error)) != NPUFLOW_OK)
        return status;
    m->data = (uint8_t *)host;
    if (p->own) {
        const npuflow_program *of = p->options.state_of;       /* one thread runs one of them at a time */
        const int lent = of && of->own && of->core_count == p->core_count
            && of->memory.local_bytes >= m->local_bytes;
        for (core = 0; core < p->core_count; core++)
            if (lent)
                m->local[core] = of->memory.local[core];
            else if (!(m->local[core] = (uint8_t *)npf_take(p, m->local_bytes + 64)))
                return npf_fail(error, NPUFLOW_MEMORY, "no memory for the device's own memories");
        m->scratch = (uint8_t *)npf_take(p, m->scratch_bytes + 64);
        return m->scratch ? NPUFLOW_OK : npf_fail(error, NPUFLOW_MEMORY, "no memory for the kernels");
    }
    if (p->driver.map) {
        if ((status = map(p, NPUFLOW_CONST, m->const_bytes, &host, error)) != NPUFLOW_OK)
            return status;
        if (m->const_bytes)
            memcpy(host, m->constants, (size_t)m->const_bytes);
        m->constants = (const uint8_t *)host;
    }
    return NPUFLOW_OK;
}

static npuflow_status opened(npuflow_program *p, const void *file, size_t size, npuflow_error *error)
{
    static const uint16_t ONE = 1;
    npf_sections sections;
    npuflow_status status;
    if (*(const uint8_t *)&ONE != 1)
        return npf_fail(error, NPUFLOW_USAGE, "programs are little endian, and so must the host be");
    status = npf_find_sections((const uint8_t *)file, size, p->options.network, p->target, &sections, error);
    if (status == NPUFLOW_OK)
        status = npf_check_seal(p, (const uint8_t *)file, error);
    if (status == NPUFLOW_OK && p->driver.target && strcmp(p->driver.target, p->target))
        return npf_fail(error, NPUFLOW_TARGET, "the program was compiled for another target than the driver's");
    if (status == NPUFLOW_OK)
        status = npf_metadata(p, &sections, error);
    if (status == NPUFLOW_OK)
        status = check_all(p, error);
    if (status == NPUFLOW_OK)
        status = npf_share(p, error);
    if (status == NPUFLOW_OK)
        status = take_memories(p, error);
    if (status == NPUFLOW_OK)
        npf_join(p);
    return status;
}

npuflow_status npuflow_open(const void *file, size_t size, const npuflow_options *options,
    npuflow_program **program, npuflow_error *error)
{
    npuflow_options own;
    npuflow_program *p;
    npuflow_status status;
    memset(&own, 0, sizeof own);
    if (options)
        own = *options;
    if (error) {
        memset(error, 0, sizeof *error);
        error->core = -1;
    }
    if (!program)
        return npf_fail(error, NPUFLOW_USAGE, "no place for the program");
    *program = NULL;
    if (!file || (uintptr_t)file % 8 || (own.allocate && !own.release)
        || (own.driver && (!own.driver->submit || !own.driver->wait))
        || (own.key_count && (!own.keys || !own.crypto || !own.crypto->sha512 || !own.crypto->ed25519)))
        return npf_fail(error, NPUFLOW_USAGE, "a file that is not aligned, or callbacks that are missing");
    if (!own.allocate) {
        own.allocate = from_heap;
        own.release = to_heap;
    }
    p = (npuflow_program *)own.allocate(own.context, sizeof *p);
    if (!p)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for the program");
    memset(p, 0, sizeof *p);
    p->options = own;
    p->own = !own.driver;
    p->taken = sizeof *p;
    if (own.driver)
        p->driver = *own.driver;
    status = opened(p, file, size, error);
    if (status != NPUFLOW_OK) {
        npuflow_close(p);
        return status;
    }
    if (error)
        error->core = -1;
    *program = p;
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ running */

void npf_write_zeros(const npuflow_tensor *t, uint8_t *to, uint64_t first, uint64_t count)
{
    static const float zero = 0;
    const uint64_t each = t->elements ? t->bytes / t->elements : 1;
    uint64_t i, inner = 1, d;
    if (!count)
        return;
    if (t->numbers != NPUFLOW_CODES || t->scales == 1) {
        npuflow_tensor one = *t;
        one.elements = one.rank = 1;
        npuflow_quantize(&one, &zero, to + first * each);
        for (i = first + 1; i < first + count; i++)
            memcpy(to + i * each, to + first * each, (size_t)each);
        return;
    }
    for (d = (uint64_t)t->axis + 1; d < t->rank; d++)
        inner *= (uint64_t)t->shape[d];
    for (i = first; i < first + count; i++) {
        const int64_t v = npf_clamped(t->zero_point[i / inner % t->scales], t->least, t->most);
        memcpy(to + i * each, &v, (size_t)each);
    }
}

npuflow_status npuflow_steps(npuflow_program *p, uint32_t input, uint32_t steps)
{
    uint32_t i;
    for (i = 0; i < p->length_count; i++)
        if (p->lengths[i].input == input) {
            if (steps < p->lengths[i].least || steps > p->lengths[i].most)
                return NPUFLOW_USAGE;
            p->steps[i] = steps;
            return NPUFLOW_OK;
        }
    return NPUFLOW_USAGE;
}

uint32_t npuflow_output_steps(const npuflow_program *p, uint32_t output)
{
    const npf_output_steps *one = p->output_steps && output < p->output_count ? &p->output_steps[output] : NULL;
    int64_t steps;
    if (!one || !one->stride)
        return 0;
    steps = (int64_t)p->steps[one->length] + one->more;
    return steps > 0 ? (uint32_t)(steps / one->stride) : 0;
}

int npf_same_codes(const npuflow_tensor *a, const npuflow_tensor *b)
{
    uint32_t i;
    if (a->type != b->type || a->numbers != b->numbers || a->scales != b->scales || a->axis != b->axis
        || a->least != b->least || a->most != b->most)
        return 0;
    for (i = 0; i < a->scales; i++)
        if (a->scale[i] != b->scale[i] || a->zero_point[i] != b->zero_point[i])
            return 0;
    return 1;
}

/* What the next run begins with; codes of other scales go through real numbers, one by one. */
static void keep_state(npuflow_program *p)
{
    uint32_t i;
    for (i = 0; i < p->input_count; i++) {
        const npuflow_tensor *to = &p->inputs[i], *from;
        if (to->state < 0 || !p->state[i])
            continue;
        from = &p->outputs[to->state];
        if (npf_same_codes(from, to))
            memcpy(p->state[i], p->memory.data + from->address, (size_t)to->bytes);
        else {
            npuflow_tensor a = *from, b = *to;
            const uint64_t n = to->elements;
            uint64_t k;
            a.elements = b.elements = 1;
            for (k = 0; k < n; k++) {
                float real;
                npuflow_dequantize(&a, p->memory.data + from->address + k * (from->bytes / n), &real);
                npuflow_quantize(&b, &real, p->state[i] + k * (to->bytes / n));
            }
        }
    }
}

/* A number of steps where commands read it, and as the input that it is. */
static void write_steps(npuflow_program *p, uint32_t i)
{
    const npuflow_tensor *t = &p->inputs[p->lengths[i].input];
    const float real = (float)p->steps[i];
    uint64_t k;
    memcpy(p->memory.data + p->lengths[i].address, &p->steps[i], 4);
    for (k = 0; k < t->elements; k++) {
        uint8_t *to = p->memory.data + t->address + k * (t->bytes / t->elements);
        npuflow_tensor one = *t;
        one.elements = 1;
        if (npuflow_quantize(&one, &real, to) != NPUFLOW_OK)
            memcpy(to, &p->steps[i], (size_t)(t->bytes / t->elements));
    }
}

npuflow_status npf_prepare(npuflow_program *p, npuflow_error *error)
{
    const npuflow_status status = npf_begin_at(p, error);
    uint32_t i;
    if (status != NPUFLOW_OK)
        return status;
    for (i = 0; i < p->cleared_count; i++)
        npf_write_zeros(&p->cleared[i], p->memory.data + p->cleared[i].address, 0, p->cleared[i].elements);
    for (i = 0; i < p->length_count; i++)
        write_steps(p, i);
    for (i = 0; i < p->input_count; i++)
        if (p->inputs[i].state >= 0 && p->state[i])
            memcpy(p->memory.data + p->inputs[i].address, p->state[i], (size_t)p->inputs[i].bytes);
    npf_choose_rounds(p);
    npf_order_begin(&p->order);
    return NPUFLOW_OK;
}

npuflow_status npuflow_run(npuflow_program *p, npuflow_error *error)
{
    running r = {p, error, 0};
    npuflow_status status;
    uint32_t i;
    if (error) {
        memset(error, 0, sizeof *error);
        error->core = -1;
    }
    status = npf_prepare(p, error);
    if (status != NPUFLOW_OK)
        return status;
    for (i = 0; i < p->part_count && status == NPUFLOW_OK; i++) {
        if (p->own)
            status = npf_order_part(&p->order, &p->parts[i], execute, &r, error);
        else if (p->driver.submit(p->driver.context, &p->parts[i]) != NPUFLOW_OK
            || p->driver.wait(p->driver.context) != NPUFLOW_OK)
            status = npf_fail(error, NPUFLOW_DEVICE, "the driver failed");
    }
    npf_end_at(p, status == NPUFLOW_OK);
    if (status == NPUFLOW_OK) {
        keep_state(p);
        if (error)
            error->core = -1;
    }
    return status;
}

/* ------------------------------------------------------------------ what is known of a program */

const npuflow_tensor *npuflow_inputs(const npuflow_program *p, uint32_t *count)
{
    *count = p->input_count;
    return p->inputs;
}

const npuflow_tensor *npuflow_outputs(const npuflow_program *p, uint32_t *count)
{
    *count = p->output_count;
    return p->outputs;
}

const char *npuflow_target(const npuflow_program *p) { return p->target; }

size_t npuflow_memory(const npuflow_program *p) { return p->taken; }

void *npuflow_at(const npuflow_program *p, const npuflow_tensor *tensor)
{
    if (tensor->address == NPUFLOW_NOWHERE)
        return &p->shared->position;
    return p->memory.data + tensor->address;
}

const char *npuflow_message(npuflow_status status)
{
    static const char *const TEXT[] = {
        "done", "an argument that cannot be", "no memory", "not an .npu file", "another format version",
        "a damaged file", "metadata of no program", "a command that cannot be", "an unknown opcode",
        "a command outside of its memory", "commands that wait for each other", "parts of the host",
        "which network of the file", "another target", "a fault of data", "the driver failed",
        "a file that is not sealed", "sealed with another key", "a seal that does not match",
        "the caches are full"
    };
    return (unsigned)status < sizeof TEXT / sizeof *TEXT ? TEXT[status] : "an unknown status";
}
