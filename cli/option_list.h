/* option_list.h - the commands and their options: what options.c parses and --help lists. */
#ifndef OPTION_LIST_H
#define OPTION_LIST_H

#include "options.h"

typedef enum command_bit {
    SAMPLE = 1,
    EXPLAIN = 2,
    BENCH = 4,
    SELFTEST = 8,
    DEMO = 16,
    INFO = 32,
    SOFTMAX = 64,
    EVERY = 127
} command_bit;

typedef struct command_def {
    const char *name;
    command_bit bit;
    command_function run;
    const char *argument; /* the positional argument; in brackets: may be left out; NULL: none */
    const char *summary, *details;
} command_def;

typedef enum option_kind {
    FLAG,
    REAL,
    SMALL,
    WHOLE,
    COUNT,
    TEXT,
    ROWS,
    DTYPE,
    ISA,
    BACKEND,
    FLAGS,
    SIZES,
    POINT,
    REQUEST, /* a number for raffle_request_set, by vLLM's name for it */
    IDS,
    TOKENS,
    BIAS,
    WORDS /* a list; `offset` is its list_name */
} option_kind;

typedef struct option_def {
    const char *name, *value; /* value NULL: takes none */
    unsigned commands;
    option_kind kind;
    size_t offset; /* of the field in `options` */
    const char *help;
} option_def;

#define DRAWS (SAMPLE | EXPLAIN)
#define LAWS  (DRAWS | SOFTMAX)

const command_def *command_def_of(const char *name); /* or NULL */
/* The option of that name, or NULL. */
const option_def *option_def_of(const char *name, size_t length, command_bit command);
/* Whether an option is one of a raffle_extra. */
int option_of_request(const option_def *def);

/* --flags, in order, and the bit of each. */
enum { FLAG_NAMES = 9, CALL_FLAGS = 6 }; /* the first are those of a call, the others a request's */
extern const char *const flag_names[FLAG_NAMES];
uint32_t flag_bit(int place);

#endif
