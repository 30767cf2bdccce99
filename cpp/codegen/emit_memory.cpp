// Loads and stores, and the barriers between those of different threads.
// 16-bit floats and bool have types of their own in memory.
#include <algorithm>

#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Instr;
using loopir::no_value;
using loopir::ScalarOp;

std::string Emitter::loaded(const Instr& load) {
    if (is_uniform() && plan_.is_shared(load.slot)) order({load.slot}, {});
    const auto b = static_cast<std::size_t>(load.slot);
    const std::string element =
        scalar_.widened(concat(buffers_[b], "[", offset(load.index), "]"), kernel_.buffers[b].dtype);
    const loopir::ValueId guard = load.args[0];
    if (guard == no_value) return element;
    const std::string zero = is_floating(load.type) ? dialect_.real(0) : dialect_.integer(0, load.type);
    // Nothing is read where the guard is false.
    const bool compares = element.find(' ') != std::string::npos;
    return concat(value(guard), " ? ", compares ? "(" : "", element, compares ? ")" : "", " : ", zero);
}

void Emitter::emit(const loopir::Store& store) {
    const auto b = static_cast<std::size_t>(store.buffer);
    if (wide_ && wide_->stores.contains(&store)) {
        const std::string stored = scalar_.narrowed(value(store.value), kernel_.buffers[b].dtype);
        return line(concat(wide_->stores.at(&store), "[", wide_->part, "] = ", stored, ";"));
    }
    const bool local = kernel_.buffers[b].role == loopir::BufferParam::Role::local;
    const bool own = local && plan_.space(store.buffer) == GridPlan::Space::thread;
    const bool once = is_uniform() && !own;
    if (once && plan_.is_shared(store.buffer)) order({}, {store.buffer});
    std::string condition = !once ? "" : in_team() ? concat("thread_index % ", team_, " == 0") : "thread_index == 0";
    if (store.guard != no_value) condition += concat(condition.empty() ? "" : " && ", value(store.guard));
    if (condition.empty()) return emit_store(store);
    open(concat("if (", condition, ")"));
    emit_store(store);
    close();
}

void Emitter::emit_store(const loopir::Store& store) {
    const auto b = static_cast<std::size_t>(store.buffer);
    const std::string stored = scalar_.narrowed(value(store.value), kernel_.buffers[b].dtype);
    line(concat(buffers_[b], "[", offset(store.index), "] = ", stored, ";"));
}

// --- Barriers.

std::set<int> Emitter::shared_reads(const Contents& contents) const {
    std::set<int> result;
    for (const loopir::ValueId id : contents.values) {
        if (instr(id).op == ScalarOp::load && plan_.is_shared(instr(id).slot)) result.insert(instr(id).slot);
    }
    return result;
}

std::set<int> Emitter::shared_writes(const Contents& contents) const {
    std::set<int> result;
    for (const loopir::Store* store : contents.stores) {
        if (plan_.is_shared(store->buffer)) result.insert(store->buffer);
    }
    return result;
}

// Whoever reads or writes what another thread has written, or writes what it may still read, waits for it.
void Emitter::order(const std::set<int>& reads, const std::set<int>& writes) {
    std::set<int> conflicts;
    for (const int buffer : reads) {
        if (written_.contains(buffer)) conflicts.insert(buffer);
    }
    for (const int buffer : writes) {
        if (read_.contains(buffer) || written_.contains(buffer)) conflicts.insert(buffer);
    }
    if (!conflicts.empty()) {
        // One barrier is for all: those buffers too that do not conflict yet.
        std::set<int> touched = read_;
        touched.insert(written_.begin(), written_.end());
        const bool device = std::any_of(touched.begin(), touched.end(), [&](int buffer) {
            return kernel_.buffers[static_cast<std::size_t>(buffer)].role != loopir::BufferParam::Role::local;
        });
        line(in_team() ? dialect_.simdgroup_barrier() : dialect_.barrier(device));
        read_.clear();
        written_.clear();
    }
    read_.insert(reads.begin(), reads.end());
    written_.insert(writes.begin(), writes.end());
}

void Emitter::order_before(const loopir::Loop& loop) {
    const Contents& contents = facts_.of(loop);
    order(shared_reads(contents), shared_writes(contents));
}

// What an iteration does that runs before the next one of the same loop.
void Emitter::note_accesses(const loopir::Loop& loop) {
    const Contents& contents = facts_.of(loop);
    read_.merge(shared_reads(contents));
    written_.merge(shared_writes(contents));
}

}  // namespace topstitch::codegen
