// Products of packed tiles in generated code against the interpreter, on machines that have a matrix unit.
// On others their assembly is looked at.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu/llvm_codegen.h"
#include "cpu/target.h"
#include "test_cpu_support.h"
#include "test_support.h"
#include "test_tiles_support.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;
using loopir::Kernel;
using loopir::TileFactor;
using loopir::TileShape;

namespace {

// For all numbers of steps, with and without sums that are there.
void check_product(const TileShape& shape, const TileFactor& rows, const TileFactor& columns, bool plain) {
    const Kernel kernel = loopir::tile_product(shape);
    const auto size = static_cast<std::size_t>((shape.rows() - 1) * shape.sums_row + shape.columns());
    const Data sums =
        shape.bytes() ? Data::of(std::vector<std::int32_t>(size, 0x7fffff00)) : Data::of(std::vector<float>(size, 3.F));
    for (std::int64_t steps = -1; steps <= shape.steps; ++steps) {
        for (const std::uint8_t adds : {0, 1}) {
            CAPTURE(steps);
            CHECK(check_kernel(kernel, host_target(),
                               {Data::of(rows.words()), Data::of(columns.words()),
                                Data::of(std::vector<std::uint8_t>{adds, static_cast<std::uint8_t>(plain)}),
                                Data::of(std::vector{steps}), sums},
                               {}) == "");
        }
    }
}

}  // namespace

TEST_CASE("tiles: generated code equals the interpreter") {
    if (!host_target().matrix_unit) return;
    std::mt19937_64 random(test_seed());
    for (const TileShape& shape : loopir::tile_shapes(3)) {
        TileFactor rows(shape, true);
        TileFactor columns(shape, false);
        rows.fill(random);
        columns.fill(random);
        for (const bool plain : {false, shape.parts > 1}) check_product(shape, rows, columns, plain);
    }
}

TEST_CASE("tiles: numbers without parts are multiplied as they are") {
    if (!host_target().matrix_unit) return;
    std::mt19937_64 random(test_seed());
    for (const TileShape& shape : loopir::tile_shapes(2)) {
        if (shape.parts == 1) continue;
        TileFactor rows(shape, true);
        TileFactor columns(shape, false);
        rows.fill(random);
        columns.fill(random);
        rows.set_whole(3, 5, std::numeric_limits<float>::infinity());
        rows.set_whole(4, 32, std::nanf("17"));
        rows.set_whole(15, 63, 0x1.8p100F);
        columns.set_whole(7, 8, -std::numeric_limits<float>::infinity());
        columns.set_whole(9, 31, 0x1p-130F);
        columns.set_whole(15, 0, -std::numeric_limits<float>::max());
        check_product(shape, rows, columns, true);
    }
}

#if defined(__x86_64__)
TEST_CASE("tiles: instructions of the matrix unit") {
    const std::string assembly =
        generate_assembly(loopir::tile_product({3, 2, 2, 1, 32}), described_target("sapphirerapids"));
    for (const char* instruction : {"ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"})
        CHECK(contains(assembly, instruction));
    const std::pair<DType, const char*> of_bytes[] = {{DType::int8, "tdpbssd"}, {DType::uint8, "tdpbuud"}};
    for (const auto& [type, instruction] : of_bytes) {
        const Kernel kernel = loopir::tile_product({1, 2, 2, 1, 32, type, type});
        CHECK(contains(generate_assembly(kernel, described_target("sapphirerapids")), instruction));
    }
    CHECK(!described_target("icelake-server").matrix_unit);
    CHECK(!described_target("znver5").matrix_unit);
}
#endif
