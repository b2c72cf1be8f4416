/* What the metadata say of a program: inputs, outputs, parts, state, lengths, the index. */

#include "internal.h"

#define MOST_ITEMS 65536
#define MOST_NUMBER INT64_C(0x7FFFFFFF)

typedef struct {
    const npf_sections *sections;
    npf_json inputs, outputs, values, steps, lengths, indices, cleared, state, rings;
    npf_json index;                    /* the input that commands follow, or that counts without them */
    int64_t data_bytes, const_bytes, local_bytes, cores, channels;
} keys;

static npuflow_status wrong(npuflow_error *error, const char *text)
{
    return npf_fail(error, NPUFLOW_METADATA, text);
}

static void read_target(npf_json j, keys *k)
{
    npf_json_begin(&j, '{');
    while (npf_json_next(&j, '}')) {
        const npf_json table = npf_json_key(&j);
        npf_json in = npf_json_value(&j);
        npf_json_begin(&in, '{');
        while (npf_json_next(&in, '}')) {
            const npf_json key = npf_json_key(&in);
            if (npf_json_is(table, "compute") && npf_json_is(key, "cores"))
                k->cores = npf_json_whole(&in, NPUFLOW_MOST_CORES);
            else if (npf_json_is(table, "dma") && npf_json_is(key, "channels"))
                k->channels = npf_json_whole(&in, 7);
            else
                npf_json_value(&in);
        }
    }
}

static npuflow_status read_keys(npf_json j, keys *k, npuflow_error *error)
{
    npf_json empty = npf_json_of((const uint8_t *)"", 0);
    empty.bad = 1;
    memset(k, 0, sizeof *k);
    k->data_bytes = k->const_bytes = k->local_bytes = -1;
    k->inputs = k->outputs = k->values = k->steps = k->lengths = k->cleared = k->state = empty;
    k->indices = k->index = k->rings = empty;
    npf_json_begin(&j, '{');
    while (npf_json_next(&j, '}')) {
        const npf_json key = npf_json_key(&j);
        npf_json value = npf_json_value(&j), number = value;
        if (npf_json_is(key, "inputs")) k->inputs = value;
        else if (npf_json_is(key, "outputs")) k->outputs = value;
        else if (npf_json_is(key, "values")) k->values = value;
        else if (npf_json_is(key, "steps")) k->steps = value;
        else if (npf_json_is(key, "lengths")) k->lengths = value;
        else if (npf_json_is(key, "indices")) k->indices = value;
        else if (npf_json_is(key, "cleared")) k->cleared = value;
        else if (npf_json_is(key, "state")) k->state = value;
        else if (npf_json_is(key, "rings")) k->rings = value;
        else if (npf_json_is(key, "target")) read_target(value, k);
        else if (npf_json_is(key, "data_bytes")) k->data_bytes = npf_json_whole(&number, (int64_t)NPF_MOST_BYTES);
        else if (npf_json_is(key, "const_bytes")) k->const_bytes = npf_json_whole(&number, (int64_t)NPF_MOST_BYTES);
        else if (npf_json_is(key, "local_bytes")) k->local_bytes = npf_json_whole(&number, (int64_t)NPF_MOST_BYTES);
        if (number.bad)
            j.bad = 1;
    }
    if (j.bad || k->data_bytes < 0 || k->const_bytes < 0 || k->local_bytes < 0 || k->inputs.bad || k->outputs.bad
        || k->values.bad || k->steps.bad || !k->cores || !k->channels)
        return wrong(error, "the metadata are not those of a program");
    return NPUFLOW_OK;
}

/* ------------------------------------------------------------------ tensors */

static int type_of(npf_json name, npuflow_type *type, uint64_t *bytes)
{
    static const char *const NAMES[] = {"int8", "uint8", "int16", "uint16", "int32", "uint32"};
    int i;
    for (i = 0; i < 6; i++)
        if (npf_json_is(name, NAMES[i])) {
            *type = (npuflow_type)i;
            *bytes = (uint64_t)1 << i / 2;
            return 1;
        }
    return 0;
}

/* How many an array has; 0xffffffff: it is none. */
static uint32_t count_items(npf_json j)
{
    uint32_t n = 0;
    npf_json_begin(&j, '[');
    while (npf_json_next(&j, ']')) {
        npf_json_value(&j);
        n++;
    }
    return j.bad ? UINT32_MAX : n;
}

static void range_of(npuflow_tensor *t, int64_t bits, int is_signed, int narrow)
{
    t->least = is_signed ? -(INT64_C(1) << (bits - 1)) + narrow : 0;
    t->most = (INT64_C(1) << (bits - is_signed)) - 1;
}

/* Scales and zero points, one for all or one a place of an axis; groups are written out. */
static int read_scales(npuflow_program *p, npuflow_tensor *t, npf_json scale, npf_json zero, int64_t group)
{
    const uint32_t scales = count_items(scale), zeros = count_items(zero), each = group > 0 ? (uint32_t)group : 1;
    double *s;
    int32_t *z;
    uint32_t i, k;
    int64_t first = 0;
    if (!scales || (zeros != 1 && zeros != scales) || scales > MOST_NUMBER / each)
        return 0;
    t->scales = scales == 1 ? 1 : scales * each;
    if (scales == 1)
        t->axis = -1;
    else if (t->axis < 0 || (uint32_t)t->axis >= t->rank || t->shape[t->axis] != (int64_t)t->scales)
        return 0;
    s = (double *)npf_take(p, t->scales * sizeof *s);
    z = (int32_t *)npf_take(p, t->scales * sizeof *z);
    if (!s || !z)
        return -1;
    npf_json_begin(&scale, '[');
    npf_json_begin(&zero, '[');
    for (i = 0; i < scales; i++) {
        const uint32_t copies = scales == 1 ? 1 : each;
        double v;
        npf_json_next(&scale, ']');
        v = npf_json_real(&scale);
        if (i < zeros) {
            npf_json_next(&zero, ']');
            first = npf_json_signed(&zero);
        }
        if (scale.bad || zero.bad || !(v > 0) || first > MOST_NUMBER || first < -MOST_NUMBER)
            return 0;
        for (k = 0; k < copies; k++)
            s[i * copies + k] = v, z[i * copies + k] = (int32_t)first;
    }
    t->scale = s;
    t->zero_point = z;
    return 1;
}

static int read_quant(npuflow_program *p, npuflow_tensor *t, npf_json j, uint64_t bytes)
{
    npf_json scale = j, zero = j;
    int64_t bits = 0, group = 0, narrow = 0, is_signed = -1;
    t->axis = -1;
    if (npf_json_null(&j)) {
        range_of(t, (int64_t)bytes * 8, t->type % 2 == 0, 0);
        return 1;
    }
    scale.bad = zero.bad = 1;
    t->numbers = NPUFLOW_CODES;
    npf_json_begin(&j, '{');
    while (npf_json_next(&j, '}')) {
        const npf_json key = npf_json_key(&j);
        if (npf_json_is(key, "bits")) bits = npf_json_whole(&j, 32);
        else if (npf_json_is(key, "signed")) is_signed = npf_json_true(&j);
        else if (npf_json_is(key, "narrow")) narrow = npf_json_null(&j) ? 0 : npf_json_true(&j);
        else if (npf_json_is(key, "axis")) t->axis = npf_json_null(&j) ? -1 : (int32_t)npf_json_whole(&j, NPF_RANK);
        else if (npf_json_is(key, "group")) group = npf_json_null(&j) ? 0 : npf_json_whole(&j, 1 << 20);
        else if (npf_json_is(key, "scale")) scale = npf_json_value(&j);
        else if (npf_json_is(key, "zero_point")) zero = npf_json_value(&j);
        else if (npf_json_is(key, "element") && !npf_json_null(&j)) {
            const npf_json name = npf_json_string(&j);
            t->numbers = npf_json_is(name, "float16") ? NPUFLOW_FLOAT16 : NPUFLOW_BFLOAT16;
            if (bytes != 2 || (t->numbers == NPUFLOW_BFLOAT16 && !npf_json_is(name, "bfloat16")))
                return 0;
        } else if (!npf_json_is(key, "element"))
            npf_json_value(&j);
    }
    if (j.bad || !bits || is_signed < 0 || scale.bad || zero.bad || bits > (int64_t)bytes * 8)
        return 0;
    range_of(t, bits, (int)is_signed, (int)narrow);
    return read_scales(p, t, scale, zero, group);
}

/* One of `values`, by its name: where it lies, and what its codes are. 1, or 0, or -1 without memory. */
static int read_value(npuflow_program *p, const keys *k, npf_json name, npuflow_tensor *t)
{
    npf_json j = k->values, body = name, dtype = name, shape = name, quant = name;
    int64_t address = -1, *dims;
    uint64_t bytes = 0;
    int found = 0;
    npf_json_begin(&j, '{');
    while (!found && npf_json_next(&j, '}')) {
        found = npf_json_same(npf_json_key(&j), name);
        body = npf_json_value(&j);
    }
    if (!found || j.bad)
        return 0;
    dtype.bad = shape.bad = quant.bad = 1;
    npf_json_begin(&body, '{');
    while (npf_json_next(&body, '}')) {
        const npf_json key = npf_json_key(&body);
        if (npf_json_is(key, "address")) address = npf_json_whole(&body, (int64_t)NPF_MOST_BYTES);
        else if (npf_json_is(key, "dtype")) dtype = npf_json_string(&body);
        else if (npf_json_is(key, "shape")) shape = npf_json_value(&body);
        else if (npf_json_is(key, "quant")) quant = npf_json_value(&body);
        else npf_json_value(&body);
    }
    if (body.bad || address < 0 || shape.bad || quant.bad || !type_of(dtype, &t->type, &bytes))
        return 0;
    t->rank = count_items(shape);
    if (t->rank > NPF_RANK)
        return 0;
    dims = (int64_t *)npf_take(p, (t->rank + 1) * sizeof *dims);
    if (!dims)
        return -1;
    t->shape = dims;
    t->elements = 1;
    npf_json_begin(&shape, '[');
    while (npf_json_next(&shape, ']')) {
        *dims = npf_json_whole(&shape, MOST_NUMBER);
        if (*dims && t->elements > NPF_MOST_BYTES / (uint64_t)*dims)
            return 0;
        t->elements *= (uint64_t)*dims++;
    }
    t->bytes = t->elements * bytes;
    t->address = (uint64_t)address;
    if (shape.bad || t->address + t->bytes > (uint64_t)k->data_bytes || t->address % bytes)
        return 0;
    return read_quant(p, t, quant, bytes);
}

static const char *text_of(npuflow_program *p, npf_json span)
{
    char *out = (char *)npf_take(p, (uint64_t)(span.end - span.at) + 1);
    if (out)
        npf_json_text(span, out);
    return out;
}

static npf_json name_of(npf_json *entry)
{
    npf_json name = *entry, in = npf_json_value(entry);
    name.bad = 1;
    npf_json_begin(&in, '{');
    while (npf_json_next(&in, '}'))
        if (npf_json_is(npf_json_key(&in), "name"))
            name = npf_json_string(&in);
        else
            npf_json_value(&in);
    if (in.bad)
        name.bad = 1;
    return name;
}

/* ------------------------------------------------------------------ steps */

typedef struct { npf_json kind, value, out, first, count; int64_t rows, model; } one_step;

static one_step read_step(npf_json *j)
{
    npf_json in = npf_json_value(j);
    one_step s;
    s.kind = s.value = s.out = s.first = s.count = in;
    s.kind.bad = s.value.bad = s.out.bad = s.first.bad = s.count.bad = 1;
    s.rows = 0;
    s.model = -1;
    npf_json_begin(&in, '{');
    while (npf_json_next(&in, '}')) {
        const npf_json key = npf_json_key(&in);
        if (npf_json_is(key, "kind")) s.kind = npf_json_string(&in);
        else if (npf_json_is(key, "value")) s.value = npf_json_string(&in);
        else if (npf_json_is(key, "out")) s.out = npf_json_string(&in);
        else if (npf_json_is(key, "first")) s.first = npf_json_value(&in);
        else if (npf_json_is(key, "count")) s.count = npf_json_value(&in);
        else if (npf_json_is(key, "model")) s.model = npf_json_whole(&in, MOST_NUMBER);
        else if (npf_json_is(key, "rows")) s.rows = npf_json_whole(&in, MOST_NUMBER);
        else npf_json_value(&in);
    }
    if (in.bad)
        s.kind.bad = 1;
    return s;
}

/* The model of a step of the host that only casts; 0: it is another step. */
static int casts(const keys *k, const one_step *s, const uint8_t **model, uint64_t *size)
{
    if (!npf_json_is(s->kind, "host") || s->model < 0 || s->model >= NPF_MOST_HOSTS
        || !k->sections->host[s->model])
        return 0;
    *model = k->sections->host[s->model];
    *size = k->sections->host_bytes[s->model];
    return npf_only_casts(*model, *size);
}

/* The input that is the index, or what it is in the next run: the runtime holds it. 1, or 0 of another input
   or output, or -1 without memory. */
static int index_port(npuflow_program *p, const keys *k, npf_json name, int inputs, npuflow_tensor *t)
{
    static const int64_t SHAPE[1] = {1};
    int64_t more = 0;
    if (k->index.bad || npf_sums(k->sections, name, k->index, &more, 1) != 1)
        return 0;
    if (inputs ? !npf_json_same(name, k->index)
        : p->index_output >= 0 || more != (int64_t)p->index_new)
        return 0;
    memset(t, 0, sizeof *t);
    t->type = NPUFLOW_INT32;
    t->rank = 1;
    t->shape = SHAPE;
    t->elements = 1;
    t->bytes = 4;
    t->address = NPUFLOW_NOWHERE;
    t->axis = -1;
    range_of(t, 32, 1, 0);
    return (t->name = text_of(p, name)) ? 1 : -1;
}

/* The value in DATA that is an input or output: steps that cast, quantise or dequantise lie between. A value that
   several of them read is none. */
static npf_json converted(const keys *k, npf_json name, int inputs, int64_t *rows)
{
    const char *kind = inputs ? "quantize" : "dequantize";
    int found = 1, turns;
    for (turns = 0; found && turns < 4; turns++) {
        npf_json j = k->steps, to = name;
        found = 0;
        npf_json_begin(&j, '[');
        while (npf_json_next(&j, ']')) {
            const one_step s = read_step(&j);
            const uint8_t *model;
            uint64_t size;
            if (casts(k, &s, &model, &size))
                found += npf_cast(model, size, name, !inputs, &to);
            else if (npf_json_is(s.kind, kind) && npf_json_same(inputs ? s.value : s.out, name)) {
                found++;
                to = inputs ? s.out : s.value;
                *rows = s.rows;
            }
        }
        if (found > 1)
            to.bad = 1;
        name = to;
    }
    return name;
}

static npuflow_status read_ports(npuflow_program *p, const keys *k, int inputs, npuflow_error *error)
{
    npf_json j = inputs ? k->inputs : k->outputs;
    const uint32_t count = count_items(j);
    npuflow_tensor *ports;
    uint32_t i;
    if (count > MOST_ITEMS)
        return wrong(error, "inputs or outputs are not described, or are too many");
    ports = (npuflow_tensor *)npf_take(p, (count + 1) * (uint64_t)sizeof *ports);
    if (!ports)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for inputs and outputs");
    npf_json_begin(&j, '[');
    for (i = 0; npf_json_next(&j, ']') && i < count; i++) {
        const npf_json name = name_of(&j);
        int64_t rows = 0;
        const npf_json value = converted(k, name, inputs, &rows);
        int found = name.bad ? 0 : index_port(p, k, name, inputs, &ports[i]);
        if (found > 0) {
            *(inputs ? &p->index_input : &p->index_output) = (int32_t)i;
            ports[i].state = -1;
            continue;
        }
        if (!found)
            found = name.bad || value.bad ? 0 : read_value(p, k, value, &ports[i]);
        if (found < 0 || (found > 0 && !(ports[i].name = text_of(p, name))))
            return npf_fail(error, NPUFLOW_MEMORY, "no memory for inputs and outputs");
        if (!found)
            return npf_fail(error, NPUFLOW_HOST_PART, "an input or output is no integer tensor in DATA");
        ports[i].rows = rows;
        ports[i].state = -1;
    }
    if (inputs)
        p->inputs = ports, p->input_count = count;
    else
        p->outputs = ports, p->output_count = count;
    return j.bad ? wrong(error, "inputs or outputs are not described") : NPUFLOW_OK;
}

/* Where a count of commands in all rounds lies in a core's section; it must not lie within a block. */
static int placed(const npf_core *c, uint64_t wanted, uint64_t *at, uint64_t *passed, uint32_t *block)
{
    while (*passed < wanted && *at < c->count) {
        while (*block < c->block_count && c->blocks[*block].repeat < *at)
            ++*block;
        if (*block < c->block_count && c->blocks[*block].repeat == *at) {
            *passed += c->blocks[*block].length * c->blocks[*block].count;
            *at = c->blocks[*block].end;
        } else {
            ++*passed;
            ++*at;
        }
    }
    return *passed == wanted;
}

static npuflow_status read_part(npuflow_program *p, const one_step *s, uint64_t *at, uint64_t *passed, uint32_t *block,
    npuflow_error *error)
{
    npuflow_part *part = &p->parts[p->part_count];
    npf_json first = s->first, count = s->count;
    uint32_t core;
    if (s->first.bad || s->count.bad || count_items(first) != p->core_count || count_items(count) != p->core_count)
        return wrong(error, "a part does not say which commands are its");
    npf_json_begin(&first, '[');
    npf_json_begin(&count, '[');
    for (core = 0; core < p->core_count; core++) {
        uint64_t a, n;
        npf_json_next(&first, ']');
        npf_json_next(&count, ']');
        a = (uint64_t)npf_json_whole(&first, INT64_C(1) << 32);
        n = (uint64_t)npf_json_whole(&count, INT64_C(1) << 32);
        if (first.bad || count.bad || a != passed[core])
            return wrong(error, "parts do not follow each other in the commands");
        part->words[core] = p->cores[core].words;
        part->first[core] = at[core];
        if (!placed(&p->cores[core], passed[core] + n, &at[core], &passed[core], &block[core]))
            return wrong(error, "a part ends within a block, or behind the commands");
        part->count[core] = at[core] - part->first[core];
    }
    part->index = p->part_count++;
    part->cores = p->core_count;
    return NPUFLOW_OK;
}

static npuflow_status read_steps(npuflow_program *p, const keys *k, npuflow_error *error)
{
    uint64_t at[NPUFLOW_MOST_CORES] = {0}, passed[NPUFLOW_MOST_CORES] = {0};
    uint32_t block[NPUFLOW_MOST_CORES] = {0}, core, count = count_items(k->steps), back = 0;
    npf_json j = k->steps;
    if (count > MOST_ITEMS)
        return wrong(error, "the steps are not described, or are too many");
    p->parts = (npuflow_part *)npf_take(p, (count + 1) * (uint64_t)sizeof *p->parts);
    if (!p->parts)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for the parts");
    npf_json_begin(&j, '[');
    while (npf_json_next(&j, ']')) {
        const one_step s = read_step(&j);
        if (npf_json_is(s.kind, "npu")) {
            const npuflow_status status = read_part(p, &s, at, passed, block, error);
            if (status != NPUFLOW_OK)
                return status;
            if (back)
                return npf_fail(error, NPUFLOW_HOST_PART, "the host converts numbers between two parts");
        } else if (npf_json_is(s.kind, "host")) {
            const uint8_t *model;
            uint64_t size;
            if (!casts(k, &s, &model, &size))
                return npf_fail(error, NPUFLOW_HOST_PART,
                    "parts of the network run on the host: npuflow run and npuflow.ort run it");
            back = p->part_count;
        } else if (npf_json_is(s.kind, "quantize")) {
            if (p->part_count)
                return npf_fail(error, NPUFLOW_HOST_PART, "the host converts numbers between two parts");
        } else if (npf_json_is(s.kind, "dequantize"))
            back = p->part_count;
        else
            return wrong(error, "a step of a kind that no program of this format has");
    }
    for (core = 0; core < p->core_count; core++)
        if (at[core] != p->cores[core].count)
            return wrong(error, "commands of no part");
    return j.bad ? wrong(error, "the steps are not described") : NPUFLOW_OK;
}

/* ------------------------------------------------------------------ state and lengths */

static int cached(const npuflow_program *p, uint32_t input);

static int32_t port_named(npf_json entries, npf_json name)
{
    int32_t i;
    npf_json_begin(&entries, '[');
    for (i = 0; npf_json_next(&entries, ']'); i++)
        if (npf_json_same(name_of(&entries), name))
            return i;
    return -1;
}

/* One entry of the state, [output, input]: the names of what goes on, and of where. */
static void state_entry(npf_json *j, npf_json *made, npf_json *given)
{
    npf_json_begin(j, '[');
    npf_json_next(j, ']');
    *made = npf_json_string(j);
    npf_json_next(j, ']');
    *given = npf_json_string(j);
    npf_json_next(j, ']');
}

static npuflow_status read_state(npuflow_program *p, const keys *k, npuflow_error *error)
{
    npf_json j = k->state;
    uint32_t i;
    if (j.bad)
        return NPUFLOW_OK;
    p->state = (uint8_t **)npf_take(p, (p->input_count + 1) * (uint64_t)sizeof *p->state);
    if (!p->state)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for the state");
    npf_json_begin(&j, '[');
    while (npf_json_next(&j, ']')) {
        npf_json made, given;
        int32_t from, to;
        state_entry(&j, &made, &given);
        from = port_named(k->outputs, made), to = port_named(k->inputs, given);
        if (j.bad || from < 0 || to < 0 || (uint32_t)from >= p->output_count || (uint32_t)to >= p->input_count
            || p->inputs[to].elements != p->outputs[from].elements)
            return wrong(error, "a state is no output and input of one shape");
        if ((to == p->index_input) != (from == p->index_output))
            return wrong(error, "the index is no state of its own");
        p->inputs[to].state = from;
        if (to == p->index_input)
            continue;
        if (cached(p, (uint32_t)to)) {
            if (p->inputs[to].address != p->outputs[from].address
                || p->inputs[to].bytes != p->outputs[from].bytes
                || !npf_same_codes(&p->inputs[to], &p->outputs[from]))
                return wrong(error, "a cache does not lie where it lay");
            continue;
        }
        p->state[to] = (uint8_t *)npf_take(p, p->inputs[to].bytes + 1);
        if (!p->state[to])
            return npf_fail(error, NPUFLOW_MEMORY, "no memory for the state");
    }
    for (i = 0; i < p->cache_count; i++)
        if (p->inputs[p->caches[i].input].state < 0)
            return wrong(error, "a cache is no state");
    return j.bad ? wrong(error, "the state is not described") : NPUFLOW_OK;
}

/* ------------------------------------------------------------------ the index */

typedef struct { npf_json input, axes; int64_t most, added, address, ring; } one_index;

static one_index read_one_index(npf_json *j)
{
    npf_json in = npf_json_value(j);
    one_index one;
    one.input = one.axes = in;
    one.input.bad = one.axes.bad = 1;
    one.most = one.added = one.address = -1;
    one.ring = 0;
    npf_json_begin(&in, '{');
    while (npf_json_next(&in, '}')) {
        const npf_json key = npf_json_key(&in);
        if (npf_json_is(key, "input")) one.input = npf_json_string(&in);
        else if (npf_json_is(key, "axes")) one.axes = npf_json_value(&in);
        else if (npf_json_is(key, "most")) one.most = npf_json_whole(&in, MOST_NUMBER / 2);
        else if (npf_json_is(key, "new")) one.added = npf_json_whole(&in, MOST_NUMBER / 2);
        else if (npf_json_is(key, "address")) one.address = npf_json_whole(&in, MOST_NUMBER);
        else if (npf_json_is(key, "modulo")) one.ring = npf_json_whole(&in, MOST_NUMBER);
        else npf_json_value(&in);
    }
    if (in.bad)
        one.input.bad = 1;
    return one;
}

/* Where no command follows an index: the state that goes on by a constant from run to run. How far it may go
   is what tables say that it picks rows of (read_places). */
static void find_counter(npuflow_program *p, keys *k)
{
    npf_json j = k->state;
    if (j.bad)
        return;
    npf_json_begin(&j, '[');
    while (k->index.bad && npf_json_next(&j, ']')) {
        npf_json made, given;
        int64_t added = 0;
        state_entry(&j, &made, &given);
        if (j.bad)
            return;
        if (npf_sums(k->sections, made, given, &added, 1) == 1 && added > 0 && added < MOST_NUMBER / 2) {
            k->index = given;
            p->index_new = (uint32_t)added;
        }
    }
}

/* Before the ports are read: which of them is the index, and how far it goes. */
static npuflow_status find_index(npuflow_program *p, keys *k, npuflow_error *error)
{
    npf_json j = k->indices;
    uint32_t count = 0;
    p->index_input = p->index_output = -1;
    if (j.bad) {
        find_counter(p, k);
        return NPUFLOW_OK;
    }
    npf_json_begin(&j, '[');
    while (npf_json_next(&j, ']')) {
        const one_index one = read_one_index(&j);
        if (one.input.bad || one.most < 0 || one.added < 1 || one.address < 0
            || one.address > k->data_bytes - 4)
            return wrong(error, "an index is not described");
        if (count++ && (!npf_json_same(one.input, k->index) || one.most != (int64_t)p->index_most
            || one.added != (int64_t)p->index_new))
            return wrong(error, "commands follow several indices");
        k->index = one.input;
        p->index_most = (uint32_t)one.most;
        p->index_new = (uint32_t)one.added;
    }
    return j.bad || count > MOST_ITEMS ? wrong(error, "an index is not described") : NPUFLOW_OK;
}

/* What the index becomes in DATA, through casts and sums of the host. */
static npuflow_status read_places(npuflow_program *p, const keys *k, npuflow_error *error)
{
    npf_json j = k->steps;
    const uint32_t most = count_items(j);
    int64_t last = k->indices.bad ? MOST_NUMBER : (int64_t)p->index_most;
    if (k->index.bad)
        return NPUFLOW_OK;
    p->places = (npf_place *)npf_take(p, (most + 1) * (uint64_t)sizeof *p->places);
    if (!p->places)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for the index");
    npf_json_begin(&j, '[');
    while (npf_json_next(&j, ']')) {
        const one_step s = read_step(&j);
        npf_place *one = &p->places[p->place_count];
        uint64_t i;
        int found;
        if (!npf_json_is(s.kind, "quantize") || !npf_follows(k->sections, s.value, k->index))
            continue;
        found = read_value(p, k, s.out, &one->codes);
        if (!found || (found > 0 && !one->codes.elements))
            return wrong(error, "what is made of the index is no value in DATA");
        one->more = found > 0 ? (int64_t *)npf_take(p, one->codes.elements * sizeof *one->more) : NULL;
        if (!one->more)
            return npf_fail(error, NPUFLOW_MEMORY, "no memory for the index");
        if (npf_sums(k->sections, s.value, k->index, one->more, one->codes.elements)
            != one->codes.elements)
            return wrong(error, "what is made of the index is no value in DATA");
        for (i = 0; s.rows && i < one->codes.elements; i++) {
            if (k->indices.bad && last > s.rows - 1 - one->more[i])
                last = s.rows - 1 - one->more[i];
            if (one->more[i] < 0 || last < 0 || one->more[i] + last >= s.rows)
                return wrong(error, "the index goes on behind a table");
        }
        p->place_count++;
    }
    if (last == MOST_NUMBER)
        return npf_fail(error, NPUFLOW_HOST_PART, "the host counts runs, and no table says how far");
    p->index_most = (uint32_t)last;
    return NPUFLOW_OK;
}

/* States that grow by a run's rows: each lies where it lay. */
static npuflow_status read_caches(npuflow_program *p, const keys *k, npuflow_error *error)
{
    npf_json j = k->indices, state = k->state;
    npf_json axes;
    if (j.bad)
        return NPUFLOW_OK;
    if (p->index_input < 0)
        return wrong(error, "the index is no input");
    if (state.bad)                     /* the caller gives caches and index, run by run */
        return NPUFLOW_OK;
    npf_json_begin(&j, '[');
    npf_json_next(&j, ']');
    axes = read_one_index(&j).axes;
    p->caches = (npf_cache *)npf_take(p, (p->input_count + 1) * (uint64_t)sizeof *p->caches);
    if (!p->caches)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for the state");
    if (axes.bad)
        return wrong(error, "an index without caches");
    npf_json_begin(&axes, '{');
    while (npf_json_next(&axes, '}')) {
        const int32_t input = port_named(k->inputs, npf_json_key(&axes));
        const int64_t axis = npf_json_whole(&axes, NPF_RANK);
        npf_cache *one = &p->caches[p->cache_count];
        const npuflow_tensor *t;
        uint32_t d;
        if (axes.bad || input < 0 || (uint32_t)input >= p->input_count || input == p->index_input)
            continue;
        t = &p->inputs[input];
        if (axis >= (int64_t)t->rank || !t->elements || cached(p, (uint32_t)input)
            || t->shape[axis] < (int64_t)p->index_most + p->index_new)
            return wrong(error, "a cache has less rows than the index goes over");
        memset(one, 0, sizeof *one);
        one->input = (uint32_t)input;
        one->address = t->address;
        one->rows = (uint64_t)t->shape[axis];
        one->outer = 1;
        for (d = 0; d < (uint32_t)axis; d++)
            one->outer *= (uint64_t)t->shape[d];
        one->row_bytes = t->bytes / one->outer / one->rows;
        p->cache_count++;
    }
    return axes.bad ? wrong(error, "an index without caches") : NPUFLOW_OK;
}

static int cached(const npuflow_program *p, uint32_t input)
{
    uint32_t i;
    for (i = 0; i < p->cache_count; i++)
        if (p->caches[i].input == input)
            return 1;
    return 0;
}

/* Of states that keep the newest rows: how many, and how far a run may begin before the last one. */
static npuflow_status read_rings(npuflow_program *p, const keys *k, npuflow_error *error)
{
    npf_json j = k->rings;
    if (j.bad || k->state.bad || p->index_input < 0)
        return NPUFLOW_OK;
    npf_json_begin(&j, '[');
    while (npf_json_next(&j, ']')) {
        npf_json in = npf_json_value(&j);
        int64_t rows = 0, window = 0;
        npf_json_begin(&in, '{');
        while (npf_json_next(&in, '}')) {
            const npf_json key = npf_json_key(&in);
            if (npf_json_is(key, "rows")) rows = npf_json_whole(&in, MOST_NUMBER);
            else if (npf_json_is(key, "window")) window = npf_json_whole(&in, MOST_NUMBER);
            else npf_json_value(&in);
        }
        if (in.bad || window < 1 || rows < window || p->ring_count == NPF_MOST_RINGS)
            return wrong(error, "a ring is not described");
        p->rings[p->ring_count].rows = (uint32_t)rows;
        p->rings[p->ring_count++].back = (uint32_t)(rows - window + 1);
    }
    return j.bad ? wrong(error, "a ring is not described") : NPUFLOW_OK;
}

/* Of outputs that go on by steps of a length: how many there are for so many of it. */
static int read_output_steps(npuflow_program *p, const keys *k, npf_json axes, npf_json strides)
{
    int32_t port;
    if (axes.bad)
        return 1;
    npf_json_begin(&axes, '{');
    while (npf_json_next(&axes, '}')) {
        port = port_named(k->outputs, npf_json_key(&axes));
        npf_json_whole(&axes, NPF_RANK);
        if (port >= 0 && (uint32_t)port < p->output_count) {
            p->output_steps[port].length = p->length_count;
            p->output_steps[port].stride = 1;
        }
    }
    if (strides.bad)
        return !axes.bad;
    npf_json_begin(&strides, '{');
    while (npf_json_next(&strides, '}')) {
        int64_t stride, more;
        port = port_named(k->outputs, npf_json_key(&strides));
        npf_json_begin(&strides, '[');
        npf_json_next(&strides, ']');
        stride = npf_json_whole(&strides, MOST_NUMBER);
        npf_json_next(&strides, ']');
        more = npf_json_signed(&strides);
        if (npf_json_next(&strides, ']') || strides.bad || port < 0 || (uint32_t)port >= p->output_count
            || !p->output_steps[port].stride || !stride || more < -MOST_NUMBER || more > MOST_NUMBER)
            return 0;
        p->output_steps[port].stride = stride;
        p->output_steps[port].more = more;
    }
    return !axes.bad && !strides.bad;
}

static npuflow_status read_lengths(npuflow_program *p, const keys *k, npuflow_error *error)
{
    npf_json j = k->lengths;
    const uint32_t indices = k->indices.bad ? 0 : count_items(k->indices);
    uint32_t core, b, i;
    if (!j.bad || indices) {
        const uint32_t count = (j.bad ? 0 : count_items(j)) + indices;
        if (count > MOST_ITEMS)
            return wrong(error, "the lengths are not described, or are too many");
        p->lengths = (npf_length *)npf_take(p, (count + 1) * (uint64_t)sizeof *p->lengths);
        p->steps = (uint32_t *)npf_take(p, (count + 1) * (uint64_t)sizeof *p->steps);
        p->output_steps = (npf_output_steps *)npf_take(p, (p->output_count + 1) * (uint64_t)sizeof *p->output_steps);
        if (!p->lengths || !p->steps || !p->output_steps)
            return npf_fail(error, NPUFLOW_MEMORY, "no memory for the lengths");
        npf_json_begin(&j, '[');
        while (!j.bad && npf_json_next(&j, ']') && p->length_count < count - indices) {
            npf_json in = npf_json_value(&j), name = in, axes = in, strides = in;
            npf_length one;
            int32_t port;
            memset(&one, 0, sizeof one);
            name.bad = axes.bad = strides.bad = 1;
            npf_json_begin(&in, '{');
            while (npf_json_next(&in, '}')) {
                const npf_json key = npf_json_key(&in);
                if (npf_json_is(key, "input")) name = npf_json_string(&in);
                else if (npf_json_is(key, "least")) one.least = (uint32_t)npf_json_whole(&in, MOST_NUMBER);
                else if (npf_json_is(key, "most")) one.most = (uint32_t)npf_json_whole(&in, MOST_NUMBER);
                else if (npf_json_is(key, "address")) one.address = (uint64_t)npf_json_whole(&in, k->data_bytes - 4);
                else if (npf_json_is(key, "axes")) axes = npf_json_value(&in);
                else if (npf_json_is(key, "strides")) strides = npf_json_value(&in);
                else npf_json_value(&in);
            }
            port = port_named(k->inputs, name);
            if (in.bad || !read_output_steps(p, k, axes, strides) || port < 0 || (uint32_t)port >= p->input_count || one.least > one.most || !one.least)
                return wrong(error, "a number of steps is not described");
            one.input = (uint32_t)port;
            p->steps[p->length_count] = one.most;
            p->lengths[p->length_count++] = one;
        }
        j = k->indices;
        npf_json_begin(&j, '[');
        while (p->index_count < indices && npf_json_next(&j, ']')) {
            npf_length *one = &p->lengths[p->length_count + p->index_count];
            const one_index said = read_one_index(&j);
            one->input = (uint32_t)p->index_input;
            one->ring = (uint32_t)said.ring;
            one->most = one->ring ? one->ring - 1 : p->index_most;
            one->address = (uint64_t)said.address;
            p->steps[p->length_count + p->index_count++] = one->most;
        }
    }
    for (core = 0; core < p->core_count; core++)
        for (b = 0; b < p->cores[core].block_count; b++) {
            const uint32_t *w = p->cores[core].words + p->cores[core].blocks[b].repeat * NPF_WORDS;
            for (i = 0; w[REPEAT_most] && i < p->length_count + p->index_count; i++)
                if (p->lengths[i].address == w[REPEAT_address] && p->lengths[i].most == w[REPEAT_most]
                    && (i >= p->length_count) == !!p->cores[core].blocks[b].turns)
                    p->cores[core].blocks[b].reading = (int32_t)i;
            if (w[REPEAT_most] && p->cores[core].blocks[b].reading < 0)
                return wrong(error, "a REPEAT reads its rounds where no number of steps lies");
        }
    return NPUFLOW_OK;
}

static npuflow_status read_cleared(npuflow_program *p, const keys *k, npuflow_error *error)
{
    npf_json j = k->cleared;
    if (j.bad)
        return NPUFLOW_OK;
    if (count_items(j) > MOST_ITEMS)
        return wrong(error, "what is cleared is no list");
    p->cleared = (npuflow_tensor *)npf_take(p, (count_items(j) + 1) * (uint64_t)sizeof *p->cleared);
    if (!p->cleared)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for the lengths");
    npf_json_begin(&j, '[');
    while (npf_json_next(&j, ']')) {
        const int found = read_value(p, k, npf_json_string(&j), &p->cleared[p->cleared_count]);
        if (found <= 0)
            return found ? npf_fail(error, NPUFLOW_MEMORY, "no memory for the lengths")
                : wrong(error, "what is cleared is no value");
        p->cleared_count++;
    }
    return j.bad ? wrong(error, "what is cleared is no list") : NPUFLOW_OK;
}

npuflow_status npf_metadata(npuflow_program *p, const npf_sections *s, npuflow_error *error)
{
    npuflow_status status;
    uint32_t core;
    keys k;
    if ((status = read_keys(npf_json_of(s->meta, s->meta_bytes), &k, error)) != NPUFLOW_OK)
        return status;
    k.sections = s;
    if ((status = find_index(p, &k, error)) != NPUFLOW_OK)
        return status;
    if (k.const_bytes != (int64_t)s->const_bytes || k.cores != (int64_t)s->cores)
        return wrong(error, "the metadata are those of other sections");
    p->memory.constants = s->constants;
    p->memory.const_bytes = s->const_bytes;
    p->memory.data_bytes = (uint64_t)k.data_bytes;
    p->memory.local_bytes = (uint64_t)k.local_bytes;
    p->core_count = s->cores;
    p->queue_count = 2 * (uint32_t)k.channels + 2;
    p->cores = (npf_core *)npf_take(p, p->core_count * (uint64_t)sizeof *p->cores);
    if (!p->cores)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for the commands");
    for (core = 0; core < p->core_count; core++) {
        p->cores[core].words = (const uint32_t *)(const void *)s->core[core];
        p->cores[core].count = s->core_bytes[core] / (4 * NPF_WORDS);
    }
    if ((status = npf_build_cores(p, error)) != NPUFLOW_OK || (status = read_steps(p, &k, error)) != NPUFLOW_OK
        || (status = read_ports(p, &k, 1, error)) != NPUFLOW_OK || (status = read_ports(p, &k, 0, error)) != NPUFLOW_OK
        || (status = read_caches(p, &k, error)) != NPUFLOW_OK
        || (status = read_state(p, &k, error)) != NPUFLOW_OK
        || (status = read_places(p, &k, error)) != NPUFLOW_OK
        || (status = read_rings(p, &k, error)) != NPUFLOW_OK
        || (status = read_lengths(p, &k, error)) != NPUFLOW_OK)
        return status;
    return read_cleared(p, &k, error);
}
