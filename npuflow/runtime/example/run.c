/* Runs an .npu file: codes of all inputs from a file or the standard input, codes of all outputs to the standard output.

   run FILE.npu[#NETWORK]                 says what the program takes and gives
   run FILE.npu[#NETWORK] INPUTS [STEPS]  INPUTS: codes of the inputs one behind the other, sample after sample; "-":
                                          the standard input. STEPS: of a program of any length
   run --key ed25519:... FILE.npu ...     compiled with OpenSSL: only a file that is sealed with the key */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npuflow.h"
#ifdef NPUFLOW_OPENSSL
#include "npuflow_openssl.h"
#endif

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

/* A key as npuflow prints it: ed25519: and 64 digits. */
static int read_key(const char *text, uint8_t key[32])
{
    unsigned byte;
    int i;
    if (strncmp(text, "ed25519:", 8) || strlen(text) != 8 + 64)
        return 0;
    for (i = 0; i < 32; i++) {
        if (sscanf(text + 8 + 2 * i, "%2x", &byte) != 1)
            return 0;
        key[i] = (uint8_t)byte;
    }
    return 1;
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
    uint8_t key[1][32];
    void *file;
    FILE *from;
    memset(&options, 0, sizeof options);
    if (argc > 2 && !strcmp(argv[1], "--key")) {
        if (!read_key(argv[2], key[0])) {
            fprintf(stderr, "--key takes ed25519: and 64 digits, as npuflow seal prints it\n");
            return 2;
        }
        options.keys = (const uint8_t (*)[32])key;
        options.key_count = 1;
#ifdef NPUFLOW_OPENSSL
        options.crypto = &npuflow_openssl;
#else
        fprintf(stderr, "--key needs the runtime compiled with OpenSSL: make clean all OPENSSL=1\n");
        return 2;
#endif
        argc -= 2;
        argv += 2;
    }
    if (argc < 2) {
        fprintf(stderr, "run [--key ed25519:...] FILE.npu[#NETWORK] [INPUTS [STEPS]]\n");
        return 2;
    }
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
