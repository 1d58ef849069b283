#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "picture.h"
#include "text.h"

/* "model name" of /proc/cpuinfo, or "unknown". */
static void processor_name(char *name, size_t room) {
    char line[256];
    FILE *const in = fopen("/proc/cpuinfo", "r");
    snprintf(name, room, "unknown");
    while (in && fgets(line, sizeof line, in)) {
        const char *const colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(name, room, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (in) fclose(in);
}

exit_code table_open(table *t, const char *csv, const char *max_name, int threads, int quick) {
    char processor[128];
    memset(t, 0, sizeof *t);
    t->max_name = max_name;
    if (csv && !(t->csv = fopen(csv, "w"))) return complain("%s: %s", csv, strerror(errno)), EXIT_MACHINE;
    if (t->csv)
        fprintf(t->csv, "route,vocab,dtype,isa,in_cache_us,in_cache_max_us,in_cache_ratio,target_ratio,out_of_cache_us,"
                        "out_of_cache_max_us,out_of_cache_ratio,rows_per_s_1_thread,rows_per_s_all_threads,threads\n");
    processor_name(processor, sizeof processor);
    const unsigned version = raffle_version();
    printf("raffle %u.%u.%u, %s, %d thread%s%s\n", version / 10000, version / 100 % 100, version % 100, processor,
           threads, threads == 1 ? "" : "s", quick ? ", quick" : "");
    printf("us: microseconds per row on one thread. max: a plain %s maximum over the same row in f32; copy: its copy.\n"
           "x: us / max, or / copy. goal: the most x should be, row in cache. Temperature 0.8.\n"
           "rows/s: out of cache, one and all threads.\n",
           max_name);
    return EXIT_FINE;
}

static void head(table *t, const figure *f) {
    const picture plain = picture_of_stdout(0);
    if (t->lines && f->vocab == t->last_vocab && f->dtype == t->last_dtype && f->isa == t->last_isa &&
        strcmp(f->beside, t->last_beside) == 0)
        return;
    t->last_vocab = f->vocab;
    t->last_dtype = f->dtype;
    t->last_isa = f->isa;
    t->last_beside = f->beside;
    putchar('\n');
    ink_start(&plain, INK_BOLD);
    printf("%-20s %7s %-4s %-6s | %8s %7s %6s %5s | %8s %7s %6s | %8s %8s\n", "route", "vocab", "type", "isa",
           "cache us", f->beside, "x", "goal", "cold us", f->beside, "x", "rows/s 1", "all");
    ink_end(&plain, INK_BOLD);
}

/* A ratio in six columns. */
static void print_ratio(double ratio) { printf(ratio < 1000 ? " %6.2f" : " %6.0f", ratio); }

void table_add(table *t, const figure *f) {
    const double ratio = f->us[IN_CACHE] / f->max_us[IN_CACHE], cold = f->us[OUT_OF_CACHE] / f->max_us[OUT_OF_CACHE];
    const double target = route_target(f->route, f->isa), all = f->rows_per_second[1];
    char goal[16] = "-";
    if (target > 0) {
        snprintf(goal, sizeof goal, "%.1f%s", target, ratio <= target ? "" : "!");
        t->missed += ratio > target;
        t->targets++;
    }
    head(t, f);
    t->lines++;
    printf("%-20s %7lld %-4s %-6s | %8.2f %7.2f", f->route->name, (long long)f->vocab, dtype_names[f->dtype],
           raffle_isa_name(f->isa), f->us[IN_CACHE], f->max_us[IN_CACHE]);
    print_ratio(ratio);
    printf(" %5s | %8.2f %7.2f", goal, f->us[OUT_OF_CACHE], f->max_us[OUT_OF_CACHE]);
    print_ratio(cold);
    if (all > 0)
        printf(" | %8.0f %8.0f\n", f->rows_per_second[0], all);
    else
        printf(" | %8.0f %8s\n", f->rows_per_second[0], "-");
    fflush(stdout);
    if (!t->csv) return;
    fprintf(t->csv, "\"%s\",%lld,%s,%s,%.3f,%.3f,%.3f,", f->route->name, (long long)f->vocab, dtype_names[f->dtype],
            raffle_isa_name(f->isa), f->us[IN_CACHE], f->max_us[IN_CACHE], ratio);
    if (target > 0) fprintf(t->csv, "%.1f", target);
    fprintf(t->csv, ",%.3f,%.3f,%.3f,%.0f,", f->us[OUT_OF_CACHE], f->max_us[OUT_OF_CACHE], cold, f->rows_per_second[0]);
    if (all > 0) fprintf(t->csv, "%.0f", all);
    fprintf(t->csv, ",%d\n", f->threads);
}

exit_code table_close(table *t, const char *csv) {
    if (t->targets)
        printf("\n%d of %d ratios are at or below their goal; ! marks the others.\n", t->targets - t->missed,
               t->targets);
    if (!t->csv) return EXIT_FINE;
    const int failed = ferror(t->csv);
    if (fclose(t->csv) || failed) return complain("%s: %s", csv, strerror(errno)), EXIT_MACHINE;
    return EXIT_FINE;
}
