/* inside.h - what the files of the oracle share. */
#ifndef RAFFLE_TESTS_ORACLE_INSIDE_H
#define RAFFLE_TESTS_ORACLE_INSIDE_H

#include "oracle.h"

/* The row as tickets at one temperature. */
typedef struct weighed {
    uint64_t *weight;     /* [vocab] */
    uint64_t *tickets;    /* [vocab] */
    uint64_t *group_mass; /* [groups] */
    int64_t *shift;       /* [groups] d, or 64 where the group holds no tickets */
    uint64_t mass;        /* of the row */
} weighed;

weighed oracle_weigh(const float *x, int64_t vocab, oracle_scale scale);
void oracle_weighed_free(weighed w);

/* A threshold and, where top-k cuts ties at it, the last id that stays; and an upper end. */
typedef struct cut {
    int on;
    float least;
    int64_t tie_last;
    int capped;
    float most;
} cut;
static const cut no_cut = {0, -__builtin_inff(), INT32_MAX, 0, 0};

int oracle_passes(cut c, float x, int64_t id);
cut oracle_tighter(cut a, cut b);

typedef struct entry {
    float x;
    int32_t id;
} entry;

/* Tokens above -inf, the largest logit first, ties by id. */
entry *oracle_sorted(const float *x, int64_t vocab, int64_t *count);

float oracle_largest(const float *x, int64_t first, int64_t end);
float oracle_at_least(double bound); /* the smallest f32 not below, and not below -FLT_MAX */

/* ---- edits.c ---- */
void oracle_ban(const oracle_case *g, uint8_t *banned); /* sets banned[id] */
void oracle_edit(const oracle_case *g, float *x);       /* of a row whose masked tokens are -inf */

/* ---- more.c ---- */
/* The filters of raffle_extra that look at the whole row, as one threshold. */
cut oracle_cut_shape(const oracle_case *g, const float *x, float M, const weighed *w);
cut oracle_cut_floor(const oracle_case *g, const entry *list, int64_t count, cut c, cut before);
cut oracle_cut_typical(const oracle_case *g, const entry *list, int64_t count, float M, const weighed *w, cut before);
/* typical-p, epsilon and eta where RAFFLE_SHAPE_LAST puts them; `before` if it does not. */
cut oracle_cut_shape_last(const oracle_case *g, const entry *list, int64_t count, float M, const weighed *w, cut before);
cut oracle_cut_xtc(const oracle_case *g, const entry *list, int64_t count, float M, const weighed *w, cut before);
int oracle_has_more(const oracle_case *g);

/* ln(sum of exp((x - M) / T)) out of a mass; a token's log-probability; and (M - x) / T. */
double oracle_log_mass(float temperature, float M, uint64_t mass);
float oracle_log_of(float temperature, float M, float x, uint64_t mass);
double oracle_distance(float temperature, float M, float x);

#endif
