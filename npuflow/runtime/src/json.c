/* Reads JSON in place: values as spans of the text, without a tree and without memory. */

#include <stdlib.h>

#include "internal.h"

enum { DEPTH = 64 };

npf_json npf_json_of(const uint8_t *text, uint64_t size)
{
    npf_json j;
    j.at = (const char *)text;
    j.end = j.at + size;
    j.bad = 0;
    j.more = 0;
    return j;
}

static char peek(npf_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r'))
        j->at++;
    return j->bad || j->at >= j->end ? '\0' : *j->at;
}

static void expect(npf_json *j, char wanted)
{
    if (peek(j) == wanted)
        j->at++;
    else
        j->bad = 1;
}

void npf_json_begin(npf_json *j, char open)
{
    expect(j, open);
    j->more = 0;
}

/* `more` says whether a value came before: where an inner value was read meanwhile, it has ended. */
int npf_json_next(npf_json *j, char close)
{
    const char c = peek(j);
    if (c == close) {
        j->at++;
        j->more = 1;
        return 0;
    }
    if (j->more)
        expect(j, ',');
    j->more = 1;
    return !j->bad && peek(j) != '\0';
}

npf_json npf_json_string(npf_json *j)
{
    npf_json span = *j;
    expect(j, '"');
    span.at = j->at;
    while (!j->bad && j->at < j->end && *j->at != '"')
        j->at += *j->at == '\\' && j->end - j->at > 1 ? 2 : 1;
    span.end = j->at < j->end ? j->at : span.at;
    expect(j, '"');
    span.bad = j->bad;
    j->more = 1;
    return span;
}

npf_json npf_json_key(npf_json *j)
{
    const npf_json span = npf_json_string(j);
    expect(j, ':');
    j->more = 0;
    return span;
}

npf_json npf_json_value(npf_json *j)
{
    npf_json span = *j;
    char stack[DEPTH];
    int depth = 0;
    peek(j);
    span.at = j->at;
    do {
        const char c = peek(j);
        if (c == '"')
            npf_json_string(j);
        else if ((c == '{' || c == '[') && depth < DEPTH) {
            stack[depth++] = c == '{' ? '}' : ']';
            j->at++;
        } else if (depth && c == stack[depth - 1]) {
            depth--;
            j->at++;
        } else if (depth && (c == ',' || c == ':'))
            j->at++;
        else if (c == '-' || c == 't' || c == 'f' || c == 'n' || c == 'I' || c == 'N' || (c >= '0' && c <= '9')) {
            while (j->at < j->end && *j->at != ',' && *j->at != '}' && *j->at != ']' && *j->at != ' '
                && *j->at != '"' && *j->at != ':' && *j->at != '\n')
                j->at++;
        } else
            j->bad = 1;
    } while (depth && !j->bad);
    span.end = j->at;
    span.bad = j->bad;
    span.more = 0;
    j->more = 1;
    return span;
}

int64_t npf_json_signed(npf_json *j)
{
    const int negative = peek(j) == '-';
    int64_t found = 0;
    int digits = 0;
    if (negative)
        j->at++;
    while (!j->bad && j->at < j->end && *j->at >= '0' && *j->at <= '9') {
        if (++digits > 18)
            j->bad = 1;
        else
            found = 10 * found + (*j->at++ - '0');
    }
    if (!digits || (j->at < j->end && (*j->at == '.' || *j->at == 'e' || *j->at == 'E')))
        j->bad = 1;
    j->more = 1;
    return j->bad ? 0 : negative ? -found : found;
}

int64_t npf_json_whole(npf_json *j, int64_t most)
{
    const int64_t found = npf_json_signed(j);
    if (found < 0 || found > most)
        j->bad = 1;
    return j->bad ? 0 : found;
}

double npf_json_real(npf_json *j)
{
    const npf_json span = npf_json_value(j);
    char text[64], *end;
    double found;
    const size_t n = (size_t)(span.end - span.at);
    if (j->bad || n == 0 || n >= sizeof text) {
        j->bad = 1;
        return 0;
    }
    memcpy(text, span.at, n);
    text[n] = '\0';
    found = strtod(text, &end);
    if (*end || !(found - found == 0))
        j->bad = 1;
    return j->bad ? 0 : found;
}

int npf_json_is(npf_json span, const char *text)
{
    const size_t n = strlen(text);
    return !span.bad && (size_t)(span.end - span.at) == n && !memcmp(span.at, text, n);
}

int npf_json_same(npf_json a, npf_json b)
{
    return !a.bad && !b.bad && a.end - a.at == b.end - b.at && !memcmp(a.at, b.at, (size_t)(a.end - a.at));
}

int npf_json_null(npf_json *j)
{
    if (peek(j) != 'n')
        return 0;
    npf_json_value(j);
    return 1;
}

int npf_json_true(npf_json *j)
{
    const npf_json span = npf_json_value(j);
    if (!npf_json_is(span, "true") && !npf_json_is(span, "false"))
        j->bad = 1;
    return npf_json_is(span, "true");
}

static uint32_t hex(const char *p, const char *end)
{
    uint32_t found = 0;
    int i;
    for (i = 0; i < 4; i++) {
        const char c = p + i < end ? p[i] : 'x';
        const uint32_t digit = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
            : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10 : 16;
        if (digit > 15)
            return 0x10000;
        found = 16 * found + digit;
    }
    return found;
}

static char *put_utf8(char *out, uint32_t c)
{
    if (c < 0x80)
        *out++ = (char)c;
    else if (c < 0x800) {
        *out++ = (char)(0xC0 | c >> 6);
        *out++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = (char)(0xE0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    } else {
        *out++ = (char)(0xF0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 63));
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    }
    return out;
}

void npf_json_text(npf_json span, char *out)
{
    const char *p = span.at;
    while (p < span.end) {
        if (*p != '\\' || span.end - p < 2) {
            *out++ = *p++;
            continue;
        }
        p += 2;
        switch (p[-1]) {
        case 'n': *out++ = '\n'; break;
        case 't': *out++ = '\t'; break;
        case 'r': *out++ = '\r'; break;
        case 'b': *out++ = '\b'; break;
        case 'f': *out++ = '\f'; break;
        case 'u': {
            uint32_t c = hex(p, span.end);
            if (c > 0xFFFF)
                break;
            p += 4;
            if (c >= 0xD800 && c < 0xDC00 && span.end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
                const uint32_t low = hex(p + 2, span.end);
                if (low >= 0xDC00 && low < 0xE000) {
                    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
                    p += 6;
                }
            }
            out = put_utf8(out, c);
            break;
        }
        default: *out++ = p[-1];
        }
    }
    *out = '\0';
}
