#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum command_bit {
    SAMPLE = 1,
    EXPLAIN = 2,
    BENCH = 4,
    SELFTEST = 8,
    DEMO = 16,
    INFO = 32,
    EVERY = 63
} command_bit;

typedef struct command_def {
    const char *name;
    command_bit bit;
    command_function run;
    const char *argument; /* the positional argument; in brackets: may be left out; NULL: none */
    const char *summary, *details;
} command_def;

static const command_def commands[] = {
    {"sample", SAMPLE, command_sample, "LOGITS.npy", "draw tokens from rows of logits",
     "Prints one line of token ids per row, or with --counts lines `row token count`. LOGITS.npy holds\n"
     "float32 or float16 logits, [vocab] or [rows, vocab]. Every row uses the same seed; draw d of a row\n"
     "is made at position N + d, so any draw can be repeated alone."},
    {"explain", EXPLAIN, command_explain, "LOGITS.npy", "show what the filters did to a row and which ticket won",
     "Shows what each filter removed, the exact probability and the tickets of the likeliest tokens, the\n"
     "ticket that was drawn, and a picture of the distribution before and after the filters. With\n"
     "--backend cuda the GPU draws as well, and the exit code is 1 if its token is another."},
    {"bench", BENCH, command_bench, NULL, "measure each route against a plain maximum over the row",
     "Measures microseconds per row for greedy, top-k, top-p, min-p and no filter, row in cache and out of\n"
     "cache, beside a plain SIMD maximum over the same row in float32. Medians of interleaved repetitions.\n"
     "With --backend cuda: microseconds per call for 1, 32 and 128 rows in memory of the GPU, beside the\n"
     "time of a copy of so many bytes; `make bench-cuda` measures more."},
    {"selftest", SELFTEST, command_selftest, NULL, "run the frozen vectors on every instruction set of this machine",
     "Draws the tokens of tests/vectors/vectors.txt, which is built into this program, and compares.\n"
     "Exits with 1 if any token differs."},
    {"demo", DEMO, command_demo, "[DATA]", "draw from real logits and compare with the exact probabilities",
     "DATA is the folder with smollm2.npy, its vocabulary and its prompts; `data` if left out."},
    {"info", INFO, command_info, NULL, "version, instruction sets, GPU",
     "What this build is and what this machine can run."},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

typedef enum option_kind { FLAG, REAL, SMALL, WHOLE, COUNT, TEXT, ROWS, DTYPE, ISA, BACKEND, FLAGS, SIZES } option_kind;

typedef struct option_def {
    const char *name, *value; /* value NULL: takes none */
    unsigned commands;
    option_kind kind;
    size_t offset; /* of the field in `options` */
    const char *help;
} option_def;

#define DRAWS     (SAMPLE | EXPLAIN)
#define AT(field) offsetof(options, field)
static const option_def option_list[] = {
    {"temperature", "T", DRAWS, REAL, AT(temperature), "divides the logits; 0: greedy, inf: uniform (default 1)"},
    {"top-k", "K", DRAWS, SMALL, AT(top_k), "keep logits at least the K-th largest (default 0: off)"},
    {"top-p", "P", DRAWS, REAL, AT(top_p), "keep while the mass of larger logits is below P (default 1: off)"},
    {"min-p", "M", DRAWS, REAL, AT(min_p), "keep what is at least M times as likely as the best (default 0: off)"},
    {"flags", "LIST", DRAWS, FLAGS, AT(flags),
     "joint, filters-first, min-p-last, top-k-exact, empty-is-zero; by commas"},
    {"seed", "S", DRAWS, WHOLE, AT(seed), "seed of the draw, 0 to 2^64-1 (default 0)"},
    {"position", "N", DRAWS, WHOLE, AT(position), "position of the (first) draw, 0 to 2^64-1 (default 0)"},
    {"draws", "N", SAMPLE, COUNT, AT(draws), "draws per row, at consecutive positions (default 1)"},
    {"counts", NULL, SAMPLE, FLAG, AT(counts), "count the draws: `row token count`, most frequent first"},
    {"rows", "A:B", SAMPLE, ROWS, 0, "only rows A to B-1; A: and :B are fine, A alone is one row"},
    {"row", "R", EXPLAIN, COUNT, AT(row), "the row to explain (default 0)"},
    {"top", "N", EXPLAIN, COUNT, AT(top), "how many of the likeliest tokens to show, up to 10000 (default 12)"},
    {"dtype", "TYPE", DRAWS, DTYPE, AT(dtype),
     "convert the logits to f32, f16 or bf16 first (default: as in the file)"},
    {"vocab", "TOKENS.txt", DRAWS, TEXT, AT(vocab), "line n is the text of token n-1; shown beside the ids"},
    {"vocab", "LIST", BENCH, SIZES, 0, "vocabulary sizes, by commas (default 32000,128256,151936,262144; GPU 128256)"},
    {"isa", "NAME", DRAWS, ISA, AT(isas), "scalar, avx2, avx512 or neon (default: the best)"},
    {"isa", "LIST", BENCH | SELFTEST, ISA, AT(isas),
     "scalar, avx2, avx512, neon; by commas (default: all this machine has)"},
    {"backend", "NAME", DRAWS | BENCH | SELFTEST, BACKEND, AT(backend), "cpu or cuda (default cpu)"},
    {"threads", "N", SAMPLE, COUNT, AT(threads), "threads, 1 to 1024 (default 1); the tokens do not depend on it"},
    {"threads", "N", BENCH, COUNT, AT(threads), "threads of the last column, 1 to 1024 (default: all)"},
    {"quick", NULL, BENCH, FLAG, AT(quick), "two sizes, the best instruction set, fewer repetitions"},
    {"csv", "FILE", BENCH, TEXT, AT(csv), "also write the numbers there"},
    {"vectors", "FILE", SELFTEST, TEXT, AT(vectors), "read the vectors from there instead"},
    {"json", NULL, DRAWS | INFO, FLAG, AT(json), "print JSON"},
    {"ascii", NULL, EXPLAIN | DEMO, FLAG, AT(ascii),
     "draw the picture in plain ASCII, as it is in a locale without UTF-8"},
    {"help", NULL, EVERY, FLAG, AT(help), "this text"},
};
enum { OPTIONS = sizeof option_list / sizeof option_list[0], TOP_MAX = 10000 };

static int parse_real(const char *text, float *out) {
    char *end;
    errno = 0;
    const float value = strtof(text, &end);
    if (isspace((unsigned char)*text) || end == text || *end || (errno == ERANGE && isinf(value))) return -1;
    *out = value;
    return 0;
}

/* A whole number from 0 to 2^64-1, decimal or 0x. */
static int parse_whole(const char *text, uint64_t *out) {
    char *end;
    const int hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    if (!isdigit((unsigned char)*text)) return -1;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, hex ? 16 : 10);
    if (*end || errno == ERANGE || (hex && end == text + 1)) return -1;
    *out = value;
    return 0;
}

static int parse_small(const char *text, int32_t *out) {
    uint64_t value;
    const int minus = *text == '-';
    if (parse_whole(text + minus, &value) || value > (uint64_t)INT32_MAX + (uint64_t)minus) return -1;
    *out = (int32_t)(minus ? -(int64_t)value : (int64_t)value);
    return 0;
}

static int parse_count(const char *text, int64_t *out) {
    uint64_t value;
    if (parse_whole(text, &value) || value > INT64_MAX) return -1;
    *out = (int64_t)value;
    return 0;
}

static int parse_rows(const char *text, options *o) {
    char first[32];
    const char *const colon = strchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    if (length >= sizeof first || (!colon && !length)) return -1;
    memcpy(first, text, length);
    first[length] = 0;
    o->row_first = 0;
    o->row_end = -1;
    if (length && parse_count(first, &o->row_first)) return -1;
    if (colon && colon[1] && parse_count(colon + 1, &o->row_end)) return -1;
    if (!colon) {
        if (o->row_first == INT64_MAX) return -1;
        o->row_end = o->row_first + 1;
    }
    return o->row_end >= 0 && o->row_end < o->row_first ? -1 : 0;
}

/* The place of `text` (`length` bytes of it) in `names`, or -1. */
static int place_of(const char *text, size_t length, const char *const *names, int count) {
    for (int i = 0; i < count; ++i)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0) return i;
    return -1;
}

/* A comma list of names as bits. */
static int parse_set(const char *text, const char *const *names, int count, unsigned *bits) {
    *bits = 0;
    for (;;) {
        const size_t length = strcspn(text, ",");
        const int place = place_of(text, length, names, count);
        if (place < 0) return -1;
        *bits |= 1u << place;
        if (!text[length]) return 0;
        text += length + 1;
    }
}

static int parse_sizes(const char *text, options *o) {
    for (o->sizes_count = 0; o->sizes_count < SIZES_MAX;) {
        char one[16];
        const size_t length = strcspn(text, ",");
        if (length >= sizeof one) return -1;
        memcpy(one, text, length);
        one[length] = 0;
        int64_t *const size = &o->sizes[o->sizes_count++];
        if (parse_count(one, size) || *size < 1 || *size > RAFFLE_VOCAB_MAX) return -1;
        if (!text[length]) return 0;
        text += length + 1;
    }
    return -1;
}

/* Reads one value; on failure returns what it should have been. */
static const char *parse_value(const option_def *def, const char *text, options *o) {
    static const char *const backends[] = {"cpu", "cuda"};
    static const char *const isas[] = {"best", "scalar", "avx2", "avx512", "neon"};
    static const char *const flags[] = {"joint", "filters-first", "min-p-last", "top-k-exact", "empty-is-zero"};
    char *const field = (char *)o + def->offset;
    unsigned bits;
    switch (def->kind) {
    case FLAG: *(int *)field = 1; return NULL;
    case TEXT: *(const char **)field = text; return NULL;
    case REAL: return parse_real(text, (float *)field) ? "a number" : NULL;
    case SMALL: return parse_small(text, (int32_t *)field) ? "a whole number of 32 bits" : NULL;
    case WHOLE: return parse_whole(text, (uint64_t *)field) ? "a whole number from 0 to 2^64-1" : NULL;
    case COUNT: return parse_count(text, (int64_t *)field) ? "a whole number from 0 to 2^63-1" : NULL;
    case ROWS: return parse_rows(text, o) ? "a range of rows like 2:5" : NULL;
    case SIZES: return parse_sizes(text, o) ? "a comma list of at most 8 sizes from 1 to 2097152" : NULL;
    case DTYPE:
        *(int *)field = place_of(text, strlen(text), dtype_names, 3);
        return *(int *)field < 0 ? "f32, f16 or bf16" : NULL;
    case BACKEND: {
        const int place = place_of(text, strlen(text), backends, 2);
        o->backend = (raffle_backend)place;
        return place < 0 ? "cpu or cuda" : NULL;
    }
    case ISA:
        if (parse_set(text, isas, 5, &bits)) return "best, scalar, avx2, avx512 or neon";
        o->isas = bits & ~1u; /* "best" is what no name means */
        return NULL;
    case FLAGS:
        if (parse_set(text, flags, 5, &bits)) return "joint, filters-first, min-p-last, top-k-exact or empty-is-zero";
        o->flags = bits; /* the list is in the order of the RAFFLE_* bits */
        return NULL;
    }
    return "known";
}

static const command_def *command_def_of(const char *name) {
    for (int i = 0; i < COMMANDS; ++i)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static const option_def *option_def_of(const char *name, size_t length, command_bit command) {
    for (int i = 0; i < OPTIONS; ++i) {
        const option_def *def = &option_list[i];
        if (def->commands & command && strlen(def->name) == length && memcmp(def->name, name, length) == 0) return def;
    }
    return NULL;
}

/* Reads the option at argv[*i], and its value if it has one. */
static exit_code parse_option(options *o, const command_def *command, int argc, char **argv, int *i) {
    const char *const word = strcmp(argv[*i], "-h") == 0 ? "--help" : argv[*i];
    const char *const name = word + 2, *const equals = strchr(word, '=');
    const size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const option_def *const def = word[1] == '-' ? option_def_of(name, length, command->bit) : NULL;
    const char *value = equals ? equals + 1 : NULL;
    if (!def) {
        complain("unknown option %.*s; try: raffle %s --help", (int)(word[1] == '-' ? length + 2 : strlen(word)), word,
                 command->name);
        return EXIT_USAGE;
    }
    if (!def->value && value) return complain("--%s takes no value", def->name), EXIT_USAGE;
    if (def->value && !value) {
        if (++*i >= argc) return complain("--%s needs a value: %s", def->name, def->value), EXIT_USAGE;
        value = argv[*i];
    }
    const char *const wish = parse_value(def, value ? value : "", o);
    if (wish) return complain("--%s is \"%s\": must be %s", def->name, value, wish), EXIT_USAGE;
    return EXIT_FINE;
}

/* What the parser of one value cannot see. */
static exit_code check(const options *o, const command_def *command) {
    if (command->argument && command->argument[0] != '[' && !o->file)
        complain("%s is missing; try: raffle %s --help", command->argument, command->name);
    else if (o->draws < 1)
        complain("--draws is 0: must be 1 or more");
    else if (o->position + (uint64_t)(o->draws - 1) < o->position)
        complain("--position plus --draws goes beyond 2^64");
    else if (o->threads == 0 || o->threads > 1024)
        complain("--threads is %lld: must be 1 to 1024", (long long)o->threads);
    else if (command->bit & DRAWS && o->isas & (o->isas - 1))
        complain("--isa has several names: %s takes one", command->name);
    else if (o->backend == RAFFLE_CUDA && o->isas)
        complain("--isa is for the CPU, --backend is cuda");
    else if (o->top < 1 || o->top > TOP_MAX)
        complain("--top is %lld: must be 1 to %d", (long long)o->top, TOP_MAX);
    else
        return EXIT_FINE;
    return EXIT_USAGE;
}

exit_code options_parse(options *o, int argc, char **argv) {
    const command_def *const command = command_def_of(argv[1]);
    const options made = {
        .dtype = -1, .threads = -1, .temperature = 1.0f, .top_p = 1.0f, .draws = 1, .row_end = -1, .top = 12};
    int only_files = 0;
    *o = made;
    for (int i = 2; i < argc; ++i) {
        if (!only_files && strcmp(argv[i], "--") == 0) {
            only_files = 1;
        } else if (!only_files && argv[i][0] == '-' && argv[i][1]) {
            const exit_code code = parse_option(o, command, argc, argv, &i);
            if (code) return code;
        } else if (!command->argument || o->file) {
            complain("unexpected argument %s; try: raffle %s --help", argv[i], command->name);
            return EXIT_USAGE;
        } else {
            o->file = argv[i];
        }
    }
    return o->help ? EXIT_FINE : check(o, command);
}

command_function command_named(const char *name) {
    const command_def *const def = command_def_of(name);
    return def ? def->run : NULL;
}

raffle_isa options_isa(const options *o) {
    for (int i = RAFFLE_ISA_SCALAR; i <= RAFFLE_ISA_NEON; ++i)
        if (o->isas >> i & 1) return (raffle_isa)i;
    return RAFFLE_ISA_BEST;
}

static const char exit_help[] =
    "Exit codes: 0 fine; 1 a result is wrong (selftest, demo, explain); 2 the command line or the\n"
    "input is wrong; 3 this machine cannot (instruction set, GPU, memory, disk).\n";

void help_tool(void) {
    printf("raffle: exact, reproducible token sampling\n\nusage: raffle COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; ++i) printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("\n  raffle COMMAND --help   the options of a command (or: raffle help COMMAND)\n  raffle --version        the version\n\n%s",
           exit_help);
}

void help_command(const char *name) {
    const command_def *const command = command_def_of(name);
    printf("raffle %s: %s\n\nusage: raffle %s%s%s [options]\n\n%s\n\n", name, command->summary, name,
           command->argument ? " " : "", command->argument ? command->argument : "", command->details);
    for (int i = 0; i < OPTIONS; ++i) {
        const option_def *def = &option_list[i];
        if (!(def->commands & command->bit)) continue;
        char left[40];
        snprintf(left, sizeof left, "--%s %s", def->name, def->value ? def->value : "");
        printf("  %-20s %s\n", left, def->help);
    }
    printf("\n%s", exit_help);
}
