/* The .npu container: header, table of sections, digests; every number is checked against the file. */

#include "internal.h"

enum { HEAD = 80, ENTRY = 48, MOST_SECTIONS = 4096 };

static uint64_t get64(const uint8_t *p)
{
    return (uint64_t)npf_get32(p) | (uint64_t)npf_get32(p + 4) << 32;
}

static uint64_t aligned(uint64_t at) { return (at + 63) & ~UINT64_C(63); }

static int differs(const uint8_t *bytes, uint64_t size, const uint8_t *wanted)
{
    uint8_t digest[16];
    npuflow_digest(bytes, (size_t)size, digest);
    return memcmp(digest, wanted, 16) != 0;
}

uint32_t npf_section_count(const uint8_t *file) { return npf_get32(file + 12); }

npf_section npf_section_at(const uint8_t *file, uint32_t i)
{
    const uint8_t *e = file + HEAD + (size_t)i * ENTRY;
    npf_section s;
    memcpy(s.name, e, 16);
    s.name[16] = '\0';
    s.body = file + get64(e + 16);
    s.size = get64(e + 24);
    return s;
}

static npuflow_status check_table(const uint8_t *file, uint64_t size, uint32_t *count, npuflow_error *error)
{
    uint64_t at, i;
    if (size < HEAD || memcmp(file, "NPUFLOW", 8))
        return npf_fail(error, NPUFLOW_NO_PROGRAM, "not an .npu file");
    if (npf_get32(file + 8) != NPUFLOW_FORMAT_VERSION)
        return npf_fail(error, NPUFLOW_VERSION, "a program format that this runtime does not read; build it again");
    *count = npf_section_count(file);
    at = HEAD + (uint64_t)*count * ENTRY;
    if (*count > MOST_SECTIONS || at + 16 > size)
        return npf_fail(error, NPUFLOW_DAMAGED, "the table of sections does not fit the file");
    if (differs(file, at, file + at))
        return npf_fail(error, NPUFLOW_DAMAGED, "the header or the table of sections is damaged");
    at += 16;
    for (i = 0; i < *count; i++) {
        const uint8_t *e = file + HEAD + i * ENTRY;
        const uint64_t first = get64(e + 16), bytes = get64(e + 24);
        if (first != aligned(at) || first > size || bytes > size - first)
            return npf_fail(error, NPUFLOW_DAMAGED, "a section is misplaced or cut off");
        for (; at < first; at++)
            if (file[at])
                return npf_fail(error, NPUFLOW_DAMAGED, "bytes between sections are not zero");
        if (differs(file + first, bytes, e + 32))
            return npf_fail(error, NPUFLOW_DAMAGED, "a section is damaged: its digest differs");
        at = first + bytes;
    }
    return at == size ? NPUFLOW_OK : npf_fail(error, NPUFLOW_DAMAGED, "bytes behind the last section");
}

/* Which of the file's networks has the name; -1: none. */
static int network_of(const npf_section *set, const char *name)
{
    npf_json j = npf_json_of(set->body, set->size);
    npf_json_begin(&j, '{');
    while (npf_json_next(&j, '}')) {
        const npf_json key = npf_json_key(&j);
        int i;
        if (!npf_json_is(key, "networks")) {
            npf_json_value(&j);
            continue;
        }
        npf_json_begin(&j, '[');
        for (i = 0; npf_json_next(&j, ']'); i++)
            if (npf_json_is(npf_json_string(&j), name))
                return i;
    }
    return -1;
}

static int number_behind(const char *name, const char *kind, uint32_t *number)
{
    const size_t n = strlen(kind);
    uint32_t found = 0;
    if (strncmp(name, kind, n) || !name[n] || (name[n] == '0' && name[n + 1]))
        return 0;
    for (name += n; *name; name++) {
        if (*name < '0' || *name > '9' || found > MOST_SECTIONS)
            return 0;
        found = 10 * found + (uint32_t)(*name - '0');
    }
    *number = found;
    return 1;
}

static npuflow_status take(const npf_section *s, const char *name, npf_sections *found, npuflow_error *error)
{
    uint32_t number;
    if (!strcmp(name, "meta")) {
        found->meta = s->body, found->meta_bytes = s->size;
    } else if (!strcmp(name, "const")) {
        found->constants = s->body, found->const_bytes = s->size;
    } else if (number_behind(name, "core", &number)) {
        if (number >= NPUFLOW_MOST_CORES || s->size % (4 * NPF_WORDS))
            return npf_fail(error, NPUFLOW_METADATA, "a section of commands is not a whole number of them");
        found->core[number] = s->body, found->core_bytes[number] = s->size;
        found->cores++;
    } else if (number_behind(name, "host", &number)) {
        if (number < NPF_MOST_HOSTS)
            found->host[number] = s->body, found->host_bytes[number] = s->size;
        found->hosts++;
    } else if (strcmp(name, "taps") && strcmp(name, "graph") && strcmp(name, "provenance") && strcmp(name, "seal"))
        return npf_fail(error, NPUFLOW_METADATA, "a section that no program of this format has");
    return NPUFLOW_OK;
}

npuflow_status npf_find_sections(const uint8_t *file, uint64_t size, const char *network, char target[65],
    npf_sections *found, npuflow_error *error)
{
    uint32_t count = 0, i, k;
    int chosen = -1;
    npuflow_status status = check_table(file, size, &count, error);
    memset(found, 0, sizeof *found);
    if (status != NPUFLOW_OK)
        return status;
    memcpy(target, file + 16, 64);
    target[64] = '\0';
    for (i = 0; i < count; i++) {
        const npf_section s = npf_section_at(file, i);
        for (k = 0; k < i; k++)
            if (!memcmp(file + HEAD + (size_t)k * ENTRY, file + HEAD + (size_t)i * ENTRY, 16))
                return npf_fail(error, NPUFLOW_DAMAGED, "two sections have one name");
        if (strcmp(s.name, "set"))
            continue;
        if (!network)
            return npf_fail(error, NPUFLOW_NETWORK, "the file holds several networks: name one");
        chosen = network_of(&s, network);
        if (chosen < 0)
            return npf_fail(error, NPUFLOW_NETWORK, "the file has no network of this name");
    }
    if (network && chosen < 0)
        return npf_fail(error, NPUFLOW_NETWORK, "the file holds one network, which has no name");
    for (i = 0; i < count; i++) {
        const npf_section s = npf_section_at(file, i);
        const char *slash = strchr(s.name, '/'), *name = s.name;
        if (chosen >= 0) {
            uint32_t number;
            char front[17];
            if (!strcmp(name, "set") || !strcmp(name, "arrays"))
                continue;
            if (slash) {
                memcpy(front, s.name, sizeof front);
                front[slash - s.name] = '\0';
                if (!number_behind(front, "", &number))
                    return npf_fail(error, NPUFLOW_METADATA, "a section that no program of this format has");
                if (number != (uint32_t)chosen)
                    continue;
                name = slash + 1;
            } else if (strcmp(name, "const") && strcmp(name, "provenance") && strcmp(name, "seal"))
                return npf_fail(error, NPUFLOW_METADATA, "a section that no program of this format has");
        }
        if ((status = take(&s, name, found, error)) != NPUFLOW_OK)
            return status;
    }
    for (i = 0; i < found->cores; i++)
        if (!found->core[i])
            return npf_fail(error, NPUFLOW_METADATA, "sections of commands are not numbered one by one");
    if (!found->meta)
        return npf_fail(error, NPUFLOW_METADATA, "the program has no metadata");
    return NPUFLOW_OK;
}

npuflow_status npuflow_network(const void *file, size_t size, uint32_t index, char *name, size_t room)
{
    const uint8_t *bytes = (const uint8_t *)file;
    uint32_t count = 0, i, k = 0;
    npuflow_status status;
    if (!file || !name || !room)
        return NPUFLOW_USAGE;
    name[0] = '\0';
    if ((status = check_table(bytes, size, &count, NULL)) != NPUFLOW_OK)
        return status;
    for (i = 0; i < count; i++) {
        const npf_section s = npf_section_at(bytes, i);
        npf_json j = npf_json_of(s.body, s.size);
        if (strcmp(s.name, "set"))
            continue;
        npf_json_begin(&j, '{');
        while (npf_json_next(&j, '}')) {
            if (!npf_json_is(npf_json_key(&j), "networks")) {
                npf_json_value(&j);
                continue;
            }
            npf_json_begin(&j, '[');
            while (npf_json_next(&j, ']')) {
                const npf_json found = npf_json_string(&j);
                if (j.bad || k++ != index)
                    continue;
                if ((size_t)(found.end - found.at) >= room)
                    return NPUFLOW_USAGE;
                npf_json_text(found, name);
                return NPUFLOW_OK;
            }
        }
        return NPUFLOW_NETWORK;
    }
    return index ? NPUFLOW_NETWORK : NPUFLOW_OK;
}
