// Accumulators: variables of each thread, whose parts are joined after loops that threads share.
// argmin and argmax have a position besides, and sums in two numbers a low part.
#include <limits>

#include "codegen/emitter.h"
#include "loopir/evaluate.h"
#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Combiner;
using loopir::no_value;
using loopir::ScalarOp;

namespace {

// The position while nothing has been accumulated: every other one is smaller.
constexpr std::int64_t nowhere = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::string Emitter::acc_name(int accumulator) const {
    const auto running = running_.find(accumulator);
    return running == running_.end() ? "a" + std::to_string(accumulator) : running->second;
}

DType Emitter::acc_type(int accumulator) const {
    const DType type = kernel_.accumulators[static_cast<std::size_t>(accumulator)].type;
    return plan_.is_paired(accumulator) ? DType::float32 : type;
}

bool Emitter::has_second(int accumulator) const {
    const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulator)];
    return plan_.is_paired(accumulator) || loopir::is_arg_reduction(acc.combiner);
}

std::string Emitter::second_name(int accumulator) const {
    return acc_name(accumulator) + (plan_.is_paired(accumulator) ? "_low" : "_at");
}

std::string Emitter::identity(int accumulator) const {
    const DType type = acc_type(accumulator);
    const loopir::Scalar first =
        loopir::initial_scalar(kernel_.accumulators[static_cast<std::size_t>(accumulator)].combiner, type);
    if (type == DType::float32) return dialect_.real(first.as<float>());
    return dialect_.integer(static_cast<std::int64_t>(first.bits), type);
}

void Emitter::emit(const loopir::MultiplyTiles&) {
    throw InternalError("codegen: products of packed tiles are for processors with a matrix unit");
}

void Emitter::emit(const loopir::InitAcc& init) {
    const int accumulator = init.accumulator;
    bool is_declared = false;
    for (const std::set<int>& block : declared_) is_declared = is_declared || block.contains(accumulator);
    if (is_declared) {
        reset(accumulator);
    } else {
        declared_.back().insert(accumulator);
        declare(accumulator);
    }
    fresh_.insert(accumulator);
}

// The variables of an accumulator: those called `start`, or such as have accumulated nothing.
void Emitter::declare(int accumulator, const std::string& start) {
    const std::string first = start.empty() ? identity(accumulator) : start;
    line(concat(type(acc_type(accumulator)), " ", acc_name(accumulator), " = ", first, ";"));
    if (!has_second(accumulator)) return;
    const bool paired = plan_.is_paired(accumulator);
    const std::string nothing = paired ? dialect_.real(0) : dialect_.integer(nowhere, DType::int64);
    const std::string second = start.empty() ? nothing : start + (paired ? "_low" : "_at");
    line(concat(type(paired ? DType::float32 : DType::int64), " ", second_name(accumulator), " = ", second, ";"));
}

// Nothing has been accumulated.
void Emitter::reset(int accumulator) {
    line(concat(acc_name(accumulator), " = ", identity(accumulator), ";"));
    if (plan_.is_paired(accumulator)) {
        line(concat(second_name(accumulator), " = ", dialect_.real(0), ";"));
    } else if (has_second(accumulator)) {
        line(concat(second_name(accumulator), " = ", dialect_.integer(nowhere, DType::int64), ";"));
    }
}

// A product and the sum that it goes into stand in the same block, and nothing else needs the product.
void Emitter::find_fused(const loopir::Block& block) {
    std::set<loopir::ValueId> products;
    for (const loopir::Stmt& stmt : block.stmts) {
        if (const auto* let = std::get_if<loopir::Let>(&stmt)) {
            const loopir::Instr& i = instr(let->value);
            const bool lone = uses_[static_cast<std::size_t>(let->value)] == 1;
            if (i.op == ScalarOp::mul && i.type == DType::float32 && lone) products.insert(let->value);
        } else if (const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt)) {
            const auto a = static_cast<std::size_t>(accumulate->accumulator);
            const bool sum = kernel_.accumulators[a].combiner == Combiner::sum;
            if (sum && products.contains(accumulate->value)) fused_.insert(accumulate->value);
        }
    }
}

void Emitter::emit(const loopir::Accumulate& accumulate) {
    const int accumulator = accumulate.accumulator;
    fresh_.erase(accumulator);
    // Where each thread has a part, what all threads know is added by one of them.
    const bool parts = in_parts_.contains(accumulator) || plan_.is_left_in_parts(accumulator);
    const bool once = parts && !plan_.adds_part(accumulate);
    std::string condition = once ? "thread_index == 0" : "";
    if (accumulate.guard != no_value) condition += concat(once ? " && " : "", value(accumulate.guard));
    if (condition.empty()) return emit_step(accumulate);
    open(concat("if (", condition, ")"));
    emit_step(accumulate);
    close();
}

void Emitter::emit_step(const loopir::Accumulate& accumulate) {
    const int accumulator = accumulate.accumulator;
    const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulator)];
    const std::string name = acc_name(accumulator);
    if (fused_.contains(accumulate.value)) {
        const loopir::Instr& product = instr(accumulate.value);
        return line(concat(name, " = ", dialect_.call(BuiltIn::fma), "(", value(product.args[0]), ", ",
                           value(product.args[1]), ", ", name, ");"));
    }
    const std::string& added = value(accumulate.value);
    if (plan_.is_paired(accumulator)) {
        line(concat(helpers_.use({Helper::add_to_pair}), "(", name, ", ", second_name(accumulator), ", ", added, ");"));
    } else if (loopir::is_arg_reduction(acc.combiner)) {
        line(concat(helpers_.use({Helper::improve, acc.type, acc.combiner}), "(", name, ", ", second_name(accumulator),
                    ", ", added, ", ", value(accumulate.position), ");"));
    } else {
        line(concat(name, " = ", helpers_.combined(acc.combiner, acc.type, name, added), ";"));
    }
}

std::string Emitter::acc_read(const loopir::Instr& read) {
    const std::string name = acc_name(read.slot);
    if (plan_.is_paired(read.slot)) {
        return concat(helpers_.use({Helper::sum_of_pair}), "(", name, ", ", second_name(read.slot), ")");
    }
    if (read.integer == 0) return name;
    // Of nothing, the position is 0.
    const std::string position = second_name(read.slot);
    return concat(position, " == ", dialect_.integer(nowhere, DType::int64), " ? ", dialect_.integer(0, DType::int64),
                  " : ", position);
}

// The first thread goes on with what there is; the others begin anew.
void Emitter::begin_parts(const loopir::Loop& loop) {
    for (const int accumulator : plan_.joined_after(loop)) {
        in_parts_.insert(accumulator);
        if (fresh_.contains(accumulator)) continue;
        open("if (thread_index != 0)");
        reset(accumulator);
        close();
    }
}

void Emitter::join_parts(const loopir::Loop& loop) {
    const bool several = is_joined_in_memory();
    for (const int accumulator : plan_.joined_after(loop)) {
        in_parts_.erase(accumulator);
        const DType type = acc_type(accumulator);
        const Combiner combiner = kernel_.accumulators[static_cast<std::size_t>(accumulator)].combiner;
        const bool paired = plan_.is_paired(accumulator);
        const bool second = has_second(accumulator);
        const std::string join = helpers_.use({Helper::join, type, combiner, paired});
        std::string arguments = acc_name(accumulator);
        if (second) arguments += concat(", ", second_name(accumulator));
        if (several) {
            joined_types_.insert(type);
            arguments += concat(", shared_", this->type(type));
            if (second) arguments += paired ? ", shared_low" : ", shared_position";
            (paired ? joins_pairs_ : joins_positions_) |= second;
            arguments += ", lane, simdgroup";
        }
        line(concat(second ? "" : acc_name(accumulator) + " = ", join, "(", arguments, ");"));
    }
}

}  // namespace topstitch::codegen
