/* bench_max.c - a plain maximum over a row, and a plain copy of it, as fast as they go: what a sampler, and what softmax
 * cannot be faster than. */
#include <math.h>
#include <string.h>

#include "bench.h"

static float max_scalar(const float *row, int64_t vocab) {
    float best[8];
    for (int i = 0; i < 8; ++i) best[i] = -INFINITY;
    int64_t i = 0;
    for (; i + 8 <= vocab; i += 8)
        for (int lane = 0; lane < 8; ++lane) best[lane] = row[i + lane] > best[lane] ? row[i + lane] : best[lane];
    for (; i < vocab; ++i) best[0] = row[i] > best[0] ? row[i] : best[0];
    for (int lane = 1; lane < 8; ++lane) best[0] = best[lane] > best[0] ? best[lane] : best[0];
    return best[0];
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static float max_avx2(const float *row, int64_t vocab) {
    __m256 a = _mm256_set1_ps(-INFINITY), b = a, c = a, d = a, e = a, f = a, g = a,
           h = a; /* eight, to hide the latency */
    int64_t i = 0;
    for (; i + 64 <= vocab; i += 64) {
        a = _mm256_max_ps(_mm256_loadu_ps(row + i), a);
        b = _mm256_max_ps(_mm256_loadu_ps(row + i + 8), b);
        c = _mm256_max_ps(_mm256_loadu_ps(row + i + 16), c);
        d = _mm256_max_ps(_mm256_loadu_ps(row + i + 24), d);
        e = _mm256_max_ps(_mm256_loadu_ps(row + i + 32), e);
        f = _mm256_max_ps(_mm256_loadu_ps(row + i + 40), f);
        g = _mm256_max_ps(_mm256_loadu_ps(row + i + 48), g);
        h = _mm256_max_ps(_mm256_loadu_ps(row + i + 56), h);
    }
    a = _mm256_max_ps(a, e);
    b = _mm256_max_ps(b, f);
    c = _mm256_max_ps(c, g);
    d = _mm256_max_ps(d, h);
    a = _mm256_max_ps(a, c);
    b = _mm256_max_ps(b, d);
    a = _mm256_max_ps(a, b);
    float lane[8], most = -INFINITY;
    _mm256_storeu_ps(lane, a);
    for (int n = 0; n < 8; ++n) most = lane[n] > most ? lane[n] : most;
    for (; i < vocab; ++i) most = row[i] > most ? row[i] : most;
    return most;
}

__attribute__((target("avx512f"))) static float max_avx512(const float *row, int64_t vocab) {
    __m512 a = _mm512_set1_ps(-INFINITY), b = a, c = a, d = a, e = a, f = a, g = a,
           h = a; /* eight, to hide the latency */
    int64_t i = 0;
    for (; i + 128 <= vocab; i += 128) {
        a = _mm512_max_ps(_mm512_loadu_ps(row + i), a);
        b = _mm512_max_ps(_mm512_loadu_ps(row + i + 16), b);
        c = _mm512_max_ps(_mm512_loadu_ps(row + i + 32), c);
        d = _mm512_max_ps(_mm512_loadu_ps(row + i + 48), d);
        e = _mm512_max_ps(_mm512_loadu_ps(row + i + 64), e);
        f = _mm512_max_ps(_mm512_loadu_ps(row + i + 80), f);
        g = _mm512_max_ps(_mm512_loadu_ps(row + i + 96), g);
        h = _mm512_max_ps(_mm512_loadu_ps(row + i + 112), h);
    }
    a = _mm512_max_ps(a, e);
    b = _mm512_max_ps(b, f);
    c = _mm512_max_ps(c, g);
    d = _mm512_max_ps(d, h);
    a = _mm512_max_ps(a, c);
    b = _mm512_max_ps(b, d);
    a = _mm512_max_ps(a, b);
    float most = _mm512_reduce_max_ps(a);
    for (; i < vocab; ++i) most = row[i] > most ? row[i] : most;
    return most;
}

__attribute__((target("avx2"))) static void copy_avx2(float *to, const float *row, int64_t vocab) {
    int64_t i = 0;
    for (; i + 16 <= vocab; i += 16) {
        _mm256_storeu_ps(to + i, _mm256_loadu_ps(row + i));
        _mm256_storeu_ps(to + i + 8, _mm256_loadu_ps(row + i + 8));
    }
    for (; i < vocab; ++i) to[i] = row[i];
}

__attribute__((target("avx512f"))) static void copy_avx512(float *to, const float *row, int64_t vocab) {
    int64_t i = 0;
    for (; i + 32 <= vocab; i += 32) {
        _mm512_storeu_ps(to + i, _mm512_loadu_ps(row + i));
        _mm512_storeu_ps(to + i + 16, _mm512_loadu_ps(row + i + 16));
    }
    for (; i < vocab; ++i) to[i] = row[i];
}
#elif defined(__aarch64__)
#include <arm_neon.h>

static float max_neon(const float *row, int64_t vocab) {
    float32x4_t a = vdupq_n_f32(-INFINITY), b = a, c = a, d = a, e = a, f = a, g = a,
                h = a; /* eight, to hide the latency */
    int64_t i = 0;
    for (; i + 32 <= vocab; i += 32) {
        a = vmaxq_f32(vld1q_f32(row + i), a);
        b = vmaxq_f32(vld1q_f32(row + i + 4), b);
        c = vmaxq_f32(vld1q_f32(row + i + 8), c);
        d = vmaxq_f32(vld1q_f32(row + i + 12), d);
        e = vmaxq_f32(vld1q_f32(row + i + 16), e);
        f = vmaxq_f32(vld1q_f32(row + i + 20), f);
        g = vmaxq_f32(vld1q_f32(row + i + 24), g);
        h = vmaxq_f32(vld1q_f32(row + i + 28), h);
    }
    a = vmaxq_f32(a, e);
    b = vmaxq_f32(b, f);
    c = vmaxq_f32(c, g);
    d = vmaxq_f32(d, h);
    a = vmaxq_f32(a, c);
    b = vmaxq_f32(b, d);
    a = vmaxq_f32(a, b);
    float most = vmaxvq_f32(a);
    for (; i < vocab; ++i) most = row[i] > most ? row[i] : most;
    return most;
}
#endif

max_function max_best(const char **name) {
#if defined(__x86_64__)
    if (raffle_isa_available(RAFFLE_ISA_AVX512)) return *name = "avx512", max_avx512;
    if (raffle_isa_available(RAFFLE_ISA_AVX2)) return *name = "avx2", max_avx2;
#elif defined(__aarch64__)
    if (raffle_isa_available(RAFFLE_ISA_NEON)) return *name = "neon", max_neon;
#endif
    return *name = "scalar", max_scalar;
}

static void copy_plain(float *to, const float *row, int64_t vocab) { memcpy(to, row, (size_t)vocab * sizeof *to); }

copy_function copy_best(void) {
#if defined(__x86_64__)
    if (raffle_isa_available(RAFFLE_ISA_AVX512)) return copy_avx512;
    if (raffle_isa_available(RAFFLE_ISA_AVX2)) return copy_avx2;
#endif
    return copy_plain;
}
