// Chooses the variant for the shapes at hand, and runs it.
// Variants are kept in a bounded list, the most recently used first.
#include "runtime/executable_impl.h"

#include <algorithm>
#include <cmath>

#include "core/exit_gate.h"
#include "core/fork_gate.h"
#include "core/log.h"
#include "core/overlap.h"
#include "core/settings.h"

namespace topstitch {

bool in_elements(const NDArray& array) {
    if (array.is_contiguous() || array.size() == 0) return true;
    const auto element = static_cast<std::int64_t>(size_of(array.dtype()));
    for (int axis = 0; axis < array.rank(); ++axis) {
        const auto k = static_cast<std::size_t>(axis);
        if (array.shape()[k] > 1 && array.byte_strides()[k] % element != 0) return false;
    }
    return true;
}

namespace {

constexpr std::size_t max_logged_feeds = 8;
constexpr std::size_t max_history = 64;

ArrayLayout layout_of(const NDArray& array) {
    const bool packed = array.is_contiguous() || array.size() == 0 || !in_elements(array);
    return {&array.shape(), packed ? nullptr : &array.byte_strides(), array.dtype()};
}

// With feeds that have to be packed marked in `pack`.
RunLayout layout_of(std::span<const NDArray> inputs, const std::vector<bool>& pack, std::span<const NDArray> results) {
    RunLayout run;
    run.feeds.reserve(inputs.size());
    for (std::size_t k = 0; k < inputs.size(); ++k) {
        run.feeds.push_back(layout_of(inputs[k]));
        if (!pack.empty() && pack[k]) run.feeds.back().strides = nullptr;
    }
    if (std::all_of(results.begin(), results.end(), [](const NDArray& r) { return r.is_contiguous(); })) return run;
    for (const NDArray& result : results) run.results.push_back(layout_of(result));
    return run;
}

std::vector<bool> inputs_to_pack(std::span<const NDArray> inputs, std::span<const NDArray> results) {
    std::vector<bool> pack;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
        bool copy = !in_elements(inputs[k]);
        for (const NDArray& result : results) copy = copy || overlap(result, inputs[k]);
        if (!copy) continue;
        pack.resize(inputs.size(), false);
        pack[k] = true;
    }
    return pack;
}

void check_results(const Variant& variant, std::span<const std::int64_t> symbols, std::span<const NDArray> results) {
    const CompiledProgram& program = variant.program();
    const std::vector<Sizes> shapes = program.result_shapes(symbols);
    for (std::size_t k = 0; k < results.size(); ++k)
        check_result(k, program.result_dtype(k), shapes[k], results[k].dtype(), results[k].shape());
}

// Whether results can be written into the arrays at all.
void check_memory(std::span<const NDArray> results) {
    for (std::size_t k = 0; k < results.size(); ++k) {
        const NDArray& given = results[k];
        if (given.readonly()) throw UserError(concat("[run] the array given for result ", k, " must be writable"));
        for (std::size_t axis = 0; axis < given.shape().size(); ++axis) {
            if (given.size() > 0 && given.shape()[axis] > 1 && given.byte_strides()[axis] == 0) {
                throw UserError(concat("[run] the array given for result ", k,
                                       " has one element for all positions of axis ", axis,
                                       " (it is broadcast); give one of its own size"));
            }
        }
        if (overlaps_itself(given)) {
            throw UserError(concat("[run] the array given for result ", k, " has elements that share memory: shape ",
                                   sizes_str(given.shape()), " with byte strides ", sizes_str(given.byte_strides()),
                                   "; give one whose elements lie apart"));
        }
    }
    for (std::size_t a = 0; a < results.size(); ++a) {
        for (std::size_t b = a + 1; b < results.size(); ++b) {
            if (overlap(results[a], results[b]))
                throw UserError(concat("[run] the arrays given for results ", a, " and ", b, " share memory"));
        }
    }
}

std::string shapes_text(const Signature& signature, const RunLayout& run) {
    std::string text;
    const std::vector<ArrayLayout>& feeds = run.feeds;
    for (std::size_t k = 0; k < feeds.size() && k < max_logged_feeds; ++k) {
        text += concat(k == 0 ? "" : ", ", feed_name(signature, k), " ", name_of(signature.feed_types[k].dtype),
                       sizes_str(*feeds[k].shape), feeds[k].strides != nullptr ? " strided" : "");
    }
    if (feeds.size() > max_logged_feeds) text += concat(" and ", feeds.size() - max_logged_feeds, " more");
    const auto strided = std::count_if(run.results.begin(), run.results.end(),
                                       [](const ArrayLayout& result) { return result.strides != nullptr; });
    if (strided > 0)
        text += concat(text.empty() ? "" : ", ", strided, strided == 1 ? " strided result" : " strided results");
    return text;
}

}  // namespace

PreparedRun ExecutableImpl::checked(std::span<const NDArray> inputs, std::span<const NDArray> results) const {
    if (inputs.size() != signature_.feeds.size()) {
        throw UserError(concat("[run] the executable takes ", signature_.feeds.size(), " inputs, but ", inputs.size(),
                               " were given"));
    }
    if (!results.empty() && results.size() != signature_.targets.size()) {
        throw UserError(concat("[run] the executable gives ", signature_.targets.size(), " results, but ",
                               results.size(), " arrays were given for them"));
    }
    for (std::size_t k = 0; k < inputs.size(); ++k) {
        if (inputs[k].dtype() != signature_.feed_types[k].dtype) {
            throw TypeError(concat("[run] ", feed_name(signature_, k), " is ", name_of(inputs[k].dtype()),
                                   ", but the placeholder is ", signature_.feed_types[k].str(),
                                   "; convert the array, e.g. array.astype('", name_of(signature_.feed_types[k].dtype),
                                   "')"));
        }
    }
    check_memory(results);
    PreparedRun run;
    run.pack = inputs_to_pack(inputs, results);
    return run;
}

PreparedRun ExecutableImpl::prepare(const GraphData& graph, std::span<const NDArray> inputs,
                                    std::span<const NDArray> results) {
    const ForkGate gate;
    PreparedRun run = checked(inputs, results);
    run.variant = variant_for(graph, layout_of(inputs, run.pack, results), run.symbols);
    if (!results.empty()) check_results(*run.variant, run.symbols, results);
    return run;
}

std::optional<PreparedRun> ExecutableImpl::prepare_if_compiled(std::span<const NDArray> inputs,
                                                               std::span<const NDArray> results) {
    const ForkGate gate;
    PreparedRun run = checked(inputs, results);
    Pattern pattern;
    bool known = false;
    run.variant = known_variant(layout_of(inputs, run.pack, results), run.symbols, pattern, known);
    if (run.variant == nullptr) return std::nullopt;
    if (!results.empty()) check_results(*run.variant, run.symbols, results);
    return run;
}

std::optional<std::vector<NDArray>> ExecutableImpl::execute(const PreparedRun& run, std::span<const NDArray> inputs,
                                                            std::span<const NDArray> results,
                                                            const RunControl& control) {
    std::vector<NDArray> packed;
    if (!run.pack.empty()) {
        for (std::size_t k = 0; k < inputs.size(); ++k) packed.push_back(run.pack[k] ? inputs[k].copy() : inputs[k]);
        inputs = packed;
    }
    if (std::all_of(results.begin(), results.end(), in_elements))
        return run.variant->run(inputs, run.symbols, results, control);

    // Pairs of float32 may be an odd number of float32 apart.
    std::vector<NDArray> written;
    for (const NDArray& result : results)
        written.push_back(in_elements(result) ? result : NDArray(result.dtype(), result.shape()));
    if (!run.variant->run(inputs, run.symbols, written, control)) return std::nullopt;
    for (std::size_t k = 0; k < results.size(); ++k) {
        if (!in_elements(results[k])) results[k].copy_from(written[k]);
    }
    return std::vector<NDArray>(results.begin(), results.end());
}

std::shared_ptr<const Variant> ExecutableImpl::compile(const GraphData& graph, const RunLayout& run, bool exact) {
    DeviceBackend& device = signature_.options.interpret ? interpreter_device() : signature_.options.device.backend();
    return std::make_shared<const Variant>(make_request(graph, signature_, run, exact), signature_.options, device);
}

// While holding the mutex. `known`: there are variants of this pattern.
std::shared_ptr<const Variant> ExecutableImpl::find(const Pattern& pattern, std::span<const std::int64_t> symbols,
                                                    bool& known) {
    for (std::size_t k = 0; k < entries_.size(); ++k) {
        if (entries_[k].pattern != pattern) continue;
        known = true;
        if (!entries_[k].variant->accepts(symbols)) continue;
        if (k > 0)
            std::rotate(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(k),
                        entries_.begin() + static_cast<std::ptrdiff_t>(k) + 1);
        return entries_.front().variant;
    }
    return nullptr;
}

std::shared_ptr<const Variant> ExecutableImpl::known_variant(const RunLayout& run, std::vector<std::int64_t>& symbols,
                                                             Pattern& pattern, bool& known) {
    pattern = find_pattern(signature_, run, symbols);
    const std::lock_guard lock(mutex_);
    if (auto found = find(pattern, symbols, known)) return found;
    if (entries_.empty()) return nullptr;
    bool ignored = false;
    auto found = find(exact_pattern(run), {}, ignored);
    if (found != nullptr) symbols.clear();
    return found;
}

std::shared_ptr<const Variant> ExecutableImpl::variant_for(const GraphData& graph, const RunLayout& run,
                                                           std::vector<std::int64_t>& symbols) {
    Pattern pattern;
    bool known = false;
    if (auto found = known_variant(run, symbols, pattern, known)) return found;
    std::string why;
    {
        const std::lock_guard lock(mutex_);
        why = why_new(run, known);
    }
    if (log_enabled(LogLevel::debug)) log_line(LogLevel::debug, "compiling: " + why);
    // Compiled outside the lock; when two threads race, the second result is dropped.
    const ForkGate gate;
    const ExitGate exit_gate;
    std::shared_ptr<const Variant> made;
    // For exact sizes when the pattern is known but other sizes were assumed (for instance two dims that have to differ
    // by one), and when a size is no expression of the symbols (an odd length halved).
    bool exact = known;
    if (!exact) {
        try {
            made = compile(graph, run, false);
        } catch (const NeedsExactSizes&) { exact = true; } catch (const UserError&) {
            exact = true;  // said again with numbers instead of symbols
        }
    }
    if (exact) {
        made = compile(graph, run, true);
        symbols.clear();
        pattern = exact_pattern(run);
    }
    note(*made, why, run);
    const std::lock_guard lock(mutex_);
    bool ignored = false;
    if (auto found = find(pattern, symbols, ignored)) return found;
    Entry entry{std::move(pattern), made, {}};
    for (const ArrayLayout& feed : run.feeds) entry.shapes.push_back(*feed.shape);
    entries_.insert(entries_.begin(), std::move(entry));
    if (entries_.size() > setting_count(Setting::executable_cache_entries)) entries_.pop_back();
    return made;
}

std::string ExecutableImpl::why_new(const RunLayout& run, bool known) const {
    if (entries_.empty()) return why_.empty() ? "nothing has been compiled for these targets and options yet" : why_;
    const std::vector<ArrayLayout>& feeds = run.feeds;
    RunLayout packed;
    for (const ArrayLayout& feed : feeds) packed.feeds.push_back({feed.shape});
    std::vector<std::int64_t> symbols;
    const Pattern pattern = find_pattern(signature_, packed, symbols);
    if (run.strided() &&
        std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.pattern == pattern; })) {
        return "the strides of a feed or a result: the shapes are of a known pattern, but it lies in memory otherwise";
    }
    // The nearest of the known ones says most.
    std::vector<std::size_t> differing;
    const Entry* nearest = nullptr;
    for (const Entry& entry : entries_) {
        std::vector<std::size_t> changed;
        for (std::size_t k = 0; k < feeds.size(); ++k) {
            if (entry.shapes[k] != *feeds[k].shape) changed.push_back(k);
        }
        if (nearest != nullptr && changed.size() >= differing.size()) continue;
        nearest = &entry;
        differing = std::move(changed);
    }
    if (differing.empty()) return "the strides of a feed or a result: the shapes are those of before";
    std::string text = "shapes:";
    for (std::size_t k : differing) {
        text += concat(k == differing.front() ? " " : ", ", feed_name(signature_, k), " is ",
                       sizes_str(*feeds[k].shape), " and was ", sizes_str(nearest->shapes[k]));
    }
    return text + (known ? ", and an assumption about sizes that was made before does not hold"
                         : ", so that other dims are 0, 1 or equal to each other");
}

void ExecutableImpl::note(const Variant& variant, const std::string& why, const RunLayout& run) {
    const Report report = variant.report();
    const double milliseconds = std::round(report.compile_milliseconds * 10) / 10;
    std::string text = variant.found()
                           ? concat("found ", report.kernels, report.kernels == 1 ? " kernel" : " kernels",
                                    " compiled for an equal graph, in ", milliseconds, " ms")
                           : concat("compiled ", report.kernels, report.kernels == 1 ? " kernel (" : " kernels (",
                                    report.kernels_compiled, " new, ", report.kernels_from_disk,
                                    " from disk, the others from memory) in ", milliseconds, " ms");
    if (const std::string shapes = shapes_text(signature_, run); !shapes.empty()) text += ", for " + shapes;
    if (log_enabled(LogLevel::info)) log_line(LogLevel::info, text);
    const std::lock_guard lock(mutex_);
    history_.push_back(concat(text, "\n   because: ", why));
    if (history_.size() <= max_history) return;
    history_.pop_front();
    ++forgotten_;
}

std::string ExecutableImpl::explain() const {
    const std::lock_guard lock(mutex_);
    if (history_.empty()) return "nothing has been compiled yet: run it, or use Graph.compile with known shapes\n";
    std::string text;
    if (forgotten_ > 0) text += concat("(", forgotten_, " earlier compilations are no longer listed)\n");
    for (std::size_t k = 0; k < history_.size(); ++k) text += concat(forgotten_ + k + 1, ". ", history_[k], "\n");
    return text;
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

}  // namespace topstitch
