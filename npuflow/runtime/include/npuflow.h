/* Runs .npu programs: loads a file, checks it, and runs its commands on the reference device or a driver's.

   npuflow_open reads and checks everything, and takes all the memory that there will ever be; after it, nothing
   is allocated. The file stays where it is while the program is open: constants and commands are used in place.
   Different programs may be used by different threads at the same time; one program by one thread. */

#ifndef NPUFLOW_H
#define NPUFLOW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NPUFLOW_RUNTIME_VERSION 3
#define NPUFLOW_FORMAT_VERSION 2       /* of .npu files that this runtime reads */
#define NPUFLOW_MOST_CORES 64

typedef enum npuflow_status {
    NPUFLOW_OK = 0,
    NPUFLOW_USAGE = 1,                 /* an argument that cannot be */
    NPUFLOW_MEMORY = 2,                /* the allocator gave none */
    NPUFLOW_NO_PROGRAM = 3,            /* not an .npu file */
    NPUFLOW_VERSION = 4,               /* a format version that this runtime does not read */
    NPUFLOW_DAMAGED = 5,               /* a digest differs, or the file is cut off */
    NPUFLOW_METADATA = 6,              /* the metadata do not describe a program */
    NPUFLOW_COMMAND = 7,               /* a command that cannot be */
    NPUFLOW_OPCODE = 8,                /* a command that this runtime does not know */
    NPUFLOW_BOUNDS = 9,                /* a command outside of its memory */
    NPUFLOW_DEADLOCK = 10,             /* commands that wait for each other */
    NPUFLOW_HOST_PART = 11,            /* parts of the network run on the host: the C runtime has no operators */
    NPUFLOW_NETWORK = 12,              /* a file of several networks, and none or another was named */
    NPUFLOW_TARGET = 13,               /* compiled for another target than the driver's */
    NPUFLOW_FAULT = 14,                /* a fault of data: an index outside of a table */
    NPUFLOW_DEVICE = 15,               /* the driver failed */
    NPUFLOW_UNSEALED = 16,             /* keys were named, and the file is not sealed */
    NPUFLOW_KEY = 17,                  /* it is sealed with another key */
    NPUFLOW_SEAL = 18,                 /* its seal is malformed, or the file was changed after it */
    NPUFLOW_FULL = 19                  /* caches have no room behind the position; the state is as before */
} npuflow_status;

typedef struct npuflow_error {
    npuflow_status status;
    int core;                          /* of the command; -1: of none */
    long long command;                 /* its place in the core's section, counted from 0 */
    char text[160];
} npuflow_error;

typedef struct npuflow_program npuflow_program;

/* ------------------------------------------------------------------ inputs and outputs */

typedef enum npuflow_type {
    NPUFLOW_INT8, NPUFLOW_UINT8, NPUFLOW_INT16, NPUFLOW_UINT16, NPUFLOW_INT32, NPUFLOW_UINT32
} npuflow_type;

typedef enum npuflow_numbers {
    NPUFLOW_INTEGERS,                  /* the codes are the numbers */
    NPUFLOW_CODES,                     /* scale * (code - zero point) */
    NPUFLOW_FLOAT16,                   /* patterns of 16-bit floats */
    NPUFLOW_BFLOAT16
} npuflow_numbers;

#define NPUFLOW_NOWHERE UINT64_MAX

typedef struct npuflow_tensor {
    const char *name;                  /* of the model's input or output, UTF-8 */
    npuflow_type type;                 /* of the codes in DATA: dense, in C order, little endian */
    npuflow_numbers numbers;
    uint32_t rank;
    const int64_t *shape;
    uint64_t elements, bytes;
    uint64_t address;                  /* in DATA; NPUFLOW_NOWHERE: see npuflow_position */
    uint32_t scales;                   /* 1, or one a place of `axis`; 0: the codes are the numbers */
    int32_t axis;                      /* -1: one scale for all */
    const double *scale;
    const int32_t *zero_point;
    int64_t least, most;               /* of the codes */
    int64_t rows;                      /* of the table that the numbers are indices into; 0: they are none */
    int32_t state;                     /* of an input: the output that it is in the next run; -1: none */
} npuflow_tensor;

/* ------------------------------------------------------------------ drivers */

typedef enum npuflow_space { NPUFLOW_DATA, NPUFLOW_CONST } npuflow_space;

/* Commands of one part of a program, core by core: `count` commands of 64 words from the `first` on, as the
   file has them. All queues are empty before and after it. */
typedef struct npuflow_part {
    uint32_t index, cores;
    const uint32_t *words[NPUFLOW_MOST_CORES];
    uint64_t first[NPUFLOW_MOST_CORES], count[NPUFLOW_MOST_CORES];
} npuflow_part;

typedef struct npuflow_driver {
    void *context;
    const char *target;                /* fingerprint of the target that it runs; NULL: any */
    /* At load: `size` bytes of external memory that host and device share, 64-byte aligned. The runtime copies
       constants into CONST. NULL: the runtime has memory of its own, and the device sees the host's. */
    npuflow_status (*map)(void *context, npuflow_space space, uint64_t size, void **host);
    npuflow_status (*submit)(void *context, const npuflow_part *part);
    npuflow_status (*wait)(void *context);             /* until the part that was submitted has ended */
} npuflow_driver;

/* ------------------------------------------------------------------ seals */

/* What seals are checked with: the runtime has no cryptography of its own, and uses that of the system
   (openssl/npuflow_openssl.h, or the library or hardware that the device has anyway). */
typedef struct npuflow_crypto {
    void *context;
    npuflow_status (*sha512)(void *context, const void *bytes, size_t size, uint8_t digest[64]);
    /* NPUFLOW_OK: the signature is that of Ed25519 (RFC 8032) with this public key of these bytes. */
    npuflow_status (*ed25519)(void *context, const uint8_t key[32], const uint8_t signature[64],
        const void *bytes, size_t size);
} npuflow_crypto;

/* ------------------------------------------------------------------ programs */

typedef struct npuflow_options {
    const char *network;               /* of a file of several; NULL: the file has one */
    const npuflow_driver *driver;      /* NULL: the reference device */
    void *context;                     /* of the allocator */
    void *(*allocate)(void *context, size_t bytes);    /* NULL: malloc; only npuflow_open calls it */
    void (*release)(void *context, void *memory);      /* NULL: free; only npuflow_close calls it */
    const uint8_t (*keys)[32];         /* public keys: the file must be sealed with one of them */
    uint32_t key_count;                /* 0: a seal is not looked at */
    const npuflow_crypto *crypto;      /* needed with keys */
    /* Another program, of the same network at another shape: this one goes on from the state that the other
       left, and the other from this one's. One thread uses them all, and closes those that name a program
       before that one. */
    npuflow_program *state_of;
} npuflow_options;

/* The networks of a file: the name of the one at `index`, from 0 on; "" where the file has one, without a
   name. NPUFLOW_NETWORK: there are no more; NPUFLOW_USAGE: the name is longer than its `room`. */
npuflow_status npuflow_network(const void *file, size_t size, uint32_t index, char *name, size_t room);

/* `options` and `error` may be NULL. The file must begin at a multiple of 8 bytes. */
npuflow_status npuflow_open(const void *file, size_t size, const npuflow_options *options,
    npuflow_program **program, npuflow_error *error);
void npuflow_close(npuflow_program *program);

const npuflow_tensor *npuflow_inputs(const npuflow_program *program, uint32_t *count);
const npuflow_tensor *npuflow_outputs(const npuflow_program *program, uint32_t *count);
const char *npuflow_target(const npuflow_program *program);
/* Bytes that npuflow_open took beside the file, without what a driver mapped. */
size_t npuflow_memory(const npuflow_program *program);

/* Where a tensor lies in DATA. An input must be written before every run: its bytes are reused. */
void *npuflow_at(const npuflow_program *program, const npuflow_tensor *tensor);

/* Of a program of any length, before every run: how many steps an input has, at most its most. */
npuflow_status npuflow_steps(npuflow_program *program, uint32_t input, uint32_t steps);
/* How many of an output's steps are of the run: as many as an input has, or fewer behind strides. 0: it has none. */
uint32_t npuflow_output_steps(const npuflow_program *program, uint32_t output);

/* One run. Inputs that are the state of the run before are written by it. */
npuflow_status npuflow_run(npuflow_program *program, npuflow_error *error);

/* The next run begins a sequence: its state is zeros, that of all programs over it. */
void npuflow_reset(npuflow_program *program);

/* Of a program with an index, as language models have the position: commands follow it, or every run reads and
   writes all rows. */
typedef struct npuflow_index {
    const char *name;                  /* of the input; a state, which every run raises by `added` */
    uint32_t position;                 /* how many tokens the caches hold: where the next run begins */
    uint32_t most;                     /* the last position that a run may begin at */
    uint32_t added;                    /* tokens of a run */
} npuflow_index;

/* NPUFLOW_USAGE: the program has no index. */
npuflow_status npuflow_position(const npuflow_program *program, npuflow_index *index);

/* Keeps the first tokens only: the next run begins behind them. NPUFLOW_USAGE: there are not so many.
   NPUFLOW_FULL: layers with windows keep the newest tokens alone, and not all that the next one attends to are among
   them; 0 is always possible. */
npuflow_status npuflow_trim(npuflow_program *program, uint32_t position);

/* Real numbers as codes, nearest, ties to even, and back; NaN is the zero point. `elements` of both. */
npuflow_status npuflow_quantize(const npuflow_tensor *tensor, const float *real, void *codes);
npuflow_status npuflow_dequantize(const npuflow_tensor *tensor, const void *codes, float *real);

/* What a status means, in a few words. */
const char *npuflow_message(npuflow_status status);

/* The xxh3-128 digest of bytes, as sections have it. */
void npuflow_digest(const void *bytes, size_t size, uint8_t digest[16]);

#ifdef __cplusplus
}
#endif

#endif
