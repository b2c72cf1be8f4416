"""The program that runs a test vector through exported C, compares, and takes the time of repeated runs."""

from __future__ import annotations

from npuflow.whole.export_c.program import CProgram

TEST = r"""/* Runs the @COUNT@ samples of @N@_test.bin, or of the file named first. A number behind it repeats
   the last one so often and prints the time of a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "@N@.h"

@BUFFERS@

/* Aligned memory in a new block, which `block` is to be freed by; its content is arbitrary. */
static void *aligned_block(size_t bytes, void **block)
{
    const size_t all = bytes + @T@_ALIGN;
    char *made = (char *)malloc(all);
    *block = made;
    if (!made)
        return NULL;
    memset(made, 0xa5, all);
    return made + (@T@_ALIGN - (uintptr_t)made % @T@_ALIGN);
}

/* Codes that differ, -1 where the file ends within a sample. */
static int compare(FILE *file, @PARAMETERS@, int *samples)
{
    int i, different = 0;
    while (@READS@) {
        @CALL@
@COMPARED@        ++*samples;
    }
    return different;
}

static void repeat(@PARAMETERS@, int more)
{
    const clock_t begun = clock();
    int i;
    for (i = 0; i < more; i++)
        @CALL@
    printf("%.3f ms\n", 1e3 * (double)(clock() - begun) / CLOCKS_PER_SEC / more);
}
@LOAD@
int main(int count, char **words)
{
    const char *name = count > 1 ? words[1] : "@N@_test.bin";
    int samples = 0, different = -1, more = count > 2 ? atoi(words[2]) : 0;
@BLOCKS@
    FILE *file = fopen(name, "rb");
    if (!file)
        fprintf(stderr, "no %s\n", name);
    else if (!arena)
        fprintf(stderr, "no memory for the arena\n");
@WEIGHTS@    else
        different = compare(file, @HANDED@, &samples);
    if (different >= 0) {
        printf("%d samples, %d codes differ\n", samples, different);
        if (more > 0)
            repeat(@HANDED@, more);
    }
    if (file)
        fclose(file);
@FREED@
    return different < 0 ? 2 : different || !samples ? 1 : 0;
}
"""
LOAD = r"""
/* The constants of weights.bin. */
static int load(void *weights)
{
    FILE *file = fopen("weights.bin", "rb");
    int found = file && weights && fread(weights, 1, @T@_WEIGHTS_BYTES, file) == @T@_WEIGHTS_BYTES;
    if (file)
        fclose(file);
    return found;
}
"""
NO_WEIGHTS = r"""    else if (!load(weights))
        fprintf(stderr, "no weights.bin\n");
"""
COMPARED = r"""        if (fread(want_@P@, sizeof want_@P@, 1, file) != 1) {
            fprintf(stderr, "the file ends early\n");
            return -1;
        }
        for (i = 0; i < @SIZE@; i++)
            if (out_@P@[i] != want_@P@[i] && different++ < 5)
                printf("sample %d, @P@[%d]: %d, expected %d\n", *samples, i, (int)out_@P@[i],
                    (int)want_@P@[i]);
"""


def program_text(program: CProgram, apart: bool, count: int) -> str:
    """Its source. `apart`: weights are a file; `count`: samples of the test vector."""
    top = program.name.upper()
    buffers, reads, compared = [], [], []
    for p in program.inputs:
        buffers.append(f"static {p.ctype} in_{p.ident}[{top}_IN_{p.ident.upper()}_SIZE];")
        reads.append(f"fread(in_{p.ident}, sizeof in_{p.ident}, 1, file) == 1")
    for p in program.outputs:
        size = f"{top}_OUT_{p.ident.upper()}_SIZE"
        buffers.append(f"static {p.ctype} out_{p.ident}[{size}], want_{p.ident}[{size}];")
        compared.append(COMPARED.replace("@SIZE@", size).replace("@P@", p.ident))
    blocks = [("arena", f"{top}_ARENA_BYTES"), *([("weights", f"{top}_WEIGHTS_BYTES")] if apart else [])]
    names = [name for name, _ in blocks]
    given = [f"in_{p.ident}" for p in program.inputs] + [f"out_{p.ident}" for p in program.outputs]
    text = TEST
    for key, value in {
        "@BUFFERS@": "\n".join(buffers),
        "@PARAMETERS@": ", ".join(f"void *{name}" for name in names),
        "@HANDED@": ", ".join(names),
        "@LOAD@": LOAD if apart else "",
        "@BLOCKS@": "\n".join(
            f"    void *{name}_block, *{name} = aligned_block({size}, &{name}_block);"
            for name, size in blocks
        ),
        "@WEIGHTS@": NO_WEIGHTS if apart else "",
        "@FREED@": "\n".join(f"    free({name}_block);" for name in names),
        "@READS@": " && ".join(reads),
        "@CALL@": f"{program.name}_run({', '.join([*given, *names])});",
        "@COMPARED@": "".join(compared),
        "@COUNT@": str(count),
        "@N@": program.name,
        "@T@": top,
    }.items():
        text = text.replace(key, value)
    return text
