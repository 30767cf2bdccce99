// See context.h: what the System V ABI wants preserved is pushed on the old stack and popped from the new one.
// Nothing of the floating-point state is saved, since kernels do not change rounding modes.
#include "grid/context.h"

#include <sanitizer/asan_interface.h>

namespace metal_sim {

#ifdef METAL_SIM_UCONTEXT

void prepare_context(Context& context, std::byte* stack, std::size_t bytes, void (*body)()) {
    ASAN_UNPOISON_MEMORY_REGION(stack, bytes);
    getcontext(&context.context);
    context.context.uc_stack.ss_sp = stack;
    context.context.uc_stack.ss_size = bytes;
    context.context.uc_link = nullptr;
    makecontext(&context.context, body, 0);
}

void switch_context(Context& from, Context& to) {
    swapcontext(&from.context, &to.context);
}

#else

extern "C" void metal_sim_switch(void** save, void* stack_pointer);

asm(R"(
.text
.globl metal_sim_switch
.hidden metal_sim_switch
.type metal_sim_switch,@function
metal_sim_switch:
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
    retq
.size metal_sim_switch,.-metal_sim_switch
)");

void prepare_context(Context& context, std::byte* stack, std::size_t bytes, void (*body)()) {
    ASAN_UNPOISON_MEMORY_REGION(stack, bytes);  // frames that were given up left their marks
    constexpr int saved_registers = 6;
    auto* top = reinterpret_cast<void**>(stack + bytes - 64);  // 16-byte aligned, as at a call
    *--top = nullptr;                                          // the return address of `body`, which never returns
    *--top = reinterpret_cast<void*>(body);
    for (int i = 0; i < saved_registers; ++i) *--top = nullptr;
    context.stack_pointer = top;
}

void switch_context(Context& from, Context& to) {
    metal_sim_switch(&from.stack_pointer, to.stack_pointer);
}

#endif

}  // namespace metal_sim
