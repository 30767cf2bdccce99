// Chooses the variant for the shapes at hand, and keeps executables and variants in bounded caches.
// A pattern of shapes says of each dynamic dim whether it is 0, 1, or equal to an earlier one.
#include "runtime/executable_impl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/log.h"
#include "core/settings.h"

namespace topstitch {

namespace {

constexpr std::int64_t exact_marker = std::numeric_limits<std::int64_t>::min();
constexpr std::size_t max_logged_feeds = 8;

std::size_t cache_limit() {
    return static_cast<std::size_t>(std::max<std::int64_t>(setting_int(Setting::executable_cache_entries), 1));
}

// Sorts like the number, so that the hints' order is that of appearance.
std::string symbol_name(std::size_t number) {
    std::string digits = std::to_string(number);
    return "s" + std::string(digits.size() < 3 ? 3 - digits.size() : 0, '0') + digits;
}

std::string feed_name(const Signature& signature, std::size_t k) {
    const std::string& name = signature.feed_names[k];
    return name.empty() ? concat("feed ", k) : concat("feed '", name, "'");
}

bool is_dynamic(const TensorType& type, std::size_t axis) {
    return !type.shape.has_rank() || !type.shape[static_cast<int>(axis)].is_known();
}

// The pattern, and the values of its symbols in order of appearance. Throws when a shape does not fit its type.
std::vector<std::int64_t> find_pattern(const Signature& signature, const std::vector<const Sizes*>& shapes,
                                       std::vector<std::int64_t>& symbols) {
    std::vector<std::int64_t> pattern;
    symbols.clear();
    std::vector<std::pair<std::string_view, std::pair<std::int64_t, std::size_t>>> named;
    for (std::size_t k = 0; k < shapes.size(); ++k) {
        const TensorType& type = signature.feed_types[k];
        const Sizes& shape = *shapes[k];
        if (!type.shape.has_rank()) {
            pattern.push_back(static_cast<std::int64_t>(shape.size()));
        } else if (shape.size() != type.shape.dims().size()) {
            throw UserError(concat("[run] ", feed_name(signature, k), " has shape ", sizes_str(shape),
                                   ", but the placeholder is ", type.str(), " of rank ", type.shape.rank()));
        }
        for (std::size_t axis = 0; axis < shape.size(); ++axis) {
            if (!is_dynamic(type, axis)) {
                if (type.shape[static_cast<int>(axis)].value() != shape[axis]) {
                    throw UserError(concat("[run] ", feed_name(signature, k), " has shape ", sizes_str(shape),
                                           ", but the placeholder is ", type.str(), ": axis ", axis, " must be ",
                                           type.shape[static_cast<int>(axis)].value()));
                }
                continue;
            }
            if (type.shape.has_rank() && type.shape[static_cast<int>(axis)].is_symbol()) {
                const std::string_view name = type.shape[static_cast<int>(axis)].symbol_name();
                const auto known =
                    std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
                if (known == named.end()) {
                    named.push_back({name, {shape[axis], k}});
                } else if (known->second.first != shape[axis]) {
                    throw UserError(concat("[run] dim \"", name, "\" is ", shape[axis], " in ", feed_name(signature, k),
                                           " but ", known->second.first, " in ",
                                           feed_name(signature, known->second.second),
                                           "; dims of one name must agree"));
                }
            }
            if (shape[axis] <= 1) {
                pattern.push_back(shape[axis]);
                continue;
            }
            const auto known = std::find(symbols.begin(), symbols.end(), shape[axis]);
            pattern.push_back(2 + (known - symbols.begin()));
            if (known == symbols.end()) symbols.push_back(shape[axis]);
        }
    }
    return pattern;
}

}  // namespace

std::shared_ptr<const Variant> ExecutableImpl::compile(const GraphData& graph, const std::vector<const Sizes*>& shapes,
                                                       bool exact) {
    SpecializeRequest request;
    request.graph = &graph;
    request.targets = signature_.targets;
    request.operations = signature_.operations;
    std::vector<std::int64_t> values;
    for (std::size_t k = 0; k < shapes.size(); ++k) {
        const TensorType& type = signature_.feed_types[k];
        std::vector<Dim> dims;
        for (std::size_t axis = 0; axis < shapes[k]->size(); ++axis) {
            const std::int64_t size = (*shapes[k])[axis];
            if (exact || size <= 1 || !is_dynamic(type, axis)) {
                dims.emplace_back(size);
                continue;
            }
            const auto known = std::find(values.begin(), values.end(), size);
            const std::string name = symbol_name(static_cast<std::size_t>(known - values.begin()));
            if (known == values.end()) values.push_back(size);
            request.hints[name] = size;
            dims.push_back(Dim::symbol(name));
        }
        request.feeds.push_back({signature_.feeds[k], type.dtype, Shape(std::move(dims)), type.shape});
    }
    Device& device = signature_.options.interpret ? interpreter_device() : cpu_device();
    return std::make_shared<const Variant>(request, signature_.options, device);
}

std::shared_ptr<const Variant> ExecutableImpl::variant_for(const GraphData& graph,
                                                           const std::vector<const Sizes*>& shapes,
                                                           std::vector<std::int64_t>& symbols) {
    std::vector<std::int64_t> pattern = find_pattern(signature_, shapes, symbols);
    std::vector<std::int64_t> exact_pattern;
    const auto find = [this](const std::vector<std::int64_t>& wanted, std::span<const std::int64_t> values,
                             bool& known) -> std::shared_ptr<const Variant> {
        for (std::size_t k = 0; k < entries_.size(); ++k) {
            if (entries_[k].pattern != wanted) continue;
            known = true;
            if (!entries_[k].variant->accepts(values)) continue;
            if (k > 0)
                std::rotate(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(k),
                            entries_.begin() + static_cast<std::ptrdiff_t>(k) + 1);
            return entries_.front().variant;
        }
        return nullptr;
    };
    bool known = false;
    {
        const std::lock_guard lock(mutex_);
        if (auto found = find(pattern, symbols, known)) return found;
        exact_pattern.push_back(exact_marker);
        for (const Sizes* shape : shapes) exact_pattern.insert(exact_pattern.end(), shape->begin(), shape->end());
        bool ignored = false;
        if (auto found = find(exact_pattern, {}, ignored)) {
            symbols.clear();
            return found;
        }
        if (log_enabled(LogLevel::debug)) log_line(LogLevel::debug, why_new(shapes));
    }
    // Compiled outside the lock; when two threads race, the second result is dropped.
    std::shared_ptr<const Variant> made;
    // For exact sizes when the pattern is known but other sizes were assumed (for instance two dims that have to differ
    // by one), and when a size is no expression of the symbols (an odd length halved).
    bool exact = known;
    if (!exact) {
        try {
            made = compile(graph, shapes, false);
        } catch (const NeedsExactSizes&) { exact = true; } catch (const UserError&) {
            exact = true;  // said again with numbers instead of symbols
        }
    }
    if (exact) {
        made = compile(graph, shapes, true);
        symbols.clear();
        pattern = std::move(exact_pattern);
    }
    if (log_enabled(LogLevel::info)) log_compiled(*made, shapes);
    const std::lock_guard lock(mutex_);
    bool ignored = false;
    if (auto found = find(pattern, symbols, ignored)) return found;
    Entry entry{std::move(pattern), made, {}};
    for (const Sizes* shape : shapes) entry.shapes.push_back(*shape);
    entries_.insert(entries_.begin(), std::move(entry));
    if (entries_.size() > cache_limit()) entries_.pop_back();
    return made;
}

std::string ExecutableImpl::why_new(const std::vector<const Sizes*>& shapes) const {
    if (entries_.empty()) return "compiling: nothing has been compiled for these targets and options yet";
    // The nearest of the known ones says most.
    std::vector<std::size_t> differing;
    const Entry* nearest = nullptr;
    for (const Entry& entry : entries_) {
        std::vector<std::size_t> feeds;
        for (std::size_t k = 0; k < shapes.size(); ++k) {
            if (entry.shapes[k] != *shapes[k]) feeds.push_back(k);
        }
        if (nearest != nullptr && feeds.size() >= differing.size()) continue;
        nearest = &entry;
        differing = std::move(feeds);
    }
    std::string text = "compiling a new variant:";
    for (std::size_t k : differing) {
        text += concat(k == differing.front() ? " " : ", ", feed_name(signature_, k), " is ", sizes_str(*shapes[k]),
                       " and was ", sizes_str(nearest->shapes[k]));
    }
    return text + " (which dims are 0, 1 or equal to another, or an assumption about sizes, differs)";
}

void ExecutableImpl::log_compiled(const Variant& variant, const std::vector<const Sizes*>& shapes) const {
    const Report report = variant.report();
    std::string text = concat("compiled ", report.kernels, report.kernels == 1 ? " kernel, " : " kernels, ",
                              report.kernels - report.kernels_compiled, " of them found in the cache, in ",
                              std::round(report.compile_milliseconds * 10) / 10, " ms");
    for (std::size_t k = 0; k < shapes.size() && k < max_logged_feeds; ++k) {
        text += concat(k == 0 ? ", for " : ", ", feed_name(signature_, k), " ", name_of(signature_.feed_types[k].dtype),
                       sizes_str(*shapes[k]));
    }
    if (shapes.size() > max_logged_feeds) text += concat(" and ", shapes.size() - max_logged_feeds, " more");
    log_line(LogLevel::info, text);
}

std::vector<NDArray> ExecutableImpl::run(const GraphData& graph, std::span<const NDArray> inputs,
                                         std::span<const NDArray> results) {
    if (inputs.size() != signature_.feeds.size()) {
        throw UserError(concat("[run] the executable takes ", signature_.feeds.size(), " inputs, but ", inputs.size(),
                               " were given"));
    }
    if (!results.empty() && results.size() != signature_.targets.size()) {
        throw UserError(concat("[run] the executable gives ", signature_.targets.size(), " results, but ",
                               results.size(), " arrays were given for them"));
    }
    std::vector<const Sizes*> shapes;
    shapes.reserve(inputs.size());
    bool packed = true;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
        if (inputs[k].dtype() != signature_.feed_types[k].dtype) {
            throw TypeError(concat("[run] ", feed_name(signature_, k), " is ", name_of(inputs[k].dtype()),
                                   ", but the placeholder is ", signature_.feed_types[k].str(),
                                   "; convert the array, e.g. array.astype('", name_of(signature_.feed_types[k].dtype),
                                   "')"));
        }
        shapes.push_back(&inputs[k].shape());
        packed = packed && inputs[k].is_contiguous();
        for (const NDArray& result : results) packed = packed && !result.may_overlap(inputs[k]);
    }
    for (std::size_t a = 0; a < results.size(); ++a) {
        for (std::size_t b = a + 1; b < results.size(); ++b) {
            if (results[a].may_overlap(results[b])) {
                throw UserError(concat("[run] the arrays given for results ", a, " and ", b, " share memory"));
            }
        }
    }
    std::vector<std::int64_t> symbols;
    const std::shared_ptr<const Variant> variant = variant_for(graph, shapes, symbols);
    if (packed) return variant->run(inputs, symbols, results);

    std::vector<NDArray> copies;
    copies.reserve(inputs.size());
    for (const NDArray& input : inputs) {
        const bool overlaps = std::any_of(results.begin(), results.end(),
                                          [&input](const NDArray& result) { return result.may_overlap(input); });
        copies.push_back(overlaps ? input.copy() : input.contiguous());
    }
    return variant->run(copies, symbols, results);
}

std::shared_ptr<const Variant> ExecutableImpl::latest() const {
    const std::lock_guard lock(mutex_);
    return entries_.empty() ? nullptr : entries_.front().variant;
}

int ExecutableImpl::variants() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(entries_.size());
}

std::vector<std::vector<Sizes>> ExecutableImpl::compiled_shapes() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<Sizes>> shapes;
    for (const Entry& entry : entries_) shapes.push_back(entry.shapes);
    return shapes;
}

std::size_t ExecutableCache::KeyHash::operator()(const std::vector<std::int32_t>& key) const noexcept {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (std::int32_t part : key) hash = (hash ^ static_cast<std::uint32_t>(part)) * 0x100000001b3ULL;
    return static_cast<std::size_t>(hash);
}

std::shared_ptr<ExecutableImpl> ExecutableCache::find_or_add(const std::vector<std::int32_t>& key,
                                                             const std::function<Signature()>& make) {
    const std::lock_guard lock(mutex_);
    ++clock_;
    if (const auto found = entries_.find(key); found != entries_.end()) {
        found->second.second = clock_;
        return found->second.first;
    }
    auto made = std::make_shared<ExecutableImpl>(make());
    if (entries_.size() >= cache_limit()) {
        entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
            return a.second.second < b.second.second;
        }));
    }
    entries_.emplace(key, std::pair(made, clock_));
    return made;
}

}  // namespace topstitch
