// Kernels whose declaration, parameters or constants Metal does not allow.
// "//! name: reason" begins each; the reason is part of the error that must come.

//! result: must return void
kernel float k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { return x[i]; }

//! parameter_without_attribute: has no attribute that says what it is
kernel void k(device float *x, uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! value_without_attribute: has no attribute that says what it is
kernel void k(device float *x [[buffer(0)]], uint n, uint i [[thread_position_in_grid]]) { x[i] = n; }

//! unknown_attribute: is not one that a kernel parameter can have
kernel void k(device float *x [[buffer(0)]], uint i [[thread_id]]) { x[i] = 1; }

//! misspelled_attribute: is not one that a kernel parameter can have
kernel void k(device float *x [[bufer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! unknown_attribute_of_a_function: unknown attribute 'noinline'
[[noinline]] inline float f(float x) { return x; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = f(1); }

//! index_too_large: only 0 to 30 exist
kernel void k(device float *x [[buffer(31)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! index_missing: needs a number
kernel void k(device float *x [[buffer]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! index_twice: buffer(0) is used twice
kernel void k(device float *x [[buffer(0)]], device float *y [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = y[i]; }

//! threadgroup_index_twice: threadgroup(1) is used twice
kernel void k(device float *x [[buffer(0)]], threadgroup float *a [[threadgroup(1)]], threadgroup float *b [[threadgroup(1)]],
              uint i [[thread_position_in_grid]]) {
    x[i] = 1;
}

//! position_twice: is used twice
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]], uint j [[thread_position_in_grid]]) { x[i] = j; }

//! two_attributes: more than one attribute
kernel void k(device float *x [[buffer(0), buffer(1)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! buffer_by_value: needs a pointer or reference
kernel void k(device float *x [[buffer(0)]], uint n [[buffer(1)]], uint i [[thread_position_in_grid]]) { x[i] = n; }

//! struct_by_value: needs a pointer or reference
struct Sizes { uint n; };
kernel void k(device float *x [[buffer(0)]], Sizes s [[buffer(1)]], uint i [[thread_position_in_grid]]) { x[i] = s.n; }

//! threadgroup_memory_in_device: needs a pointer to threadgroup memory
kernel void k(device float *x [[buffer(0)]], device float *t [[threadgroup(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! buffer_in_threadgroup: needs a pointer or reference to device or constant
kernel void k(threadgroup float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! float_position: must be uint or ushort
kernel void k(device float *x [[buffer(0)]], float i [[thread_position_in_grid]]) { x[0] = i; }

//! signed_position: must be uint or ushort
kernel void k(device float *x [[buffer(0)]], int i [[thread_position_in_grid]]) { x[i] = 1; }

//! ulong_position: must be uint or ushort
kernel void k(device float *x [[buffer(0)]], ulong i [[thread_position_in_grid]]) { x[i] = 1; }

//! four_components: at most 3 components
kernel void k(device float *x [[buffer(0)]], uint4 i [[thread_position_in_grid]]) { x[i.x] = 1; }

//! vector_lane: is a scalar
kernel void k(device float *x [[buffer(0)]], uint2 i [[thread_index_in_simdgroup]]) { x[i.x] = 1; }

//! lengths_differ: all vectors of one length
kernel void k(device float *x [[buffer(0)]], uint2 i [[thread_position_in_grid]], uint n [[threads_per_grid]]) { x[i.x] = n; }

//! kernel_calls_kernel: cannot be called
kernel void first(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { first(x, i); }

//! instance_without_name: needs a [[host_name
template <typename T>
kernel void k(device T *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }
template kernel void k<float>(device float *, uint);

//! instance_of_nothing: no kernel template before it
template [[host_name("k_float")]] kernel void k<float>(device float *, uint);

//! template_without_attributes: has no attribute that says what it is
template <typename T>
kernel void k(device T *x, uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! instance_with_other_parameters: explicit instantiation
template <typename T>
kernel void k(device T *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }
template [[host_name("k_float")]] kernel void k<float>(device half *, uint);

//! constant_index_twice: function_constant(0) is used twice
constant uint a [[function_constant(0)]];
constant uint b [[function_constant(0)]];
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = a + b; }

//! constant_not_constant: a function constant is declared as
uint n [[function_constant(0)]];
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = n; }

//! constant_with_value: a function constant is declared as
constant uint n [[function_constant(0)]] = 3;
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = n; }

//! constant_as_array_length: variable length array
constant uint n [[function_constant(0)]];
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float y[n];
    y[0] = 1;
    x[i] = y[0];
}

//! constant_as_template_argument: invalid explicitly-specified argument
constant uint n [[function_constant(0)]];
template <uint m>
inline float f() { return m; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = f<n>(); }

//! two_kernels_of_one_name: redefinition
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 2; }
