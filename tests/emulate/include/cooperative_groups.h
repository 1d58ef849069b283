/* cooperative_groups.h - nothing: the emulated device has no clusters. */
