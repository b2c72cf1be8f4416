/* Goes on with a text of a language model, token by token, the most likely one each time.

   generate FILE.npu TOKENS [COUNT]    TOKENS: numbers of tokens as text, - is the standard input. Prints
                                       COUNT (16) more of them, one a line; figures go to the standard error

   The file's programs, each of another number of tokens a run, go over one cache: prompts run in the longest.
*/

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "npuflow.h"

enum { MOST_PROGRAMS = 16 };

typedef struct {
    npuflow_program *program;
    npuflow_tensor tokens, logits;
    npuflow_index index;
} entry;

static void *file;
static float *scores;
static uint32_t *ids;
static entry entries[MOST_PROGRAMS];
static uint32_t entry_count;

static int ended(int status)
{
    while (entry_count)                /* the others go over the state of the first one */
        npuflow_close(entries[--entry_count].program);
    free(scores);
    free(ids);
    free(file);
    return status;
}

static int failed(const char *what, const npuflow_error *error)
{
    fprintf(stderr, "%s: %s: %s\n", what, npuflow_message(error->status), error->text);
    return ended(1);
}

static void *read_file(const char *path, size_t *size)
{
    FILE *from = fopen(path, "rb");
    void *body = NULL;
    long end;
    if (!from)
        return NULL;
    if (!fseek(from, 0, SEEK_END) && (end = ftell(from)) >= 0 && !fseek(from, 0, SEEK_SET)) {
        body = malloc((size_t)end + 1);
        if (body && fread(body, 1, (size_t)end, from) != (size_t)end) {
            free(body);
            body = NULL;
        }
        *size = (size_t)end;
    }
    fclose(from);
    return body;
}

static const npuflow_tensor *named(const npuflow_program *program, int input, const char *name)
{
    uint32_t count, i;
    const npuflow_tensor *ports = input ? npuflow_inputs(program, &count) : npuflow_outputs(program, &count);
    for (i = 0; i < count; i++)
        if (!strcmp(ports[i].name, name))
            return &ports[i];
    return NULL;
}

/* Every program of the file, over the state of the first. */
static int open_all(size_t size, const char *path)
{
    npuflow_options options;
    npuflow_error error;
    char name[256];
    memset(&options, 0, sizeof options);
    memset(&error, 0, sizeof error);
    while (entry_count < MOST_PROGRAMS
        && npuflow_network(file, size, entry_count, name, sizeof name) == NPUFLOW_OK) {
        entry *e = &entries[entry_count];
        const npuflow_tensor *tokens, *logits;
        options.network = name[0] ? name : NULL;
        options.state_of = entry_count ? entries[0].program : NULL;
        if (npuflow_open(file, size, &options, &e->program, &error) != NPUFLOW_OK)
            return failed(path, &error);
        entry_count++;
        tokens = named(e->program, 1, "tokens");
        logits = named(e->program, 0, "logits");
        if (!tokens || !logits || npuflow_position(e->program, &e->index) != NPUFLOW_OK
            || tokens->elements != e->index.added) {
            fprintf(stderr, "%s: no language model for one sequence\n", path);
            return ended(1);
        }
        e->tokens = *tokens;
        e->logits = *logits;
    }
    if (!entry_count)                  /* opening says what is wrong with it */
        return npuflow_open(file, size, NULL, &entries[0].program, &error) == NPUFLOW_OK ? ended(1)
            : failed(path, &error);
    return 0;
}

/* The longest run that new tokens fill, or half of which they fill and that begins earlier, over tokens that
   the cache holds: one run in place of many. Else the shortest, which begins earlier however few are new. */
static entry *chosen(uint32_t position, uint32_t count)
{
    entry *best = NULL, *least = &entries[0];
    uint32_t i;
    for (i = 0; i < entry_count; i++) {
        entry *e = &entries[i];
        if (e->index.added < least->index.added)
            least = e;
        if (e->index.added <= count + (count < position ? count : position)
            && (!best || e->index.added > best->index.added))
            best = e;
    }
    return best ? best : least->index.added <= position + count ? least : NULL;
}

/* Tokens from `done` to `count` behind those before; the most likely next one, or -1. */
static long append(uint32_t done, uint32_t count, uint32_t *runs)
{
    npuflow_error error;
    entry *e = NULL;
    uint64_t k, best = 0;
    for (; done < count; ++*runs) {
        uint32_t begin;
        e = chosen(done, count - done);
        if (!e) {
            fprintf(stderr, "%lu tokens are less than a run takes\n", (unsigned long)count);
            return -1;
        }
        done += e->index.added < count - done ? e->index.added : count - done;
        begin = done - e->index.added;
        npuflow_trim(e->program, begin);
        for (k = 0; k < e->index.added; k++) {
            const float number = (float)ids[begin + k];
            npuflow_tensor one = e->tokens;
            one.elements = 1;
            npuflow_quantize(&one, &number,
                (uint8_t *)npuflow_at(e->program, &e->tokens) + k * (e->tokens.bytes / e->tokens.elements));
        }
        if (npuflow_run(e->program, &error) != NPUFLOW_OK) {
            fprintf(stderr, "behind %lu tokens: %s: %s\n", (unsigned long)begin,
                npuflow_message(error.status), error.text);
            return -1;
        }
    }
    if (!e || npuflow_dequantize(&e->logits, npuflow_at(e->program, &e->logits), scores) != NPUFLOW_OK)
        return -1;
    for (k = 1; k < e->logits.elements; k++)
        if (scores[k] > scores[best])
            best = k;
    return (long)best;
}

static double seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

int main(int argc, char **argv)
{
    const long wanted = argc > 3 ? atol(argv[3]) : 16;
    uint32_t count = 0, made = 0, done = 0, room, runs = 0, prompt_runs = 0, i;
    unsigned long one;
    uint64_t most = 0;
    double begun, first = 0;
    size_t size = 0;
    FILE *from;
    if (argc < 3 || wanted < 1) {
        fprintf(stderr, "generate FILE.npu TOKENS [COUNT]\n");
        return 2;
    }
    file = read_file(argv[1], &size);
    from = strcmp(argv[2], "-") ? fopen(argv[2], "r") : stdin;
    if (!file || !from) {
        fprintf(stderr, "%s cannot be read\n", argv[file ? 2 : 1]);
        return ended(2);
    }
    if (open_all(size, argv[1]))
        return 1;
    room = entries[0].index.most + entries[0].index.added;
    for (i = 0; i < entry_count; i++)
        most = entries[i].logits.elements > most ? entries[i].logits.elements : most;
    ids = (uint32_t *)calloc(room + 1, sizeof *ids);
    scores = (float *)calloc(most, sizeof *scores);
    if (!ids || !scores)
        return ended(2);
    while (fscanf(from, "%lu", &one) == 1 && count <= room)
        ids[count++] = (uint32_t)(one < UINT32_MAX ? one : UINT32_MAX);
    if (from != stdin)
        fclose(from);
    for (i = 0; i < count; i++)
        if (entries[0].tokens.rows > 0 && (int64_t)ids[i] >= entries[0].tokens.rows) {
            fprintf(stderr, "there is no token %lu\n", (unsigned long)ids[i]);
            return ended(1);
        }
    if (!count || count > room) {
        fprintf(stderr, "%s: 1 to %lu tokens, the cache holds no more\n", argv[2], (unsigned long)room);
        return ended(1);
    }
    begun = seconds();
    while ((long)made < wanted && count <= room) {
        const long next = append(done, count, &runs);
        if (next < 0)
            return ended(1);
        done = count;
        ids[count++] = (uint32_t)next;
        printf("%ld\n", next);
        fflush(stdout);
        if (!made++) {
            first = seconds();
            prompt_runs = runs;
        }
    }
    fprintf(stderr, "%lu tokens after %lu in %lu runs, first token after %.3f s", (unsigned long)made,
        (unsigned long)(count - made), (unsigned long)prompt_runs, first - begun);
    if (made > 1)
        fprintf(stderr, ", %.2f tokens/s of the processor", (made - 1) / (seconds() - first));
    fprintf(stderr, "\n");
    return ended(0);
}
