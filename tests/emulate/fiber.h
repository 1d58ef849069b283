/* fiber.h - a stack of its own for each CUDA thread, and the switch from one to another. */
#ifndef RAFFLE_EMULATE_FIBER_H
#define RAFFLE_EMULATE_FIBER_H

#include <stddef.h>

namespace emulate {

struct fiber {
    void *stack_pointer; /* while it does not run */
    char *stack;         /* its lowest address; NULL: the host thread's own stack */
    size_t stack_bytes;
    void *sanitizer; /* AddressSanitizer's notes */
};

/* Stacks for `count` fibers, a page that must not be touched below each. */
char *fiber_stacks(int count);
size_t fiber_stack_bytes();
/* Makes a fiber begin with `start`, which must not return, when it is switched to. */
void fiber_make(fiber *f, char *stack, void (*start)());
/* Goes on with `to`; returns when somebody switches back. `last`: nobody will. */
void fiber_switch(fiber *from, fiber *to, bool last = false);
/* The first thing a new fiber does. */
void fiber_begun(fiber *before);

} // namespace emulate

#endif
