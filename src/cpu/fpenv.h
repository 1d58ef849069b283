/* fpenv.h - the numbers need round-to-nearest and no flushing of subnormals, whatever the caller's thread
 * uses. fpenv_enter sets that up and fpenv_leave puts the caller's setting back. */
#ifndef RAFFLE_CPU_FPENV_H
#define RAFFLE_CPU_FPENV_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
typedef uint32_t fpenv;
static inline fpenv fpenv_enter(void) {
    fpenv caller = _mm_getcsr();
    _mm_setcsr(0x1f80); /* the power-on value: all exceptions masked */
    return caller;
}
static inline void fpenv_leave(fpenv caller) { _mm_setcsr(caller); }
#elif defined(__aarch64__)
typedef uint64_t fpenv;
static inline fpenv fpenv_enter(void) {
    fpenv caller;
    __asm__ volatile("mrs %0, fpcr" : "=r"(caller));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return caller;
}
static inline void fpenv_leave(fpenv caller) { __asm__ volatile("msr fpcr, %0" : : "r"(caller) : "memory"); }
#else
typedef int fpenv;
static inline fpenv fpenv_enter(void) { return 0; }
static inline void fpenv_leave(fpenv caller) { (void)caller; }
#endif

#endif
