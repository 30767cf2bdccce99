// The pass that replaces math instructions by arithmetic, and the emitter that the expansions write through.
// A kernel keeps its value numbers: an expansion's last instruction takes the place of the original.
#include "loopir/math_expand.h"

#include <bit>

#include "loopir/math_emit.h"
#include "loopir/math_functions.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace math {

ValueId Emit::append(Instr instr, std::vector<Stmt>& stmts) {
    const auto id = static_cast<ValueId>(kernel_.instrs.size());
    kernel_.instrs.push_back(std::move(instr));
    stmts.emplace_back(Let{id});
    return id;
}

V Emit::constant(double number, DType type) {
    const double value = type == DType::float32 ? static_cast<double>(static_cast<float>(number)) : number;
    const auto [place, fresh] = constants_.try_emplace({type, std::bit_cast<std::int64_t>(value)}, no_value);
    if (fresh) place->second = append({.op = ScalarOp::constant, .type = type, .real = value}, prologue_);
    return {this, place->second};
}

V Emit::constant_int(std::int64_t number, DType type) {
    const auto [place, fresh] = constants_.try_emplace({type, number}, no_value);
    if (fresh) place->second = append({.op = ScalarOp::constant, .type = type, .integer = number}, prologue_);
    return {this, place->second};
}

V Emit::op(ScalarOp op, DType type, V a, V b, V c) {
    Scope& scope = scopes_.back();
    const auto [place, fresh] = scope.seen.try_emplace({op, type, a.id, b.id, c.id}, no_value);
    if (fresh) place->second = append({.op = op, .type = type, .args = {a.id, b.id, c.id}}, *scope.stmts);
    return {this, place->second};
}

void Emit::finish(ValueId target, V result) {
    Scope& scope = scopes_.back();
    const Instr last = instr(result.id);
    kernel_.instrs[static_cast<std::size_t>(target)] = last;
    const bool newest = static_cast<std::size_t>(result.id) + 1 == kernel_.instrs.size();
    if (newest && !scope.stmts->empty()) {
        // The usual case: nothing else uses the last instruction, so it moves instead of being copied.
        const Let* let = std::get_if<Let>(&scope.stmts->back());
        if (let != nullptr && let->value == result.id) {
            scope.stmts->pop_back();
            kernel_.instrs.pop_back();
            scope.seen[{last.op, last.type, last.args[0], last.args[1], last.args[2]}] = target;
        }
    }
    scope.stmts->emplace_back(Let{target});
}

void Emit::push(std::vector<Stmt>& stmts) {
    // What an enclosing block has computed before is visible inside.
    if (scopes_.empty()) {
        scopes_.push_back({&stmts, {}});
    } else {
        scopes_.push_back({&stmts, scopes_.back().seen});
    }
}

void Emit::pop() {
    scopes_.pop_back();
}

}  // namespace math

namespace {

using math::Emit;
using math::V;

V expand(Emit& emit, const Instr& instr) {
    const V a = emit.value(instr.args[0]);
    switch (instr.op) {
        case ScalarOp::exp:
            return math::exp(a);
        case ScalarOp::exp2:
            return math::exp2(a);
        case ScalarOp::exp10:
            return math::exp10(a);
        case ScalarOp::expm1:
            return math::expm1(a);
        case ScalarOp::log:
            return math::log(a);
        case ScalarOp::log2:
            return math::log2(a);
        case ScalarOp::log10:
            return math::log10(a);
        case ScalarOp::log1p:
            return math::log1p(a);
        case ScalarOp::sin:
            return math::sin(a);
        case ScalarOp::cos:
            return math::cos(a);
        case ScalarOp::tan:
            return math::tan(a);
        case ScalarOp::asin:
            return math::asin(a);
        case ScalarOp::acos:
            return math::acos(a);
        case ScalarOp::atan:
            return math::atan(a);
        case ScalarOp::sinh:
            return math::sinh(a);
        case ScalarOp::cosh:
            return math::cosh(a);
        case ScalarOp::tanh:
            return math::tanh(a);
        case ScalarOp::asinh:
            return math::asinh(a);
        case ScalarOp::acosh:
            return math::acosh(a);
        case ScalarOp::atanh:
            return math::atanh(a);
        case ScalarOp::erf:
            return math::erf(a);
        case ScalarOp::erfc:
            return math::erfc(a);
        case ScalarOp::rsqrt:
            return math::rsqrt(a);
        case ScalarOp::cbrt:
            return math::cbrt(a);
        case ScalarOp::pow:
            return math::pow(a, emit.value(instr.args[1]));
        case ScalarOp::atan2:
            return math::atan2(a, emit.value(instr.args[1]));
        // Everything else is no math function; listed so that a new instruction must be placed.
        case ScalarOp::constant:
        case ScalarOp::index_value:
        case ScalarOp::load:
        case ScalarOp::acc_read:
        case ScalarOp::add:
        case ScalarOp::sub:
        case ScalarOp::mul:
        case ScalarOp::div:
        case ScalarOp::rem:
        case ScalarOp::neg:
        case ScalarOp::abs:
        case ScalarOp::fma:
        case ScalarOp::min:
        case ScalarOp::max:
        case ScalarOp::fmin:
        case ScalarOp::fmax:
        case ScalarOp::floor:
        case ScalarOp::ceil:
        case ScalarOp::trunc:
        case ScalarOp::round_even:
        case ScalarOp::sqrt:
        case ScalarOp::copysign:
        case ScalarOp::bit_and:
        case ScalarOp::bit_or:
        case ScalarOp::bit_xor:
        case ScalarOp::bit_not:
        case ScalarOp::shl:
        case ScalarOp::shr:
        case ScalarOp::popcount:
        case ScalarOp::eq:
        case ScalarOp::ne:
        case ScalarOp::lt:
        case ScalarOp::le:
        case ScalarOp::select:
        case ScalarOp::cast:
        case ScalarOp::round_to:
        case ScalarOp::bitcast:
        case ScalarOp::to_bits16:
        case ScalarOp::from_bits16:
        case ScalarOp::dot_pairs:
            break;
    }
    throw InternalError(concat("expand_math: no expansion of ", info(instr.op).name));
}

void rewrite(Emit& emit, const Block& block, std::vector<Stmt>& out) {
    emit.push(out);
    for (const Stmt& stmt : block.stmts) {
        if (const Let* let = std::get_if<Let>(&stmt)) {
            const Instr instr = emit.instr(let->value);
            if (info(instr.op).is_math) {
                emit.finish(let->value, expand(emit, instr));
                continue;
            }
        } else if (const Loop* loop = std::get_if<Loop>(&stmt)) {
            Loop inner = *loop;
            inner.body.front().stmts.clear();
            rewrite(emit, loop->body.front(), inner.body.front().stmts);
            out.emplace_back(std::move(inner));
            continue;
        }
        out.push_back(stmt);
    }
    emit.pop();
}

bool has_math(const Kernel& kernel) {
    for (const Instr& instr : kernel.instrs) {
        if (info(instr.op).is_math) return true;
    }
    return false;
}

}  // namespace

Kernel expand_math(const Kernel& kernel, const MathTarget& target) {
    if (!has_math(kernel)) return kernel;
    Kernel result = kernel;
    Emit emit(result, target);
    std::vector<Stmt> stmts;
    rewrite(emit, kernel.body, stmts);
    result.body.stmts = std::move(emit.prologue());
    result.body.stmts.insert(result.body.stmts.end(), std::make_move_iterator(stmts.begin()),
                             std::make_move_iterator(stmts.end()));
    return result;
}

}  // namespace topstitch::loopir
