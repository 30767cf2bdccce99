// Math functions as functions of the emitted source: our own expansions, of known accuracy (docs/accuracy.md).
// Each is expanded from a kernel of one instruction, so that nothing is written down twice.
#include "codegen/helpers.h"
#include "codegen/scalar_emitter.h"
#include "loopir/builder.h"
#include "loopir/math_expand.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::BufferParam;
using loopir::Instr;
using loopir::ScalarOp;
using loopir::ValueId;

std::string Helpers::math_function(const HelperKey& key) {
    loopir::Builder b;
    const int arity = loopir::info(key.op).arity;
    const std::array<std::string, 2> names = {"x", "y"};
    std::string parameters;
    std::array<ValueId, 2> args = {loopir::no_value, loopir::no_value};
    for (int k = 0; k < arity; ++k) {
        const std::string& name = names[static_cast<std::size_t>(k)];
        args[static_cast<std::size_t>(k)] = b.load(b.add_buffer({name, key.type, BufferParam::Role::input, 1}), 0);
        parameters += concat(k == 0 ? "" : ", ", dialect_.type(key.type), " ", name);
    }
    const int result = b.add_buffer({"result", key.type, BufferParam::Role::output, 1});
    b.store(result, 0, b.op(key.op, args[0], args[1]));
    const loopir::Kernel kernel = loopir::expand_math(b.finish(loopir::info(key.op).name), math_target(dialect_));

    ScalarEmitter scalar(dialect_, *this);
    std::vector<std::string> values(kernel.instrs.size());
    std::string text = signature(dialect_.type(key.type), key, parameters);
    for (const loopir::Stmt& stmt : kernel.body.stmts) {
        if (const auto* store = std::get_if<loopir::Store>(&stmt)) {
            text += concat("    return ", values[static_cast<std::size_t>(store->value)], ";\n");
            continue;
        }
        const ValueId id = std::get<loopir::Let>(stmt).value;
        const Instr& instr = kernel.instrs[static_cast<std::size_t>(id)];
        std::string& value = values[static_cast<std::size_t>(id)];
        if (instr.op == ScalarOp::constant) {
            value = scalar.constant(instr);
        } else if (instr.op == ScalarOp::load) {
            value = names[static_cast<std::size_t>(instr.slot)];
        } else {
            ScalarEmitter::Operands operands;
            for (int k = 0; k < loopir::info(instr.op).arity; ++k) {
                const Instr& arg = kernel.instrs[static_cast<std::size_t>(instr.args[k])];
                operands.push_back({values[static_cast<std::size_t>(instr.args[k])]});
                if (arg.op == ScalarOp::constant && is_integer(arg.type)) operands.back().number = arg.integer;
            }
            const auto typed = static_cast<std::size_t>(instr.args[instr.op == ScalarOp::select ? 1 : 0]);
            value = concat("v", id);
            text += concat("    const ", dialect_.type(instr.type), " ", value, " = ",
                           scalar.emit(instr, kernel.instrs[typed].type, operands), ";\n");
        }
    }
    return text + "}\n";
}

loopir::MathTarget math_target(const Dialect& dialect) {
    return {.fma = true, .float64 = dialect.limits().float64};
}

}  // namespace topstitch::codegen
