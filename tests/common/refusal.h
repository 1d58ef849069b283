/* refusal.h - what an error must tell: its status, its row, and a sentence that names the field and was not cut. */
#ifndef RAFFLE_TESTS_REFUSAL_H
#define RAFFLE_TESTS_REFUSAL_H

#include "common/test.h"
#include "raffle/raffle.h"

static inline void error_tells(const raffle_error *error, int status, int64_t row, const char *field) {
    CHECK_EQ(error->size, sizeof *error);
    CHECK_EQ(error->status, status);
    CHECK_EQ(error->row, row);
    CHECK(memchr(error->text, 0, sizeof error->text) && strlen(error->text) < sizeof error->text - 1, "\"%s\" was cut", error->text);
    CHECK(strstr(error->text, field), "\"%s\" does not name %s", error->text, field);
}

#endif
