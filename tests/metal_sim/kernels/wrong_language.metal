// Kernels that use what C++ has and MSL has not.
// "//! name: reason" begins each; the reason is part of the error that must come.

//! double_type: MSL has no double
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = float(double(i)); }

//! double_from_a_macro: MSL has no double
#define REAL double
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = float(REAL(i)); }

//! long_double: MSL has neither
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = (long double)i; }

//! long_double_literal: MSL has no long double
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1.0L; }

//! long_long: MSL has neither
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = float((long long)i); }

//! long_long_literal: MSL has no long long
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1LL; }

//! new_expression: MSL has no dynamic memory
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = *new float(1); }

//! delete_expression: MSL has no dynamic memory
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { delete x; }

//! exceptions: MSL has no exceptions
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { if (i > 1) throw 1; }

//! try_block: MSL has no exceptions
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { try { x[i] = 1; } catch (...) {} }

//! virtual_function: MSL has no virtual
struct Op { virtual float f(float x) { return x; } };
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! goto_statement: MSL has no goto
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
again:
    x[i] += 1;
    if (x[i] < 10) goto again;
}

//! run_time_types: MSL has no run-time type information
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = typeid(float) == typeid(int); }

//! thread_local_variable: MSL has no thread_local
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    thread_local int y = 1;
    x[i] = y;
}

//! inline_assembly: MSL has no inline assembly
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { asm("nop"); }

//! lambda: lambda expressions need MSL 4
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    auto twice = [](float v) { return 2 * v; };
    x[i] = twice(x[i]);
}

//! lambda_with_captures: lambda expressions need MSL 4
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    x[i] = [&](float v) { return v + i; }(x[i]);
}

//! string_literal: string literal
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = "abc"[i % 3]; }

//! standard_namespace: undeclared identifier 'std'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = std::sqrt(x[i]); }

//! standard_header: file not found
#include <cmath>
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }

//! printf_call: string literal
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { printf("%f", x[i]); }

//! printf_without_a_text: undeclared identifier 'printf'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { printf(x[i]); }

//! erf_is_not_in_msl: undeclared identifier 'erf'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = erf(x[i]); }

//! c_math_name: undeclared identifier 'expf'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = expf(x[i]); }

//! log1p_is_not_in_msl: undeclared identifier 'log1p'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = log1p(x[i]); }

//! hypot_is_not_in_msl: undeclared identifier 'hypot'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = hypot(x[i], 1.0f); }

//! memcpy_call: undeclared identifier 'memcpy'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { memcpy(x, x + 1, 4); }

//! assert_call: undeclared identifier 'assert'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { assert(i < 1); }

//! compiler_builtin: is not a name of MSL
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = __builtin_expf(x[i]); }

//! name_of_the_simulation: is not a name of MSL
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = msl_simd_lane(); }

//! compiler_type: the type is called half
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = (_Float16)x[i]; }

//! gnu_attribute: attributes are written
inline float f(float x) __attribute__((noinline));
inline float f(float x) { return x; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = f(x[i]); }

//! recursion: MSL has no recursion
inline uint factorial(uint n) { return n < 2 ? 1 : n * factorial(n - 1); }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = factorial(i); }

//! mutual_recursion: MSL has no recursion
inline bool odd(uint n);
inline bool even(uint n) { return n == 0 ? true : odd(n - 1); }
inline bool odd(uint n) { return n == 0 ? false : even(n - 1); }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = even(i); }

//! function_pointer: MSL has no pointers to functions
inline float twice(float x) { return 2 * x; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float (*f)(float) = twice;
    x[i] = f(x[i]);
}

//! function_pointer_type: MSL has no pointers to functions
using operation = float (*)(float);
inline float twice(float x) { return 2 * x; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    operation f = twice;
    x[i] = f(x[i]);
}

//! variadic_function: MSL has no variadic functions
inline float first(float x, ...) { return x; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = first(x[i], 2); }

//! uninitialized_variable: is uninitialized
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float sum;
    x[i] = sum + 1;
}

//! constant_index_out_of_range: array index 4 is past the end
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float y[4] = {};
    x[i] = y[4];
}

//! variable_length_array: variable length array
kernel void k(device float *x [[buffer(0)]], constant uint &n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float y[n];
    y[0] = 1;
    x[i] = y[0];
}

//! if_constexpr: C++17
template <bool b>
inline float f(float x) {
    if constexpr (b) return x;
    return 2 * x;
}
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = f<true>(x[i]); }

//! structured_bindings: C++17
struct Pair { float a, b; };
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    Pair p{1, 2};
    auto [a, b] = p;
    x[i] = a + b;
}

//! missing_return: non-void function does not return a value
inline float f(float x) { x += 1; }
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = f(x[i]); }

//! texture: textures are not simulated
kernel void k(texture2d<float> t [[texture(0)]], uint i [[thread_position_in_grid]]) {}

//! vertex_function: only compute is simulated
vertex float4 v(uint i [[vertex_id]]) { return float4(0); }

//! unknown_name: undeclared identifier 'y'
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = y; }

//! open_bracket: is never closed
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1;

//! close_bracket: closes nothing
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = (1)); }

//! digit_separator: expected
kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1''000; }
