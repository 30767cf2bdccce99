// Scalar instructions as expressions of the dialect.
// Stateless but for the helper functions that the expressions call.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/helpers.h"
#include "loopir/kernel.h"

namespace topstitch::codegen {

class ScalarEmitter {
public:
    ScalarEmitter(const Dialect& dialect, Helpers& helpers) : dialect_(dialect), helpers_(helpers) {}

    struct Operand {
        std::string text;
        std::optional<std::int64_t> number = std::nullopt;  // of a constant of integer type
    };
    using Operands = std::vector<Operand>;

    std::string constant(const loopir::Instr& instr) const;
    // Any instruction but the sources; `operand` is the type of the first argument (of select: of the second).
    std::string emit(const loopir::Instr& instr, DType operand, const Operands& args);

    // What memory holds and what is computed with.
    std::string widened(const std::string& element, DType memory) const;
    std::string narrowed(const std::string& value, DType memory);

private:
    std::string math(loopir::ScalarOp op, DType type, const Operands& args);
    std::string float_arithmetic(loopir::ScalarOp op, const Operands& args);
    std::string integer_arithmetic(loopir::ScalarOp op, DType type, const Operands& args);
    std::string shift(bool left, DType type, const Operands& args) const;
    std::string bool_arithmetic(loopir::ScalarOp op, const Operands& args) const;
    std::string cast(const std::string& value, DType from, DType to);
    std::string to_bits16(const std::string& value, DType memory);
    std::string from_bits16(const std::string& bits, DType memory) const;
    std::string type(DType type) const { return dialect_.type(type); }

    const Dialect& dialect_;
    Helpers& helpers_;
};

}  // namespace topstitch::codegen
