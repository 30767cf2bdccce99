// Partitions a program into regions: operations in order, each merged with the regions of what it reads,
// the largest saving first. Regions stay acyclic by construction.
#include <algorithm>

#include "stitch/region.h"

namespace topstitch::stitch {

namespace {

// The search for a path between regions gives up after this many, and the merge is refused.
constexpr int max_searched_regions = 4096;

class Partitioner {
public:
    Partitioner(const Program& program, const StitchOptions& options)
        : program_(program), graph_(*program.graph), options_(options) {
        result_.accesses = find_accesses(program, options.stitch);
        result_.region_of.assign(graph_.ops.size(), -1);
        result_.readers.resize(graph_.ops.size());
        required_.assign(graph_.ops.size(), false);
        for (TensorRef ref : program.results) require(ref);
        for (const Program::State& state : program.states) {
            if (state.assigned) require(state.after);
        }
        for (std::size_t k = 0; k < graph_.ops.size(); ++k) {
            if (!result_.accesses[k].is_control) continue;
            for (const TensorRef input : graph_.ops[k].inputs) require(input);
        }
    }

    Partition run() {
        const std::vector<bool> computed = find_computed();
        for (std::size_t k = 0; k < graph_.ops.size(); ++k) {
            if (!computed[k]) continue;
            for (const Request& request : result_.accesses[k].requests) {
                auto& readers = result_.readers[static_cast<std::size_t>(request.tensor.op)];
                if (readers.empty() || readers.back() != static_cast<OpId>(k)) readers.push_back(static_cast<OpId>(k));
            }
        }
        for (std::size_t k = 0; k < graph_.ops.size(); ++k) {
            if (computed[k]) place(static_cast<OpId>(k));
        }
        find_outputs();
        order_regions();
        return std::move(result_);
    }

private:
    void require(TensorRef ref) { required_[static_cast<std::size_t>(ref.op)] = true; }

    // What is computed into memory or inside a region: everything with a body but views that are only read.
    std::vector<bool> find_computed() const {
        std::vector<bool> computed(graph_.ops.size(), false);
        for (std::size_t k = 0; k < graph_.ops.size(); ++k) {
            const OpAccess& access = result_.accesses[k];
            computed[k] = access.has_body && (!access.inlined || required_[k]);
        }
        return computed;
    }

    Region& region_at(OpId op) { return result_.regions[static_cast<std::size_t>(region_of(op))]; }
    int& region_of(OpId op) { return result_.region_of[static_cast<std::size_t>(op)]; }

    void place(OpId op) {
        region_of(op) = static_cast<int>(result_.regions.size());
        result_.regions.push_back(single(result_.accesses[static_cast<std::size_t>(op)], op));
        latest_.push_back(op);
        for (const Request& request : result_.accesses[static_cast<std::size_t>(op)].requests) {
            const int previous = region_of(request.tensor.op);
            if (previous >= 0) latest_.back() = std::max(latest_.back(), latest_[static_cast<std::size_t>(previous)]);
        }
        if (!options_.stitch) return;
        const OpAccess& access = result_.accesses[static_cast<std::size_t>(op)];
        std::vector<const Request*> order;
        for (const Request& request : access.requests) {
            if (region_of(request.tensor.op) >= 0) order.push_back(&request);
        }
        std::stable_sort(order.begin(), order.end(), [this](const Request* a, const Request* b) {
            return bytes_of(a->tensor) > bytes_of(b->tensor);
        });
        const MergeContext context{graph_, result_.accesses, result_.readers, required_, options_};
        for (const Request* request : order) try_merge(context, op, *request);
    }

    std::int64_t bytes_of(TensorRef ref) const {
        const TensorType& type = graph_.type(ref);
        return options_.estimate(type.shape.num_elements()) * static_cast<std::int64_t>(size_of(type.dtype));
    }

    void try_merge(const MergeContext& context, OpId reader, const Request& request) {
        const int from = region_of(request.tensor.op);
        const int into = region_of(reader);
        if (from == into) return;
        std::string reason;
        if (is_control(request.tensor.op) || is_control(reader)) {
            reason = "a loop or branch is a step of its own";
        } else if (has_detour(from, into)) {
            reason = "another kernel has to run between them";
        } else {
            MergeResult result =
                merge(context, result_.regions[static_cast<std::size_t>(from)],
                      result_.regions[static_cast<std::size_t>(into)], request.tensor, reader, request);
            if (result.merged) {
                for (const auto& [op, member] : result.region.members) region_of(op) = into;
                result_.regions[static_cast<std::size_t>(into)] = std::move(result.region);
                result_.regions[static_cast<std::size_t>(from)] = Region();
                raise_latest(
                    into, std::max(latest_[static_cast<std::size_t>(from)], latest_[static_cast<std::size_t>(into)]));
                return;
            }
            reason = std::move(result.reason);
        }
        result_.refusals.push_back({request.tensor.op, reader, std::move(reason)});
    }

    bool is_control(OpId op) const { return result_.accesses[static_cast<std::size_t>(op)].is_control; }

    // A region depends on as late an operation, and so does whatever reads it.
    void raise_latest(int region, OpId latest) {
        latest_[static_cast<std::size_t>(region)] = latest;
        std::vector<int> stack{region};
        while (!stack.empty()) {
            const int current = stack.back();
            stack.pop_back();
            for (const auto& [op, member] : result_.regions[static_cast<std::size_t>(current)].members) {
                for (OpId reader : result_.readers[static_cast<std::size_t>(op)]) {
                    const int next = region_of(reader);
                    if (next < 0 || next == current || latest_[static_cast<std::size_t>(next)] >= latest) continue;
                    latest_[static_cast<std::size_t>(next)] = latest;
                    stack.push_back(next);
                }
            }
        }
    }

    // A path from region `from` to region `into` through a third one: merging would make a cycle.
    bool has_detour(int from, int into) {
        const OpId last = result_.regions[static_cast<std::size_t>(from)].members.rbegin()->first;
        std::set<int> seen{into};
        std::vector<int> stack{into};
        while (!stack.empty()) {
            const int current = stack.back();
            stack.pop_back();
            for (const auto& [op, member] : result_.regions[static_cast<std::size_t>(current)].members) {
                for (const Request& request : result_.accesses[static_cast<std::size_t>(op)].requests) {
                    const int previous = region_of(request.tensor.op);
                    if (previous < 0) continue;
                    if (previous == from) {
                        if (current != into) return true;
                        continue;
                    }
                    // What depends on `from` depends on the last operation of it.
                    if (latest_[static_cast<std::size_t>(previous)] < last) continue;
                    if (!seen.insert(previous).second) continue;
                    if (static_cast<int>(seen.size()) > max_searched_regions) return true;
                    stack.push_back(previous);
                }
            }
        }
        return false;
    }

    void find_outputs() {
        for (Region& region : result_.regions) {
            for (const auto& [op, member] : region.members) {
                const auto index = static_cast<std::size_t>(op);
                const auto outside = [&](OpId reader) { return !region.members.contains(reader); };
                const auto& readers = result_.readers[index];
                if (required_[index] || std::any_of(readers.begin(), readers.end(), outside))
                    region.outputs.push_back(op);
            }
        }
    }

    // Drops emptied regions and sorts the rest so that producers come first.
    void order_regions() {
        const std::size_t count = result_.regions.size();
        std::vector<std::set<int>> after(count);
        std::vector<int> waiting(count, 0);
        for (std::size_t r = 0; r < count; ++r) {
            for (const auto& [op, member] : result_.regions[r].members) {
                for (const Request& request : result_.accesses[static_cast<std::size_t>(op)].requests) {
                    const int previous = region_of(request.tensor.op);
                    if (previous < 0 || previous == static_cast<int>(r)) continue;
                    if (after[static_cast<std::size_t>(previous)].insert(static_cast<int>(r)).second) ++waiting[r];
                }
            }
        }
        // The ready region whose last operation comes first, so that the order is that of the program.
        std::set<std::pair<OpId, int>> ready;
        const auto key = [this](int r) {
            return std::pair(result_.regions[static_cast<std::size_t>(r)].members.rbegin()->first, r);
        };
        int live = 0;
        for (std::size_t r = 0; r < count; ++r) {
            if (result_.regions[r].members.empty()) continue;
            ++live;
            if (waiting[r] == 0) ready.insert(key(static_cast<int>(r)));
        }
        std::vector<Region> ordered;
        while (!ready.empty()) {
            const int r = ready.begin()->second;
            ready.erase(ready.begin());
            for (int next : after[static_cast<std::size_t>(r)]) {
                if (--waiting[static_cast<std::size_t>(next)] == 0) ready.insert(key(next));
            }
            ordered.push_back(std::move(result_.regions[static_cast<std::size_t>(r)]));
        }
        internal_check(static_cast<int>(ordered.size()) == live, "the regions depend on each other in a cycle");
        result_.regions = std::move(ordered);
        for (std::size_t r = 0; r < result_.regions.size(); ++r) {
            for (const auto& [op, member] : result_.regions[r].members) region_of(op) = static_cast<int>(r);
        }
    }

    const Program& program_;
    const GraphData& graph_;
    const StitchOptions& options_;
    Partition result_;
    std::vector<bool> required_;
    std::vector<OpId> latest_;  // by region: the last operation in it or in any region that it depends on
};

}  // namespace

Partition partition(const Program& program, const StitchOptions& options) {
    return Partitioner(program, options).run();
}

}  // namespace topstitch::stitch
