/* Runs an .npu file: codes of all inputs from a file or the standard input, codes of all outputs to the standard output.

   run FILE.npu[#NETWORK]                 says what the program takes and gives
   run FILE.npu[#NETWORK] INPUTS [STEPS]  INPUTS: codes of the inputs one behind the other, sample after sample; "-":
                                          the standard input. STEPS: of a program of any length */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npuflow.h"

static const char *const TYPES[] = {"int8", "uint8", "int16", "uint16", "int32", "uint32"};

static void *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    void *body = NULL;
    long end;
    if (!file)
        return NULL;
    if (!fseek(file, 0, SEEK_END) && (end = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET)) {
        body = malloc((size_t)end + 1);
        if (body && fread(body, 1, (size_t)end, file) != (size_t)end) {
            free(body);
            body = NULL;
        }
        *size = (size_t)end;
    }
    fclose(file);
    return body;
}

static void print_ports(const char *side, const npuflow_tensor *ports, uint32_t count)
{
    uint32_t i, d;
    for (i = 0; i < count; i++) {
        printf("%s %s: %s", side, ports[i].name, TYPES[ports[i].type]);
        for (d = 0; d < ports[i].rank; d++)
            printf("%s%lld", d ? "x" : " ", (long long)ports[i].shape[d]);
        if (ports[i].scales == 1 && ports[i].numbers == NPUFLOW_CODES)
            printf(", %.9g * (code - %d)", ports[i].scale[0], (int)ports[i].zero_point[0]);
        if (ports[i].state >= 0)
            printf(", state");
        printf("\n");
    }
}

static int fed(npuflow_program *program, const npuflow_tensor *ports, uint32_t count, FILE *from)
{
    uint32_t i;
    for (i = 0; i < count; i++)
        if (ports[i].state < 0 && fread(npuflow_at(program, &ports[i]), 1, ports[i].bytes, from) != ports[i].bytes)
            return 0;
    return count > 0;
}

int main(int argc, char **argv)
{
    npuflow_options options;
    npuflow_program *program;
    npuflow_error error;
    const npuflow_tensor *inputs, *outputs;
    uint32_t input_count, output_count, i;
    size_t size = 0;
    char *network;
    void *file;
    FILE *from;
    if (argc < 2) {
        fprintf(stderr, "run FILE.npu[#NETWORK] [INPUTS [STEPS]]\n");
        return 2;
    }
    memset(&options, 0, sizeof options);
    network = strrchr(argv[1], '#');
    if (network) {
        *network = '\0';
        options.network = network + 1;
    }
    file = read_file(argv[1], &size);
    if (!file) {
        fprintf(stderr, "%s cannot be read\n", argv[1]);
        return 2;
    }
    if (npuflow_open(file, size, &options, &program, &error) != NPUFLOW_OK) {
        fprintf(stderr, "%s: %s: %s\n", argv[1], npuflow_message(error.status), error.text);
        free(file);
        return 1;
    }
    inputs = npuflow_inputs(program, &input_count);
    outputs = npuflow_outputs(program, &output_count);
    if (argc < 3) {
        print_ports("input", inputs, input_count);
        print_ports("output", outputs, output_count);
        printf("target %s, %lu bytes of memory\n", npuflow_target(program), (unsigned long)npuflow_memory(program));
    } else {
        from = strcmp(argv[2], "-") ? fopen(argv[2], "rb") : stdin;
        for (i = 0; argc > 3 && i < input_count; i++)
            npuflow_steps(program, i, (uint32_t)atol(argv[3]));
        while (from && fed(program, inputs, input_count, from)) {
            if (npuflow_run(program, &error) != NPUFLOW_OK) {
                fprintf(stderr, "command %lld of core %d: %s\n", error.command, error.core, error.text);
                npuflow_close(program);
                free(file);
                return 1;
            }
            for (i = 0; i < output_count; i++)
                fwrite(npuflow_at(program, &outputs[i]), 1, outputs[i].bytes, stdout);
        }
    }
    npuflow_close(program);
    free(file);
    return 0;
}
