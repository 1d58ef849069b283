#include "option_list.h"

#include <stdio.h>
#include <string.h>

const char *const flag_names[FLAG_NAMES] = {"joint",      "filters-first",     "min-p-last",   "top-k-exact",     "empty-is-zero",
                                            "shape-last", "repetition-output", "count-prompt", "bad-words-output"};
uint32_t flag_bit(int place) { return place < CALL_FLAGS ? 1u << place : RAFFLE_REPETITION_OUTPUT << (place - CALL_FLAGS); }

static const command_def commands[] = {
    {"sample", SAMPLE, command_sample, "LOGITS.npy", "draw tokens from rows of logits",
     "Prints one line of token ids per row, or with --counts lines `row token count`. LOGITS.npy holds\n"
     "float32 or float16 logits, [vocab] or [rows, vocab]. Every row uses the same seed; draw d of a row\n"
     "is made at position N + d, so any draw can be repeated alone."},
    {"explain", EXPLAIN, command_explain, "LOGITS.npy", "show what the filters did to a row and which ticket won",
     "Shows what each filter removed, the exact probability and the tickets of the likeliest tokens, the\n"
     "ticket that was drawn, and a picture of the distribution before and after the filters. With\n"
     "--backend cuda the GPU draws as well, and the exit code is 1 if its token is another."},
    {"softmax", SOFTMAX, command_softmax, "LOGITS.npy", "write the probabilities that tokens are drawn with",
     "Writes each row's probabilities, after edits, temperature and filters, as a .npy file: with --log their\n"
     "natural logarithms, with --mask the logits themselves, -inf where a token was cut. Prints a line\n"
     "`row kept` for each row: how many tokens are kept."},
    {"bench", BENCH, command_bench, NULL, "measure each route against a plain maximum over the row",
     "Measures microseconds per row for greedy, top-k, top-p, min-p and no filter, row in cache and out of\n"
     "cache, beside a plain SIMD maximum over the same row in float32, and for softmax and masks beside a copy\n"
     "of it. Medians of interleaved repetitions.\n"
     "With --backend cuda: microseconds per call for 1, 32 and 128 rows in memory of the GPU, beside the\n"
     "time of a copy of so many bytes; `make bench-cuda` measures more."},
    {"selftest", SELFTEST, command_selftest, NULL, "run the frozen vectors on every instruction set of this machine",
     "Draws the tokens of tests/vectors/vectors.txt and answers the requests of requests.txt beside it; both are\n"
     "built into this program. Exits with 1 if anything differs."},
    {"demo", DEMO, command_demo, "[DATA]", "draw from real logits and compare with the exact probabilities",
     "DATA is the folder with smollm2.npy, its vocabulary and its prompts; `data` if left out."},
    {"info", INFO, command_info, NULL, "version, instruction sets, GPU",
     "What this build is and what this machine can run."},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

#define AT(field) offsetof(options, field)
static const option_def option_list[] = {
    {"temperature", "T", LAWS, REAL, AT(temperature), "divides the logits; 0: greedy, inf: uniform (default 1)"},
    {"top-k", "K", LAWS, SMALL, AT(top_k), "keep logits at least the K-th largest (default 0: off)"},
    {"top-p", "P", LAWS, REAL, AT(top_p), "keep while the mass of larger logits is below P (default 1: off)"},
    {"min-p", "M", LAWS, REAL, AT(min_p), "keep what is at least M times as likely as the best (default 0: off)"},
    {"flags", "LIST", LAWS, FLAGS, AT(flags),
     "joint, filters-first, min-p-last, top-k-exact, empty-is-zero, shape-last; by commas"},
    {"seed", "S", LAWS, WHOLE, AT(seed), "seed of the draw, 0 to 2^64-1 (default 0)"},
    {"position", "N", LAWS, WHOLE, AT(position), "position of the (first) draw, 0 to 2^64-1 (default 0)"},
    {"draws", "N", SAMPLE, COUNT, AT(draws), "draws per row, at consecutive positions (default 1)"},
    {"counts", NULL, SAMPLE, FLAG, AT(counts), "count the draws: `row token count`, most frequent first"},
    {"rows", "A:B", SAMPLE | SOFTMAX, ROWS, 0, "only rows A to B-1; A: and :B are fine, A alone is one row"},
    {"row", "R", EXPLAIN, COUNT, AT(row), "the row to explain (default 0)"},
    {"top", "N", EXPLAIN, COUNT, AT(top), "how many of the likeliest tokens to show, up to 10000 (default 12)"},
    {"logprobs", "N", DRAWS, REQUEST, 0, "log-probability and rank of each token, and the N likeliest; 0 to 1024"},
    {"point", "NAME", DRAWS, POINT, AT(point),
     "of --logprobs: raw, tempered (before filters) or filtered (default raw)"},
    {"out", "FILE.npy", SOFTMAX, TEXT, AT(out), "write the probabilities there"},
    {"out-dtype", "TYPE", SOFTMAX, DTYPE, AT(out_dtype), "of that file: f32 or f16 (default f32)"},
    {"log", NULL, SOFTMAX, FLAG, AT(log), "write logarithms, -inf where a probability is 0"},
    {"mask", NULL, SOFTMAX, FLAG, AT(mask), "write the rows as they came, -inf (--probs: 0) where a token was cut"},
    {"kept", "FILE.npy", SOFTMAX, TEXT, AT(kept), "write a boolean array there: which tokens are kept"},
    {"probs", NULL, LAWS, FLAG, AT(probs), "the file holds probabilities, or any weights, instead of logits"},
    {"dtype", "TYPE", LAWS, DTYPE, AT(dtype), "convert the logits to f32, f16 or bf16 first (default: as in the file)"},
    {"vocab", "TOKENS.txt", DRAWS, TEXT, AT(vocab), "line n is the text of token n-1; shown beside the ids"},
    {"vocab", "LIST", BENCH, SIZES, 0, "vocabulary sizes, by commas (default 32000,128256,151936,262144; GPU 128256)"},
    {"isa", "NAME", LAWS, ISA, AT(isas), "scalar, avx2, avx512 or neon (default: the best)"},
    {"isa", "LIST", BENCH | SELFTEST, ISA, AT(isas),
     "scalar, avx2, avx512, neon; by commas (default: all this machine has)"},
    {"backend", "NAME", LAWS | BENCH | SELFTEST, BACKEND, AT(backend), "cpu or cuda (default cpu)"},
    {"threads", "N", SAMPLE | SOFTMAX, COUNT, AT(threads), "threads of the CPU, 1 to 1024 (default 1); no result depends on it"},
    {"threads", "N", BENCH, COUNT, AT(threads), "threads of the last column, 1 to 1024 (default: all)"},
    {"quick", NULL, BENCH, FLAG, AT(quick), "two sizes, the best instruction set, fewer repetitions"},
    {"csv", "FILE", BENCH, TEXT, AT(csv), "also write the numbers there"},
    {"vectors", "FILE", SELFTEST, TEXT, AT(vectors), "read the vectors from there instead"},
    {"json", NULL, DRAWS | INFO, FLAG, AT(json), "print JSON"},
    {"ascii", NULL, EXPLAIN | DEMO, FLAG, AT(ascii),
     "draw the picture in plain ASCII, as it is in a locale without UTF-8"},
    {"help", NULL, EVERY, FLAG, AT(help), "this text"},
};
/* What else requests ask for. Numbers have vLLM's names, with - for _. Every LIST may be @FILE. */
static const option_def request_list[] = {
    {"bias", "LIST", LAWS, BIAS, LIST_BIAS, "ID:BIAS, by commas: added to these logits; -inf bans"},
    {"allowed", "LIST", LAWS, IDS, LIST_ALLOWED, "only these tokens"},
    {"banned", "LIST", LAWS, IDS, LIST_BANNED, "not these tokens"},
    {"bad-words", "LIST", LAWS, WORDS, LIST_WORDS, "sequences like 3+14+15: the last token, after the others"},
    {"stop", "LIST", LAWS, IDS, LIST_STOP, "the stop tokens of --min-tokens"},
    {"min-tokens", "N", LAWS, REQUEST, 0, "ban the stop tokens until N tokens are generated"},
    {"prompt", "LIST", LAWS, TOKENS, LIST_PROMPT, "tokens of the prompt: what penalties look back at"},
    {"generated", "LIST", LAWS, TOKENS, LIST_GENERATED, "tokens that were generated since; may be empty"},
    {"repetition-penalty", "R", LAWS, REQUEST, 0, "x / R or x * R for tokens of prompt and output (1: off)"},
    {"frequency-penalty", "F", LAWS, REQUEST, 0, "x - F for each time a token was generated"},
    {"presence-penalty", "P", LAWS, REQUEST, 0, "x - P for each token that was generated"},
    {"penalty-window", "N", LAWS, SMALL, AT(request.extra.penalty_window),
     "these three look at the last N tokens (0: all)"},
    {"no-repeat-ngram-size", "N", LAWS, REQUEST, 0, "no N tokens in a row twice"},
    {"dry-multiplier", "M", LAWS, REQUEST, 0, "DRY: x - M * base^(length - allowed) for what would repeat"},
    {"dry-base", "B", LAWS, REQUEST, 0, "(default 1.75)"},
    {"dry-allowed-length", "N", LAWS, REQUEST, 0, "shorter repetitions are free (default 2)"},
    {"dry-penalty-last-n", "N", LAWS, REQUEST, 0, "DRY looks at the last N tokens (default -1: all)"},
    {"dry-breakers", "LIST", LAWS, IDS, LIST_BREAKER, "tokens that end a repetition"},
    {"top-n-sigma", "N", LAWS, REQUEST, 0, "keep logits within N standard deviations of the best"},
    {"epsilon-cutoff", "E", LAWS, REQUEST, 0, "keep probabilities of at least E"},
    {"eta-cutoff", "E", LAWS, REQUEST, 0, "the same with min(E, sqrt(E) exp(-entropy))"},
    {"typical-p", "P", LAWS, REQUEST, 0, "keep the most typical tokens up to mass P"},
    {"xtc-probability", "C", LAWS, REQUEST, 0, "XTC: with this chance, cut all likely tokens but the last"},
    {"xtc-threshold", "T", LAWS, REQUEST, 0, "likely is a probability of at least T (default 0.1)"},
    {"min-tokens-to-keep", "N", LAWS, REQUEST, 0, "no filter leaves fewer tokens"},
};
enum { OPTIONS = sizeof option_list / sizeof *option_list, REQUESTS = sizeof request_list / sizeof *request_list };

const command_def *command_def_of(const char *name) {
    for (int i = 0; i < COMMANDS; ++i)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static const option_def *option_at(int i) { return i < OPTIONS ? &option_list[i] : &request_list[i - OPTIONS]; }

const option_def *option_def_of(const char *name, size_t length, command_bit command) {
    for (int i = 0; i < OPTIONS + REQUESTS; ++i) {
        const option_def *const def = option_at(i);
        if (def->commands & command && strlen(def->name) == length && memcmp(def->name, name, length) == 0) return def;
    }
    return NULL;
}

int option_of_request(const option_def *def) {
    for (int i = 0; i < REQUESTS; ++i)
        if (def == &request_list[i]) return 1;
    return 0;
}

static const char exit_help[] =
    "Exit codes: 0 fine; 1 a result is wrong (selftest, demo, explain); 2 the command line or the\n"
    "input is wrong; 3 this machine cannot (instruction set, GPU, memory, disk).\n";

void help_tool(void) {
    printf("raffle: exact, reproducible token sampling\n\nusage: raffle COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; ++i) printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("\n  raffle COMMAND --help   the options of a command (or: raffle help COMMAND)\n  raffle --version        "
           "the version\n\n%s",
           exit_help);
}

void help_command(const char *name) {
    const command_def *const command = command_def_of(name);
    printf("raffle %s: %s\n\nusage: raffle %s%s%s [options]\n\n%s\n\n", name, command->summary, name,
           command->argument ? " " : "", command->argument ? command->argument : "", command->details);
    for (int i = 0; i < OPTIONS + REQUESTS; ++i) {
        const option_def *const def = option_at(i);
        char left[48];
        if (!(def->commands & command->bit)) continue;
        if (i == OPTIONS)
            printf("\nWhat else a request asks for. A LIST may be @FILE. --flags then also takes\n"
                   "repetition-output and count-prompt: penalties count only the output, or the prompt too;\n"
                   "and bad-words-output: bad words look at the output alone, as vLLM's do.\n\n");
        snprintf(left, sizeof left, "--%s %s", def->name, def->value ? def->value : "");
        printf("  %-*s %s\n", i < OPTIONS ? 20 : 26, left, def->help);
    }
    printf("\n%s", exit_help);
}
