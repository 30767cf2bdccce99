// Attributes against their schema: order, fallbacks, harmless conversions, and errors that help.
// Also their equality, which printing, hashing and sharing of subexpressions rely on.
#include <bit>
#include <cstring>

#include "graph/apply.h"
#include "graph/function.h"
#include "graph/suggest.h"

namespace topstitch {

namespace {

std::string_view kind_name(AttributeKind kind) {
    switch (kind) {
        case AttributeKind::none:
            return "none";
        case AttributeKind::boolean:
            return "a boolean";
        case AttributeKind::integer:
            return "an integer";
        case AttributeKind::real:
            return "a real number";
        case AttributeKind::string:
            return "a string";
        case AttributeKind::dtype:
            return "a dtype";
        case AttributeKind::integers:
            return "a list of integers";
        case AttributeKind::shape:
            return "a shape";
        case AttributeKind::array:
            return "an array";
        case AttributeKind::function:
            return "a function";
    }
    return "?";
}

std::string describe(const Attribute& value) {
    if (const auto* text = std::get_if<std::string>(&value)) return concat("the string '", text->substr(0, 60), "'");
    if (const auto* number = std::get_if<std::int64_t>(&value)) return concat("the integer ", *number);
    if (const auto* number = std::get_if<double>(&value)) return concat("the real number ", *number);
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    return std::string(kind_name(kind_of(value)));
}

// Conversions that lose nothing; a value that has none comes back as it is.
Attribute convert(const Attribute& value, AttributeKind wanted) {
    if (wanted == AttributeKind::real) {
        if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
    }
    if (wanted == AttributeKind::integers) {
        if (const auto* number = std::get_if<std::int64_t>(&value)) return std::vector<std::int64_t>{*number};
    }
    if (wanted == AttributeKind::dtype) {
        if (const auto* name = std::get_if<std::string>(&value)) {
            if (const auto dtype = dtype_from_name(*name)) return *dtype;
        }
    }
    if (wanted == AttributeKind::shape) {
        if (const auto* number = std::get_if<std::int64_t>(&value)) return convert(std::vector{*number}, wanted);
        if (const auto* sizes = std::get_if<std::vector<std::int64_t>>(&value)) {
            std::vector<Dim> dims;
            for (const std::int64_t size : *sizes) dims.push_back(size == -1 ? Dim::unknown() : Dim(size));
            return Shape(std::move(dims));
        }
    }
    if (const auto* array = std::get_if<NDArray>(&value)) return array->contiguous();
    return value;
}

void check_choice(const OpDef& def, const AttrDef& attr, const std::string& text) {
    const std::vector<std::string_view> choices(attr.choices.begin(), attr.choices.end());
    for (const std::string_view choice : choices) {
        if (choice == text) return;
    }
    throw UserError(concat("[", def.name, "] the attribute '", attr.name, "' got '", text.substr(0, 60),
                           "'; allowed are ", quoted_list(choices), did_you_mean(text, choices)));
}

std::vector<std::string_view> attribute_names(const OpDef& def) {
    std::vector<std::string_view> names;
    for (const AttrDef& attr : def.attributes) names.push_back(attr.name);
    return names;
}

bool same_dims(const Shape& a, const Shape& b) {
    if (a.has_rank() != b.has_rank()) return false;
    if (!a.has_rank()) return true;
    if (a.rank() != b.rank()) return false;
    for (int axis = 0; axis < a.rank(); ++axis) {
        const bool same = a[axis] == b[axis] || (a[axis].is_unknown() && b[axis].is_unknown());
        if (!same) return false;
    }
    return true;
}

bool same_bytes(const NDArray& a, const NDArray& b) {
    if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
    const NDArray packed_a = a.contiguous();
    const NDArray packed_b = b.contiguous();
    return packed_a.bytes() == 0 || std::memcmp(packed_a.data(), packed_b.data(), packed_a.bytes()) == 0;
}

}  // namespace

bool equal(const Attribute& a, const Attribute& b) {
    if (a.index() != b.index()) return false;
    if (const auto* real = std::get_if<double>(&a)) {
        return std::bit_cast<std::uint64_t>(*real) == std::bit_cast<std::uint64_t>(std::get<double>(b));
    }
    if (const auto* shape = std::get_if<Shape>(&a)) return same_dims(*shape, std::get<Shape>(b));
    if (const auto* array = std::get_if<NDArray>(&a)) return same_bytes(*array, std::get<NDArray>(b));
    if (const auto* flag = std::get_if<bool>(&a)) return *flag == std::get<bool>(b);
    if (const auto* integer = std::get_if<std::int64_t>(&a)) return *integer == std::get<std::int64_t>(b);
    if (const auto* text = std::get_if<std::string>(&a)) return *text == std::get<std::string>(b);
    if (const auto* dtype = std::get_if<DType>(&a)) return *dtype == std::get<DType>(b);
    if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&a)) {
        return *integers == std::get<std::vector<std::int64_t>>(b);
    }
    if (const auto* function = std::get_if<FunctionPtr>(&a)) return equal(**function, *std::get<FunctionPtr>(b));
    return true;  // both none
}

bool same_type(const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && same_dims(a.shape, b.shape);
}

std::vector<Attribute> complete_attributes(const OpDef& def, const NamedAttributes& given) {
    std::vector<Attribute> values(def.attributes.size());
    std::vector<bool> seen(def.attributes.size(), false);
    for (const auto& [name, value] : given) {
        const int index = def.attribute_index(name);
        if (index < 0) {
            const auto names = attribute_names(def);
            throw UserError(concat("[", def.name, "] has no attribute '", name, "'; its attributes are ",
                                   quoted_list(names), did_you_mean(name, names)));
        }
        const auto k = static_cast<std::size_t>(index);
        const AttrDef& attr = def.attributes[k];
        if (seen[k])
            throw UserError(concat("[", def.name, "] the attribute '", name, "' is given twice; give it once"));
        seen[k] = true;
        if (kind_of(value) == AttributeKind::none) continue;  // the same as leaving it out
        values[k] = convert(value, attr.kind);
        if (!attr.allows(kind_of(values[k]))) {
            std::string message =
                concat("[", def.name, "] the attribute '", name, "' must be ", kind_name(attr.kind),
                       attr.allows(AttributeKind::string) ? " or a name" : "", ", but got ", describe(value));
            if (attr.kind == AttributeKind::dtype && kind_of(value) == AttributeKind::string) {
                std::vector<std::string_view> names;
                for (const DType dtype : all_dtypes()) names.push_back(name_of(dtype));
                message +=
                    concat("; dtypes are ", quoted_list(names), did_you_mean(std::get<std::string>(value), names));
            }
            throw TypeError(message);
        }
        const auto* text = std::get_if<std::string>(&values[k]);
        if (text != nullptr && !attr.choices.empty()) { check_choice(def, attr, *text); }
    }
    for (std::size_t k = 0; k < values.size(); ++k) {
        const AttrDef& attr = def.attributes[k];
        if (kind_of(values[k]) != AttributeKind::none) continue;
        if (attr.required) {
            throw UserError(concat("[", def.name, "] needs the attribute '", attr.name, "' (", kind_name(attr.kind),
                                   ": ", attr.doc, ")"));
        }
        values[k] = convert(attr.fallback, attr.kind);
    }
    return values;
}

}  // namespace topstitch
