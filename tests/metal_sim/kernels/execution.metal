// Kernels as a back end writes them: element-wise, matrix products, reductions.
// test_execution.mm runs them.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// Abramowitz and Stegun 7.1.26: MSL has no erf.
inline float error_function(float x) {
    const float t = 1.0f / (1.0f + 0.3275911f * fabs(x));
    const float series = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    return copysign(1.0f - series * precise::exp(-x * x), x);
}

kernel void gelu(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant uint &n [[buffer(2)]],
                 uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    y[i] = 0.5f * x[i] * (1.0f + error_function(x[i] * M_SQRT1_2_F));
}

constant uint tile_size = 16;

// c = a * b through tiles in threadgroup memory; sizes is (m, n, k). skip_barrier leaves out the second barrier: a defect.
template <bool skip_barrier>
kernel void matmul_tiled(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]], device float *c [[buffer(2)]],
                         constant uint3 &sizes [[buffer(3)]], uint2 at [[thread_position_in_grid]],
                         uint2 local [[thread_position_in_threadgroup]]) {
    threadgroup float a_tile[tile_size][tile_size];
    threadgroup float b_tile[tile_size][tile_size];
    const uint m = sizes.x, n = sizes.y, k = sizes.z;
    float sum = 0;
    for (uint begin = 0; begin < k; begin += tile_size) {
        a_tile[local.y][local.x] = at.y < m && begin + local.x < k ? a[at.y * k + begin + local.x] : 0.0f;
        b_tile[local.y][local.x] = begin + local.y < k && at.x < n ? b[(begin + local.y) * n + at.x] : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint q = 0; q < tile_size; ++q) sum += a_tile[local.y][q] * b_tile[q][local.x];
        if (!skip_barrier) threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (at.y < m && at.x < n) c[at.y * n + at.x] = sum;
}
template [[host_name("matmul_tiled")]] kernel void matmul_tiled<false>(device const float *, device const float *, device float *,
                                                                       constant uint3 &, uint2, uint2);
template [[host_name("matmul_without_barrier")]] kernel void matmul_tiled<true>(device const float *, device const float *,
                                                                                device float *, constant uint3 &, uint2, uint2);

// Each of four simdgroups computes one 8 x 8 tile of a 16 x 16 block; the result passes through threadgroup memory.
template <typename T>
kernel void matmul_simdgroup(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device float *c [[buffer(2)]],
                             constant uint3 &sizes [[buffer(3)]], threadgroup float *scratch [[threadgroup(0)]],
                             uint2 block [[threadgroup_position_in_grid]], ushort simdgroup [[simdgroup_index_in_threadgroup]],
                             ushort lane [[thread_index_in_simdgroup]]) {
    const uint n = sizes.y, k = sizes.z;
    const uint row = block.y * 16 + simdgroup / 2 * 8, column = block.x * 16 + simdgroup % 2 * 8;
    simdgroup_matrix<float, 8, 8> sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    simdgroup_matrix<T, 8, 8> left, right;
    for (uint q = 0; q < k; q += 8) {
        simdgroup_load(left, a + row * k + q, k);
        simdgroup_load(right, b + q * n + column, n);
        simdgroup_multiply_accumulate(sum, left, right, sum);
    }
    threadgroup float *mine = scratch + simdgroup * 64;
    simdgroup_store(sum, mine, 8);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = lane; i < 64; i += 32) c[(row + i / 8) * n + column + i % 8] = mine[i];
}
template [[host_name("matmul_simdgroup_float")]] kernel void matmul_simdgroup<float>(device const float *, device const float *,
                                                                                     device float *, constant uint3 &,
                                                                                     threadgroup float *, uint2, ushort, ushort);
template [[host_name("matmul_simdgroup_half")]] kernel void matmul_simdgroup<half>(device const half *, device const half *,
                                                                                   device float *, constant uint3 &,
                                                                                   threadgroup float *, uint2, ushort, ushort);
template [[host_name("matmul_simdgroup_bfloat")]] kernel void matmul_simdgroup<bfloat>(device const bfloat *, device const bfloat *,
                                                                                       device float *, constant uint3 &,
                                                                                       threadgroup float *, uint2, ushort, ushort);

// y = transpose(x) through a matrix that is loaded with rows and columns exchanged, from an origin.
kernel void transposed_tile(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], constant uint &n [[buffer(2)]],
                            uint2 block [[threadgroup_position_in_grid]]) {
    simdgroup_float8x8 tile;
    simdgroup_load(tile, x, n, ulong2(block.x * 8, block.y * 8), true);
    simdgroup_store(tile, y, n, ulong2(block.y * 8, block.x * 8));
}

// The sum of each threadgroup's part, and the number of threadgroups that are done.
kernel void reduce(device const float4 *x [[buffer(0)]], device float *sums [[buffer(1)]], device atomic_uint *done [[buffer(2)]],
                   uint i [[thread_position_in_grid]], uint group [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                   uint simdgroup_count [[simdgroups_per_threadgroup]]) {
    threadgroup float parts[32];
    const float part = simd_sum(dot(x[i], float4(1)));
    if (lane == 0) parts[simdgroup] = part;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup != 0) return;
    float sum = lane < simdgroup_count ? parts[lane] : 0.0f;
    for (ushort step = 16; step > 0; step /= 2) sum += simd_shuffle_xor(sum, step);
    if (lane == 0) {
        sums[group] = sum;
        atomic_fetch_add_explicit(done, 1, memory_order_relaxed);
    }
}

// A threadgroup variable that is read before anything was written into it.
kernel void uninitialized(device float *y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup float total;
    y[i] = total;
}

kernel void increment(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1; }

kernel void scale_by(device float *x [[buffer(0)]], constant float &factor [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    x[i] *= factor;
}

[[max_total_threads_per_threadgroup(64)]] kernel void few_threads(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    x[i] = 1;
}

kernel void too_much_memory(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    threadgroup float tile[8193];
    tile[i] = 1;
    x[i] = tile[i];
}
