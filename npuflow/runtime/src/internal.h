/* What the files of the runtime share. */

#ifndef NPF_INTERNAL_H
#define NPF_INTERNAL_H

#include <string.h>

#include "../include/npuflow.h"
#include "isa.h"

#define NPF_QUEUES NPF_WAIT_SLOTS
#define NPF_DEPTH 2                    /* how deep blocks may lie in each other */
#define NPF_MOST_COMMANDS (1u << 22)   /* of a core, of all rounds */
#define NPF_RANK 16
#define NPF_MOST_HOSTS 64              /* parts of the host of which more is known than that there are some */
#define NPF_MOST_BYTES (UINT64_C(1) << 34)

/* ------------------------------------------------------------------ memories and errors */

typedef struct npf_memory {
    uint8_t *data, *local[NPUFLOW_MOST_CORES];
    const uint8_t *constants;
    uint64_t data_bytes, local_bytes, const_bytes;
    uint8_t *scratch;                  /* of kernels: npf_scratch says how much they need */
    uint64_t scratch_bytes;
} npf_memory;

npuflow_status npf_fail(npuflow_error *error, npuflow_status status, const char *text);

static inline uint32_t npf_get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ------------------------------------------------------------------ commands */

#define NPF_SIGNED(word) ((int64_t)(int32_t)(word))
#define NPF_NONE 0xFFFFFFFFu

static inline uint32_t npf_opcode(const uint32_t *w) { return w[0] & 0xff; }
static inline uint32_t npf_queue(const uint32_t *w) { return w[0] >> 8 & 0xff; }
static inline uint32_t npf_wait(const uint32_t *w, uint32_t queue)
{
    return w[2 + queue / 2] >> 16 * (queue % 2) & 0xffff;
}

/* One core's section: its commands queue by queue, and its blocks in the order of their REPEATs. */
typedef struct npf_block {
    uint64_t repeat, first, end;       /* places in the section */
    uint32_t count;                    /* rounds, the most */
    int32_t parent;                    /* the block that holds it; -1: none */
    uint32_t each[NPF_QUEUES];         /* commands of a round, by queue */
    uint64_t length;                   /* of a round, those of inner blocks in all their rounds */
    uint64_t low[NPF_QUEUES], high[NPF_QUEUES];        /* where its commands lie in the lists of queues */
    uint32_t rounds, skipped;          /* that run, and for how many words have gone on before the first */
    int32_t reading;                   /* which number of steps or index it reads; -1: none */
    uint32_t turns;                    /* of a block at an index: rounds, of which one runs; else 0 */
} npf_block;

typedef struct npf_advance {
    uint32_t command, word, step;      /* command: in the section */
    int32_t block;
} npf_advance;

typedef struct npf_core {
    const uint32_t *words;
    uint64_t count;
    uint64_t *queued[NPF_QUEUES], queued_count[NPF_QUEUES];
    int32_t *block_of;                 /* of every command, the innermost; NULL: there are no blocks */
    npf_block *blocks;
    uint32_t block_count;
    npf_advance *advances;             /* sorted by command */
    uint64_t advance_count;
} npf_core;

/* A queue on its way through its core's commands. */
typedef struct npf_cursor {
    const npf_core *core;
    uint32_t queue, retired;
    uint64_t at;
    int32_t block[NPF_DEPTH];          /* that it is in; -1: in none */
    uint32_t round[NPF_DEPTH];
    uint32_t passed;                   /* blocks that lie behind it */
    uint32_t missing[NPF_QUEUES];      /* commands of rounds that do not run, of these */
    int ready;                         /* whether what follows is of its next command */
    uint32_t waits[NPF_QUEUES], wait_count;
} npf_cursor;

typedef struct npf_order {
    const npf_core *cores;
    uint32_t core_count, queue_count;
    npf_cursor *cursors;               /* core by core */
} npf_order;

/* What is done with commands in an order that their waits allow. `words` are those of the round. */
typedef npuflow_status (*npf_visit)(void *context, uint32_t core, uint64_t command, const uint32_t *words);

void npf_order_begin(npf_order *order);
npuflow_status npf_order_part(npf_order *order, const npuflow_part *part, npf_visit visit, void *context,
    npuflow_error *error);

/* Fields, regions and memories of one command. */
npuflow_status npf_check_fields(const uint32_t *w, uint32_t core, npuflow_error *error);
npuflow_status npf_check_bounds(const uint32_t *w, const npf_memory *memory, npuflow_error *error);
uint64_t npf_scratch(const uint32_t *w);
npuflow_status npf_execute(const uint32_t *w, uint32_t core, npf_memory *memory, npuflow_error *error);

/* ------------------------------------------------------------------ regions */

enum { NPF_LOCAL, NPF_DATA, NPF_CONST };
enum { NPF_MOST_REGIONS = 8 };

typedef struct npf_region {
    const char *name;
    int space, write;
    int64_t address, size;
    int rank;
    int64_t dims[6], strides[6];
} npf_region;

/* Everything that a command names; how many there are. */
int npf_regions(const uint32_t *w, npf_region *found);

/* Names of the fields that windows have, by opcode. */
typedef struct npf_window {
    int64_t n, channels, extent[2], out[2], kernel[2], stride[2], dilation[2], origin[2], insert[2];
} npf_window;
npf_window npf_window_of(const uint32_t *w);

/* Of a product: terms of an output, and how its groups are cut. */
static inline int64_t npf_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ------------------------------------------------------------------ programs */

/* `ring`: rows of one, of which DATA has that of the index; 0: it has the number itself. */
typedef struct npf_length { uint32_t input, least, most, ring; uint64_t address; } npf_length;

/* How many steps of a run an output has, (steps + more) / stride of a length's; stride 0: it has no steps. */
typedef struct npf_output_steps { uint32_t length; int64_t stride, more; } npf_output_steps;

/* Codes in DATA that follow from the index: so much is added to it for each of them. */
typedef struct npf_place { npuflow_tensor codes; int64_t *more; } npf_place;

/* A state that lies where it lay, of which a run writes the rows at its index: of `rows`, `outer` times. */
typedef struct npf_cache { uint32_t input; uint64_t address, outer, rows, row_bytes; } npf_cache;

/* A state that keeps the newest rows: a run may begin so many before the last one at the earliest. */
typedef struct npf_ring { uint32_t rows, back; } npf_ring;
#define NPF_MOST_RINGS 8               /* kinds of them */

/* What programs have in common that run over one state. */
typedef struct npf_shared {
    npuflow_program *first, *latest;   /* of the chain; and whose caches hold all rows before the position */
    int32_t position, earliest;        /* earliest: where a run may begin, if not at 0: rings hold all from there */
} npf_shared;

struct npuflow_program {
    npuflow_options options;
    npuflow_driver driver;
    int own;                           /* whether commands run on the reference device */
    void *blocks;                      /* of memory, one behind the other */
    size_t taken;
    char target[65];
    npf_memory memory;
    npf_core *cores;
    uint32_t core_count, queue_count;
    npf_order order;
    npuflow_part *parts;
    uint32_t part_count, input_count, output_count, length_count, cleared_count;
    npuflow_tensor *inputs, *outputs;
    npf_length *lengths;
    uint32_t *steps;                   /* of every length */
    npf_output_steps *output_steps;    /* of every output; NULL: no length */
    npuflow_tensor *cleared;           /* what holds the codes of 0 before a run */
    uint8_t **state;                   /* of every input: what it holds in the next run; NULL: DATA has it */
    uint32_t index_count, index_most, index_new;       /* indices stand behind `lengths`, and in `steps` */
    int32_t index_input, index_output; /* the ports that hold it; -1: none */
    npf_ring rings[NPF_MOST_RINGS];
    npf_place *places;
    npf_cache *caches;
    uint32_t ring_count, place_count, cache_count, held;           /* held: rows that the caches of this program have */
    npf_shared *shared;
    npuflow_program *beside;           /* the next one over the same state */
};

/* Zeroed memory that lasts until the program is closed, on a multiple of 64 bytes; NULL: there is none. */
void *npf_take(npuflow_program *p, uint64_t bytes);
npuflow_status npf_build_cores(npuflow_program *p, npuflow_error *error);
void npf_choose_rounds(npuflow_program *p);
/* All that a run finds in DATA but what the caller writes; NPUFLOW_FULL where caches have no room. */
npuflow_status npf_prepare(npuflow_program *p, npuflow_error *error);
/* The codes of 0 in `count` elements of a tensor at `to`, from the `first` on. */
void npf_write_zeros(const npuflow_tensor *t, uint8_t *to, uint64_t first, uint64_t count);

/* Of a program at an index (index.c). At load: every command at every turn of the blocks that follow it. */
npuflow_status npf_check_turns(npuflow_program *p, npf_visit visit, void *context, npuflow_error *error);
npuflow_status npf_share(npuflow_program *p, npuflow_error *error);
npuflow_status npf_begin_at(npuflow_program *p, npuflow_error *error);
void npf_end_at(npuflow_program *p, int done);
/* Opened: it is one of those over its state, from now on until it leaves. */
void npf_join(npuflow_program *p);
void npf_leave(npuflow_program *p);
int npf_same_codes(const npuflow_tensor *a, const npuflow_tensor *b);
/* By how many steps the words of a block have gone on at an index; how many rounds run for so many steps. */
uint32_t npf_turn(const uint32_t *repeat, uint32_t count, uint32_t steps);

typedef struct npf_sections {
    const uint8_t *meta, *constants;
    uint64_t meta_bytes, const_bytes;
    const uint8_t *core[NPUFLOW_MOST_CORES];
    uint64_t core_bytes[NPUFLOW_MOST_CORES];
    uint32_t cores, hosts;
    const uint8_t *host[NPF_MOST_HOSTS];               /* ONNX models of the first ones */
    uint64_t host_bytes[NPF_MOST_HOSTS];
} npf_sections;
npuflow_status npf_metadata(npuflow_program *p, const npf_sections *sections, npuflow_error *error);

/* The sections of a file whose table npf_find_sections has checked, in the file's order. */
typedef struct npf_section { const uint8_t *body; uint64_t size; char name[17]; } npf_section;
uint32_t npf_section_count(const uint8_t *file);
npf_section npf_section_at(const uint8_t *file, uint32_t i);
/* Whether the file is sealed with one of the keys of the options, if they name any. */
npuflow_status npf_check_seal(npuflow_program *p, const uint8_t *file, npuflow_error *error);
npuflow_status npf_find_sections(const uint8_t *file, uint64_t size, const char *network, char target[65],
    npf_sections *found, npuflow_error *error);

/* ------------------------------------------------------------------ JSON */

/* A place in a JSON text. Whatever is wrong sets `bad`, after which everything reads as nothing. */
typedef struct npf_json { const char *at, *end; int bad, more; } npf_json;

npf_json npf_json_of(const uint8_t *text, uint64_t size);
/* Begins an object or array: `{` or `[`; then npf_json_next until it says 0. */
void npf_json_begin(npf_json *j, char open);
int npf_json_next(npf_json *j, char close);
/* A key with its colon, or a string: the span between its quotes, as it is written. */
npf_json npf_json_key(npf_json *j);
npf_json npf_json_string(npf_json *j);
npf_json npf_json_value(npf_json *j);  /* any value, as a span */
int64_t npf_json_whole(npf_json *j, int64_t most);     /* 0 to most */
int64_t npf_json_signed(npf_json *j);
double npf_json_real(npf_json *j);
int npf_json_is(npf_json span, const char *text);
int npf_json_same(npf_json a, npf_json b);
int npf_json_null(npf_json *j);        /* takes a null, if there is one */
int npf_json_true(npf_json *j);        /* true or false */
/* A string without its escapes, and a zero behind it; `out` has room for the span and one byte more. */
void npf_json_text(npf_json span, char *out);

/* ------------------------------------------------------------------ parts of the host */

/* Whether a part only casts, and adds constants to whole numbers. How many of its casts read a value
   (`backwards`: make it), and their other side. */
int npf_only_casts(const uint8_t *model, uint64_t size);
int npf_cast(const uint8_t *model, uint64_t size, npf_json given, int backwards, npf_json *found);
/* Whether casts and sums alone lie between an index and a value. */
int npf_follows(const npf_sections *s, npf_json name, npf_json index);
/* The numbers that are added to an index to make a value, one for each of its elements, at most `room`; how
   many, 0 of a value that is made in another way. */
uint64_t npf_sums(const npf_sections *s, npf_json name, npf_json index, int64_t *sums, uint64_t room);

#endif
