/* text.h - what a terminal or a JSON reader may be shown. */
#ifndef TEXT_H
#define TEXT_H

#include <stdint.h>
#include <stdio.h>

/* 1: stdout's locale is UTF-8, so blocks and foreign letters may be shown. */
int text_utf8(void);
/* 1: stdout is a terminal that wants colour (NO_COLOR is not set). */
int text_colour(void);

/* Writes `text` in double quotes, with whatever a terminal should not see as \xHH, cut to `columns` with
 * a mark if it is longer, and padded to them; columns 0: neither. Returns the columns it took. */
int text_quoted(FILE *to, const char *text, size_t length, int columns, int utf8);

/* `text` as a JSON string; bytes that are not UTF-8 as \\xHH, like data/README.md does. */
void json_string(FILE *to, const char *text, size_t length);
/* A JSON number, or null for what JSON has no number for. */
void json_number(FILE *to, double value);

/* 1234567 as "1,234,567" in one of a few static buffers. */
const char *grouped(uint64_t value);

/* A line on stderr that tells how far a long run is, if stderr is a terminal. */
void progress(const char *what, double fraction);
void progress_end(void);

double seconds_now(void);

#endif
