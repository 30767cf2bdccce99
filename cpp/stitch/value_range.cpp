// Interval arithmetic over the bodies of operations, from the dtypes that numbers come from.
// See value_range.h.
#include "stitch/value_range.h"

#include <algorithm>
#include <limits>
#include <map>

#include "ops/element_lowering.h"
#include "stitch/access.h"

namespace topstitch::stitch {

namespace {

using loopir::Instr;
using loopir::ScalarOp;
using loopir::ValueId;

constexpr int max_depth = 8;  // operations between a tensor and where its numbers come from
constexpr std::int64_t max_constant = std::int64_t{1} << 20;  // elements of a constant that are looked at

// Of 64-bit types the half that interval arithmetic on 32-bit numbers cannot leave; what is wider is of no use.
ValueRange all_of(DType type) {
    switch (type) {
        case DType::boolean:
            return {0, 1};
        case DType::int8:
            return {-128, 127};
        case DType::uint8:
            return {0, 255};
        case DType::int16:
            return {-32768, 32767};
        case DType::uint16:
            return {0, 65535};
        case DType::int32:
            return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
        case DType::uint32:
            return {0, std::numeric_limits<std::uint32_t>::max()};
        default:
            return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    }
}

ValueRange united(const ValueRange& a, const ValueRange& b) {
    return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

class RangeFinder {
public:
    explicit RangeFinder(const GraphData& graph) : graph_(graph) {}

    ValueRange of(TensorRef ref, int depth = 0) {
        const auto known = found_.find(ref);
        if (known != found_.end()) return known->second;
        return found_[ref] = find(ref, depth);
    }

private:
    ValueRange find(TensorRef ref, int depth) {
        const DType dtype = graph_.type(ref).dtype;
        const OpNode& node = graph_.op(ref.op);
        if (size_of(dtype) > 4 || is_floating(dtype)) return all_of(dtype);
        if (node.def->name == "constant") return of_constant(std::get<NDArray>(node.attributes[0]));
        const auto* body = std::get_if<ElementBody>(&node.def->body);
        return body == nullptr || depth == max_depth ? all_of(dtype) : of_element(node, *body, dtype, depth);
    }

    static ValueRange of_constant(const NDArray& array) {
        const DType dtype = array.dtype();
        if (array.size() == 0 || array.size() > max_constant) return all_of(dtype);
        const NDArray packed = array.contiguous();
        ValueRange range{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
        for (std::int64_t k = 0; k < packed.size(); ++k) {
            const auto value = static_cast<std::int64_t>(packed.at(k));
            range = united(range, {value, value});
        }
        return range;
    }

    ValueRange of_element(const OpNode& node, const ElementBody& body, DType dtype, int depth) {
        const NodeView view(graph_, node);
        loopir::Builder b;
        Indices at;
        for (const Dim& extent : node.outputs[0].shape.dims()) at.push_back(b.begin_loop("v", extent));
        std::vector<ValueRange> inputs;
        FunctionContext context(b, view.view, [&](int k, const Indices& from, ValueId guard) {
            const auto input = static_cast<std::size_t>(k);
            const TensorType& type = view.inputs[input];
            const int buffer = b.add_buffer(buffer_param("", type.dtype, type.shape, loopir::BufferParam::Role::input));
            inputs.resize(static_cast<std::size_t>(buffer) + 1, all_of(DType::int64));
            inputs[static_cast<std::size_t>(buffer)] = of(node.inputs[input], depth + 1);
            return load_element(b, buffer, type.dtype, row_major_offset(type.shape, from), guard);
        });
        const ValueId result = body.element(context, at).re;
        std::vector<ValueRange> ranges;
        for (const Instr& instr : b.kernel().instrs) ranges.push_back(of_instr(instr, b.kernel(), ranges, inputs));
        const ValueRange found = ranges[static_cast<std::size_t>(result)];
        return found.fits(dtype) ? found : all_of(dtype);
    }

    // Operands come before what is made of them. Numbers that may wrap may be anything.
    static ValueRange of_instr(const Instr& instr, const loopir::Kernel& kernel, const std::vector<ValueRange>& ranges,
                               const std::vector<ValueRange>& inputs) {
        const ValueRange all = all_of(instr.type);
        if (!is_integer(instr.type) || size_of(instr.type) > 4) return all;
        const auto arg = [&](int k) { return ranges[static_cast<std::size_t>(instr.args[k])]; };
        const auto type_of = [&](int k) { return kernel.instrs[static_cast<std::size_t>(instr.args[k])].type; };
        ValueRange range = all;
        switch (instr.op) {
            case ScalarOp::constant:
                range = {instr.integer, instr.integer};
                break;
            case ScalarOp::load:
                range = inputs[static_cast<std::size_t>(instr.slot)];
                if (instr.args[0] != loopir::no_value) range = united(range, {0, 0});
                break;
            case ScalarOp::cast:
                if (!is_floating(type_of(0)) && size_of(type_of(0)) <= 4) range = arg(0);
                break;
            case ScalarOp::select:
                range = united(arg(1), arg(2));
                break;
            case ScalarOp::add:
                range = {arg(0).low + arg(1).low, arg(0).high + arg(1).high};
                break;
            case ScalarOp::sub:
                range = {arg(0).low - arg(1).high, arg(0).high - arg(1).low};
                break;
            case ScalarOp::neg:
                range = {-arg(0).high, -arg(0).low};
                break;
            case ScalarOp::min:
                range = {std::min(arg(0).low, arg(1).low), std::min(arg(0).high, arg(1).high)};
                break;
            case ScalarOp::max:
                range = {std::max(arg(0).low, arg(1).low), std::max(arg(0).high, arg(1).high)};
                break;
            default:
                break;
        }
        return all.contains(range) ? range : all;
    }

    const GraphData& graph_;
    std::map<TensorRef, ValueRange> found_;
};

}  // namespace

bool ValueRange::fits(DType type) const {
    return all_of(type).contains(*this);
}

ValueRange value_range(const GraphData& graph, TensorRef ref) {
    return RangeFinder(graph).of(ref);
}

}  // namespace topstitch::stitch
