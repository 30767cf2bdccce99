// Switching between stacks, for the threads of a threadgroup.
// 15 instructions on x86-64, ucontext elsewhere (12 times slower); Boost.Context would be another package for no more.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#define METAL_SIM_UCONTEXT 1
#endif
#ifdef METAL_SIM_UCONTEXT
#include <ucontext.h>
#endif

namespace metal_sim {

// Where a stack of execution stopped.
struct Context {
#ifdef METAL_SIM_UCONTEXT
    ucontext_t context;
#else
    void* stack_pointer = nullptr;
#endif
};

// Makes `context` begin `body`, which never returns, at the top of a stack.
void prepare_context(Context& context, std::byte* stack, std::size_t bytes, void (*body)());
// Stops here and goes on where `to` stopped.
void switch_context(Context& from, Context& to);

}  // namespace metal_sim
