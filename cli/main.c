/* main.c - the raffle command: finds the command and runs it. Uses only the public header. */
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "options.h"

const char *const dtype_names[3] = {"f32", "f16", "bf16"};

void complain(const char *format, ...) {
    va_list arguments;
    fflush(stdout); /* so that the two streams keep their order on a terminal */
    fputs("raffle: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

exit_code complain_of(const raffle_error *error) {
    complain("%s", error->text);
    return error->status == RAFFLE_E_ARGUMENT || error->status == RAFFLE_E_STRUCT ? EXIT_USAGE : EXIT_MACHINE;
}

int isas_of(unsigned wanted, raffle_isa *list) {
    int count = 0;
    for (int i = RAFFLE_ISA_SCALAR; i <= RAFFLE_ISA_NEON; ++i) {
        if (wanted && !(wanted >> i & 1)) continue;
        if (raffle_isa_available((raffle_isa)i)) {
            list[count++] = (raffle_isa)i;
        } else if (wanted) {
            complain("isa %s: this machine or build does not have it", raffle_isa_name((raffle_isa)i));
            return 0;
        }
    }
    return count;
}

/* What --backend cuda needs, before any file is read: a GPU, or the library's sentence on why there is none. */
static exit_code backend_check(const options *o) {
    char why[160];
    if (o->backend != RAFFLE_CUDA || raffle_cuda_available(why, sizeof why)) return EXIT_FINE;
    return complain("%s", why), EXIT_MACHINE;
}

/* raffle help [COMMAND]. */
static exit_code help(int argc, char **argv) {
    if (argc == 2) return help_tool(), EXIT_FINE;
    if (argc > 3) return complain("unexpected argument %s; try: raffle --help", argv[3]), EXIT_USAGE;
    if (!command_named(argv[2])) return complain("unknown command %s; try: raffle --help", argv[2]), EXIT_USAGE;
    return help_command(argv[2]), EXIT_FINE;
}

static exit_code run(int argc, char **argv) {
    options o;
    if (argc < 2) return help_tool(), EXIT_USAGE;
    const char *const name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) return help(argc, argv);
    if (strcmp(name, "--version") == 0) {
        const unsigned version = raffle_version();
        printf("raffle %u.%u.%u\n", version / 10000, version / 100 % 100, version % 100);
        return EXIT_FINE;
    }
    const command_function command = command_named(name);
    if (!command) {
        complain("unknown %s %s; try: raffle --help", name[0] == '-' ? "option" : "command", name);
        return EXIT_USAGE;
    }
    exit_code code = options_parse(&o, argc, argv);
    if (!code && o.help) {
        help_command(name);
    } else if (!code) {
        code = backend_check(&o);
        if (!code) code = command(&o);
    }
    options_free(&o);
    return code;
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, ""); /* only characters: numbers keep their point in every locale */
    exit_code code = run(argc, argv);
    if (fflush(stdout) || ferror(stdout)) {
        complain("cannot write to standard output");
        if (!code) code = EXIT_MACHINE;
    }
    return (int)code;
}
