// Looks through what is linear (sums, transpositions, concatenations) for products of matrices.
// See control_sums.h.
#include "ops/control_sums.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "ops/expr.h"

namespace topstitch::ops {

using namespace expr;

namespace {

// The factors of one iteration may be so many times as large as the sum that they spare.
constexpr std::int64_t max_factors = 8;
// Elements that the stacks of a product may have, or else max_factors times those of the sum.
constexpr std::int64_t max_stacked = std::int64_t{1} << 24;

const OpNode& producer(const Tensor& tensor) {
    return tensor.graph_data()->find(tensor.ref().op);
}

Tensor input(const Tensor& tensor, std::size_t k) {
    return {tensor.graph_data(), producer(tensor).inputs[k]};
}

std::int64_t integer(const OpNode& node, std::string_view name) {
    return std::get<std::int64_t>(node.attributes[static_cast<std::size_t>(node.def->attribute_index(name))]);
}

bool swaps_matrix(const Tensor& tensor) {
    const OpNode& node = producer(tensor);
    if (!tensor.shape().has_rank() || tensor.rank() != 2) return false;
    if (node.def->name == "swap_axes") return (integer(node, "axis1") - integer(node, "axis2")) % 2 != 0;
    if (node.def->name != "transpose") return false;
    // Without a permutation the axes are reversed.
    const auto* permutation = std::get_if<std::vector<std::int64_t>>(&node.attributes.front());
    return permutation == nullptr || permutation->front() % 2 != 0;
}

// One factor of a product: a matrix, which axis of it is reduced, and what is left of a transposition.
struct Factor {
    Tensor matrix;
    int reduced;
};

Factor factor_of(const Tensor& product, int k) {
    const Tensor factor = input(product, static_cast<std::size_t>(k));
    if (swaps_matrix(factor)) return {input(factor, 0), k};
    return {factor, 1 - k};
}

Tensor swapped(const Tensor& matrix) {
    return transpose(matrix, {1, 0});
}

Tensor flattened(const Tensor& x, std::int64_t axis) {
    return apply("flatten2d", {x}, {{"axis", axis}});
}

// [iterations * reduced, others]
Tensor of_all_iterations(const Tensor& stack, int reduced) {
    if (reduced == 0) return flattened(stack, -1);
    return swapped(flattened(transpose(stack, {1, 0, 2}), 1));
}

bool is_matrix_product(const Tensor& tensor) {
    if (producer(tensor).def->name != "matmul") return false;
    for (std::size_t k = 0; k < 2; ++k) {
        const Tensor factor = input(tensor, k);
        if (!factor.shape().has_rank() || factor.rank() != 2) return false;
    }
    return true;
}

// Are the factors small beside the product? Sizes that are not known are taken for it: those of a batch.
bool is_worth_stacking(const Tensor& product, const Dim& iterations) {
    const Shape left = input(product, 0).shape();
    const Shape right = input(product, 1).shape();
    const Dim &rows = left[0], &reduced = left[1], &columns = right[1];
    if (!rows.is_known() || !columns.is_known() || !reduced.is_known()) return true;
    const Dim sum = Dim(max_factors) * rows * columns;
    const Dim factors = (rows + columns) * reduced;
    if (!provably_nonnegative(sum - factors)) return false;
    return !iterations.is_known() || provably_nonnegative(max(sum, max_stacked) - factors * iterations);
}

bool is_linear(const Tensor& tensor) {
    constexpr std::string_view linear[] = {"add", "concat", "negative", "swap_axes", "transpose"};
    return std::find(std::begin(linear), std::end(linear), producer(tensor).def->name) != std::end(linear);
}

}  // namespace

namespace {

// Terms may be used many times in one sum: each is looked at once.
class Finder {
public:
    Finder(const Iterations& iterations, std::vector<Tensor>& factors) : iterations_(iterations), factors_(factors) {}

    bool visit(const Tensor& term) {
        const auto known = seen_.find(term.ref());
        if (known != seen_.end()) return known->second;
        return seen_[term.ref()] = is_matrix_product(term) ? visit_product(term) : visit_linear(term);
    }

private:
    bool visit_product(const Tensor& term) {
        if (!is_worth_stacking(term, iterations_.count)) return false;
        for (int k = 0; k < 2; ++k) {
            const Tensor matrix = factor_of(term, k).matrix;
            // A stack of equals: the sum of the other factor, times this one, needs none.
            if (iterations_.is_invariant(matrix)) return false;
            factors_.push_back(matrix);
        }
        return true;
    }
    bool visit_linear(const Tensor& term) {
        if (!is_linear(term)) return false;
        const std::size_t count = producer(term).inputs.size();
        for (std::size_t k = 0; k < count; ++k) {
            if (!visit(input(term, k))) return false;
        }
        return true;
    }

    const Iterations& iterations_;
    std::vector<Tensor>& factors_;
    std::map<TensorRef, bool> seen_;
};

class Summer {
public:
    explicit Summer(const std::function<Tensor(const Tensor&)>& stack_of) : stack_of_(stack_of) {}

    Tensor visit(const Tensor& term) {
        const auto known = sums_.find(term.ref());
        if (known != sums_.end()) return known->second;
        return sums_[term.ref()] = is_matrix_product(term) ? product(term) : linear(term);
    }

private:
    Tensor product(const Tensor& term) const {
        const auto all = [&](int k) {
            const Factor factor = factor_of(term, k);
            return of_all_iterations(stack_of_(factor.matrix), factor.reduced);
        };
        return matmul(swapped(all(0)), all(1));
    }
    Tensor linear(const Tensor& term) {
        const OpNode& node = producer(term);
        std::vector<Tensor> inputs;
        for (std::size_t k = 0; k < node.inputs.size(); ++k) inputs.push_back(visit(input(term, k)));
        NamedAttributes attributes;
        for (std::size_t k = 0; k < node.attributes.size(); ++k)
            attributes.emplace_back(node.def->attributes[k].name, node.attributes[k]);
        return apply(inputs.front().graph_data(), *node.def, inputs, attributes).front();
    }

    const std::function<Tensor(const Tensor&)>& stack_of_;
    std::map<TensorRef, Tensor> sums_;
};

}  // namespace

bool can_defer_sum(const Tensor& term, const Iterations& iterations, std::vector<Tensor>& factors) {
    return Finder(iterations, factors).visit(term);
}

Tensor deferred_sum(const Tensor& term, const std::function<Tensor(const Tensor&)>& stack_of) {
    return Summer(stack_of).visit(term);
}

}  // namespace topstitch::ops
