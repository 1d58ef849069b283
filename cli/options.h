/* options.h - the command line as a struct. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "cli.h"

enum { SIZES_MAX = 8 };

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
    int64_t sizes[SIZES_MAX]; /* --vocab of bench */
    int sizes_count;
    int counts, json, ascii, quick, help;
} options;

/* Parses argv[2..] for the command argv[1]. On failure complains and returns EXIT_USAGE. */
exit_code options_parse(options *options, int argc, char **argv);

void help_tool(void);
void help_command(const char *command);

/* The command of that name, or NULL. */
typedef exit_code (*command_function)(const options *);
command_function command_named(const char *name);

/* The one instruction set that was asked for, or RAFFLE_ISA_BEST. */
raffle_isa options_isa(const options *options);

#endif
