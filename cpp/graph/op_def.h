// OpDef: the one declaration of an operation, from which builders, bindings, docs, stubs, hashing and tests derive.
// The registry lists them explicitly (ops/registry.cpp).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loopir/builder.h"
#include "topstitch/graph.h"

namespace topstitch {

using loopir::Combiner;
using loopir::Index;
using Indices = std::vector<Index>;  // one for each axis

struct ArgDef {
    std::string name;
    std::string doc;
    bool variadic = false;  // takes all remaining inputs (at least one); the last argument only
    bool optional = false;  // trailing; may be left out
};

struct AttrDef {
    std::string name;
    AttributeKind kind = AttributeKind::none;
    std::string doc;
    bool required = true;
    Attribute fallback;  // when not required; monostate: "none"
    // For strings; for integers, the names of rules that may stand for them ("same").
    std::vector<std::string> choices;

    bool allows(AttributeKind given) const {
        return given == kind || (given == AttributeKind::string && kind == AttributeKind::integers && !choices.empty());
    }
};

// One operation's facts, as its rules see them.
class OpView {
public:
    OpView(const OpDef& def, std::span<const TensorType> inputs, std::span<const TensorType> outputs,
           std::span<const Attribute> attributes, const SourceLocation* location = nullptr)
        : def_(&def), inputs_(inputs), outputs_(outputs), attributes_(attributes), location_(location) {}

    const OpDef& def() const { return *def_; }
    int num_inputs() const { return static_cast<int>(inputs_.size()); }
    const TensorType& input(int k) const { return inputs_[static_cast<std::size_t>(k)]; }
    const TensorType& output(int k = 0) const { return outputs_[static_cast<std::size_t>(k)]; }
    const Shape& in_shape(int k) const { return input(k).shape; }
    const Shape& out_shape() const { return output().shape; }

    const Attribute& attribute(std::string_view name) const;
    bool has(std::string_view name) const;  // given, not "none"
    bool flag(std::string_view name) const;
    std::int64_t integer(std::string_view name) const;
    double real(std::string_view name) const;
    const std::string& string(std::string_view name) const;
    DType dtype(std::string_view name) const;
    const std::vector<std::int64_t>& integers(std::string_view name) const;
    const Shape& shape(std::string_view name) const;
    const NDArray& array(std::string_view name) const;
    const Function& function(std::string_view name) const;

    // Throws UserError (or TypeError): "[op] message", with the user's file and line.
    [[noreturn]] void fail(const std::string& message) const;
    [[noreturn]] void fail_type(const std::string& message) const;

private:
    std::string decorate(const std::string& message) const;
    const OpDef* def_;
    std::span<const TensorType> inputs_;
    std::span<const TensorType> outputs_;
    std::span<const Attribute> attributes_;
    const SourceLocation* location_;
};

// A scalar of the loop IR, or a complex one (two float32 values).
struct Value {
    loopir::ValueId re = loopir::no_value;
    loopir::ValueId im = loopir::no_value;
    bool is_complex() const { return im != loopir::no_value; }
};

// What the body of an operation uses to say what one element of its output is.
class ElementContext {
public:
    ElementContext(loopir::Builder& builder, const OpView& view) : b(builder), op(view) {}
    virtual ~ElementContext() = default;

    loopir::Builder& b;
    const OpView& op;

    // Input `k` at an index with one entry for each of its axes. 16-bit floats arrive as float32.
    virtual Value operand(int k, const Indices& at) = 0;
    // Evaluates `inner` so that its loads happen only where `predicate` holds (elsewhere they give 0), and
    // selects `otherwise` where it does not.
    virtual Value guarded(loopir::ValueId predicate, const std::function<Value()>& inner, const Value& otherwise) = 0;

    // Input `k` at output index `at` under NumPy's broadcasting.
    Value broadcast_operand(int k, const Indices& at);
    Value constant(double value, DType dtype);  // of compute_type(dtype); complex gets a zero imaginary part
    Value constant_int(std::int64_t value, DType dtype);
    Value select(loopir::ValueId predicate, const Value& a, const Value& b);
};

// The index of input dims `operand` for output index `at` under NumPy's broadcasting to `result`.
Indices broadcast_index(const Shape& operand, const Shape& result, const Indices& at);

// "Output[at] is ..."
struct ElementBody {
    std::function<Value(ElementContext&, const Indices& at)> element;
};

// "Output[at] is the combination, over a reduce domain, of ..."
struct ReduceBody {
    std::function<Combiner(const OpView&)> combiner;
    std::function<std::vector<Dim>(const OpView&)> domain;
    // The value combined at (at, reduce); for argmin/argmax its position is the index into the domain's only dim.
    std::function<Value(ElementContext&, const Indices& at, const Indices& reduce)> element;
    // Of a contraction, a sum of products whose factors depend on different axes of the output, so that each is used
    // many times: the two factors. `element` is their product.
    using Factor = std::function<Value(ElementContext&, const Indices& at, const Indices& reduce)>;
    std::vector<Factor> factors;
    // Where it is false there is no product, whatever the factors are (`element` is zero there); no_value: everywhere.
    std::function<loopir::ValueId(ElementContext&, const Indices& at, const Indices& reduce)> exists;
    // When factor 0 slides a window over its operand: what `positions` gives is all that it makes of the variables in
    // there, so that iterations with equal positions share what is read. factors[0] is `element` at those positions.
    // They run along the last axes of input 0, outside of which `element` is zero.
    struct Window {
        std::function<Indices(const OpView&, const Indices& at, const Indices& reduce)> positions;
        std::function<Value(ElementContext&, const Indices& at, const Indices& reduce, const Indices& positions)>
            element;
    };
    std::optional<Window> window;
};

// "Output[at] is the combination of all elements along an axis up to and including position `at`"
struct CumulativeBody {
    std::function<Combiner(const OpView&)> combiner;
    std::function<int(const OpView&)> axis;
    std::function<bool(const OpView&)> reverse;  // from the end of the axis to its beginning
    // What joins at `at`; for argmin and argmax the output is its position along the axis.
    std::function<Value(ElementContext&, const Indices& at)> element;
};

// "Along an axis, the output is the first of the elements in sorted order, or where they were"
// Equal elements stay in their order. NaN counts as larger than any number; zeros of both signs are equal.
struct SortBody {
    std::function<int(const OpView&)> axis;
    std::function<bool(const OpView&)> descending;
    bool positions = false;                                            // the output is the place of each in the input
    std::function<Value(ElementContext&, const Indices& at)> element;  // what is sorted; its dtype is that of input 0
};

// "The output is a base, with which each of many updates is combined in turn, at the element that the update names"
struct ScatterBody {
    struct Place {
        Indices at;                                // in the output
        loopir::ValueId valid = loopir::no_value;  // where false the update goes nowhere; no_value: always true
    };
    // The updates, in row-major order; `update` below has one entry for each of these dims.
    std::function<std::vector<Dim>(const OpView&)> domain;
    std::function<Value(ElementContext&, const Indices& at)> base;
    std::function<Place(ElementContext&, const Indices& update)> place;
    std::function<Value(ElementContext&, const Indices& update)> update;
    // What becomes of an element, `before`, when it meets an update.
    std::function<Value(ElementContext&, const Value& before, const Value& update)> combine;
    // Whether the updates to one element may be joined first, without any change to the result: by this combiner, and
    // then meet it as one update; argmax: the last of them is all that matters. Nothing: one after the other.
    std::function<std::optional<loopir::Combiner>(const OpView&)> joined;
};

// A small graph over other operations, built with the shapes at hand (at compile time all dims are
// numbers or symbols).
class CompositeContext {
public:
    CompositeContext(std::vector<Tensor> inputs, const OpView& view) : op(view), inputs_(std::move(inputs)) {}
    const OpView& op;
    std::shared_ptr<GraphData> graph;  // for expansions without inputs
    const Tensor& input(int k) const { return inputs_[static_cast<std::size_t>(k)]; }
    bool has_input(int k) const { return k < static_cast<int>(inputs_.size()); }
    const std::vector<Tensor>& inputs() const { return inputs_; }

private:
    std::vector<Tensor> inputs_;
};
// Operations that keep their identity until lowering, because the stitcher has kernels of its own for them
// (stitch/lower_attention.cpp). Their expansion says the same in other operations: for evaluate(), for programs that
// are not stitched, and for derivatives of derivatives.
enum class Library : std::uint8_t { none, attention, attention_query_gradient, attention_key_value_gradient };

struct CompositeBody {
    std::function<std::vector<Tensor>(CompositeContext&)> expand;
    Library library = Library::none;
};

// What the compiler itself knows: placeholder, constant, variable, read, assign.
struct BuiltinBody {};

// Loops and branches: the runtime performs the functions among their attributes.
struct ControlBody {};

class GradientContext {
public:
    GradientContext(std::vector<Tensor> inputs, std::vector<Tensor> outputs, std::vector<Tensor> gradients,
                    std::vector<bool> needed, const OpView& view)
        : op(view),
          inputs_(std::move(inputs)),
          outputs_(std::move(outputs)),
          gradients_(std::move(gradients)),
          needed_(std::move(needed)) {}
    const OpView& op;
    const Tensor& input(int k = 0) const { return inputs_[static_cast<std::size_t>(k)]; }
    const Tensor& output(int k = 0) const { return outputs_[static_cast<std::size_t>(k)]; }
    const std::vector<Tensor>& inputs() const { return inputs_; }
    // The gradient of the objective with respect to output `k`; empty when none flows.
    const Tensor& grad(int k = 0) const { return gradients_[static_cast<std::size_t>(k)]; }
    bool needs(int k) const { return needed_[static_cast<std::size_t>(k)]; }

    // For rules that differentiate a function: the gradients of sum(outputs[k] * seeds[k]) over all k with respect to
    // `tensors`, all in one graph; an empty tensor where there is no dependence.
    using Differentiate = std::function<std::vector<Tensor>(
        const std::vector<Tensor>& outputs, const std::vector<Tensor>& seeds, const std::vector<Tensor>& tensors)>;
    Differentiate differentiate;

private:
    std::vector<Tensor> inputs_, outputs_, gradients_;
    std::vector<bool> needed_;
};

// One tensor for each input; an empty one says that no gradient flows there (an index, a predicate, or not needed).
using GradientRule = std::function<std::vector<Tensor>(GradientContext&)>;
struct NotDifferentiable {
    std::string reason;
};  // "... because <reason>"
struct FromExpansion {};        // composites: differentiate the expansion
struct ConstantInGradients {};  // nothing before it is on a path of gradients
// No default on purpose: every operation states one.
using Gradient = std::variant<GradientRule, NotDifferentiable, FromExpansion, ConstantInGradients>;

struct OpDef {
    std::string name;
    std::string family;  // "elementwise", "reduction", "movement", ...: a page of the reference
    std::string doc;     // one paragraph; formulas with their source
    std::vector<ArgDef> args;
    std::vector<AttrDef> attributes;
    std::vector<std::string> results;  // names of the outputs
    bool many_results = false;         // their number depends on an attribute; results[0] names them all
    // Types of the outputs. Accepts unknown dims and unknown rank; the inputs' count and the attributes'
    // kinds are already checked.
    std::function<std::vector<TensorType>(const OpView&)> infer;
    std::variant<ElementBody, ReduceBody, CumulativeBody, SortBody, ScatterBody, CompositeBody, BuiltinBody,
                 ControlBody>
        body;
    Gradient gradient;
    // Of operations that draw random numbers: whether they do, with these attributes. Their last, optional input is the
    // state to draw from; apply() gives one of the graph's own when it is left out (random_state.h).
    std::function<bool(const OpView&)> draws;
    bool commutative = false;
    bool internal = false;              // serves rules and composites; users get no builder
    bool view = false;                  // moves elements without computing: free to repeat
    std::vector<std::string> mpsgraph;  // the counterparts' names
    std::string onnx;

    TOPSTITCH_API int attribute_index(std::string_view attribute) const;  // -1 when there is none
};

// All operations; defined in ops/registry.cpp as an explicit list of families.
TOPSTITCH_API const std::vector<OpDef>& all_ops();
TOPSTITCH_API const OpDef* find_op(std::string_view name);  // null when there is none

}  // namespace topstitch
