// What the rules of operations see: typed access to attributes, errors that name the user's line, and
// the helpers of element bodies.
#include "graph/op_def.h"

#include "graph/apply.h"

namespace topstitch {

namespace {

// A rule asked for an attribute that its own OpDef does not declare in that kind: our mistake.
[[noreturn]] void wrong_access(const OpDef& def, std::string_view attribute, const char* kind) {
    throw InternalError(concat("[", def.name, "] its rules use the attribute '", attribute, "' as ", kind,
                               ", but the declaration has no such attribute or it was not given"));
}

template <typename T>
const T& get_attribute(const OpView& view, std::string_view name, const char* kind) {
    const T* value = std::get_if<T>(&view.attribute(name));
    if (value == nullptr) wrong_access(view.def(), name, kind);
    return *value;
}

}  // namespace

int OpDef::attribute_index(std::string_view attribute) const {
    for (std::size_t i = 0; i < attributes.size(); ++i) {
        if (attributes[i].name == attribute) return static_cast<int>(i);
    }
    return -1;
}

const Attribute& OpView::attribute(std::string_view name) const {
    const int index = def_->attribute_index(name);
    if (index < 0) wrong_access(*def_, name, "any kind");
    return attributes_[static_cast<std::size_t>(index)];
}

bool OpView::has(std::string_view name) const {
    return kind_of(attribute(name)) != AttributeKind::none;
}

bool OpView::flag(std::string_view name) const {
    return get_attribute<bool>(*this, name, "a boolean");
}

std::int64_t OpView::integer(std::string_view name) const {
    return get_attribute<std::int64_t>(*this, name, "an integer");
}

double OpView::real(std::string_view name) const {
    return get_attribute<double>(*this, name, "a real");
}

const std::string& OpView::string(std::string_view name) const {
    return get_attribute<std::string>(*this, name, "a string");
}

DType OpView::dtype(std::string_view name) const {
    return get_attribute<DType>(*this, name, "a dtype");
}

const std::vector<std::int64_t>& OpView::integers(std::string_view name) const {
    return get_attribute<std::vector<std::int64_t>>(*this, name, "integers");
}

const Shape& OpView::shape(std::string_view name) const {
    return get_attribute<Shape>(*this, name, "a shape");
}

const NDArray& OpView::array(std::string_view name) const {
    return get_attribute<NDArray>(*this, name, "an array");
}

const Function& OpView::function(std::string_view name) const {
    return *get_attribute<FunctionPtr>(*this, name, "a function");
}

std::string OpView::decorate(const std::string& message) const {
    std::string text = concat("[", def_->name, "] ", message);
    if (location_ != nullptr && location_->known()) text += concat(" (created at ", location_->str(), ")");
    return text;
}

void OpView::fail(const std::string& message) const {
    throw UserError(decorate(message));
}

void OpView::fail_type(const std::string& message) const {
    throw TypeError(decorate(message));
}

Value ElementContext::broadcast_operand(int k, const Indices& at) {
    return operand(k, broadcast_index(op.in_shape(k), op.out_shape(), at));
}

Value ElementContext::constant(double value, DType dtype) {
    const DType type = compute_type(dtype);
    Value result{b.constant(value, type)};
    if (is_complex(dtype)) result.im = b.constant(0.0, type);
    return result;
}

Value ElementContext::constant_int(std::int64_t value, DType dtype) {
    if (!is_integer(dtype) && dtype != DType::boolean) return constant(static_cast<double>(value), dtype);
    return Value{b.constant_int(value, dtype)};
}

Value ElementContext::select(loopir::ValueId predicate, const Value& a, const Value& b_) {
    Value result{b.select(predicate, a.re, b_.re)};
    if (a.is_complex()) result.im = b.select(predicate, a.im, b_.im);
    return result;
}

Indices broadcast_index(const Shape& operand, const Shape& result, const Indices& at) {
    const int missing = result.rank() - operand.rank();
    Indices index;
    index.reserve(static_cast<std::size_t>(operand.rank()));
    for (int axis = 0; axis < operand.rank(); ++axis) {
        const Index& along = at[static_cast<std::size_t>(axis + missing)];
        index.push_back(dim_is_one(operand[axis]) ? Index(0) : along);
    }
    return index;
}

}  // namespace topstitch
