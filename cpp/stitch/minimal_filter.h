// The transforms of Winograd's minimal filtering: F(m, r) makes m results of a filter of r taps from n = m + r - 1
// positions with n products (Winograd 1980; Lavin and Gray 2016, arXiv:1509.09308).
#pragma once

#include <vector>

namespace topstitch::stitch {

// Positions of a tile along an axis. Of the sizes that save much, the one whose rounding errors are about those of
// sums: measured with normal data, the largest are 1.4 (5 taps) and 2.7 (3 taps) times those of the direct sum.
constexpr int filter_tile = 6;

using Matrix = std::vector<std::vector<double>>;

// results = outputs * ((filter * taps) .* (positions * data)), all along one axis. The polynomials are evaluated at
// 0, 1, -1, 1/2, -2 and infinity.
struct FilterTransforms {
    Matrix positions;  // [n, n]
    Matrix filter;     // [n, taps]
    Matrix outputs;    // [n + 1 - taps, n]
};
FilterTransforms filter_transforms(int taps);

}  // namespace topstitch::stitch
