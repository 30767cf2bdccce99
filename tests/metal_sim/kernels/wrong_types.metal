// Kernels in which types do not fit.
// "//! name: reason" begins each; the reason is part of the error that must come.

//! max_of_two_types: ambiguous
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = max(x[i], 0); }

//! min_of_signed_and_unsigned: ambiguous
kernel void k(device uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = min(x[i], 5); }

//! clamp_of_two_types: ambiguous
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = clamp(x[i], 0, 1.0f); }

//! square_root_of_an_integer: ambiguous
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = sqrt(i); }

//! too_few_components: wrong number of components
kernel void k(device float4 *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = float4(1, 2, 3); }

//! too_many_components: wrong number of components
kernel void k(device float2 *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = float2(float2(1), 2); }

//! vector_of_another_length: wrong number of components
kernel void k(device float4 *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = float4(float3(1)); }

//! implicit_half_vector: cannot initialize
kernel void k(device half4 *x [[buffer(0)]], device float4 *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float4 v = x[i];
    y[i] = v;
}

//! implicit_integer_vector: cannot initialize
kernel void k(device int4 *x [[buffer(0)]], device float4 *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float4 v = x[i];
    y[i] = v;
}

//! vector_to_scalar: incompatible type
kernel void k(device float4 *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = x[i]; }

//! sum_of_two_vectors: cannot convert between vector
kernel void k(device float4 *x [[buffer(0)]], device float2 *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] = x[i] + y[i];
}

//! component_out_of_range: vector component
kernel void k(device float2 *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i].x = x[i].z; }

//! bits_of_a_float: invalid operands
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[i] & 1; }

//! remainder_of_floats: invalid operands
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[i] % 2.0f; }

//! leading_zeros_of_a_float: no matching function for call to 'clz'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = clz(x[i]); }

//! dot_of_integers: no matching function for call to 'dot'
kernel void k(device int4 *x [[buffer(0)]], device int *y [[buffer(1)]], uint i [[thread_position_in_grid]]) { y[i] = dot(x[i], x[i]); }

//! isnan_of_an_integer: no matching function for call to 'isnan'
kernel void k(device int *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = isnan(x[i]); }

//! select_by_a_float: no matching function for call to 'select'
kernel void k(device float4 *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = select(x[i], x[i], true); }

//! as_type_of_another_size: the sizes differ
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = as_type<ushort>(x[i]); }

//! fast_function_of_half: no member named 'rsqrt16'
kernel void k(device half *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = fast::rsqrt16(x[i]); }

//! atomic_of_plain_memory: no matching function
kernel void k(device uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    atomic_fetch_add_explicit(x, 1u, memory_order_relaxed);
}

//! atomic_arithmetic: invalid operands
kernel void k(device atomic_uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { *x = *x + 1; }

//! atomic_without_an_order: no matching function
kernel void k(device atomic_uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { atomic_fetch_add_explicit(x, 1u); }

//! atomic_in_another_order: undeclared identifier 'memory_order_seq_cst'
kernel void k(device atomic_uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    atomic_fetch_add_explicit(x, 1u, memory_order_seq_cst);
}

//! atomic_short_name: undeclared identifier 'atomic_fetch_add'
kernel void k(device atomic_uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { atomic_fetch_add(x, 1u); }

//! atomic_float_maximum: no matching function
kernel void k(device atomic_float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    atomic_fetch_max_explicit(x, 1.0f, memory_order_relaxed);
}

//! atomic_float_in_threadgroup: no matching function
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup atomic_float sum;
    atomic_fetch_add_explicit(&sum, 1.0f, memory_order_relaxed);
    x[i] = 1;
}

//! atomic_of_half: T is int, uint, bool, float or ulong
kernel void k(device atomic<half> *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    atomic_store_explicit(x, 1.0h, memory_order_relaxed);
}

//! simd_sum_of_bool: do not take bool
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = simd_sum(x[i] > 0); }

//! simd_sum_of_long: at most 32 bits
kernel void k(device long *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = simd_sum(x[i]); }

//! shuffle_of_a_struct: simdgroup operations take numbers
struct Pair { float a, b; };
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    Pair p{x[i], 1};
    x[i] = simd_shuffle(p, 0).a;
}

//! matrix_of_integers: the elements are half, bfloat or float
kernel void k(device int *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    simdgroup_matrix<int, 8, 8> m;
    simdgroup_load(m, x);
}

//! matrix_of_another_size: only 8 x 8 exists
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { simdgroup_matrix<float, 16, 16> m; }

//! matrix_from_another_type: no matching function for call to 'simdgroup_load'
kernel void k(device half *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    simdgroup_float8x8 m;
    simdgroup_load(m, x);
}

//! matrix_from_constant: no matching function for call to 'simdgroup_load'
kernel void k(constant float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    simdgroup_float8x8 m;
    simdgroup_load(m, x);
}

//! matrix_elements: no member named 'thread_elements'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    simdgroup_float8x8 m(1);
    x[i] = m.thread_elements()[0];
}

//! undefined_struct: unknown type name 'Parameters'
kernel void k(constant Parameters &p [[buffer(0)]], uint i [[thread_position_in_grid]]) {}
