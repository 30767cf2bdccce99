// Finds loops over blocks by what their blocks consist of, and puts their inner loops in their place.
// See join_blocks.h.
#include "codegen/join_blocks.h"

#include <map>
#include <optional>
#include <utility>

namespace topstitch::codegen {

using loopir::Accumulate;
using loopir::Block;
using loopir::Index;
using loopir::InitAcc;
using loopir::Instr;
using loopir::Kernel;
using loopir::Let;
using loopir::Loop;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::Stmt;
using loopir::ValueId;
using loopir::VarId;

namespace {

// What a loop over blocks consists of.
struct Blocks {
    std::vector<Stmt> before;  // values that the inner loop needs
    const Loop* inner = nullptr;
    int part = -1;
    int total = -1;
    Dim length;  // of the inner loops together
};

class BlockJoiner {
public:
    explicit BlockJoiner(Kernel& kernel) : kernel_(kernel) {}

    void run() {
        join(kernel_.body);
        if (joined_.empty()) return;
        rename_totals(kernel_.body);
        for (Instr& instr : kernel_.instrs) {
            instr.index = instr.index.substitute([this](VarId var, const Dim& extent) { return moved(var, extent); });
            const auto total = parts_.find(instr.slot);
            if (instr.op != ScalarOp::acc_read || total == parts_.end()) continue;
            instr.slot = total->second;
            instr.type = DType::float32;
        }
    }

private:
    Instr& instr(ValueId id) { return kernel_.instrs[static_cast<std::size_t>(id)]; }

    void join(Block& block) {
        for (Stmt& stmt : block.stmts) {
            auto* loop = std::get_if<Loop>(&stmt);
            if (loop == nullptr) continue;
            const std::optional<Blocks> blocks = blocks_of(*loop);
            if (!blocks) {
                join(loop->body.front());
                continue;
            }
            Loop joined = *blocks->inner;
            std::vector<Stmt>& stmts = joined.body.front().stmts;
            stmts.insert(stmts.begin(), blocks->before.begin(), blocks->before.end());
            joined_.push_back({loop->var, joined.var, joined.extent, blocks->length});
            joined.extent = blocks->length;
            joined.limit.reset();
            kernel_.vars[static_cast<std::size_t>(joined.var)].extent = blocks->length;
            parts_[blocks->total] = blocks->part;
            stmt = std::move(joined);
        }
    }

    std::optional<Blocks> blocks_of(const Loop& loop) {
        if (loop.limit) return std::nullopt;
        Blocks blocks;
        for (const Stmt& stmt : loop.body.front().stmts) {
            if (std::holds_alternative<loopir::Store>(stmt)) return std::nullopt;
            if (const auto* init = std::get_if<InitAcc>(&stmt)) {
                if (blocks.part >= 0 || blocks.inner != nullptr) return std::nullopt;
                blocks.part = init->accumulator;
            } else if (const auto* inner = std::get_if<Loop>(&stmt)) {
                if (blocks.inner != nullptr) return std::nullopt;
                blocks.inner = inner;
            } else if (const auto* accumulate = std::get_if<Accumulate>(&stmt)) {
                if (blocks.total >= 0 || !adds_part(*accumulate, blocks.part)) return std::nullopt;
                blocks.total = accumulate->accumulator;
            } else if (blocks.inner == nullptr) {
                blocks.before.push_back(stmt);
            }
        }
        if (blocks.part < 0 || blocks.inner == nullptr || blocks.total < 0) return std::nullopt;
        if (!accumulates_alone(*blocks.inner, blocks.part)) return std::nullopt;
        const Dim& width = blocks.inner->extent;
        if (!width.is_known() || width.value() < 1) return std::nullopt;
        blocks.length = loop.extent * width;
        if (blocks.inner->limit) {
            const Index cut_off = *blocks.inner->limit + Index::var(loop.var, loop.extent) * width;
            if (!cut_off.is_constant() || !provably_reached(cut_off.constant(), loop.extent, width))
                return std::nullopt;
            blocks.length = cut_off.constant();
        }
        return blocks;
    }

    // total += part, in float64.
    bool adds_part(const Accumulate& accumulate, int part) {
        const Instr& cast = instr(accumulate.value);
        if (accumulate.guard != no_value || cast.op != ScalarOp::cast || cast.type != DType::float64) return false;
        const Instr& read = instr(cast.args[0]);
        const auto combiner = [this](int accumulator) {
            return kernel_.accumulators[static_cast<std::size_t>(accumulator)].combiner;
        };
        return read.op == ScalarOp::acc_read && read.slot == part && read.type == DType::float32 &&
               combiner(part) == loopir::Combiner::sum && combiner(accumulate.accumulator) == loopir::Combiner::sum;
    }

    static bool accumulates_alone(const Loop& loop, int part) {
        int accumulates = 0;
        for (const Stmt& stmt : loop.body.front().stmts) {
            if (std::holds_alternative<Let>(stmt)) continue;
            const auto* accumulate = std::get_if<Accumulate>(&stmt);
            if (accumulate == nullptr || accumulate->accumulator != part) return false;
            ++accumulates;
        }
        return accumulates == 1;
    }

    // Whether so many blocks are just enough for the length.
    static bool provably_reached(const Dim& length, const Dim& blocks, const Dim& width) {
        return blocks == ceil_div(length, width);
    }

    // The initialisation of a total becomes that of its part.
    void rename_totals(Block& block) {
        for (Stmt& stmt : block.stmts) {
            if (auto* loop = std::get_if<Loop>(&stmt)) rename_totals(loop->body.front());
            auto* init = std::get_if<InitAcc>(&stmt);
            if (init == nullptr) continue;
            const auto total = parts_.find(init->accumulator);
            if (total != parts_.end()) init->accumulator = total->second;
        }
    }

    Index moved(VarId var, const Dim& extent) const {
        for (const Joined& joined : joined_) {
            const Index both = Index::var(joined.inner, joined.length);
            if (var == joined.block) return floor_div(both, joined.width);
            if (var == joined.inner) return mod(both, joined.width);
        }
        return Index::var(var, extent);
    }

    struct Joined {
        VarId block;
        VarId inner;
        Dim width;
        Dim length;
    };
    Kernel& kernel_;
    std::vector<Joined> joined_;
    std::map<int, int> parts_;  // by total
};

}  // namespace

Kernel join_blocks(Kernel kernel) {
    BlockJoiner(kernel).run();
    return kernel;
}

}  // namespace topstitch::codegen
