// Tests of the text of arrays; the expected text is NumPy's, with another name and an explicit dtype.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "topstitch/ndarray.h"

using namespace topstitch;

namespace {

std::string floats(std::vector<float> values) {
    const Sizes shape{static_cast<std::int64_t>(values.size())};
    return NDArray::copy_of(values.data(), DType::float32, shape).str();
}

}  // namespace

TEST_CASE("floats show the digits they need") {
    CHECK(floats({1, 2.5f, -3}) == "NDArray([ 1. ,  2.5, -3. ], dtype=float32)");
    CHECK(floats({0.1f, 1.0f / 3}) == "NDArray([0.1       , 0.33333334], dtype=float32)");
    CHECK(floats({1e-5f, 1}) == "NDArray([1.e-05, 1.e+00], dtype=float32)");
    CHECK(floats({1.5e10f}) == "NDArray([1.5e+10], dtype=float32)");
    CHECK(floats({NAN, INFINITY, -INFINITY, 1}) == "NDArray([ nan,  inf, -inf,   1.], dtype=float32)");
    CHECK(floats({0, -0.0f}) == "NDArray([ 0., -0.], dtype=float32)");
    CHECK(NDArray::scalar(0.1, DType::float16).str() == "NDArray(0.1, dtype=float16)");
    CHECK(NDArray::scalar(3.14159, DType::bfloat16).str() == "NDArray(3.14, dtype=bfloat16)");
    CHECK(NDArray::scalar(0.1, DType::float64).str() == "NDArray(0.1, dtype=float64)");
}

TEST_CASE("other types and shapes") {
    CHECK(NDArray::scalar(-7, DType::int8).str() == "NDArray(-7, dtype=int8)");
    CHECK(NDArray::scalar(INT64_MAX, DType::int64).str() == "NDArray(9223372036854775807, dtype=int64)");
    CHECK(NDArray::scalar(-1, DType::uint64).str() == "NDArray(18446744073709551615, dtype=uint64)");
    CHECK(NDArray::zeros(DType::boolean, {2}).str() == "NDArray([False, False], dtype=bool)");
    CHECK(NDArray(DType::float32, {0}).str() == "NDArray([], dtype=float32)");
    CHECK(NDArray(DType::int32, {2, 0}).str() == "NDArray([], shape=(2, 0), dtype=int32)");
    const float pair[] = {1, -2.5f};
    CHECK(NDArray::copy_of(pair, DType::complex64, {1}).str() == "NDArray([1.-2.5j], dtype=complex64)");
    CHECK(NDArray::zeros(DType::int32, {2, 2, 1}).str() ==
          "NDArray([[[0],\n          [0]],\n\n         [[0],\n          [0]]], dtype=int32)");
}

TEST_CASE("long arrays are abbreviated and long lines wrapped") {
    CHECK(NDArray::zeros(DType::int32, {2000}).str() == "NDArray([0, 0, 0, ..., 0, 0, 0], dtype=int32)");
    CHECK(NDArray::zeros(DType::int32, {1001, 2}).str() ==
          "NDArray([[0, 0],\n         [0, 0],\n         [0, 0],\n         ...,\n         [0, 0],\n         [0, 0],\n   "
          "      [0, 0]], dtype=int32)");
    const std::string wrapped = NDArray::zeros(DType::int32, {60}).str();
    CHECK(wrapped.find("\n         0") != std::string::npos);
    for (std::size_t start = 0; start != std::string::npos;) {
        const std::size_t end = wrapped.find('\n', start);
        CHECK((end == std::string::npos ? wrapped.size() : end) - start < 100);
        start = end == std::string::npos ? end : end + 1;
    }
}
