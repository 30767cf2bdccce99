// The transforms by Toom and Cook's method: the filter and the results are polynomials, multiplied at points.
// See minimal_filter.h.
#include "stitch/minimal_filter.h"

#include <array>
#include <cmath>

namespace topstitch::stitch {

namespace {

constexpr std::array<double, filter_tile - 1> points{0, 1, -1, 0.5, -2};  // and infinity

// The coefficients of the product of (x - p) for all points but one; -1: for all.
std::vector<double> product_without(int skipped) {
    std::vector<double> coefficients{1};
    for (std::size_t p = 0; p < points.size(); ++p) {
        if (static_cast<int>(p) == skipped) continue;
        coefficients.insert(coefficients.begin(), 0);
        for (std::size_t k = 0; k + 1 < coefficients.size(); ++k) coefficients[k] -= points[p] * coefficients[k + 1];
    }
    return coefficients;
}

}  // namespace

FilterTransforms filter_transforms(int taps) {
    const auto n = static_cast<std::size_t>(filter_tile);
    const auto r = static_cast<std::size_t>(taps);
    const std::size_t m = n + 1 - r;
    FilterTransforms transforms{Matrix(n, std::vector<double>(n)), Matrix(n, std::vector<double>(r)),
                                Matrix(m, std::vector<double>(n))};
    for (std::size_t p = 0; p < points.size(); ++p) {
        double scale = 1;
        for (std::size_t q = 0; q < points.size(); ++q) scale *= q == p ? 1 : points[p] - points[q];
        for (std::size_t k = 0; k < r; ++k) transforms.filter[p][k] = std::pow(points[p], k) / scale;
        for (std::size_t k = 0; k < m; ++k) transforms.outputs[k][p] = std::pow(points[p], k);
        const std::vector<double> row = product_without(static_cast<int>(p));
        for (std::size_t k = 0; k < row.size(); ++k) transforms.positions[p][k] = row[k];
    }
    transforms.filter[n - 1][r - 1] = 1;
    transforms.outputs[m - 1][n - 1] = 1;
    transforms.positions[n - 1] = product_without(-1);
    return transforms;
}

}  // namespace topstitch::stitch
