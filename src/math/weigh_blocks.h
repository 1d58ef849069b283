/* weigh_blocks.h - the weights of neighbouring groups under plain references: weigh.h, arranged for a loop that
 * reads one block of groups and weighs the one before. For the CPU; every bit is the one weigh.h makes. */
#ifndef RAFFLE_MATH_WEIGH_BLOCKS_H
#define RAFFLE_MATH_WEIGH_BLOCKS_H

#include "weigh.h"

enum { BLOCK = V_LANES < 4 ? 4 : V_LANES }; /* groups of a block, at most */

/* V_OPEN: the machine multiplies by a power of two in one operation that knows zero and infinity. Then nothing need
 * be done about logits far below the group's maximum: they come out as 0. Only -inf, NaN and numbers that overflow
 * when multiplied by c do not, and these make the group's sum of weights infinite or NaN. So the loops look at the
 * sum, and weigh the few groups that have such tokens again. On other machines v_weights does it, which knows them all.
 *
 * The power of two of the group goes into the polynomial's coefficients: all of its steps are then exactly that power
 * times what they were. That needs an exponent at which none of them overflows or is subnormal: OPEN_LOW, OPEN_HIGH. */
#define OPEN_LOW -90.0f
#define OPEN_HIGH 140.0f
enum { COEFFICIENTS = V_OPEN ? V_LANES : 1 };

/* The plain references of a block's groups. */
typedef struct block_refs {
    float c, c_low;
    float magic[BLOCK], low[BLOCK];
    float k[BLOCK][COEFFICIENTS]; /* V_OPEN: the polynomial in the group's units */
    uint32_t plain, open;         /* bit q: group q has a plain reference; and v_weights_open can use it */
} block_refs;

/* Makes the references for the maxima peak[count], and writes their exponents. `count` is a compile-time constant: BLOCK, or 4. */
RAFFLE_FN void block_refs_make(block_refs *f, scale s, const float *peak, int32_t *exponent, int count) {
    f->c = s.c;
    f->c_low = s.c_low;
    f->plain = f->open = 0;
    for (int q = 0; q < count; q += V_LANES) {
        uint32_t e[V_LANES];
        vf m = count == 4 ? v_load_four(peak + q) : v_load_f32(peak + q); /* as it was stored: nothing is waited for then */
        vf p = v_mul(m, v_set(s.c)), t = v_fma(m, v_set(s.c), v_set(MAGIC));
        v_store(f->magic + q, v_sub(v_set(MAGIC + (float)WEIGHT_BITS), v_sub(t, v_set(MAGIC))));
        v_store(f->low + q, v_sub(m, v_set(s.drop)));
        v_store_u(e, v_add_u(v_bits_of(t), v_set_u(0u - bits_of(MAGIC))));
        memcpy(exponent + q, e, (count - q < V_LANES ? (size_t)(count - q) : V_LANES) * sizeof *e);
        f->plain |= v_bits(v_and(v_gt(p, v_set(-0x1p12f)), v_gt(v_set(0x1p12f), p))) << q;
        f->open |= v_bits(v_and(v_gt(p, v_set(OPEN_LOW)), v_gt(v_set(OPEN_HIGH), p))) << q;
    }
#if V_OPEN
    const float k[COEFFICIENTS] = EXP2_TERMS;
    for (int q = 0; q < count; ++q) v_store(f->k[q], v_power(v_load_f32(k), v_sub(v_set(f->magic[q]), v_set(MAGIC))));
#endif
}

/* Makes of each x its weight in group q of a block, as a float. */
RAFFLE_FN void v_weights_block(vf *x, int count, const block_refs *f, int q) {
    const ref plain = {REF_PLAIN, 0, f->c, f->c_low, f->magic[q], 0.0f, 1.0f, f->low[q]};
    v_weights(x, count, &plain, 0);
}

#if V_OPEN
/* What v_weights_open needs of one group, in registers: whatever is stored meanwhile, it need not be read again. */
typedef struct open_ref { vf c, c_low, magic, half, k[EXP2_COUNT]; } open_ref;
RAFFLE_FN open_ref open_ref_of(const block_refs *f, int q) {
    open_ref r = {v_set(f->c), v_set(f->c_low), v_set(f->magic[q]), v_set(0.5f), {v_set(0.0f)}};
    for (int i = 0; i < EXP2_COUNT; ++i) r.k[i] = v_set(f->k[q][i]);
    return r;
}

/* The same, but for -inf, NaN and what overflows. */
RAFFLE_FN void v_weights_open(vf *x, int count, const open_ref *f) {
    vf n[V_CHAINS], r[V_CHAINS];
    for (int i = 0; i < count; ++i) n[i] = v_sub(v_fma(x[i], f->c, f->magic), f->magic);
    for (int i = 0; i < count; ++i) r[i] = v_fms(x[i], f->c, n[i]);
    for (int i = 0; i < count; ++i) r[i] = v_add(r[i], v_fma(x[i], f->c_low, f->half));
    v_polynomials(x, r, count, f->k);
    for (int i = 0; i < count; ++i) x[i] = v_power(x[i], n[i]);
}
#else
/* v_weights_block does it. */
typedef struct open_ref { int none; } open_ref;
RAFFLE_FN open_ref open_ref_of(const block_refs *f, int q) {
    const open_ref r = {0};
    (void)f, (void)q;
    return r;
}
RAFFLE_FN void v_weights_open(vf *x, int count, const open_ref *f) { (void)x, (void)count, (void)f; }
#define v_flush(on) (void)(on) /* weights are never so small */
#endif

#endif
