// Emitted Metal source of kernels that everybody knows, as people read it.
// The texts were checked by hand; what they compute is tested by running them (test_codegen_run.cpp).
#include <doctest/doctest.h>

#include <string>

#include "loopir/builder.h"
#include "test_codegen_support.h"
#include "test_kernel_support.h"
#include "test_loopir_support.h"

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
