// Kernels that must compile and give the right results; test_legal_kernels.mm says which.
// 64 threads in two threadgroups of 32, unless the test says otherwise; x holds 0, 1, 2, ...
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

struct Sizes {
    uint n;
    float scale;
};

constant float table[4] = {0.5, 1.5, 2.5, 3.5};
constexpr constant int offset = 3;
constant float2 pairs[2] = {float2(1, 2), float2(3, 4)};

namespace helpers {
inline float cube(float x) { return x * x * x; }
inline float4 cube(float4 v) { return float4(cube(v.x), cube(v.y), cube(v.z), cube(v.w)); }  // no recursion: an overload
}  // namespace helpers

template <typename T>
inline T sum_of(const device T *x, uint n) {
    T sum = 0;
    for (uint i = 0; i < n; ++i) sum += x[i];
    return sum;
}

inline void swap_values(thread float &a, thread float &b) {
    const float old = a;
    a = b;
    b = old;
}

METAL_FUNC float largest(threadgroup const float *values, uint n) {
    float result = -INFINITY;
    for (uint i = 0; i < n; ++i) result = max(result, values[i]);
    return result;
}

// Parameters by reference, a guard, a constant table.
kernel void scaled(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant Sizes &sizes [[buffer(2)]],
                   uint i [[thread_position_in_grid]]) {
    if (i >= sizes.n) return;
    y[i] = x[i] * sizes.scale + table[i % 4] + offset;
}

// A program scope table of vectors, and swizzles on both sides.
kernel void swizzled(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float4 v = float4(x[i], pairs[i % 2], 1);
    v.xw = v.wx;
    v.yz += 0.5;
    y[i] = v.x + 10 * v.y + 100 * v.z + 1000 * v.w;
}

// Constructors from parts of several types.
kernel void constructed(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    const half2 h = half2(x[i], 2);
    const float4 v = float4(float2(h), vec<float, 2>(int2(3, 4)));
    const uint3 u = uint3(v.xyz);
    y[i] = dot(v, float4(1)) + float(u.z);
}

// A literal is a float; half is rounded after every operation; bfloat too.
kernel void rounded(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    const half h = half(2048.0) + half(1) + half(1);
    const bfloat b = bfloat(256.0) + bfloat(1) + bfloat(1);
    y[i] = float(h) + float(b) + (sizeof(1.0) == 4 ? 0.25 : 0) + float(0.5h) + x[i] * 0;
}

// An overloaded function that calls its other overload.
kernel void overloaded(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    y[i] = helpers::cube(x[i]) + helpers::cube(float4(1, 2, 3, 4)).w;
}

// References into the thread's own memory, a do loop, a switch.
kernel void controlled(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float a = x[i], b = 100;
    swap_values(a, b);
    uint n = 0;
    do {
        ++n;
        if (n == 5) break;
    } while (n < i);
    switch (i % 3) {
        case 0: b += 1; break;
        case 1: b += 2; break;
        default: b += 3;
    }
    y[i] = a + b + float(n) * 1000;
}

// A function over device memory, called from a template kernel with two instances.
template <typename T>
kernel void prefix_total(device const T *x [[buffer(0)]], device T *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    y[i] = sum_of(x, i);
}
template [[host_name("prefix_total_float")]] kernel void prefix_total<float>(device const float *, device float *, uint);
template [[host_name("prefix_total_int")]] kernel void prefix_total<int>(device const int *, device int *, uint);

// A threadgroup variable, a barrier, and a pointer into it.
kernel void reversed_in_group(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
                              uint i [[thread_position_in_grid]], uint lane [[thread_position_in_threadgroup]],
                              uint n [[threads_per_threadgroup]]) {
    threadgroup float tile[32], best;
    tile[lane] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) best = largest(tile, n);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = tile[n - 1 - lane] + 1000 * best;
}

// A row of a threadgroup variable by reference, and a struct in threadgroup memory.
struct Pair {
    float values[2];
};
kernel void rows(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]],
                 uint lane [[thread_position_in_threadgroup]]) {
    threadgroup float table[2][33];
    threadgroup Pair pair;
    threadgroup float (&row)[33] = table[lane % 2];
    row[lane] = x[i];
    if (lane < 2) pair.values[lane] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = table[lane % 2][lane] + 1000 * pair.values[1 - lane % 2];
}

// Threadgroup memory as an argument, with a struct in it.
struct Entry {
    float value;
    uint owner;
};
kernel void entries(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], threadgroup Entry *shared [[threadgroup(0)]],
                    ushort lane [[thread_index_in_threadgroup]], uint i [[thread_position_in_grid]]) {
    shared[lane].value = x[i];
    shared[lane].owner = lane;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup const Entry &other = shared[lane ^ 1];
    y[i] = other.value + 100 * float(other.owner);
}

// Integers: bits, saturation, high product, unsigned wrapping.
kernel void integers(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    const uint wrapped = 0u - i;  // of unsigned integers, defined
    const int saturated = addsat(2147483647, int(i));
    y[i] = float(popcount(i)) + 10 * float(clz(i | 1u)) + 1000 * float(mulhi(0x80000000u, i * 4u)) + float(wrapped + i) +
           (saturated == 2147483647 ? 0.5 : 0) + float(rotate(1u, i & 7u)) * 0 + float(extract_bits(0xf0u, 4u, 4u));
}

// Bits of one type as another, selection, classification.
kernel void bits(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    const uint pattern = as_type<uint>(x[i]);
    const float same = as_type<float>(pattern);
    const float bad = i % 2 == 0 ? NAN : same;
    const float4 chosen = select(float4(1), float4(2), float4(x[i]) > float4(0, 10, 20, 30));
    y[i] = select(bad, -1.0f, isnan(bad)) + 100 * dot(chosen, float4(1)) + (isinf(x[i] / 0.0f) && i > 0 ? 0.5 : 0);
}

// All of a simdgroup: sums, prefixes, shuffles, votes.
kernel void simdgroups(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]]) {
    const float total = simd_sum(x[i]);
    const float before = simd_prefix_exclusive_sum(x[i]);
    const float next = simd_shuffle_down(x[i], 1);
    const float across = simd_shuffle_xor(x[i], 16);
    const bool some = simd_any(lane == 7), every = simd_all(lane < width);
    const ulong votes = static_cast<ulong>(simd_ballot(lane % 2 == 0));
    y[i] = total + before + next + across + simd_broadcast(x[i], 3) + (some && every ? 0.5 : 0) + float(votes == 0x55555555ul) * 0.25;
}

// Only some lanes take part; those that returned do not.
kernel void some_lanes(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]]) {
    if (lane >= 20) return;
    y[i] = simd_sum(1.0f);
}

// Quads.
kernel void quads(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    y[i] = quad_sum(x[i]) + 1000 * quad_broadcast(x[i], 2);
}

// Atomics in both memories.
kernel void counted(device const float *x [[buffer(0)]], device atomic_uint *count [[buffer(1)]], device atomic_float *total [[buffer(2)]],
                    device atomic_int *largest [[buffer(3)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_threadgroup]]) {
    threadgroup atomic_uint even;
    if (lane == 0) atomic_store_explicit(&even, 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i % 2 == 0) atomic_fetch_add_explicit(&even, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(total, x[i], memory_order_relaxed);
    atomic_fetch_max_explicit(largest, int(x[i]), memory_order_relaxed);
    uint expected = atomic_load_explicit(count + 1, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(count + 1, &expected, expected + 2, memory_order_relaxed, memory_order_relaxed)) {
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) atomic_fetch_add_explicit(count, atomic_load_explicit(&even, memory_order_relaxed), memory_order_relaxed);
}

// Packed vectors have the alignment of their elements.
kernel void packed(device const packed_float4 *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    if (i >= 16) return;
    const float4 v = x[i];
    device const packed_float3 *triples = (device const packed_float3 *)x;
    y[i] = v.w + 1000 * triples[i].z + float(sizeof(packed_float3)) * 0.25;
}

// Everything that says where a thread is.
kernel void positions(device uint *y [[buffer(0)]], uint3 i [[thread_position_in_grid]], ushort3 in_group [[thread_position_in_threadgroup]],
                      uint3 group [[threadgroup_position_in_grid]], uint3 grid [[threads_per_grid]], uint3 groups [[threadgroups_per_grid]],
                      uint3 size [[threads_per_threadgroup]], uint3 full [[dispatch_threads_per_threadgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroup_count [[simdgroups_per_threadgroup]],
                      ushort index [[thread_index_in_threadgroup]]) {
    const bool right = all(i == group * full + uint3(in_group)) && all(i < grid) && all(group < groups) &&
                       index == (in_group.z * size.y + in_group.y) * size.x + in_group.x && simdgroup == index / 32u && simdgroup < simdgroup_count;
    y[(i.z * grid.y + i.y) * grid.x + i.x] = right ? size.x * 100 + size.y * 10 + size.z : 0;
}

// Limits, and functions of two and three arguments.
kernel void functions(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    const float v = x[i] / 8 - 4;
    float whole;
    const float part = modf(v, whole);
    y[i] = fma(v, 2.0f, 1.0f) + clamp(v, -1.0f, 1.0f) + mix(0.0f, 10.0f, 0.25f) + copysign(3.0f, v) + part + whole + fmod(v, 1.5f) +
           (numeric_limits<float>::max() == FLT_MAX ? 0.5 : 0) + precise::exp(v) + pow(2.0f, v) + rsqrt(v * v + 1) + sign(v) + floor(v);
}
