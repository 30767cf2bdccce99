// Kernels that compile and go wrong when they run: with 64 threads in one threadgroup, buffer(0) holds 64 numbers
// 0, 1, 2, ..., buffer(1) 64 zeros. "//! name: reason" begins each; the reason is part of the error that must come.

//! return_before_barrier: 24 thread(s) of the threadgroup that returned
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i >= 40) return;
    threadgroup_barrier(mem_flags::mem_device);
    x[i] = 1;
}

//! barriers_of_two_branches: wait at different barriers
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i < 32) {
        threadgroup_barrier(mem_flags::mem_device);
    } else {
        threadgroup_barrier(mem_flags::mem_device);
    }
    x[i] = 1;
}

//! barrier_in_a_branch: wait at different barriers
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i == 7) threadgroup_barrier(mem_flags::mem_device);
    x[i] = 1;
    threadgroup_barrier(mem_flags::mem_device);
}

//! barrier_in_a_loop_of_different_lengths: threadgroup_barrier is never reached
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    for (uint n = 0; n < i; ++n) threadgroup_barrier(mem_flags::mem_device);
    x[i] = 1;
}

//! simdgroup_operations_of_two_branches: are in different ones
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float sum;
    if (i % 2 == 0) {
        sum = simd_sum(x[i]);
    } else {
        sum = simd_max(x[i]);
    }
    x[i] = sum;
}

//! simdgroup_barrier_against_operation: are in different ones
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i % 32 < 8) simdgroup_barrier(mem_flags::mem_none);
    x[i] = simd_sum(x[i]);
}

//! matrix_product_without_all_threads: needs all 32 threads
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    simdgroup_float8x8 a(1), b(2), c(0);
    if (i % 32 != 5) simdgroup_multiply_accumulate(c, a, b, c);
    x[i] = 1;
}

//! write_far_away: outside of every buffer
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { *(x - (ulong(i) << 34)) = 1; }

//! write_beyond_the_page: bytes past the end of buffer(0) of 256 bytes
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i + 1024] = 1; }

//! read_beyond_the_page: bytes past the end of buffer(0) of 256 bytes
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[i + 1024]; }

//! write_past_the_end: past the end of buffer(0) of 256 bytes
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i + 1] = 1; }

//! read_before_the_start: bytes before the start of buffer(0) of 256 bytes
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[int(i) - 1000]; }

//! vector_not_aligned: misaligned
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    *(device float4 *)(x + 1) = float4(1);
}

//! null_pointer: null
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    device float *p = x[i] < 0 ? x : nullptr;
    *p = 1;
}

//! array_in_registers: line 7: index 64 is outside of 'float[64]'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float y[64] = {};
    x[i] = y[i + 1];
}

//! array_in_threadgroup_memory: line 9: index 64 is outside of
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup float tile[64];
    tile[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = tile[i + 1];
}

//! pointer_past_a_threadgroup_variable: past the end of a threadgroup variable of 256 bytes
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup float tile[64];
    threadgroup float *p = tile;
    p[i + 1] = x[i];
}

//! integer_divided_by_zero: divided by zero
kernel void k(device float *x [[buffer(0)]], device int *zero [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] = int(i) / zero[i];
}

//! integer_remainder_by_zero: divided by zero
kernel void k(device float *x [[buffer(0)]], device uint *zero [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] = i % zero[i];
}

//! signed_overflow: signed integer overflow
kernel void k(device float *x [[buffer(0)]], device int *zero [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] = (zero[i] + 2147483647) + int(i);
}

//! shift_by_too_much: shifted by its number of bits or more
kernel void k(device float *x [[buffer(0)]], device uint *zero [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] = (zero[i] + 1) << i;
}

//! endless_loop: longer than the time limit
kernel void k(device float *x [[buffer(0)]], device atomic_uint *flag [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    while (atomic_load_explicit(flag, memory_order_relaxed) == 0) {
    }
    x[i] = 1;
}

//! endless_loop_with_a_barrier: longer than the time limit
kernel void k(device float *x [[buffer(0)]], device uint *zero [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    while (zero[0] == 0) threadgroup_barrier(mem_flags::mem_device);
    x[i] = 1;
}
