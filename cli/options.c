#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option_list.h"
#include "output.h"

enum { TOP_MAX = 10000 };

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
    static const char *const points[] = {"raw", "tempered", "filtered"};
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
        if (parse_set(text, flag_names, FLAG_NAMES, &bits)) return "a comma list of names that --help lists";
        o->flags = o->request.extra.flags = 0;
        for (int i = 0; i < FLAG_NAMES; ++i)
            if (bits >> i & 1) *(i < CALL_FLAGS ? &o->flags : &o->request.extra.flags) |= flag_bit(i);
        o->asks |= o->request.extra.flags != 0;
        return NULL;
    case POINT:
        *(int32_t *)field = place_of(text, strlen(text), points, 3);
        return *(int32_t *)field < 0 ? "raw, tempered or filtered" : NULL;
    case REQUEST:
    case IDS:
    case TOKENS:
    case BIAS:
    case WORDS: break; /* parse_request's */
    }
    return "known";
}

/* A number by vLLM's name for it: the option's, with _ for -. */
static exit_code parse_number(const option_def *def, const char *text, options *o) {
    char name[32], *end;
    raffle_error error = raffle_error_init();
    size_t length = 0;
    for (; def->name[length] && length + 1 < sizeof name; ++length)
        name[length] = def->name[length] == '-' ? '_' : def->name[length];
    name[length] = 0;
    const double value = strtod(text, &end);
    if (isspace((unsigned char)*text) || end == text || *end)
        return complain("--%s is \"%s\": must be a number", def->name, text), EXIT_USAGE;
    if (strcmp(name, "logprobs") == 0 && value < 0.0) /* which means "all" to vLLM */
        return complain("--logprobs is %s: must be 0 to %d", text, RAFFLE_TOP_MAX), EXIT_USAGE;
    if (raffle_request_set(&o->request, name, value, &error) == RAFFLE_OK) return EXIT_FINE;
    complain("--%s%s", def->name, error.text + length); /* the sentence starts with the name */
    return EXIT_USAGE;
}

/* Reads one value, of a request or not. */
static exit_code parse_any(const option_def *def, const char *text, options *o) {
    o->asks |= option_of_request(def);
    switch (def->kind) {
    case REQUEST: return parse_number(def, text, o);
    case IDS: return list_read(&o->lists[def->offset], FORM_IDS, def->name, text);
    case TOKENS: return list_read(&o->lists[def->offset], FORM_TOKENS, def->name, text);
    case BIAS: return list_read(&o->lists[def->offset], FORM_BIAS, def->name, text);
    case WORDS: return list_read(&o->lists[def->offset], FORM_WORDS, def->name, text);
    default: break;
    }
    const char *const wish = parse_value(def, text, o);
    return wish ? (complain("--%s is \"%s\": must be %s", def->name, text, wish), EXIT_USAGE) : EXIT_FINE;
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
    if (o->given_count == GIVEN_MAX) return complain("more than %d options", GIVEN_MAX), EXIT_USAGE;
    o->given[o->given_count].name = def->name;
    o->given[o->given_count].value = value;
    o->given[o->given_count++].request = option_of_request(def);
    return parse_any(def, value ? value : "", o);
}

int options_given(const options *o, const char *name) {
    for (int i = 0; i < o->given_count; ++i)
        if (strcmp(o->given[i].name, name) == 0) return 1;
    return 0;
}

/* The first option that --probs rules out, or NULL: weights have no temperature, no edits and no log-probabilities. */
static const char *logits_option(const options *o) {
    static const char *const others[] = {"temperature", "logprobs", "point"};
    for (int i = 0; i < o->given_count; ++i) {
        const char *const name = o->given[i].name;
        if (o->given[i].request || place_of(name, strlen(name), others, 3) >= 0) return name;
        if (strcmp(name, "flags") == 0 && o->request.extra.flags) return "flags repetition-output, count-prompt or bad-words-output";
    }
    return NULL;
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
    else if (command->bit & LAWS && o->isas & (o->isas - 1))
        complain("--isa has several names: %s takes one", command->name);
    else if (o->backend == RAFFLE_CUDA && o->isas)
        complain("--isa is for the CPU, --backend is cuda");
    else if (o->top < 1 || o->top > TOP_MAX)
        complain("--top is %lld: must be 1 to %d", (long long)o->top, TOP_MAX);
    else if (o->probs && logits_option(o))
        complain("--%s is for logits, but --probs is given", logits_option(o));
    else if (!(o->temperature >= 0.0f))
        complain("--temperature is %g: must be 0 or more", (double)o->temperature);
    else if (isnan(o->top_p) || isnan(o->min_p))
        complain("--%s is NaN", isnan(o->top_p) ? "top-p" : "min-p");
    else if (o->request.extra.penalty_window < 0)
        complain("--penalty-window is %d: must be 0 or more", (int)o->request.extra.penalty_window);
    else if (o->log && o->mask)
        complain("--log and --mask are both given: one file holds one of them");
    else if (o->out_dtype == RAFFLE_BF16)
        complain("--out-dtype is bf16: .npy files have f32 and f16");
    else if (command->bit == SOFTMAX && !o->out && !o->kept)
        complain("--out is missing: where to write; try: raffle softmax --help");
    else if (o->out && o->kept && output_same(o->out, o->kept))
        complain("--out and --kept are the same file, %s", o->kept);
    else if (o->counts && o->request.logprobs >= 0)
        complain("--counts and --logprobs do not go together");
    else if (options_given(o, "point") && o->request.logprobs < 0)
        complain("--point is of --logprobs, which is missing");
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
    o->request = raffle_request_init();
    raffle_request_start(&o->request, RAFFLE_DIALECT_VLLM, NULL);
    o->request.extra.flags = 0; /* --flags says what differs */
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

void options_free(options *o) {
    for (int i = 0; i < LISTS; ++i) list_free(&o->lists[i]);
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

