/* Damages .npu files in memory, opens them and runs what opens: to be compiled with sanitizers.

   fuzz COUNT SEED FILE...: COUNT damaged files in all. Most have digests that fit what they hold, so that the
   damage reaches what is behind the digests. Commands that would take long are passed over. */

#include <stdio.h>
#include <stdlib.h>

#include "../src/kernels.h"

enum { MOST = 64, FEW = 1 << 18 };
#define ROOM ((size_t)1 << 27)         /* of memory that a program may take */

typedef struct { char name[16]; uint8_t *body; uint64_t size; } section;
typedef struct { section sections[MOST]; uint32_t count; uint8_t target[64]; } container;

static uint64_t state;

static uint64_t drawn(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

static void put(uint8_t *p, uint64_t v, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    int i;
    for (i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static uint8_t *copied(const uint8_t *from, uint64_t size)
{
    uint8_t *to = (uint8_t *)malloc(size ? size : 1);
    if (!to)
        exit(2);
    memcpy(to, from, size);
    return to;
}

static container split(const uint8_t *file)
{
    container c;
    uint32_t i;
    memset(&c, 0, sizeof c);
    memcpy(c.target, file + 16, 64);
    c.count = (uint32_t)get(file + 12, 4);
    if (c.count > MOST)
        exit(2);
    for (i = 0; i < c.count; i++) {
        const uint8_t *e = file + 80 + 48 * i;
        memcpy(c.sections[i].name, e, 16);
        c.sections[i].size = get(e + 24, 8);
        c.sections[i].body = copied(file + get(e + 16, 8), c.sections[i].size);
    }
    return c;
}

static uint64_t up(uint64_t at) { return (at + 63) / 64 * 64; }

static uint8_t *joined(const container *c, uint64_t *size)
{
    const uint64_t table = 80 + 48 * (uint64_t)c->count;
    uint64_t at = up(table + 16), end = table + 16;
    uint8_t *file;
    uint32_t i;
    for (i = 0; i < c->count; i++) {
        end = at + c->sections[i].size;
        at = up(end);
    }
    file = (uint8_t *)calloc(1, end);
    if (!file)
        exit(2);
    memcpy(file, "NPUFLOW", 8);
    put(file + 8, 2, 4);
    put(file + 12, c->count, 4);
    memcpy(file + 16, c->target, 64);
    at = up(table + 16);
    for (i = 0; i < c->count; i++) {
        uint8_t *e = file + 80 + 48 * i;
        memcpy(e, c->sections[i].name, 16);
        put(e + 16, at, 8);
        put(e + 24, c->sections[i].size, 8);
        memcpy(file + at, c->sections[i].body, c->sections[i].size);
        npuflow_digest(file + at, c->sections[i].size, e + 32);
        at = up(at + c->sections[i].size);
    }
    npuflow_digest(file, table, file + table);
    *size = end;
    return file;
}

static uint32_t odd_word(uint32_t old)
{
    static const uint32_t ODD[] = {0, 1, 2, 3, 7, 255, 256, 32767, 65535, 0x7fffffff, 0x80000000u, 0xffffffffu};
    switch (drawn(5)) {
    case 0: return ODD[drawn(sizeof ODD / sizeof *ODD)];
    case 1: return old ^ 1u << drawn(32);
    case 2: return old + (uint32_t)drawn(65) - 32;
    case 3: return old * 2;
    default: return (uint32_t)drawn(0);
    }
}

/* Words of commands, mostly of their fields; now and then a whole command takes another one's place. */
static void damage_words(section *s)
{
    const uint64_t commands = s->size / 256;
    uint64_t n = 1 + drawn(3);
    if (!commands)
        return;
    while (n--) {
        uint8_t *command = s->body + 256 * drawn(commands), *word;
        if (drawn(8) == 0)
            memmove(command, s->body + 256 * drawn(commands), 256);
        word = command + 4 * (drawn(4) ? 10 + drawn(32) : drawn(64));
        put(word, odd_word((uint32_t)get(word, 4)), 4);
        if (drawn(16) == 0)
            command[0] = (uint8_t)drawn(50);
    }
}

/* Bytes of text: changed, removed, doubled; digits by digits most often. */
static void damage_text(section *s)
{
    uint64_t n = 1 + drawn(3);
    while (n-- && s->size > 2) {
        const uint64_t at = drawn(s->size), many = drawn(8) ? 1 : 1 + drawn(s->size - at);
        uint64_t k;
        switch (drawn(4)) {
        case 0:
            s->body[at] = (uint8_t)drawn(256);
            break;
        case 1:
            memmove(s->body + at, s->body + at + many, s->size - at - many);
            s->size -= many;
            break;
        case 2: {
            uint8_t *more = (uint8_t *)malloc(s->size + many);
            if (!more)
                exit(2);
            memcpy(more, s->body, at);
            memcpy(more + at, s->body + at, many);
            memcpy(more + at + many, s->body + at, s->size - at);
            free(s->body);
            s->body = more;
            s->size += many;
            break;
        }
        default:
            for (k = at; k < s->size && (s->body[k] < '0' || s->body[k] > '9'); k++)
                ;
            if (k < s->size)
                s->body[k] = (uint8_t)"0123456789-.e,]}"[drawn(16)];
        }
    }
}

static void damage(container *c)
{
    section *s = &c->sections[drawn(c->count)];
    if (drawn(12) == 0)
        s->name[drawn(16)] = (char)drawn(128);
    if (drawn(12) == 0 && s->size)
        s->size -= drawn(s->size < 300 ? s->size : 300);
    if (strstr(s->name, "core") && drawn(8))
        damage_words(s);
    else if (!strncmp(s->name, "const", 5) && s->size)
        s->body[drawn(s->size)] ^= (uint8_t)(1 + drawn(255));
    else
        damage_text(s);
}

typedef struct { size_t taken; } room;

static void *within(void *context, size_t bytes)
{
    room *r = (room *)context;
    if (bytes > ROOM - r->taken)
        return NULL;
    r->taken += bytes;
    return calloc(1, bytes);
}

static void released(void *context, void *memory)
{
    (void)context;
    free(memory);
}

/* How much work a command is, roughly. */
static double work_of(const uint32_t *w)
{
    npf_region found[NPF_MOST_REGIONS];
    const int n = npf_regions(w, found);
    double most = 0;
    int i, d;
    for (i = 0; i < n; i++) {
        double elements = 1;
        for (d = 0; d < found[i].rank; d++)
            elements *= (double)found[i].dims[d];
        most = elements > most ? elements : most;
    }
    if (npf_opcode(w) == OP_TOPK || npf_opcode(w) == OP_FTOPK)
        most *= w[TOPK_count];
    if (npf_opcode(w) == OP_MAXPOOL || npf_opcode(w) == OP_AVGPOOL || npf_opcode(w) == OP_FPOOL) {
        const npf_window v = npf_window_of(w);
        most *= (double)(v.kernel[0] * v.kernel[1]);
    }
    return most * (1 + (double)npf_scratch(w) / 64);
}

static npuflow_status limited(void *context, uint32_t core, uint64_t command, const uint32_t *w)
{
    npuflow_program *p = (npuflow_program *)context;
    npuflow_status status = npf_check_fields(w, core, NULL);
    (void)command;
    if (status == NPUFLOW_OK)
        status = npf_check_bounds(w, &p->memory, NULL);
    if (status != NPUFLOW_OK || npf_scratch(w) > p->memory.scratch_bytes)
        return NPUFLOW_COMMAND;
    return work_of(w) > FEW ? NPUFLOW_OK : npf_execute(w, core, &p->memory, NULL);
}

/* Opens a network, over the state of another one where there is one, and runs it twice, from where damage and
   chance have put its position. */
static int attempt_one(const uint8_t *file, uint64_t size, const char *network, npuflow_options options,
    npuflow_program **p)
{
    const npuflow_tensor *ports;
    npuflow_error error;
    npuflow_index index;
    npuflow_status status;
    uint32_t i, count, turns;
    options.network = network[0] ? network : NULL;
    status = npuflow_open(file, size, &options, p, &error);
    if (status != NPUFLOW_OK)
        return (int)status;
    for (turns = 0; turns < 2; turns++) {
        ports = npuflow_inputs(*p, &count);
        for (i = 0; i < count; i++)
            if (ports[i].address != NPUFLOW_NOWHERE)
                memset(npuflow_at(*p, &ports[i]), (int)drawn(256), (size_t)ports[i].bytes);
            else if (drawn(4) == 0)
                *(int32_t *)npuflow_at(*p, &ports[i]) = (int32_t)(drawn(2) ? drawn(0) : drawn(64));
        if (npuflow_position(*p, &index) == NPUFLOW_OK && drawn(3) == 0)
            npuflow_trim(*p, (uint32_t)drawn((uint64_t)index.position + 2));
        status = npf_prepare(*p, NULL);
        if (status != NPUFLOW_OK)
            return (int)status;
        for (i = 0; i < (*p)->part_count && status == NPUFLOW_OK; i++)
            status = npf_order_part(&(*p)->order, &(*p)->parts[i], limited, *p, NULL);
        npf_end_at(*p, status == NPUFLOW_OK);
    }
    return status == NPUFLOW_OK ? 0 : 20;
}

static int attempt(const uint8_t *file, uint64_t size)
{
    npuflow_options options;
    npuflow_program *programs[4] = {NULL, NULL, NULL, NULL};
    char name[64];
    room r = {0};
    uint32_t opened = 0, k, turns;
    int found = 0;
    memset(&options, 0, sizeof options);
    options.context = &r;
    options.allocate = within;
    options.release = released;
    if (npuflow_network(file, size, 0, name, sizeof name) != NPUFLOW_OK)
        return attempt_one(file, size, "", options, &programs[0]);
    for (k = 0; k < 4 && npuflow_network(file, size, k, name, sizeof name) == NPUFLOW_OK; k++) {
        options.state_of = opened && drawn(8) ? programs[0] : NULL;
        found = attempt_one(file, size, name, options, &programs[opened]);
        opened += programs[opened] != NULL;
    }
    for (turns = 0; turns < 2 && opened; turns++)
        npuflow_reset(programs[drawn(opened)]);
    while (opened)
        npuflow_close(programs[--opened]);
    return found;
}

static uint8_t *read_file(const char *path, uint64_t *size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *body;
    long end;
    if (!f || fseek(f, 0, SEEK_END) || (end = ftell(f)) < 0 || fseek(f, 0, SEEK_SET))
        exit(2);
    body = (uint8_t *)malloc((size_t)end + 1);
    if (!body || fread(body, 1, (size_t)end, f) != (size_t)end)
        exit(2);
    fclose(f);
    *size = (uint64_t)end;
    return body;
}

int main(int argc, char **argv)
{
    long count = argc > 3 ? atol(argv[1]) : 0, i;
    long found[32] = {0};
    if (argc < 4)
        return 2;
    state = (uint64_t)atol(argv[2]) * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (i = 0; i < count; i++) {
        uint64_t size, k;
        uint8_t *file = read_file(argv[3 + i % (argc - 3)], &size), *whole;
        container c = split(file);
        uint32_t s;
        int raw = drawn(10) == 0;
        if (!raw) {
            for (k = 1 + drawn(2); k--;)
                damage(&c);
            free(file);
            file = joined(&c, &size);
        } else if (drawn(2))
            file[drawn(size)] ^= (uint8_t)(1 + drawn(255));
        else
            size = drawn(size);
        if (!raw && drawn(20) == 0) {           /* the table itself, with a digest that fits */
            const uint64_t table = 80 + 48 * get(file + 12, 4);
            file[8 + drawn(table - 8)] ^= (uint8_t)(1u << drawn(8));
            npuflow_digest(file, table, file + table);
        }
        whole = copied(file, size);             /* not a byte more, so that a sanitizer sees what is read behind it */
        found[attempt(whole, size) % 32]++;
        free(whole);
        free(file);
        for (s = 0; s < c.count; s++)
            free(c.sections[s].body);
    }
    printf("%ld damaged files:", count);
    for (i = 0; i < 32; i++)
        if (found[i])
            printf(" %s %ld;", i == 20 ? "stopped" : npuflow_message((npuflow_status)i), found[i]);
    printf("\n");
    return 0;
}
