// Strided copies: dims are sorted and merged first, so that inner runs become memcpy where the layouts allow.
// Transpositions go in square tiles, so that both sides use the cache lines that they touch.
#include "core/strided_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace topstitch {

namespace {

struct Axis {
    std::int64_t size;
    std::int64_t target;
    std::int64_t source;
};

struct Copy {
    char* target;
    const char* source;
    std::vector<Axis> axes;  // outermost first
    std::size_t element_size;
};

// Drops dims of size 1, walks the target forward, puts its smallest strides innermost, and merges dims that both
// sides walk as one.
void simplify(Copy& copy) {
    std::erase_if(copy.axes, [](const Axis& axis) { return axis.size == 1; });
    for (Axis& axis : copy.axes) {
        if (axis.target >= 0) continue;
        copy.target += axis.target * (axis.size - 1);
        copy.source += axis.source * (axis.size - 1);
        axis.target = -axis.target;
        axis.source = -axis.source;
    }
    std::stable_sort(copy.axes.begin(), copy.axes.end(),
                     [](const Axis& a, const Axis& b) { return a.target > b.target; });
    std::vector<Axis> merged;
    for (const Axis& axis : copy.axes) {
        if (!merged.empty() && merged.back().target == axis.target * axis.size &&
            merged.back().source == axis.source * axis.size) {
            merged.back() = {merged.back().size * axis.size, axis.target, axis.source};
        } else {
            merged.push_back(axis);
        }
    }
    copy.axes = std::move(merged);
}

template <std::size_t ElementSize>
void copy_run(char* target, const char* source, const Axis& axis) {
    for (std::int64_t i = 0; i < axis.size; ++i) {
        std::memcpy(target + i * axis.target, source + i * axis.source, ElementSize);
    }
}

template <std::size_t ElementSize>
void copy_tile(char* target, const char* source, const Axis& outer, const Axis& inner) {
    constexpr std::int64_t tile = 32;
    for (std::int64_t i = 0; i < outer.size; i += tile) {
        for (std::int64_t j = 0; j < inner.size; j += tile) {
            const std::int64_t rows = std::min(tile, outer.size - i);
            const Axis run{std::min(tile, inner.size - j), inner.target, inner.source};
            for (std::int64_t row = i; row < i + rows; ++row) {
                copy_run<ElementSize>(target + row * outer.target + j * inner.target,
                                      source + row * outer.source + j * inner.source, run);
            }
        }
    }
}

template <std::size_t ElementSize>
void copy_axes(char* target, const char* source, const std::vector<Axis>& axes, std::size_t depth, std::size_t last) {
    if (depth < last) {
        const Axis& axis = axes[depth];
        for (std::int64_t i = 0; i < axis.size; ++i) {
            copy_axes<ElementSize>(target + i * axis.target, source + i * axis.source, axes, depth + 1, last);
        }
    } else if (last + 2 == axes.size()) {
        copy_tile<ElementSize>(target, source, axes[last], axes[last + 1]);
    } else {
        const Axis& axis = axes[last];
        const auto size = static_cast<std::int64_t>(ElementSize);
        if (axis.target == size && axis.source == size) {
            std::memcpy(target, source, static_cast<std::size_t>(axis.size) * ElementSize);
        } else {
            copy_run<ElementSize>(target, source, axis);
        }
    }
}

// The axis, if not the innermost, along which the source is walked in smaller steps than along the innermost.
std::size_t transposed_axis(const std::vector<Axis>& axes) {
    std::size_t best = axes.size() - 1;
    for (std::size_t i = 0; i < axes.size(); ++i) {
        if (axes[i].source != 0 && std::abs(axes[i].source) < std::abs(axes[best].source)) best = i;
    }
    return best;
}

template <std::size_t ElementSize>
void run(Copy& copy) {
    if (copy.axes.empty()) {
        std::memcpy(copy.target, copy.source, ElementSize);
        return;
    }
    const std::size_t innermost = copy.axes.size() - 1;
    const std::size_t transposed = transposed_axis(copy.axes);
    if (transposed == innermost) {
        copy_axes<ElementSize>(copy.target, copy.source, copy.axes, 0, innermost);
        return;
    }
    std::rotate(copy.axes.begin() + static_cast<std::ptrdiff_t>(transposed),
                copy.axes.begin() + static_cast<std::ptrdiff_t>(transposed) + 1,
                copy.axes.end() - 1);  // now the last but one
    copy_axes<ElementSize>(copy.target, copy.source, copy.axes, 0, innermost - 1);
}

}  // namespace

void strided_copy(void* target, const Sizes& target_strides, const void* source, const Sizes& source_strides,
                  const Sizes& shape, std::size_t element_size) {
    Copy copy{static_cast<char*>(target), static_cast<const char*>(source), {}, element_size};
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] == 0) return;
        copy.axes.push_back({shape[i], target_strides[i], source_strides[i]});
    }
    simplify(copy);
    switch (element_size) {
        case 1:
            return run<1>(copy);
        case 2:
            return run<2>(copy);
        case 4:
            return run<4>(copy);
        default:
            return run<8>(copy);
    }
}

}  // namespace topstitch
