// Kernels that break a rule of address spaces or storage.
// "//! name: reason" begins each; the reason is part of the error that must come.

//! pointer_without_space: needs an address space
kernel void k(float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! reference_without_space: needs an address space
inline void add(float &x) { x += 1; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float y = x[i];
    add(y);
    x[i] = y;
}

//! local_pointer_without_space: needs an address space
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float y = 1;
    float *p = &y;
    x[i] = *p;
}

//! const_pointer_without_space: needs an address space
inline float first(const float *x) { return x[0]; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! template_pointer_without_space: needs an address space
template <typename T>
inline T first(T *x) { return x[0]; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = first(x); }

//! vector_pointer_without_space: needs an address space
inline float first(const vec<float, 4> *x) { return x[0].x; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! struct_reference_without_space: needs an address space
struct Sizes { uint n; };
inline uint size_of(const Sizes &s) { return s.n; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! cast_without_space: needs an address space
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = ((float4 *)x)[0].x; }

//! typedef_pointer_without_space: needs an address space
typedef float real;
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    real y = 1;
    real *p = &y;
    x[i] = *p;
}

//! device_to_thread: no matching function
inline void clear(thread float *x) { *x = 0; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { clear(x + i); }

//! thread_to_device: no matching function
inline void clear(device float *x) { *x = 0; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float y = 1;
    clear(&y);
    x[i] = y;
}

//! device_to_threadgroup: cannot initialize
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup float *p = x;
    p[i] = 1;
}

//! threadgroup_to_device: cannot initialize
kernel void k(device float *x [[buffer(0)]], threadgroup float *t [[threadgroup(0)]], uint i [[thread_position_in_grid]]) {
    device float *p = t;
    x[i] = p[i];
}

//! constant_to_device: no matching function
inline float first(const device float *x) { return x[0]; }
kernel void k(device float *x [[buffer(0)]], constant float *c [[buffer(1)]], uint i [[thread_position_in_grid]]) { x[i] = first(c); }

//! cast_between_spaces: is not allowed
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup float *p = static_cast<threadgroup float *>(x);
    p[i] = 1;
}

//! write_constant: not assignable
kernel void k(constant float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! write_const_device: not assignable
kernel void k(const device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! write_constant_struct: cannot assign
struct Sizes { uint n; };
kernel void k(constant Sizes &s [[buffer(0)]], uint i [[thread_position_in_grid]]) { s.n = i; }

//! write_constant_table: cannot assign
constant float table[2] = {1, 2};
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    table[0] = 3;
    x[i] = table[0];
}

//! program_scope_variable: program scope variable must reside in constant address space
float scale = 2;
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = scale; }

//! program_scope_const: program scope variable must reside in constant address space
const float scale = 2;
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = scale; }

//! program_scope_static: program scope variable must reside in constant address space
static uint counter;
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = counter++; }

//! program_scope_in_namespace: program scope variable must reside in constant address space
namespace helpers {
float scale = 2;
}
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = helpers::scale; }

//! program_scope_threadgroup: program scope variable must reside in constant address space
threadgroup float tile[64];
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = tile[i]; }

//! static_local: must be constant
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    static uint counter = 0;
    x[i] = counter++;
}

//! threadgroup_variable_in_function: must be declared in a kernel
inline float sum(float v, uint i) {
    threadgroup float tile[32];
    tile[i] = v;
    return tile[0];
}
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = sum(1, i); }

//! threadgroup_variable_with_value: cannot have an initializer
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup float total = 0;
    x[i] = total;
}

//! device_variable: cannot be in the address space 'device'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    device float y = 1;
    x[i] = y;
}

//! constant_variable_in_function: cannot be in the address space 'constant'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    constant float y = 1;
    x[i] = y;
}

//! atomic_variable_in_function: must be in device or threadgroup memory
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    atomic_uint count;
    x[i] = 1;
}

//! pointer_to_a_local: stack memory
inline thread float *value() {
    float result = 1;
    return &result;
}
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = *value(); }
