/* cooperative_groups.h - clusters of blocks along x, as far as raffle uses them. */
#ifndef RAFFLE_EMULATE_COOPERATIVE_GROUPS_H
#define RAFFLE_EMULATE_COOPERATIVE_GROUPS_H

#include "../device.h"

namespace cooperative_groups {

struct cluster_group {
    static unsigned num_blocks() { return emulate::cluster_blocks(); }
    static unsigned block_rank() { return blockIdx.x % emulate::cluster_blocks(); }
    static void sync(EMULATE_LINE) { emulate::cluster_meet(file, line); }
    /* In two steps. A thread that has arrived is not waited for on a GPU; here it is, which is stricter. */
    struct arrival_token {};
    static arrival_token barrier_arrive() { return {}; }
    static void barrier_wait(arrival_token &&, EMULATE_LINE) { emulate::cluster_meet(file, line); }
    static void barrier_wait(EMULATE_LINE) { emulate::cluster_meet(file, line); }
    template <class type> static type *map_shared_rank(type *p, unsigned rank) {
        return (type *)emulate::shared_of_rank(p, rank);
    }
};
static inline cluster_group this_cluster() { return {}; }

} // namespace cooperative_groups

#endif
