/* settle.h - what estimates settle: on which stretch a draw falls, whether top-p keeps a token, which of two numbers is less. */
#ifndef RAFFLE_MATH_SETTLE_H
#define RAFFLE_MATH_SETTLE_H

#include "scalar.h"

/* How far estimates may be off: the sum of any stretches' by `own` of itself and `all` of the row's; own 1: nothing is known. */
typedef struct estimate_error { double own, all; } estimate_error;

/* How near a draw may be to a border between stretches, `before` of the row's `sum` lying before it. With p and q what is really before
 * and behind, the border is below the draw if p (1 - chance) <= q chance: p and q may be off by their own parts, and together by `all`. */
RAFFLE_FN double border_margin(double chance, double before, double sum, estimate_error e) {
    return e.own * ((1.0 - chance) * before + chance * (sum - before)) + e.all * sum;
}

/* Whether the stretch from `before` to `through` holds what lies at `chance` of the row, whatever the estimates are off. */
RAFFLE_FN int draw_settles(double chance, double before, double through, double sum, estimate_error e) {
    const double at = chance * sum;
    if (!(e.own < 1.0)) return 0;
    return at - before >= border_margin(chance, before, sum, e) && through - at > border_margin(chance, through, sum, e);
}

/* Whether top-p keeps a token with `above` of the row's `sum` in larger logits, whatever the estimates are off: what is above must be
 * less than `share` of the mass. 1: it does, and so all larger ones; 0: it does not, nor any smaller one; -1: that does not say. It is
 * the question whether the border lies below `share`, and ceil(share mass) for it is the same: masses are integers. */
RAFFLE_FN int share_settles(double share, double above, double sum, estimate_error e) {
    const double margin = border_margin(share, above, sum, e), less = share * sum - above;
    if (!(e.own < 1.0)) return -1;
    return less > margin ? 1 : -less >= margin ? 0 : -1;
}

/* Whether x < y, of which one may be off by `off` of itself. -1: that does not say. */
RAFFLE_FN int less_settles(double x, double y, double off) { return x * (1.0 + off) < y ? 1 : x * (1.0 - off) > y ? 0 : -1; }

#endif
