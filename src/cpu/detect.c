#include "detect.h"

#include <stddef.h>

#if defined(__x86_64__)
#include <cpuid.h>

typedef struct cpuid_words { uint32_t a, b, c, d; } cpuid_words;

static cpuid_words cpuid_of(uint32_t leaf) {
    cpuid_words r = {0, 0, 0, 0};
    __get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d);
    return r;
}

/* The registers the operating system saves on a task switch: cpuid alone does not say. */
static uint64_t registers_saved(cpuid_words basic) {
    uint32_t low = 0, high = 0;
    if (!(basic.c >> 27 & 1)) return 0; /* no OSXSAVE, no XGETBV */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int has_avx2(void) {
    cpuid_words basic = cpuid_of(1), extended = cpuid_of(7);
    int ymm = (registers_saved(basic) & 0x6) == 0x6;
    int fma = basic.c >> 12 & 1, avx = basic.c >> 28 & 1, f16c = basic.c >> 29 & 1, avx2 = extended.b >> 5 & 1;
    return ymm && fma && avx && f16c && avx2;
}

static int has_avx512(void) {
    cpuid_words extended = cpuid_of(7);
    int zmm = (registers_saved(cpuid_of(1)) & 0xe6) == 0xe6;
    int f = extended.b >> 16 & 1, dq = extended.b >> 17 & 1, bw = extended.b >> 30 & 1, vl = extended.b >> 31 & 1;
    return has_avx2() && zmm && f && dq && bw && vl;
}
#endif

raffle_isa raffle_isa_best(void) {
#if defined(__x86_64__)
    return has_avx512() ? RAFFLE_ISA_AVX512 : has_avx2() ? RAFFLE_ISA_AVX2 : RAFFLE_ISA_SCALAR;
#elif defined(__aarch64__)
    return RAFFLE_ISA_NEON; /* part of the architecture */
#else
    return RAFFLE_ISA_SCALAR;
#endif
}

const cpu_table *raffle_table_of(raffle_isa isa) {
    switch (isa) {
    case RAFFLE_ISA_BEST: return raffle_table_of(raffle_isa_best());
    case RAFFLE_ISA_SCALAR: return &raffle_table_one;
#if defined(__x86_64__)
    case RAFFLE_ISA_AVX2: return has_avx2() ? &raffle_table_avx2 : NULL;
    case RAFFLE_ISA_AVX512: return has_avx512() ? &raffle_table_avx512 : NULL;
#elif defined(__aarch64__)
    case RAFFLE_ISA_NEON: return &raffle_table_neon;
#endif
    default: return NULL;
    }
}

int raffle_isa_available(raffle_isa isa) { return raffle_table_of(isa) != NULL; }

const char *raffle_isa_name(raffle_isa isa) {
    switch (isa) {
    case RAFFLE_ISA_BEST: return "best";
    case RAFFLE_ISA_SCALAR: return "scalar";
    case RAFFLE_ISA_AVX2: return "avx2";
    case RAFFLE_ISA_AVX512: return "avx512";
    case RAFFLE_ISA_NEON: return "neon";
    }
    return "unknown";
}
