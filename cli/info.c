/* info.c - raffle info: what this build is and what this machine can run. */
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "text.h"

exit_code command_info(const options *o) {
    raffle_isa isas[8];
    char why[256] = "";
    const unsigned version = raffle_version();
    const int count = isas_of(0, isas), cuda = raffle_cuda_available(why, sizeof why);
    const char *const best = raffle_isa_name(isas[count - 1]);
    if (o->json) {
        printf("{\"version\": \"%u.%u.%u\", \"isas\": [", version / 10000, version / 100 % 100, version % 100);
        for (int i = 0; i < count; ++i) printf("%s\"%s\"", i ? ", " : "", raffle_isa_name(isas[i]));
        printf("], \"best\": \"%s\", \"cuda\": %s, \"cuda_why\": ", best, cuda ? "true" : "false");
        json_string(stdout, why, strlen(why));
        printf(", \"vocab_max\": %d, \"licence\": \"Apache-2.0\"}\n", RAFFLE_VOCAB_MAX);
        return EXIT_FINE;
    }
    printf("raffle   %u.%u.%u\nisas    ", version / 10000, version / 100 % 100, version % 100);
    for (int i = 0; i < count; ++i) printf(" %s", raffle_isa_name(isas[i]));
    printf("; the best is %s\ncuda     %s\n", best, cuda ? (why[0] ? why : "yes") : why);
    printf("vocab    1 to %s tokens\nlicence  Apache-2.0\n", grouped(RAFFLE_VOCAB_MAX));
    return EXIT_FINE;
}
