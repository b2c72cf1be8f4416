/* The seal of a file: Ed25519 over names, sizes and SHA-512 of all sections before it. docs/how-to/sign.md
   has the format, byte by byte. */

#include "internal.h"

static const char BEGIN[] = "npuflow seal 1\n";

enum { SEAL = 104, FINGERPRINT = 64, DIGEST = 64 };
enum { FRONT = sizeof BEGIN - 1 + 4 + FINGERPRINT + 4, EACH = 16 + 8 + DIGEST };

static uint8_t *put(uint8_t *to, uint64_t value, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
    return to + bytes;
}

static uint8_t *put_bytes(uint8_t *to, const void *from, size_t size)
{
    memcpy(to, from, size);
    return to + size;
}

/* The seal's section, which is the last one. */
static npuflow_status find(const uint8_t *file, npf_section *seal, npuflow_error *error)
{
    const uint32_t count = npf_section_count(file);
    uint32_t i;
    for (i = 0; i < count; i++) {
        *seal = npf_section_at(file, i);
        if (strcmp(seal->name, "seal"))
            continue;
        if (i + 1 < count)
            return npf_fail(error, NPUFLOW_SEAL, "sections come after the seal");
        if (seal->size != SEAL || npf_get32(seal->body) != 1 || npf_get32(seal->body + 4) != 1)
            return npf_fail(error, NPUFLOW_SEAL, "a seal of another version of npuflow");
        return NPUFLOW_OK;
    }
    return npf_fail(error, NPUFLOW_UNSEALED, "the file is not sealed, and keys are required");
}

static int among(const npuflow_options *options, const uint8_t *key)
{
    uint32_t i;
    for (i = 0; i < options->key_count; i++)
        if (!memcmp(options->keys[i], key, 32))
            return 1;
    return 0;
}

npuflow_status npf_check_seal(npuflow_program *p, const uint8_t *file, npuflow_error *error)
{
    const npuflow_crypto *crypto = p->options.crypto;
    const uint32_t signed_count = npf_section_count(file) - 1;
    npf_section seal;
    npuflow_status status;
    uint8_t *text, *at;
    uint32_t i;
    if (!p->options.key_count)
        return NPUFLOW_OK;
    if ((status = find(file, &seal, error)) != NPUFLOW_OK)
        return status;
    if (!among(&p->options, seal.body + 8))
        return npf_fail(error, NPUFLOW_KEY, "the file is sealed with a key that is not among those required");
    text = at = (uint8_t *)npf_take(p, FRONT + (uint64_t)signed_count * EACH);
    if (!text)
        return npf_fail(error, NPUFLOW_MEMORY, "no memory for what a seal signs");
    at = put_bytes(at, BEGIN, sizeof BEGIN - 1);
    at = put(at, NPUFLOW_FORMAT_VERSION, 4);
    at = put_bytes(at, p->target, FINGERPRINT);
    at = put(at, signed_count, 4);
    for (i = 0; i < signed_count; i++) {
        const npf_section s = npf_section_at(file, i);
        at = put(put_bytes(at, s.name, 16), s.size, 8);
        if (crypto->sha512(crypto->context, s.body, (size_t)s.size, at) != NPUFLOW_OK)
            return npf_fail(error, NPUFLOW_SEAL, "the digests that the seal signs were not computed");
        at += DIGEST;
    }
    status = crypto->ed25519(crypto->context, seal.body + 8, seal.body + 40, text, (size_t)(at - text));
    if (status != NPUFLOW_OK)
        return npf_fail(error, NPUFLOW_SEAL, "the file was changed after it was sealed, or its seal was");
    return NPUFLOW_OK;
}
