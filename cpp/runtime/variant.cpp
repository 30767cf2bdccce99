// Specialises a graph, finds its program, and keeps what is this graph's own.
// See variant.h.
#include "runtime/variant.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>

#include "graph/function.h"

namespace topstitch {

namespace {

// `text` with each "(place)" of the program replaced by that of this graph.
std::string moved(std::string text, const std::vector<std::pair<std::string, std::string>>& places) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        bool replaced = false;
        for (const auto& [from, to] : places) {
            if (text.compare(at, from.size(), from) != 0) continue;
            result += to;
            at += from.size();
            replaced = true;
            break;
        }
        if (!replaced) result += text[at++];
    }
    return result;
}

}  // namespace

Variant::Variant(const SpecializeRequest& request, const CompileOptions& options, DeviceBackend& device) {
    const auto start = std::chrono::steady_clock::now();
    Program program;
    {
        const std::lock_guard lock(request.graph->mutex);  // another thread may be adding operations
        program = specialize(request);
    }
    for (const Program::State& state : program.states) {
        states_.variables.push_back(state.variable);
        states_.lock_order.push_back(state.variable.get());
    }
    std::sort(states_.lock_order.begin(), states_.lock_order.end(), std::less<>());
    std::vector<SourceLocation> places;
    each_operation(*program.graph, [&places](const OpNode& node) { places.push_back(node.location); });
    FoundProgram result = find_or_compile(std::move(program), request.hints, options, device);
    program_ = std::move(result.program);
    program_->add_user();
    found_ = result.found;
    for (std::size_t k = 0; found_ && k < places.size(); ++k) {
        const std::pair<std::string, std::string> place{concat('(', program_->locations()[k].str(), ')'),
                                                        concat('(', places[k].str(), ')')};
        if (place.first == place.second || !places[k].known()) continue;
        if (std::find(places_.begin(), places_.end(), place) == places_.end()) places_.push_back(place);
    }
    milliseconds_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Report Variant::report() const {
    Report report = program_->report();
    report.compile_milliseconds = milliseconds_;
    if (found_) {
        report.kernels_compiled = report.kernels_from_disk = 0;
        report.stitch_milliseconds = report.pass_milliseconds = 0;
        for (auto& [name, milliseconds] : report.kernel_milliseconds) milliseconds = 0;
    }
    if (places_.empty()) return report;
    for (Report::Region& region : report.regions) {
        for (std::string& text : region.operations) text = moved(std::move(text), places_);
        for (std::string& text : region.kept) text = moved(std::move(text), places_);
        for (std::string& text : region.in_place) text = moved(std::move(text), places_);
    }
    for (std::string& text : report.kept_apart) text = moved(std::move(text), places_);
    return report;
}

std::vector<KernelCost> Variant::costs(std::span<const std::int64_t> symbols) const {
    std::vector<KernelCost> costs = program_->costs(symbols);
    for (KernelCost& cost : costs) {
        for (std::string& text : cost.operations) text = moved(std::move(text), places_);
    }
    return costs;
}

}  // namespace topstitch
