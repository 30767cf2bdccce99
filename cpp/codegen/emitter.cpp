// Statements and values of a kernel as text; what each kind needs is in the emit_*.cpp files.
// Constants have no statement of their own: they are written where they are used.
#include "codegen/emitter.h"

#include "codegen/loop_facts.h"
#include "loopir/contract.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Instr;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

bool is_comparison(ScalarOp op) {
    return op == ScalarOp::lt || op == ScalarOp::le || op == ScalarOp::eq || op == ScalarOp::ne;
}

// What a comparison, or a conversion to a type of 32 bits, makes of an index does not depend on how many bits it has.
std::vector<int> count_narrow_uses(const loopir::Kernel& kernel) {
    std::vector<int> uses(kernel.instrs.size());
    for (const Instr& i : kernel.instrs) {
        const bool converts = i.op == ScalarOp::cast && (i.type == DType::int32 || i.type == DType::float32);
        if (!is_comparison(i.op) && !converts) continue;
        for (const ValueId arg : i.args) {
            if (arg != loopir::no_value) ++uses[static_cast<std::size_t>(arg)];
        }
    }
    return uses;
}

}  // namespace

Emitter::Emitter(const loopir::Kernel& kernel, const LoopFacts& facts, const GridPlan& plan, const ProductPlan* product,
                 std::vector<Dim> sizes, const Dialect& dialect, const EmitOptions& options)
    : kernel_(kernel),
      facts_(facts),
      plan_(plan),
      product_(product),
      dialect_(dialect),
      narrow_(options.narrow),
      helpers_(dialect, plan.group_threads() / dialect.limits().simd_width),
      scalar_(dialect, helpers_),
      names_(dialect),
      uses_(loopir::count_uses(kernel)),
      narrow_uses_(count_narrow_uses(kernel)),
      fuses_(options.fused_multiply_add),
      size_params_(std::move(sizes)),
      values_(kernel.instrs.size()) {}

void Emitter::emit_statements(const loopir::Block& block) {
    if (fuses_) find_fused(block);
    for (const loopir::Stmt& stmt : block.stmts) {
        std::visit([this](const auto& s) { emit(s); }, stmt);
    }
}

void Emitter::emit(const loopir::Let& let) {
    const Instr& i = instr(let.value);
    std::string& name = values_[static_cast<std::size_t>(let.value)];
    if (wide_ && wide_->before.contains(let.value)) return;
    if (i.op == ScalarOp::constant) {
        name = scalar_.constant(i);
        return;
    }
    if (uses_[static_cast<std::size_t>(let.value)] == 0 || fused_.contains(let.value)) return;
    if (i.op == ScalarOp::cast && (is_absent(i.type) || is_absent(instr(i.args[0]).type))) {
        name = value(i.args[0]);  // to or from a sum in two numbers
        return;
    }
    const std::string text = [&] {
        switch (i.op) {
            case ScalarOp::index_value:
                return is_narrow(let.value) ? index_text(i.index, false) : position(i.index);
            case ScalarOp::load:
                return wide_ && wide_->loads.contains(let.value)
                           ? scalar_.widened(concat(wide_->loads.at(let.value), "[", wide_->part, "]"),
                                             kernel_.buffers[static_cast<std::size_t>(i.slot)].dtype)
                           : loaded(i);
            case ScalarOp::acc_read:
                return acc_read(i);
            default:
                return operation(i);
        }
    }();
    name = concat("v", let.value);
    const DType written = is_absent(i.type) ? DType::float32 : is_narrow(let.value) ? DType::int32 : i.type;
    line(concat("const ", type(written), " ", name, " = ", text, ";"));
}

// An index of which nothing needs 64 bits.
bool Emitter::is_narrow(ValueId id) {
    const auto k = static_cast<std::size_t>(id);
    return narrow_ && instr(id).op == ScalarOp::index_value && uses_[k] == narrow_uses_[k] &&
           fits_narrow(instr(id).index);
}

std::string Emitter::operation(const Instr& i) {
    ScalarEmitter::Operands operands;
    const bool narrow = is_comparison(i.op) && (is_narrow(i.args[0]) || is_narrow(i.args[1]));
    for (int k = 0; k < loopir::info(i.op).arity; ++k) {
        const Instr& arg = instr(i.args[k]);
        operands.push_back({value(i.args[k])});
        if (arg.op == ScalarOp::constant && is_integer(arg.type)) operands.back().number = arg.integer;
        const bool is_small = arg.op == ScalarOp::constant && arg.integer == static_cast<std::int32_t>(arg.integer);
        if (narrow && is_small) operands.back().text = dialect_.integer(arg.integer, DType::int32);
    }
    return scalar_.emit(i, instr(i.args[i.op == ScalarOp::select ? 1 : 0]).type, operands);
}

}  // namespace topstitch::codegen
