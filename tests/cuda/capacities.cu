/* capacities.cu - the limits that the kernels were built with, for capacity.c. */
#include "vec_one.h"

#include "finish.cuh"

extern "C" {
extern const int capacity_list = LIST_MAX, capacity_ranked = LIST_RANKED, capacity_pieces = PIECES_MAX;
extern const int capacity_keys = KEYS_MAX, capacity_piece_lanes = PIECE_LANES;
}
