// Emitted Metal source of kernels that everybody knows, as people read it.
// The texts were checked by hand; what they compute is tested by running them (test_codegen_run.cpp).
#include <doctest/doctest.h>

#include <string>

#include "loopir/builder.h"
#include "test_codegen_support.h"
#include "test_kernel_support.h"
#include "test_loopir_support.h"
#include "test_support.h"

using namespace topstitch;
using namespace topstitch::codegen;
using namespace topstitch::testing;
using loopir::Builder;
using loopir::Combiner;
using loopir::Index;
using loopir::Kernel;
using loopir::ScalarOp;
using loopir::ValueId;
using Role = loopir::BufferParam::Role;

namespace {

constexpr DType f32 = DType::float32;

// From the comment with the kernel's name to the end.
std::string kernel_text(const Source& source) {
    const std::size_t start = source.text.rfind("\n// ");
    return source.text.substr(start == std::string::npos ? 0 : start + 1);
}

}  // namespace

TEST_CASE("Metal: gelu") {
    Builder b;
    const Dim n = Dim::symbol("n") * 784;
    const int x = b.add_buffer({"x", f32, Role::input, n});
    const int y = b.add_buffer({"y", f32, Role::output, n});
    const Index i = b.begin_loop("i", n);
    const ValueId v = b.load(x, i);
    const ValueId outer =
        b.add(b.constant(1, f32), b.op(ScalarOp::erf, b.mul(v, b.constant(0.70710678118654752, f32))));
    b.store(y, i, b.mul(b.mul(b.constant(0.5, f32), v), outer));
    b.end_loop();
    const Source source = emitted(scheduled(b.finish("gelu"), {{"i", {true, true, 4}}}));
    CHECK(source.text.find("inline float erf_float(float x) {\n") != std::string::npos);
    CHECK(kernel_text(source) ==
          "// gelu\n"
          "kernel void gelu(device const float* x [[buffer(0)]],  // x: float32[784*n]\n"
          "                 device float* y [[buffer(1)]],  // y: float32[784*n]\n"
          "                 constant Sizes& sizes [[buffer(2)]],\n"
          "                 uint2 at [[thread_position_in_grid]]) {\n"
          "    const long size = sizes.size;\n"
          "    const long i_first = long(at.x) * 4;\n"
          "    if (i_first >= size) return;\n"
          "    const float4 x_4 = float4(*(device const packed_float4*)(x + i_first));\n"
          "    float4 y_4;\n"
          "    #pragma unroll\n"
          "    for (int part = 0; part < 4; ++part) {\n"
          "        const float v3 = x_4[part];\n"
          "        const float v4 = v3 * 0.70710677f;\n"
          "        const float v5 = erf_float(v4);\n"
          "        const float v6 = 1.0f + v5;\n"
          "        const float v7 = 0.5f * v3;\n"
          "        const float v8 = v7 * v6;\n"
          "        y_4[part] = v8;\n"
          "    }\n"
          "    *(device packed_float4*)(y + i_first) = y_4;\n"
          "}\n");
    CHECK(source.launch.x.evaluate(std::vector<std::int64_t>{1568}) == 392);
    CHECK_FALSE(source.launch.groups);
}

TEST_CASE("Metal: a transposed copy, the whole source") {
    Builder b;
    const Dim rows = Dim::symbol("rows");
    const int x = b.add_buffer({"x", f32, Role::input, rows * 40});
    const int y = b.add_buffer({"x.T", f32, Role::output, rows * 40});
    const Index i = b.begin_loop("i", 40);
    const Index j = b.begin_loop("j", rows);
    b.store(y, i * rows + j, b.load(x, j * Dim(40) + i));
    b.end_loop();
    b.end_loop();
    const Kernel kernel = scheduled(b.finish("transpose"), {{"i", {true, false, 1}}, {"j", {false, true, 1}}});
    CHECK(emitted(kernel, {.narrow = true}).text ==
          "#include <metal_stdlib>\n"
          "using namespace metal;\n"
          "#if __METAL_VERSION__ >= 320\n"
          "#pragma METAL fp math_mode(safe)\n"
          "#pragma METAL fp contract(off)\n"
          "#else\n"
          "#pragma clang fp contract(off)\n"
          "#endif\n"
          "\n"
          "struct Sizes {\n"
          "    long rows;\n"
          "    long size;  // 40*rows\n"
          "};\n"
          "\n"
          "// transpose\n"
          "kernel void transpose(device const float* x [[buffer(0)]],  // x: float32[40*rows]\n"
          "                      device float* x_T [[buffer(1)]],  // x.T: float32[40*rows]\n"
          "                      constant Sizes& sizes [[buffer(2)]],\n"
          "                      uint2 at [[thread_position_in_grid]]) {\n"
          "    const int rows = int(sizes.rows);\n"
          "    const int i = int(at.y);\n"
          "    if (i >= 40) return;\n"
          "    const int j = int(at.x);\n"
          "    if (j >= rows) return;\n"
          "    const float v0 = x[i + j * 40];\n"
          "    x_T[i * rows + j] = v0;\n"
          "}\n");
}

TEST_CASE("Metal: softmax, a group of threads for each row") {
    const Kernel kernel =
        scheduled(loopir::softmax_rows(Dim(16), Dim(1000), DType::float16, DType::float16),
                  {{"r", {true, false, 1}}, {"j", {false, true, 1}}, {"k", {false, true, 1}}, {"l", {false, true, 1}}});
    const Source source = emitted(kernel);
    CHECK(kernel_text(source) ==
          "// softmax\n"
          "kernel void softmax(device const half* x [[buffer(0)]],  // x: float16[16000]\n"
          "                    device half* y [[buffer(1)]],  // y: float16[16000]\n"
          "                    uint group [[threadgroup_position_in_grid]],\n"
          "                    uint thread_index [[thread_index_in_threadgroup]],\n"
          "                    uint lane [[thread_index_in_simdgroup]],\n"
          "                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {\n"
          "    threadgroup float t[1000];  // t: float32[1000]\n"
          "    threadgroup float shared_float[4];\n"
          "    const int r = int(group);\n"
          "    float a0 = -INFINITY;\n"
          "    for (int j_first = int(thread_index) * 4; j_first < 1000; j_first += 512) {\n"
          "        const half4 x_4 = half4(*(device const packed_half4*)(x + r * 1000 + j_first));\n"
          "        #pragma unroll\n"
          "        for (int part = 0; part < 4; ++part) {\n"
          "            const float v0 = float(x_4[part]);\n"
          "            a0 = maximum_float(a0, v0);\n"
          "        }\n"
          "    }\n"
          "    a0 = join_max_float(a0, shared_float, lane, simdgroup);\n"
          "    const float v1 = a0;\n"
          "    float a1 = 0.0f;\n"
          "    for (int k_first = int(thread_index) * 4; k_first < 1000; k_first += 512) {\n"
          "        const half4 x_4_1 = half4(*(device const packed_half4*)(x + r * 1000 + k_first));\n"
          "        #pragma unroll\n"
          "        for (int part = 0; part < 4; ++part) {\n"
          "            const int k = k_first + part;\n"
          "            const float v2 = float(x_4_1[part]);\n"
          "            const float v3 = v2 - v1;\n"
          "            const float v4 = exp_float(v3);\n"
          "            t[k] = v4;\n"
          "            a1 = a1 + v4;\n"
          "        }\n"
          "    }\n"
          "    a1 = join_sum_float(a1, shared_float, lane, simdgroup);\n"
          "    const float v5 = a1;\n"
          "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
          "    for (int l_first = int(thread_index) * 4; l_first < 1000; l_first += 512) {\n"
          "        half4 y_4;\n"
          "        #pragma unroll\n"
          "        for (int part = 0; part < 4; ++part) {\n"
          "            const int l = l_first + part;\n"
          "            const float v6 = t[l];\n"
          "            const float v7 = v6 / v5;\n"
          "            y_4[part] = half(v7);\n"
          "        }\n"
          "        *(device packed_half4*)(y + r * 1000 + l_first) = y_4;\n"
          "    }\n"
          "}\n");
    CHECK(source.launch.groups);
    CHECK(source.launch.group_threads == 128);
    CHECK(source.launch.x.evaluate({}) == 16);
    CHECK(source.launch.static_group_bytes == 4000 + 16);
    CHECK(source.launch.simd_width == 32);
}

TEST_CASE("Metal: argmax of short rows, joined within one simdgroup") {
    Builder b;
    const Dim n = Dim::symbol("n");
    const int x = b.add_buffer({"logits", DType::float16, Role::input, n * 100});
    const int y = b.add_buffer({"best", DType::int32, Role::output, n});
    const Index i = b.begin_loop("i", n);
    const int best = b.add_accumulator(Combiner::argmax, f32);
    b.init_acc(best);
    const Index j = b.begin_loop("j", 100);
    b.accumulate(best, b.load(x, i * Dim(100) + j), b.index_value(j));
    b.end_loop();
    b.store(y, i, b.cast(b.acc_read(best, 1), DType::int32));
    b.end_loop();
    const Kernel kernel = scheduled(b.finish("argmax"), {{"i", {true, false, 1}}, {"j", {false, true, 1}}});
    const std::string text = emitted(kernel, {.narrow = true}).text;
    CHECK(text.substr(text.find("inline bool")) ==
          "inline bool replaces_argmax_float(float value, float best) {\n"
          "    if (value != value) return best == best;\n"
          "    return value > best;\n"
          "}\n"
          "\n"
          "inline void improve_argmax_float(thread float& best, thread long& where, float value, long position) {\n"
          "    if (replaces_argmax_float(value, best) || (!replaces_argmax_float(best, value) && position < where)) {\n"
          "        best = value;\n"
          "        where = position;\n"
          "    }\n"
          "}\n"
          "\n"
          "inline void join_argmax_float(thread float& value, thread long& position) {\n"
          "    for (ushort distance = 16; distance > 0; distance /= 2) {\n"
          "        const float other = simd_shuffle_xor(value, distance);\n"
          "        const long other_position = as_type<long>(simd_shuffle_xor(as_type<uint2>(position), distance));\n"
          "        improve_argmax_float(value, position, other, other_position);\n"
          "    }\n"
          "}\n"
          "\n"
          "// argmax\n"
          "kernel void argmax(device const half* logits [[buffer(0)]],  // logits: float16[100*n]\n"
          "                   device int* best [[buffer(1)]],  // best: int32[n]\n"
          "                   constant Sizes& sizes [[buffer(2)]],\n"
          "                   uint group [[threadgroup_position_in_grid]],\n"
          "                   uint thread_index [[thread_index_in_threadgroup]],\n"
          "                   uint lane [[thread_index_in_simdgroup]],\n"
          "                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {\n"
          "    const int i = int(group);\n"
          "    float a0 = -INFINITY;\n"
          "    long a0_at = 9223372036854775807L;\n"
          "    for (int j_first = int(thread_index) * 4; j_first < 100; j_first += 128) {\n"
          "        const half4 logits_4 = half4(*(device const packed_half4*)(logits + i * 100 + j_first));\n"
          "        #pragma unroll\n"
          "        for (int part = 0; part < 4; ++part) {\n"
          "            const int j = j_first + part;\n"
          "            const long v0 = long(j);\n"
          "            const float v1 = float(logits_4[part]);\n"
          "            improve_argmax_float(a0, a0_at, v1, v0);\n"
          "        }\n"
          "    }\n"
          "    join_argmax_float(a0, a0_at);\n"
          "    const long v2 = a0_at == 9223372036854775807L ? 0L : a0_at;\n"
          "    const int v3 = int(v2);\n"
          "    if (thread_index == 0) {\n"
          "        best[i] = v3;\n"
          "    }\n"
          "}\n");
}

TEST_CASE("Metal: a product with bias and relu, in tiles of the group's memory and matrices of its simdgroups") {
    Builder b;
    const Dim n = Dim::symbol("n");
    const int x = b.add_buffer({"x", DType::float16, Role::input, n * 784});
    const int w = b.add_buffer({"w", DType::float16, Role::input, 784 * 100});
    const int bias = b.add_buffer({"bias", f32, Role::input, 100});
    const int y = b.add_buffer({"y", f32, Role::output, n * 100});
    const Index i = b.begin_loop("i", n);
    const Index j = b.begin_loop("j", 100);
    const int sum = b.add_accumulator(Combiner::sum, f32);
    b.init_acc(sum);
    const Index k = b.begin_loop("k", 784);
    b.accumulate(sum, b.mul(b.load(x, i * Dim(784) + k), b.load(w, k * Dim(100) + j)));
    b.end_loop();
    const ValueId z = b.add(b.acc_read(sum), b.load(bias, j));
    b.store(y, i * Dim(100) + j, b.op(ScalarOp::max, z, b.constant(0, f32)));
    b.end_loop();
    b.end_loop();
    const Kernel kernel = scheduled(b.finish("linear"), {{"i", {true, false, 1}}, {"j", {false, true, 1}}});
    const Source source = emitted(kernel, {.narrow = true});
    CHECK(contains(source.text, "#include <metal_simdgroup_matrix>\n"));
    CHECK(kernel_text(source) ==
          "// linear\n"
          "kernel void linear(device const half* x [[buffer(0)]],  // x: float16[784*n]\n"
          "                   device const half* w [[buffer(1)]],  // w: float16[78400]\n"
          "                   device const float* bias [[buffer(2)]],  // bias: float32[100]\n"
          "                   device float* y [[buffer(3)]],  // y: float32[100*n]\n"
          "                   constant Sizes& sizes [[buffer(4)]],\n"
          "                   uint group [[threadgroup_position_in_grid]],\n"
          "                   uint thread_index [[thread_index_in_threadgroup]],\n"
          "                   uint lane [[thread_index_in_simdgroup]],\n"
          "                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {\n"
          "    const int n = int(sizes.n);\n"
          "    // x times w, a tile of the result for each group of threads.\n"
          "    constexpr int tile_rows = 32;\n"
          "    constexpr int tile_columns = 32;\n"
          "    constexpr int slice = 16;\n"
          "    constexpr int row_pitch = slice + 4;\n"
          "    threadgroup half row_tile[tile_rows * row_pitch];\n"
          "    constexpr int column_pitch = tile_columns + 4;\n"
          "    threadgroup half column_tile[slice * column_pitch];\n"
          "    constexpr int width = tile_columns / 2;\n"
          "    threadgroup float results[4 * 8 * width];\n"
          "    const int rows = n;  // i\n"
          "    const int columns = 100;  // j\n"
          "    const int steps = 784;  // k\n"
          "    const int row_tiles = (rows + tile_rows - 1) / tile_rows;\n"
          "    const int column_tiles = (columns + tile_columns - 1) / tile_columns;\n"
          "    const int first_row = int(group) / column_tiles % row_tiles * tile_rows;\n"
          "    const int first_column = int(group) % column_tiles * tile_columns;\n"
          "    const int part_row = int(simdgroup) / 2 * (tile_rows / 2);\n"
          "    const int part_column = int(simdgroup) % 2 * (tile_columns / 2);\n"
          "    simdgroup_matrix<float, 8, 8> sums[2][2];\n"
          "    #pragma unroll\n"
          "    for (int r = 0; r < 2; ++r) {\n"
          "        #pragma unroll\n"
          "        for (int c = 0; c < 2; ++c) {\n"
          "            sums[r][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);\n"
          "        }\n"
          "    }\n"
          "    for (int first_step = 0; first_step < steps; first_step += slice) {\n"
          "        // A slice of x\n"
          "        for (int element = int(thread_index) * 4; element < tile_rows * slice; element += 512) {\n"
          "            threadgroup half* to = row_tile + element / slice * row_pitch + element % slice;\n"
          "            const int i = first_row + element / slice;\n"
          "            const int k_first = first_step + element % slice;\n"
          "            if (i < rows) {\n"
          "                const half4 x_4 = half4(*(device const packed_half4*)(x + i * 784 + k_first));\n"
          "                #pragma unroll\n"
          "                for (int part = 0; part < 4; ++part) {\n"
          "                    const float v2 = float(x_4[part]);\n"
          "                    to[part] = half(v2);\n"
          "                }\n"
          "            } else {\n"
          "                for (int part = 0; part < 4; ++part) to[part] = half(0.0f);\n"
          "            }\n"
          "        }\n"
          "        // A slice of w\n"
          "        for (int element = int(thread_index) * 4; element < tile_columns * slice; element += 512) {\n"
          "            threadgroup half* to = column_tile + element / tile_columns * column_pitch + element % "
          "tile_columns;\n"
          "            const int j_first = first_column + element % tile_columns;\n"
          "            const int k = first_step + element / tile_columns;\n"
          "            if (j_first < columns) {\n"
          "                const half4 w_4 = half4(*(device const packed_half4*)(w + j_first + k * 100));\n"
          "                #pragma unroll\n"
          "                for (int part = 0; part < 4; ++part) {\n"
          "                    const float v1 = float(w_4[part]);\n"
          "                    to[part] = half(v1);\n"
          "                }\n"
          "            } else {\n"
          "                for (int part = 0; part < 4; ++part) to[part] = half(0.0f);\n"
          "            }\n"
          "        }\n"
          "        threadgroup_barrier(mem_flags::mem_threadgroup);\n"
          "        #pragma unroll\n"
          "        for (int step = 0; step < slice; step += 8) {\n"
          "            simdgroup_matrix<half, 8, 8> row_matrices[2];\n"
          "            #pragma unroll\n"
          "            for (int r = 0; r < 2; ++r) {\n"
          "                simdgroup_load(row_matrices[r], row_tile + (part_row + 8 * r) * row_pitch + step, "
          "row_pitch);\n"
          "            }\n"
          "            simdgroup_matrix<half, 8, 8> column_matrices[2];\n"
          "            #pragma unroll\n"
          "            for (int c = 0; c < 2; ++c) {\n"
          "                simdgroup_load(column_matrices[c], column_tile + step * column_pitch + (part_column + 8 * "
          "c), column_pitch);\n"
          "            }\n"
          "            #pragma unroll\n"
          "            for (int r = 0; r < 2; ++r) {\n"
          "                #pragma unroll\n"
          "                for (int c = 0; c < 2; ++c) {\n"
          "                    simdgroup_multiply_accumulate(sums[r][c], row_matrices[r], column_matrices[c], "
          "sums[r][c]);\n"
          "                }\n"
          "            }\n"
          "        }\n"
          "        threadgroup_barrier(mem_flags::mem_threadgroup);\n"
          "    }\n"
          "    // Each simdgroup finishes its sums, a row of matrices after the other.\n"
          "    threadgroup float* simdgroup_results = results + int(simdgroup) * 8 * width;\n"
          "    #pragma unroll\n"
          "    for (int r = 0; r < 2; ++r) {\n"
          "        #pragma unroll\n"
          "        for (int c = 0; c < 2; ++c) {\n"
          "            simdgroup_store(sums[r][c], simdgroup_results + 8 * c, width);\n"
          "        }\n"
          "        simdgroup_barrier(mem_flags::mem_threadgroup);\n"
          "        for (int element = int(lane) * 4; element < 8 * width; element += 128) {\n"
          "            const int i = first_row + part_row + 8 * r + element / width;\n"
          "            const int j_first = first_column + part_column + element % width;\n"
          "            if (i >= rows || j_first >= columns) continue;\n"
          "            const float4 bias_4 = float4(*(device const packed_float4*)(bias + j_first));\n"
          "            float4 y_4;\n"
          "            #pragma unroll\n"
          "            for (int part = 0; part < 4; ++part) {\n"
          "                const float a0 = simdgroup_results[element + part];\n"
          "                const float v4 = bias_4[part];\n"
          "                const float v5 = a0;\n"
          "                const float v6 = v5 + v4;\n"
          "                const float v7 = maximum_float(v6, 0.0f);\n"
          "                y_4[part] = v7;\n"
          "            }\n"
          "            *(device packed_float4*)(y + i * 100 + j_first) = y_4;\n"
          "        }\n"
          "        simdgroup_barrier(mem_flags::mem_threadgroup);\n"
          "    }\n"
          "}\n");
    CHECK(source.launch.groups);
    CHECK(source.launch.group_threads == 128);
    // Tiles of 32 rows by 32 columns.
    CHECK(source.launch.x.evaluate(std::vector<std::int64_t>{33, 0}) == 2 * 4);
    CHECK(source.launch.x.evaluate(std::vector<std::int64_t>{0, 0}) == 0);
    CHECK(source.launch.static_group_bytes == 2 * (32 * 20 + 16 * 36) + 4 * (4 * 8 * 16));
}
