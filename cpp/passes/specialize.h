// From a user's graph and the types of its feeds to a Program: only what the targets need, every dim
// decided, reads and assignments of variables resolved into values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/function.h"
#include "passes/program.h"

namespace topstitch {

// The distance from one position of an array to the next along an axis.
struct AxisStep {
    Dim elements;       // a number or a symbol
    int past = -1;      // or: it leads just past all positions along this axis
    bool back = false;  // towards lower addresses
};

struct FeedType {
    TensorRef placeholder;  // in the user's graph
    DType dtype = DType::float32;
    Shape shape;  // numbers and symbols; symbols are listed in `hints`
    // What the caller promised beyond the placeholder's own shape: its names count as the placeholder's do.
    Shape declared = Shape::unranked();
    // How it lies in memory, when not packed: the program's feed is then the line of memory, and a view of it stands
    // for the tensor.
    std::vector<AxisStep> steps = {};
};

// An array that is given for a result.
struct ResultType {
    DType dtype = DType::float32;
    Sizes shape;
    std::vector<AxisStep> steps;  // empty: packed
};

struct SpecializeRequest {
    const GraphData* graph = nullptr;
    std::vector<FeedType> feeds;
    std::vector<TensorRef> targets;
    std::vector<OpId> operations;
    std::vector<ResultType> results;                         // by target; empty: all are packed
    std::map<std::string, std::int64_t, std::less<>> hints;  // present values (>= 2) of the symbols
};

// Thrown when a dim cannot be expressed by the symbols: the program has to be specialised for exact sizes.
class NeedsExactSizes : public Error {
public:
    using Error::Error;
};
// Marks everything that targets and operations reach through data and control edges, while the graph's mutex is held.
std::vector<bool> reachable(const GraphData& graph, const std::vector<TensorRef>& targets,
                            const std::vector<OpId>& operations);

// Throws NeedsExactSizes, naming the operation, when some dim of the program is neither a number nor an expression.
void require_decided(const Program& program);

// What to throw when a placeholder is needed and no value or type is given for it.
UserError not_fed(const OpNode& node, OpId id);

// UserError for a placeholder that is needed and not fed, and for shapes that do not fit.
Program specialize(const SpecializeRequest& request);

// A function whose parameters have these types as a program: its feeds are the parameters, in their order. A parameter
// for which `constants` has an array (null: none) is that constant. Equalities of dims are recorded by the assumptions
// that are installed.
Program specialize_function(const Function& function, const std::vector<TensorType>& types,
                            const std::vector<const NDArray*>& constants);

// UserError when an array that is given for result `k` is of another type.
void check_result(std::size_t k, DType dtype, const Sizes& shape, DType given_dtype, const Sizes& given_shape);

// The placeholders that the targets and operations need, in creation order.
std::vector<TensorRef> needed_placeholders(const GraphData& graph, const std::vector<TensorRef>& targets,
                                           const std::vector<OpId>& operations);

// Decides equalities of dims by their present values, and records those that structure does not show.
class HintedAssumptions : public DimAssumptions {
public:
    HintedAssumptions(const std::map<std::string, std::int64_t, std::less<>>& hints, std::vector<DimEquality>& record)
        : hints_(hints), record_(record) {}
    std::int64_t hint(const Dim& dim) override;
    void assume_equal(const Dim& a, const Dim& b) override;

private:
    const std::map<std::string, std::int64_t, std::less<>>& hints_;
    std::vector<DimEquality>& record_;
};

}  // namespace topstitch
