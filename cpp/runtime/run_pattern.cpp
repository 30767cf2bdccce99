// Two walks over the arrays in one order: one that is quick, for each run, and one that makes the request to compile.
// See run_pattern.h.
#include "runtime/run_pattern.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/checked.h"

namespace topstitch {

namespace {

constexpr std::int64_t exact_marker = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t strided_feed_marker = -2;
constexpr std::int64_t strided_result_marker = -3;

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

// How far apart positions along an axis are.
struct Step {
    std::int64_t elements = 0;  // 0 along an axis that has one position only
    int past = -1;              // the axis whose positions it spans, when no more lies between
    bool back = false;          // towards lower addresses
};

// Which axes follow each other without a gap is part of a pattern, so that kernels can walk them as one.
std::vector<Step> steps_of(const ArrayLayout& array) {
    const Sizes& shape = *array.shape;
    std::vector<Step> steps(shape.size());
    std::vector<std::size_t> order;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        const std::int64_t stride = shape[axis] > 1 ? (*array.strides)[axis] : 0;
        steps[axis].elements = std::abs(stride) / static_cast<std::int64_t>(size_of(array.dtype));
        steps[axis].back = stride < 0;
        if (stride != 0) order.push_back(axis);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&steps](std::size_t a, std::size_t b) { return steps[a].elements < steps[b].elements; });
    for (std::size_t k = 1; k < order.size(); ++k) {
        const std::size_t inner = order[k - 1];
        if (checked_mul(steps[inner].elements, shape[inner]) == steps[order[k]].elements)
            steps[order[k]].past = static_cast<int>(inner);
    }
    return steps;
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

void add_steps(const ArrayLayout& array, Pattern& pattern, std::vector<std::int64_t>& symbols) {
    for (const Step& step : steps_of(array)) {
        std::int64_t code = step.elements;  // 0 or 1
        if (step.past >= 0) {
            code = 2 + step.past;
        } else if (step.elements > 1) {
            code = 2 + max_rank + static_cast<std::int64_t>(symbol_of(step.elements, symbols));
        }
        pattern.push_back(2 * code + (step.back ? 1 : 0));
    }
}

}  // namespace

std::string feed_name(const Signature& signature, std::size_t k) {
    const std::string& name = signature.feed_names[k];
    return name.empty() ? concat("feed ", k) : concat("feed '", name, "'");
}

bool RunLayout::strided() const {
    const auto is_strided = [](const ArrayLayout& array) { return array.strides != nullptr; };
    return std::any_of(feeds.begin(), feeds.end(), is_strided) ||
           std::any_of(results.begin(), results.end(), is_strided);
}

RunLayout packed_layouts(const std::vector<Sizes>& shapes) {
    RunLayout run;
    for (const Sizes& shape : shapes) run.feeds.push_back({&shape});
    return run;
}

Pattern find_pattern(const Signature& signature, const RunLayout& run, std::vector<std::int64_t>& symbols) {
    Pattern pattern;
    pattern.reserve(4 * run.feeds.size());
    symbols.clear();
    NamedSizes named(signature);
    for (std::size_t k = 0; k < run.feeds.size(); ++k) {
        add_shape(signature, k, *run.feeds[k].shape, named, pattern, symbols);
        if (run.feeds[k].strides == nullptr) continue;
        pattern.push_back(strided_feed_marker);
        add_steps(run.feeds[k], pattern, symbols);
    }
    for (std::size_t k = 0; k < run.results.size(); ++k) {
        if (run.results[k].strides == nullptr) continue;
        pattern.push_back(strided_result_marker);
        pattern.push_back(static_cast<std::int64_t>(k));
        add_steps(run.results[k], pattern, symbols);
    }
    return pattern;
}

Pattern exact_pattern(const RunLayout& run) {
    Pattern pattern{exact_marker};
    const auto add_strides = [&pattern](const ArrayLayout& array) {
        for (const Step& step : steps_of(array)) pattern.push_back(step.back ? -step.elements : step.elements);
    };
    for (const ArrayLayout& feed : run.feeds) {
        pattern.push_back(static_cast<std::int64_t>(feed.shape->size()));
        pattern.insert(pattern.end(), feed.shape->begin(), feed.shape->end());
        if (feed.strides == nullptr) continue;
        pattern.push_back(strided_feed_marker);
        add_strides(feed);
    }
    for (std::size_t k = 0; k < run.results.size(); ++k) {
        if (run.results[k].strides == nullptr) continue;
        pattern.insert(pattern.end(), {strided_result_marker, static_cast<std::int64_t>(k)});
        add_strides(run.results[k]);
    }
    return pattern;
}

SpecializeRequest make_request(const GraphData& graph, const Signature& signature, const RunLayout& run, bool exact) {
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
    const auto steps = [&](const ArrayLayout& array) {
        std::vector<AxisStep> made;
        if (array.strides == nullptr) return made;
        for (const Step& step : steps_of(array))
            made.push_back({step.past < 0 ? dim(step.elements, false) : Dim(0), step.past, step.back});
        return made;
    };
    for (std::size_t k = 0; k < run.feeds.size(); ++k) {
        const TensorType& type = signature.feed_types[k];
        std::vector<Dim> dims;
        for (std::size_t axis = 0; axis < run.feeds[k].shape->size(); ++axis)
            dims.push_back(dim((*run.feeds[k].shape)[axis], !is_dynamic(type, axis)));
        FeedType feed{signature.feeds[k], type.dtype, Shape(std::move(dims)), type.shape};
        feed.steps = steps(run.feeds[k]);
        request.feeds.push_back(std::move(feed));
    }
    for (const ArrayLayout& result : run.results)
        request.results.push_back({result.dtype, *result.shape, steps(result)});
    return request;
}

}  // namespace topstitch
