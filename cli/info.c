/* info.c - raffle info: what this build is and what this machine can run. */
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "text.h"

/* The name of the GPU, as a plan tells it: "cuda device 0 (NAME), f32 logits, ...". Empty if there is none. */
static void gpu_name(char *name, size_t bytes) {
    raffle_plan_desc desc = raffle_plan_desc_init();
    raffle_plan *plan;
    char text[512];
    desc.backend = RAFFLE_CUDA;
    desc.vocab = desc.rows_max = 1;
    name[0] = 0;
    if (raffle_plan_create(&desc, &plan, NULL)) return;
    raffle_plan_describe(plan, text, sizeof text);
    raffle_plan_destroy(plan);
    const char *const start = strchr(text, '('), *const end = start ? strstr(start, "), f32") : NULL;
    if (end) snprintf(name, bytes, "%.*s", (int)(end - start - 1), start + 1);
}

exit_code command_info(const options *o) {
    raffle_isa isas[8];
    char why[256] = "", gpu[256];
    const unsigned version = raffle_version();
    const int count = isas_of(0, isas), cuda = raffle_cuda_available(why, sizeof why);
    gpu_name(gpu, sizeof gpu);
    const char *const best = raffle_isa_name(isas[count - 1]);
    if (o->json) {
        printf("{\"version\": \"%u.%u.%u\", \"isas\": [", version / 10000, version / 100 % 100, version % 100);
        for (int i = 0; i < count; ++i) printf("%s\"%s\"", i ? ", " : "", raffle_isa_name(isas[i]));
        printf("], \"best\": \"%s\", \"cuda\": %s, \"cuda_why\": ", best, cuda ? "true" : "false");
        json_string(stdout, why, strlen(why));
        printf(", \"gpu\": ");
        gpu[0] ? json_string(stdout, gpu, strlen(gpu)) : (void)printf("null");
        printf(", \"vocab_max\": %d, \"licence\": \"Apache-2.0\"}\n", RAFFLE_VOCAB_MAX);
        return EXIT_FINE;
    }
    printf("raffle   %u.%u.%u\nisas    ", version / 10000, version / 100 % 100, version % 100);
    for (int i = 0; i < count; ++i) printf(" %s", raffle_isa_name(isas[i]));
    printf("; the best is %s\ncuda     %s\n", best, cuda ? (gpu[0] ? gpu : "yes") : why);
    printf("vocab    1 to %s tokens\nlicence  Apache-2.0\n", grouped(RAFFLE_VOCAB_MAX));
    return EXIT_FINE;
}
