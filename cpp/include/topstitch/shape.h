// Shapes of up to 16 dims, possibly with unknown dims or of unknown rank, and their algebra.
// Concrete sizes and strides (of arrays) are plain vectors: Sizes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "topstitch/dim.h"
#include "topstitch/export.h"

namespace topstitch {

inline constexpr int max_rank = 16;

using Sizes = std::vector<std::int64_t>;

class TOPSTITCH_API Shape {
public:
    Shape() = default;  // a scalar: rank 0
    Shape(std::initializer_list<Dim> dims);
    // A dim of -1 is unknown; UserError above max_rank dims or for any other negative dim.
    explicit Shape(std::vector<Dim> dims);
    static Shape of(const Sizes& sizes);
    static Shape unranked();

    bool has_rank() const { return ranked_; }
    int rank() const;  // requires has_rank()
    const Dim& operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
    const std::vector<Dim>& dims() const { return dims_; }
    bool is_known() const;               // ranked, and every dim a number
    Dim num_elements() const;            // unknown when unranked
    std::optional<Sizes> sizes() const;  // when is_known()

    std::string str() const;  // "(64, batch, ?)", "(?...)" when unranked

    // Same rank and structurally equal dims (unknowns never equal).
    friend bool operator==(const Shape& a, const Shape& b) = default;

private:
    std::vector<Dim> dims_;
    bool ranked_ = true;
};

// Product of sizes; UserError when it does not fit in 63 bits.
TOPSTITCH_API std::int64_t num_elements(const Sizes& sizes);
// "(2, 3)"
TOPSTITCH_API std::string sizes_str(const Sizes& sizes);
// `axis` counted from the front; `what` opens the error message, e.g. "sum".
TOPSTITCH_API int normalize_axis(std::int64_t axis, int rank, const std::string& what);

}  // namespace topstitch
