// The costs of scalar instructions, roughly those of their expansions.
// See instr_cost.h.
#include "loopir/instr_cost.h"

namespace topstitch::loopir {

double cost_of(const Instr& instr) {
    switch (instr.op) {
        case ScalarOp::constant:
        case ScalarOp::index_value:
        case ScalarOp::load:
        case ScalarOp::acc_read:
            return 0;
        case ScalarOp::div:
        case ScalarOp::rem:
        case ScalarOp::sqrt:
            return 4;
        case ScalarOp::pow:
        case ScalarOp::atan2:
            return 40;
        default:
            return info(instr.op).is_math ? 16 : 1;
    }
}

}  // namespace topstitch::loopir
