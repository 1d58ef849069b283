#define _XOPEN_SOURCE 700
#include "text.h"

#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

int text_utf8(void) { return strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

int text_colour(void) {
    const char *const off = getenv("NO_COLOR"), *const term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(off && *off) && !(term && strcmp(term, "dumb") == 0);
}

/* The bytes of the UTF-8 character at `text`, or 0 if there is none. */
static int character_bytes(const unsigned char *text, size_t length) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const int bytes = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : text[0] >> 3 == 30 ? 4 : 0;
    if (bytes < 2 || (size_t)bytes > length) return bytes == 1;
    uint32_t code = text[0] & (0x7fu >> bytes);
    for (int i = 1; i < bytes; ++i) {
        if (text[i] >> 6 != 2) return 0;
        code = code << 6 | (text[i] & 63);
    }
    return code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : bytes;
}

/* One character of `text` as it may be printed, in `out`; its columns and the bytes it used up. */
static int shown(const char *text, size_t length, int utf8, char out[16], int *used) {
    const unsigned char first = (unsigned char)text[0];
    int bytes = character_bytes((const unsigned char *)text, length);
    wchar_t wide;
    mbstate_t state;
    memset(&state, 0, sizeof state);
    *used = 1;
    if (first == '"') return strcpy(out, "\\\""), 2;
    if (first >= ' ' && first < 127) return out[0] = text[0], out[1] = 0, 1;
    if (bytes > 1 && utf8 && mbrtowc(&wide, text, (size_t)bytes, &state) == (size_t)bytes && wcwidth(wide) > 0) {
        memcpy(out, text, (size_t)bytes);
        out[bytes] = 0;
        *used = bytes;
        return wcwidth(wide);
    }
    return snprintf(out, 16, "\\x%02x", first);
}

int text_quoted(FILE *to, const char *text, size_t length, int columns, int utf8) {
    const int limit = columns ? columns - 2 : 0; /* room between the quotes */
    int total = 0, taken = 0, used, cut = 0;
    char out[16];
    for (size_t i = 0; i < length; i += (size_t)used) total += shown(text + i, length - i, utf8, out, &used);
    fputc('"', to);
    for (size_t i = 0; i < length; i += (size_t)used) {
        const int width = shown(text + i, length - i, utf8, out, &used);
        if (columns && total > limit && taken + width > limit - (utf8 ? 1 : 2)) {
            fputs(utf8 ? "…" : "..", to);
            taken += utf8 ? 1 : 2;
            cut = 1;
            break;
        }
        fputs(out, to);
        taken += width;
    }
    if (!cut) fputc('"', to);
    taken += cut ? 1 : 2;
    for (; taken < columns; ++taken) fputc(' ', to);
    return taken;
}

void json_string(FILE *to, const char *text, size_t length) {
    fputc('"', to);
    for (size_t i = 0; i < length;) {
        const unsigned char c = (unsigned char)text[i];
        const int bytes = character_bytes((const unsigned char *)text + i, length - i);
        if (c == '"' || c == '\\') {
            fprintf(to, "\\%c", c);
        } else if (c < ' ' || c == 127) {
            fprintf(to, "\\u%04x", c);
        } else if (!bytes) {
            fprintf(to, "\\\\x%02x", c);
        } else {
            fwrite(text + i, 1, (size_t)bytes, to);
        }
        i += bytes ? (size_t)bytes : 1;
    }
    fputc('"', to);
}

void json_number(FILE *to, double value) {
    if (isfinite(value))
        fprintf(to, "%.17g", value);
    else
        fputs("null", to);
}

const char *grouped(uint64_t value) {
    static char buffers[8][32];
    static int next;
    char *const end = buffers[next = (next + 1) % 8] + 31;
    char *at = end;
    int digits = 0;
    *at = 0;
    do {
        if (digits && digits % 3 == 0) *--at = ',';
        *--at = (char)('0' + value % 10);
        value /= 10;
        ++digits;
    } while (value);
    return at;
}

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double progress_first, progress_last;
static int progress_shown;

void progress(const char *what, double fraction) {
    const double now = seconds_now();
    if (progress_first == 0) progress_first = now;
    if (now - progress_first < 0.5 || now - progress_last < 0.1 || !isatty(STDERR_FILENO)) return;
    progress_last = now;
    progress_shown = 1;
    fprintf(stderr, "\r\033[K%s %3.0f %%", what, 100 * fraction);
    fflush(stderr);
}

void progress_end(void) {
    if (progress_shown) fputs("\r\033[K", stderr);
    progress_first = progress_last = 0;
    progress_shown = 0;
}
