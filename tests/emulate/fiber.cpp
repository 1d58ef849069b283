/* fiber.cpp - the switch saves what a called function has to preserve and changes the stack: no system call. */
#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define EMULATE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define EMULATE_ASAN 1
#endif
#endif

#if defined(__x86_64__)
enum { SAVED_WORDS = 8, RETURN_AT = 6 };
asm(R"(
    .text
    .type raffle_emulate_switch, @function
raffle_emulate_switch: /* (void **save, void *load) */
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size raffle_emulate_switch, .-raffle_emulate_switch
)");
#elif defined(__aarch64__)
enum { SAVED_WORDS = 20, RETURN_AT = 11 };
asm(R"(
    .text
    .type raffle_emulate_switch, %function
raffle_emulate_switch: /* (void **save, void *load) */
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size raffle_emulate_switch, .-raffle_emulate_switch
)");
#else
#error "the emulation knows x86-64 and 64-bit ARM: write raffle_emulate_switch for this machine"
#endif
extern "C" void raffle_emulate_switch(void **save, void *load);

namespace emulate {

#if defined(EMULATE_ASAN)
enum : size_t { STACK_BYTES = 512 << 10 };
#else
enum : size_t { STACK_BYTES = 128 << 10 };
#endif

size_t fiber_stack_bytes() { return STACK_BYTES; }

char *fiber_stacks(int count) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(nullptr, count * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("emulation: stacks");
        abort();
    }
    for (int i = 0; i < count; ++i) mprotect((char *)memory + i * STACK_BYTES, page, PROT_NONE);
    return (char *)memory;
}

void fiber_make(fiber *f, char *stack, void (*start)()) {
    f->stack = stack;
    f->stack_bytes = STACK_BYTES;
    f->sanitizer = nullptr;
    /* As if raffle_emulate_switch had been called by `start`'s first instruction; the top is a multiple of 16. */
    const size_t shift = (uintptr_t)stack / STACK_BYTES % 64 * 1088; /* tops that share a place in the cache would push each other out */
    void **top = (void **)(stack + STACK_BYTES - shift) - SAVED_WORDS;
    memset(top, 0, SAVED_WORDS * sizeof *top);
    top[RETURN_AT] = (void *)start;
    f->stack_pointer = top;
}

void fiber_switch(fiber *from, fiber *to, bool last) {
#if defined(EMULATE_ASAN)
    __sanitizer_start_switch_fiber(last ? nullptr : &from->sanitizer, to->stack, to->stack_bytes);
#endif
    (void)last;
    raffle_emulate_switch(&from->stack_pointer, to->stack_pointer);
#if defined(EMULATE_ASAN)
    __sanitizer_finish_switch_fiber(from->sanitizer, nullptr, nullptr);
#endif
}

void fiber_begun(fiber *host) {
#if defined(EMULATE_ASAN)
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (host && !host->stack) { /* the first fiber of a block comes from the host's stack */
        host->stack = (char *)(uintptr_t)bottom;
        host->stack_bytes = bytes;
    }
#else
    (void)host;
#endif
}

} // namespace emulate
