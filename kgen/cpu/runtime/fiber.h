// Fibers: a stack each, and a switch that saves what the ABI wants saved, in assembly for x86-64 and aarch64.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kg {

struct Stack {
    uint8_t* base;
    size_t size;
};

// `base` is followed by a page that faults, so that an overflow is a crash and not a wrong result.
static inline Stack new_stack(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size = (size + page - 1) / page * page + page;
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return {nullptr, 0};
    mprotect(p, page, PROT_NONE);
    return {(uint8_t*)p, size};
}

struct Fiber {
    void* sp;
};

typedef void (*Main)(void*);

extern "C" void kg_switch(void** from, void* to);
extern "C" void kg_start();

#if defined(__APPLE__)
#define KG_SYMBOL(name) "_" #name
#else
#define KG_SYMBOL(name) #name
#endif

#ifdef __x86_64__
// Saved: rbp, rbx, r12 to r15. A new fiber finds its main in r12, the argument in r13.
__asm__(".text\n.globl " KG_SYMBOL(kg_switch) "\n" KG_SYMBOL(kg_switch) ":\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".globl " KG_SYMBOL(kg_start) "\n" KG_SYMBOL(kg_start) ":\n  movq %r13, %rdi\n  callq *%r12\n  ud2\n");
static inline void start(Fiber* fiber, Stack stack, size_t color, Main main, void* argument)
{
    uint64_t* top = (uint64_t*)((uintptr_t)(stack.base + stack.size - color) & ~(uintptr_t)63);
    top -= 2;                         // after the return into kg_start the stack is 16-byte aligned, as before a call
    *--top = (uint64_t)(uintptr_t)kg_start;
    *--top = 0, *--top = 0;           // rbp, rbx
    *--top = (uint64_t)(uintptr_t)main;      // r12
    *--top = (uint64_t)(uintptr_t)argument;  // r13
    *--top = 0, *--top = 0;           // r14, r15
    fiber->sp = top;
}
#elif defined(__aarch64__)
// Saved: x19 to x30, d8 to d15. A new fiber finds its main in x19, the argument in x20. `hint #34` is `bti c`: where
// the compiler guards branches by default, the linkage table may only jump to one.
__asm__(".text\n.globl " KG_SYMBOL(kg_switch) "\n.p2align 2\n" KG_SYMBOL(kg_switch) ":\n"
        "  hint #34\n  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n  add sp, sp, #160\n  ret\n"
        ".globl " KG_SYMBOL(kg_start) "\n.p2align 2\n" KG_SYMBOL(kg_start) ":\n  mov x0, x20\n  blr x19\n  brk #0\n");
static inline void start(Fiber* fiber, Stack stack, size_t color, Main main, void* argument)
{
    uint64_t* top = (uint64_t*)((uintptr_t)(stack.base + stack.size - color) & ~(uintptr_t)63) - 20;
    for (int i = 0; i < 20; ++i) top[i] = 0;
    top[0] = (uint64_t)(uintptr_t)main;
    top[1] = (uint64_t)(uintptr_t)argument;
    top[11] = (uint64_t)(uintptr_t)kg_start;  // x30
    fiber->sp = top;
}
#else
#error "fibers are switched on x86-64 and aarch64 only"
#endif
static inline void switch_to(Fiber* from, Fiber* to) { kg_switch(&from->sp, to->sp); }

}  // namespace kg
