// Graphs as text: one line for each operation, in creation order, that parse.cpp reads back.
// The form, by an example (more in parse.cpp):
//     topstitch graph 1
//     %0 = placeholder(shape=(?, 784), dtype=float32) "x" : float32(?, 784)
//     %1 = sum(%0, axes=[-1], keepdims=false) : float32(?,)
//     %2 = assign(%v, %1) after %0, %1  # model.py:12
//
// A tensor is named by its operation's number (%4), and its position when there are several (%4.1). The types after
// the colon are for readers; parsing infers them again. `none` attributes are left out. In a saved file, arrays lie
// beside the text: `%v = variable(value=float32(784, 10)external"w") "w"`. A function is a list of operations in
// braces, with numbers of its own:
//     %4 = scan(%1, %2, body=function(%0, %1, %2) {
//     %0 = placeholder(shape=(), dtype=int32) : int32()
//     ...
//     } returns(%3, %4), carried=1)
#include <bit>
#include <cstring>

#include "graph/function.h"
#include "graph/op_def.h"
#include "graph/text.h"

namespace topstitch {

namespace {

static_assert(std::endian::native == std::endian::little, "arrays are written in the byte order of the machine");

constexpr const char* first_line = "topstitch graph 1\n";

template <typename T>
T element_at(const NDArray& array, std::int64_t k) {
    T value;
    std::memcpy(&value, static_cast<const char*>(array.data()) + static_cast<std::size_t>(k) * sizeof(T), sizeof(T));
    return value;
}

bool is_usual_nan16(std::uint16_t bits, DType dtype) {
    const float value = dtype == DType::float16 ? half_to_float(bits) : bfloat_to_float(bits);
    if (value == value) return true;
    const std::uint16_t back = dtype == DType::float16 ? float_to_half(value) : float_to_bfloat(value);
    return back == bits && real_text(value) == "nan";
}

std::string element_text(const NDArray& array, std::int64_t k) {
    switch (array.dtype()) {
        case DType::boolean:
            return element_at<std::uint8_t>(array, k) != 0 ? "true" : "false";
        case DType::int8:
            return std::to_string(element_at<std::int8_t>(array, k));
        case DType::int16:
            return std::to_string(element_at<std::int16_t>(array, k));
        case DType::int32:
            return std::to_string(element_at<std::int32_t>(array, k));
        case DType::int64:
            return std::to_string(element_at<std::int64_t>(array, k));
        case DType::uint8:
            return std::to_string(element_at<std::uint8_t>(array, k));
        case DType::uint16:
            return std::to_string(element_at<std::uint16_t>(array, k));
        case DType::uint32:
            return std::to_string(element_at<std::uint32_t>(array, k));
        case DType::uint64:
            return std::to_string(element_at<std::uint64_t>(array, k));
        case DType::float16:
            return real_text(half_to_float(element_at<std::uint16_t>(array, k)));
        case DType::bfloat16:
            return real_text(bfloat_to_float(element_at<std::uint16_t>(array, k)));
        case DType::float32:
            return real_text(element_at<float>(array, k));
        case DType::float64:
            return real_text(element_at<double>(array, k));
        case DType::complex64:
            return concat("(", real_text(element_at<float>(array, 2 * k)), ", ",
                          real_text(element_at<float>(array, 2 * k + 1)), ")");
    }
    return "";
}

// Whether a list of elements says all; NaNs of 16 bits with a payload, and bools other than 0 and 1, need their bytes.
bool can_list(const NDArray& array) {
    if (array.size() > most_listed) return false;
    for (std::int64_t k = 0; k < array.size(); ++k) {
        if (is_half(array.dtype()) && !is_usual_nan16(element_at<std::uint16_t>(array, k), array.dtype())) return false;
        if (array.dtype() == DType::boolean && element_at<std::uint8_t>(array, k) > 1) return false;
    }
    return true;
}

std::string array_text(const NDArray& given) {
    const NDArray array = given.contiguous();
    std::string text = concat(name_of(array.dtype()), sizes_str(array.shape()));
    if (!can_list(array)) return text + "base64\"" + base64_encode(array.data(), array.bytes()) + "\"";
    text += "[";
    for (std::int64_t k = 0; k < array.size(); ++k) text += (k > 0 ? ", " : "") + element_text(array, k);
    return text + "]";
}

std::string integers_text(const std::vector<std::int64_t>& values) {
    std::string text = "[";
    for (std::size_t k = 0; k < values.size(); ++k) text += (k > 0 ? ", " : "") + std::to_string(values[k]);
    return text + "]";
}

std::string reference_text(const GraphData& graph, TensorRef ref) {
    std::string text = "%" + std::to_string(ref.op);
    if (graph.find(ref.op).outputs.size() > 1) text += "." + std::to_string(ref.output);
    return text;
}

}  // namespace

std::string attribute_text(const Attribute& value) {
    switch (kind_of(value)) {
        case AttributeKind::none:
            return "none";
        case AttributeKind::boolean:
            return std::get<bool>(value) ? "true" : "false";
        case AttributeKind::integer:
            return std::to_string(std::get<std::int64_t>(value));
        case AttributeKind::real:
            return real_text(std::get<double>(value));
        case AttributeKind::string:
            return quoted(std::get<std::string>(value));
        case AttributeKind::dtype:
            return std::string(name_of(std::get<DType>(value)));
        case AttributeKind::integers:
            return integers_text(std::get<std::vector<std::int64_t>>(value));
        case AttributeKind::shape:
            return std::get<Shape>(value).str();
        case AttributeKind::array:
            return array_text(std::get<NDArray>(value));
        case AttributeKind::function:
            break;
    }
    return "";
}

namespace {

std::string references_text(const GraphData& graph, const std::vector<TensorRef>& refs) {
    std::string text = "(";
    for (std::size_t k = 0; k < refs.size(); ++k) text += (k > 0 ? ", " : "") + reference_text(graph, refs[k]);
    return text + ")";
}

std::string function_text(const Function& function, bool with_location, const StoreArray& store) {
    const GraphData& graph = *function.graph;
    std::string text = concat(function_keyword, references_text(graph, function.parameters), " {\n");
    for (std::size_t id = 0; id < graph.size(); ++id)
        text += operation_text(graph, static_cast<OpId>(id), with_location, store) + "\n";
    return text + "} returns" + references_text(graph, function.results);
}

}  // namespace

std::string operation_text(const GraphData& graph, OpId id, bool with_location, const StoreArray& store) {
    const OpNode& node = graph.find(id);
    std::string text = concat("%", id, " = ", node.def->name, "(");
    const char* separator = "";
    for (const TensorRef ref : node.inputs) {
        text += separator + reference_text(graph, ref);
        separator = ", ";
    }
    for (std::size_t k = 0; k < node.attributes.size(); ++k) {
        if (kind_of(node.attributes[k]) == AttributeKind::none) continue;
        const auto* array = std::get_if<NDArray>(&node.attributes[k]);
        const auto* function = std::get_if<FunctionPtr>(&node.attributes[k]);
        // Only the value of a constant or variable, its first attribute, is kept elsewhere.
        const auto stored = array != nullptr && store && k == 0 ? store(node, id, *array) : std::nullopt;
        text += concat(separator, node.def->attributes[k].name, "=");
        if (stored) {
            text += concat(name_of(array->dtype()), sizes_str(array->shape()), "external", quoted(*stored));
        } else if (function != nullptr) {
            text += function_text(**function, with_location, store);
        } else {
            text += attribute_text(node.attributes[k]);
        }
        separator = ", ";
    }
    text += ")";
    if (!node.name.empty()) text += " " + quoted(node.name);
    for (std::size_t k = 0; k < node.control.size(); ++k) text += concat(k == 0 ? " after %" : ", %", node.control[k]);
    for (std::size_t k = 0; k < node.outputs.size(); ++k) text += (k == 0 ? " : " : ", ") + node.outputs[k].str();
    if (with_location && node.location.known()) {
        const std::string place = quoted(node.location.str());  // in one line, whatever the file is called
        text += "  # " + place.substr(1, place.size() - 2);
    }
    return text;
}

std::string graph_text(const GraphData& graph, const std::vector<OpId>& operations, const StoreArray& store) {
    std::string text = first_line;
    for (const OpId id : operations) text += operation_text(graph, id, false, store) + "\n";
    return text;
}

std::string graph_text(const GraphData& graph, bool with_locations) {
    std::string text = first_line;
    const std::size_t count = graph.size();
    for (std::size_t id = 0; id < count; ++id) {
        text += operation_text(graph, static_cast<OpId>(id), with_locations) + "\n";
    }
    return text;
}

std::string Operation::str() const {
    if (!graph_) return "Operation()";
    op();  // checks the handle
    return operation_text(*graph_, id_, false);
}

std::string Graph::str() const {
    return graph_text(*data_, false);
}

}  // namespace topstitch
