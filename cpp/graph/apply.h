// Creates operations: checks arguments and attributes against the OpDef, infers types, appends.
// Every builder, binding, parser and pass goes through apply().
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "graph/graph_data.h"
#include "graph/op_def.h"

namespace topstitch {

// Outputs of the new operation (none for `assign`). Arrays in attributes are not copied: they must not change later.
// With inputs from the body of a loop or branch that is being described, the operation is added to that body.
// UserError/TypeError naming the operation when something does not fit.
TOPSTITCH_API std::vector<Tensor> apply(const std::shared_ptr<GraphData>& graph, const OpDef& def,
                                        const std::vector<Tensor>& inputs, const NamedAttributes& attributes = {},
                                        const std::string& name = "");

// The same, giving the operation itself: also for those without outputs.
Operation apply_operation(const std::shared_ptr<GraphData>& graph, const OpDef& def, const std::vector<Tensor>& inputs,
                          const NamedAttributes& attributes = {}, const std::string& name = "");

// The graph is that of the inputs (all of one graph).
Tensor apply(std::string_view op, const std::vector<Tensor>& inputs, const NamedAttributes& attributes = {},
             const std::string& name = "");

// UserError unless `def` takes `count` inputs.
void check_input_count(const OpDef& def, std::size_t count);

// What set_current_location() sets, for the length of a block.
class ScopedLocation {
public:
    explicit ScopedLocation(SourceLocation location);
    ~ScopedLocation();
    ScopedLocation(const ScopedLocation&) = delete;
    ScopedLocation& operator=(const ScopedLocation&) = delete;

private:
    SourceLocation previous_;
};

// Attributes in schema order with fallbacks filled in; UserError for unknown, missing or ill-typed ones.
std::vector<Attribute> complete_attributes(const OpDef& def, const NamedAttributes& given);

// The types that `def` infers; shared by apply, the verifier, the parser and specialisation.
std::vector<TensorType> infer_types(const OpDef& def, std::span<const TensorType> inputs,
                                    std::span<const Attribute> attributes, const SourceLocation* location = nullptr);

// Equal dtype and structurally equal shape, where an unknown dim does equal an unknown one (for comparing
// declarations; two unknown dims may still be different numbers).
bool same_type(const TensorType& a, const TensorType& b);

// The expansion of a composite into `inputs`' graph (`graph`, for a composite without inputs). InternalError when it
// does not have the types that `def` infers.
std::vector<Tensor> expand_composite(const std::shared_ptr<GraphData>& graph, const OpDef& def,
                                     const std::vector<Tensor>& inputs, std::span<const Attribute> attributes);

// How dims that are not structurally equal are to be treated while inferring on this thread. By default
// (building) anything that may be equal is accepted. During specialisation every dim has a value to compare, and
// an equality that had to be assumed is recorded.
class DimAssumptions {
public:
    virtual ~DimAssumptions() = default;
    // The present value of a symbolic dim.
    virtual std::int64_t hint(const Dim& dim) = 0;
    virtual void assume_equal(const Dim& a, const Dim& b) = 0;
};
// Installs `assumptions` for this thread while alive (null: back to building).
class ScopedDimAssumptions {
public:
    explicit ScopedDimAssumptions(DimAssumptions* assumptions);
    ~ScopedDimAssumptions();
    ScopedDimAssumptions(const ScopedDimAssumptions&) = delete;
    ScopedDimAssumptions& operator=(const ScopedDimAssumptions&) = delete;

private:
    DimAssumptions* previous_;
};

// True when the two may be the same number; during specialisation decided, and recorded when assumed.
bool dims_agree(const Dim& a, const Dim& b);
// The more precise of two dims that agree.
Dim unify_dims(const Dim& a, const Dim& b);
// NumPy's broadcasting of two dims or shapes; false/UserError via `op` when impossible.
bool broadcast_dims(const Dim& a, const Dim& b, Dim& result);
Shape broadcast_shapes(const OpView& op, const Shape& a, const Shape& b);
// True when `dim` is certain to be 1 (during specialisation: is 1 now, recorded).
bool dim_is_one(const Dim& dim);

}  // namespace topstitch
