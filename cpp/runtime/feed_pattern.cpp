// Two walks over the feeds in one order: one that is quick, for each run, and one that makes the request to compile.
// See feed_pattern.h.
#include "runtime/feed_pattern.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace topstitch {

namespace {

constexpr std::int64_t exact_marker = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t strided_marker = -2;

// Sorts like the number, so that the hints' order is that of appearance.
std::string symbol_name(std::size_t number) {
    std::string digits = std::to_string(number);
    return "s" + std::string(digits.size() < 3 ? 3 - digits.size() : 0, '0') + digits;
}

bool is_dynamic(const TensorType& type, std::size_t axis) {
    return !type.shape.has_rank() || !type.shape[static_cast<int>(axis)].is_known();
}

// The symbol of a value that is 2 or more; equal values have the same.
std::size_t symbol_of(std::int64_t value, std::vector<std::int64_t>& symbols) {
    const auto known = std::find(symbols.begin(), symbols.end(), value);
    const auto number = static_cast<std::size_t>(known - symbols.begin());
    if (known == symbols.end()) symbols.push_back(value);
    return number;
}

// In elements; 0 along an axis that has one position only.
std::int64_t element_stride(const FeedLayout& feed, std::size_t axis, DType dtype) {
    if ((*feed.shape)[axis] <= 1) return 0;
    return (*feed.strides)[axis] / static_cast<std::int64_t>(size_of(dtype));
}

// Dims of one name must agree: what each name stands for, and in which feed that was seen.
class NamedSizes {
public:
    explicit NamedSizes(const Signature& signature) : signature_(signature) {}
    void check(std::string_view name, std::int64_t size, std::size_t feed) {
        const auto known =
            std::find_if(named_.begin(), named_.end(), [&](const auto& entry) { return entry.first == name; });
        if (known == named_.end()) {
            named_.push_back({name, {size, feed}});
        } else if (known->second.first != size) {
            throw UserError(concat("[run] dim \"", name, "\" is ", size, " in ", feed_name(signature_, feed), " but ",
                                   known->second.first, " in ", feed_name(signature_, known->second.second),
                                   "; dims of one name must agree"));
        }
    }

private:
    const Signature& signature_;
    std::vector<std::pair<std::string_view, std::pair<std::int64_t, std::size_t>>> named_;
};

void add_shape(const Signature& signature, std::size_t k, const Sizes& shape, NamedSizes& named, Pattern& pattern,
               std::vector<std::int64_t>& symbols) {
    const TensorType& type = signature.feed_types[k];
    if (!type.shape.has_rank()) {
        pattern.push_back(static_cast<std::int64_t>(shape.size()));
    } else if (shape.size() != type.shape.dims().size()) {
        throw UserError(concat("[run] ", feed_name(signature, k), " has shape ", sizes_str(shape),
                               ", but the placeholder is ", type.str(), " of rank ", type.shape.rank()));
    }
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        if (!is_dynamic(type, axis)) {
            const std::int64_t declared = type.shape[static_cast<int>(axis)].value();
            if (declared != shape[axis]) {
                throw UserError(concat("[run] ", feed_name(signature, k), " has shape ", sizes_str(shape),
                                       ", but the placeholder is ", type.str(), ": axis ", axis, " must be ",
                                       declared));
            }
            continue;
        }
        if (type.shape.has_rank() && type.shape[static_cast<int>(axis)].is_symbol())
            named.check(type.shape[static_cast<int>(axis)].symbol_name(), shape[axis], k);
        pattern.push_back(shape[axis] <= 1 ? shape[axis]
                                           : 2 + static_cast<std::int64_t>(symbol_of(shape[axis], symbols)));
    }
}

void add_strides(const FeedLayout& feed, DType dtype, Pattern& pattern, std::vector<std::int64_t>& symbols) {
    if (feed.strides == nullptr) return;
    pattern.push_back(strided_marker);
    for (std::size_t axis = 0; axis < feed.shape->size(); ++axis) {
        const std::int64_t stride = element_stride(feed, axis, dtype);
        const std::int64_t step = std::abs(stride);
        const std::int64_t code = step <= 1 ? step : 2 + static_cast<std::int64_t>(symbol_of(step, symbols));
        pattern.push_back(2 * code + (stride < 0 ? 1 : 0));
    }
}

}  // namespace

std::string feed_name(const Signature& signature, std::size_t k) {
    const std::string& name = signature.feed_names[k];
    return name.empty() ? concat("feed ", k) : concat("feed '", name, "'");
}

std::vector<FeedLayout> packed_layouts(const std::vector<Sizes>& shapes) {
    std::vector<FeedLayout> feeds;
    for (const Sizes& shape : shapes) feeds.push_back({&shape, nullptr});
    return feeds;
}

Pattern find_pattern(const Signature& signature, const std::vector<FeedLayout>& feeds,
                     std::vector<std::int64_t>& symbols) {
    Pattern pattern;
    pattern.reserve(4 * feeds.size());
    symbols.clear();
    NamedSizes named(signature);
    for (std::size_t k = 0; k < feeds.size(); ++k) {
        add_shape(signature, k, *feeds[k].shape, named, pattern, symbols);
        add_strides(feeds[k], signature.feed_types[k].dtype, pattern, symbols);
    }
    return pattern;
}

Pattern exact_pattern(const Signature& signature, const std::vector<FeedLayout>& feeds) {
    Pattern pattern{exact_marker};
    for (std::size_t k = 0; k < feeds.size(); ++k) {
        const Sizes& shape = *feeds[k].shape;
        pattern.insert(pattern.end(), shape.begin(), shape.end());
        if (feeds[k].strides == nullptr) continue;
        pattern.push_back(strided_marker);
        for (std::size_t axis = 0; axis < shape.size(); ++axis)
            pattern.push_back(element_stride(feeds[k], axis, signature.feed_types[k].dtype));
    }
    return pattern;
}

SpecializeRequest make_request(const GraphData& graph, const Signature& signature, const std::vector<FeedLayout>& feeds,
                               bool exact) {
    SpecializeRequest request;
    request.graph = &graph;
    request.targets = signature.targets;
    request.operations = signature.operations;
    std::vector<std::int64_t> symbols;
    const auto dim = [&](std::int64_t value, bool fixed) {
        if (exact || fixed || value <= 1) return Dim(value);
        const std::string name = symbol_name(symbol_of(value, symbols));
        request.hints[name] = value;
        return Dim::symbol(name);
    };
    for (std::size_t k = 0; k < feeds.size(); ++k) {
        const TensorType& type = signature.feed_types[k];
        std::vector<Dim> dims;
        for (std::size_t axis = 0; axis < feeds[k].shape->size(); ++axis)
            dims.push_back(dim((*feeds[k].shape)[axis], !is_dynamic(type, axis)));
        FeedType feed{signature.feeds[k], type.dtype, Shape(std::move(dims)), type.shape};
        if (feeds[k].strides != nullptr) {
            std::vector<Dim> strides;
            for (std::size_t axis = 0; axis < feeds[k].shape->size(); ++axis) {
                const std::int64_t stride = element_stride(feeds[k], axis, type.dtype);
                strides.push_back(dim(std::abs(stride), false));
                if (stride < 0) feed.reversed.push_back(static_cast<std::int64_t>(axis));
            }
            feed.strides = Shape(std::move(strides));
        }
        request.feeds.push_back(std::move(feed));
    }
    return request;
}

}  // namespace topstitch
