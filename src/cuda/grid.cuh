/* grid.cuh - how rows are divided among blocks, on the host. */
#ifndef RAFFLE_CUDA_GRID_CUH
#define RAFFLE_CUDA_GRID_CUH

#include "kernel.cuh"

/* Blocks per row: so many that no multiprocessor has more to do than another, two or three on each where there is enough for
 * them. One alone does not hide its waits, many get into each other's way at the end, and each costs as much as reading a few
 * groups (dev/cuda has the figures that this follows). */
enum { BLOCK_COST = 18 }; /* groups */
enum { PARTS_TRIED = 4 * BLOCKS_PER_SM }; /* blocks on a multiprocessor; for more rows than so many on each, a row has one */
static inline uint32_t parts_choose(int64_t rows, int64_t groups, int processors) {
    const int64_t most = (groups + BLOCK_WARPS - 1) / BLOCK_WARPS;
    int64_t best = 1;
    double least = 1e30;
    for (int64_t tried = 1; tried <= PARTS_TRIED; ++tried) {
        int64_t parts = tried * processors / rows;
        if (parts < 1) continue;
        if (parts > most) parts = most;
        const int64_t blocks = (parts * rows + processors - 1) / processors, part = (groups + parts - 1) / parts;
        const double alone = blocks == 1 ? 1.2 : blocks < BLOCKS_PER_SM ? 1.0 + 0.02 * (double)(blocks - 2) : (blocks == BLOCKS_PER_SM ? 1.05 : 1.1 + 0.005 * (double)(blocks - 4));
        const double cost = (double)(blocks * (part + BLOCK_COST)) * alone;
        if (cost < least) best = parts, least = cost;
    }
    return (uint32_t)best;
}

/* How the blocks of rows that have teams (team.cuh) are laid out. */
struct team_shape {
    int team;      /* blocks of a cluster; 1: there are no teams */
    int32_t parts; /* of a row at most; clusters are whole, so the last blocks may have nothing to read */
    int each;      /* blocks that a multiprocessor takes at once; 0: as many as it has to */
};
static const team_shape NO_TEAMS = {1, 0, 0};
enum { TEAM_LEAST = 6, TEAM_EACH = 2 };
/* Clusters of `team` blocks that a GPU holds at once where a multiprocessor takes TEAM_EACH blocks. */
struct team_room {
    int clusters[TEAM + 1];
};

/* The shape for rows that are neither short nor very long, by what was measured (dev/cuda): clusters find places worse than blocks do,
 * and rows of which few tokens stay wait for that. So as long as each block of a cluster can have a multiprocessor of its own, and a
 * quarter of these stay free, all rows have teams; more rows if the call has a top-p alone, which is what leaves many tokens, and if
 * clusters fill the GPU once: the largest that nearly do, or else those that do most. */
static inline team_shape team_choose(int64_t rows, int32_t groups, bool top_p_alone, int processors, const team_room &room) {
    enum { FEW_PARTS = 16, GROUPS = 256, PART = 2 * BLOCK_WARPS };
    team_shape best = NO_TEAMS;
    if (groups < GROUPS || groups > QUICK_GROUPS) return best;
    const int32_t few = (int32_t)(processors * 3 / 4 / rows) / TEAM * TEAM;
    if (few >= FEW_PARTS) {
        const int32_t parts = (int32_t)parts_choose(rows, groups, processors);
        return {TEAM, parts < few ? parts : few, 0};
    }
    for (int team = TEAM; top_p_alone && team >= TEAM_LEAST; --team) {
        int32_t clusters = (int32_t)(room.clusters[team] / rows);
        if (clusters * team > groups / PART) clusters = groups / PART / team;
        if (clusters * team > best.parts) best = {team, clusters * team, TEAM_EACH};
        if (10 * rows * clusters * team >= 7 * TEAM_EACH * processors) break;
    }
    return best;
}

/* The grid of a batch for part_make, of which `read` rows are read, and the groups that a block reads: `most` at most, and whole
 * sections (sums.cuh). */
static inline dim3 parts_grid(int64_t rows, int64_t read, int32_t groups, int32_t most, int processors, const team_shape &shape,
                              int32_t *part) {
    enum { HIGH = 65535 }; /* most rows along the second side of a grid */
    static_assert(EDIT_GROUPS % SECTION == 0, "parts of edited rows stay within their limit");
    int32_t parts = shape.team > 1 ? shape.parts : (int32_t)parts_choose(read, groups, processors);
    const unsigned deep = (unsigned)((rows + HIGH - 1) / HIGH);
    *part = (groups + parts - 1) / parts;
    if (*part > most) *part = most;
    *part = (*part + SECTION - 1) / SECTION * section_of(*part);
    parts = (groups + *part - 1) / *part;
    parts = (parts + shape.team - 1) / shape.team * shape.team;
    return dim3((unsigned)parts, (unsigned)((rows + deep - 1) / deep), deep);
}

#endif
