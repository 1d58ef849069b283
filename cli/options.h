/* options.h - the command line as a struct. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "cli.h"
#include "lists.h"

enum { SIZES_MAX = 8, GIVEN_MAX = 64 };

typedef enum list_name {
    LIST_BIAS,
    LIST_BANNED,
    LIST_ALLOWED,
    LIST_STOP,
    LIST_WORDS,
    LIST_BREAKER,
    LIST_PROMPT,
    LIST_GENERATED,
    LISTS
} list_name;

typedef struct options {
    const char *file; /* the positional argument, or NULL */
    raffle_backend backend;
    int dtype;       /* raffle_dtype, or -1: as in the file */
    unsigned isas;   /* bit i: raffle_isa i was named; 0: none was */
    int64_t threads; /* -1: not given */
    float temperature, top_p, min_p;
    int32_t top_k;
    uint32_t flags; /* RAFFLE_TOP_P_JOINT ... */
    uint64_t seed, position;
    int64_t draws;
    int64_t row_first, row_end; /* --rows; row_end -1: to the last */
    int64_t row;                /* --row */
    int64_t top;                /* --top: lines of explain */
    const char *vocab;          /* a file of token texts */
    const char *vectors, *csv;
    const char *out, *kept;   /* files to write */
    int out_dtype;            /* raffle_dtype */
    raffle_request request;   /* what raffle_request_set was told, and logprobs */
    id_list lists[LISTS];     /* of the request */
    int32_t point;            /* raffle_point of logprobs */
    int asks;                 /* something of a raffle_extra was given */
    int64_t sizes[SIZES_MAX]; /* --vocab of bench */
    int sizes_count;
    int counts, json, ascii, quick, log, mask, probs, help;
    struct {
        const char *name, *value; /* value NULL: it takes none */
        int request;              /* 1: of a raffle_extra */
    } given[GIVEN_MAX];           /* what was given, in order */
    int given_count;
} options;

/* Parses argv[2..] for the command argv[1]. On failure complains and returns EXIT_USAGE. */
exit_code options_parse(options *options, int argc, char **argv);
void options_free(options *options); /* also of options that could not be parsed */

void help_tool(void);
void help_command(const char *command);

/* The command of that name, or NULL. */
typedef exit_code (*command_function)(const options *);
command_function command_named(const char *name);

/* Whether an option was given. */
int options_given(const options *options, const char *name);

/* The one instruction set that was asked for, or RAFFLE_ISA_BEST. */
raffle_isa options_isa(const options *options);

#endif
