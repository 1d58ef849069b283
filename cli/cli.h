/* cli.h - what every command of the tool shares. */
#ifndef CLI_H
#define CLI_H

#include <raffle/raffle.h>

/* Exit codes; --help and README.md tell them to people. */
typedef enum exit_code {
    EXIT_FINE = 0,    /* done */
    EXIT_WRONG = 1,   /* a result is wrong: selftest, demo or explain found a mismatch */
    EXIT_USAGE = 2,   /* the command line or the input is wrong */
    EXIT_MACHINE = 3, /* this machine cannot: instruction set, GPU, memory, disk */
} exit_code;

struct options;
exit_code command_sample(const struct options *options);
exit_code command_explain(const struct options *options);
exit_code command_softmax(const struct options *options);
exit_code command_bench(const struct options *options);
exit_code command_selftest(const struct options *options);
exit_code command_demo(const struct options *options);
exit_code command_info(const struct options *options);

/* "raffle: ..." on stderr, with a newline. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Complains with the library's sentence and returns the exit code that fits. */
exit_code complain_of(const raffle_error *error);

extern const char *const dtype_names[3]; /* by raffle_dtype */

/* The instruction sets from `wanted` (bit i: raffle_isa i; 0: all) that this machine has, fastest last.
 * Writes at most 8 and returns how many; complains and returns 0 if one that was named is missing. */
int isas_of(unsigned wanted, raffle_isa *list);

#endif
