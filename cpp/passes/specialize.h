// From a user's graph and the types of its feeds to a Program: only what the targets need, every dim
// decided, reads and assignments of variables resolved into values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "passes/program.h"

namespace topstitch {

struct FeedType {
    TensorRef placeholder;  // in the user's graph
    DType dtype = DType::float32;
    Shape shape;  // numbers and symbols; symbols are listed in `hints`
    // What the caller promised beyond the placeholder's own shape: its names count as the placeholder's do.
    Shape declared = Shape::unranked();
    // How it lies in memory, when not packed: the distances in elements (numbers and symbols), and the axes that run
    // towards lower addresses. The program's feed is then the line of memory, and a view of it stands for the tensor.
    std::optional<Shape> strides = std::nullopt;
    std::vector<std::int64_t> reversed = {};
};

struct SpecializeRequest {
    const GraphData* graph = nullptr;
    std::vector<FeedType> feeds;
    std::vector<TensorRef> targets;
    std::vector<OpId> operations;
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

// UserError for a placeholder that is needed and not fed, and for shapes that do not fit.
Program specialize(const SpecializeRequest& request);

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
