// What a compiled kernel library and the simulation agree on.
// Included by kernels too, which have no standard library: plain types only.
#pragma once

enum { msl_buffer_slots = 31, msl_simd_width = 32 };

#ifdef __cplusplus
extern "C" {
#endif

// What all threads of a threadgroup share.
struct msl_launch {
    void* buffers[msl_buffer_slots];
    void* threadgroup_memory[msl_buffer_slots];
    unsigned threads_per_grid[3];
    unsigned threadgroups_per_grid[3];
    unsigned dispatch_threads_per_threadgroup[3];
    unsigned threadgroup_position[3];
    unsigned threads_per_threadgroup[3];  // smaller at the edge of a grid than what was dispatched
    unsigned simdgroups_per_threadgroup;
};

struct msl_thread {
    const struct msl_launch* launch;
    unsigned position[3];  // in the threadgroup
    unsigned index;        // in the threadgroup
};

// What a kernel does in one thread.
typedef void (*msl_entry)(const struct msl_thread*);
// Computes a simdgroup operation for all lanes: lanes[i] is what lane i passed, where bit i of `active` is set.
typedef void (*msl_combine)(void** lanes, unsigned long active);

// Kinds of kernel parameters, in the order of parameter_kinds() in signatures.cpp.
enum msl_kind {
    msl_buffer,
    msl_threadgroup,
    msl_thread_position_in_grid,
    msl_threads_per_grid,
    msl_thread_position_in_threadgroup,
    msl_threads_per_threadgroup,
    msl_threadgroup_position_in_grid,
    msl_threadgroups_per_grid,
    msl_dispatch_threads_per_threadgroup,
    msl_grid_origin,
    msl_thread_index_in_threadgroup,
    msl_thread_index_in_simdgroup,
    msl_simdgroup_index_in_threadgroup,
    msl_simdgroups_per_threadgroup,
    msl_dispatch_simdgroups_per_threadgroup,
    msl_threads_per_simdgroup,
    msl_thread_execution_width,
};

struct msl_parameter {
    unsigned kind;
    unsigned index;           // of a buffer or of threadgroup memory
    unsigned long bytes;      // that must be bound at least
    unsigned long alignment;  // of what is pointed to
};

struct msl_kernel {
    const char* name;
    msl_entry entry;
    const struct msl_parameter* parameters;
    unsigned parameter_count;
    unsigned max_threads;                   // from [[max_total_threads_per_threadgroup(n)]], else 0
    const unsigned* threadgroup_variables;  // ids of those declared in the kernel
    unsigned threadgroup_variable_count;
};

struct msl_constant {
    const char* name;
    const char* type;
    unsigned index;
    unsigned required;
};

// One for each type with which a threadgroup variable is instantiated.
struct msl_threadgroup_variable_size {
    unsigned id;
    unsigned bytes;
};

// Defined by the simulation, called by kernels. `line` is that of the MSL source.
void msl_threadgroup_barrier(int line);
void msl_simd_exchange(void* lane, msl_combine combine, int all_lanes, int line);  // all_lanes: none may be missing
unsigned msl_simd_lane(void);
void* msl_threadgroup_variable(unsigned id);
void msl_fail(int line, const char* what) __attribute__((noreturn));  // ends the grid

#ifdef __cplusplus
}
#endif
