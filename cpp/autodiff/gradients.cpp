// The reverse walk: visits operations from the primary tensor back to the requested ones, and applies their rules.
// It is a loop over a stack of operation lists, one list for the graph and one for each expansion, so that depth costs
// nothing.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "autodiff/trace.h"
#include "graph/apply.h"
#include "graph/dims.h"
#include "graph/function.h"
#include "ops/expr.h"
#include "topstitch/autodiff.h"

namespace topstitch {

namespace {

std::string quoted(const Tensor& tensor) {
    const std::string& name = tensor.name();
    return concat(name.empty() ? concat("the result of `", tensor.operation().op(), "`") : concat("'", name, "'"), " (",
                  tensor.type().str(), ")");
}

void check_differentiable(const Tensor& tensor, const Tensor& primary, const char* role) {
    if (!tensor) throw UserError(concat("[gradients] the ", role, " is an empty Tensor; pass a tensor of the graph"));
    if (tensor.graph_data() != primary.graph_data()) {
        throw UserError(concat("[gradients] the ", role, " ", quoted(tensor), " and the primary tensor ",
                               quoted(primary), " belong to different graphs; gradients are taken inside one graph"));
    }
    const DType dtype = tensor.dtype();
    if (is_floating(dtype)) return;
    if (is_complex(dtype)) {
        throw UnsupportedError(
            concat("[gradients] the ", role, " ", quoted(tensor),
                   " is complex; gradients are available for real tensors only, so differentiate with "
                   "respect to its real and imaginary parts"));
    }
    throw TypeError(concat("[gradients] the ", role, " ", quoted(tensor),
                           " is not floating-point, so it cannot change gradually; use cast where it is created"));
}

class ReverseWalk {
public:
    // Of at least one primary tensor, all of one graph.
    ReverseWalk(const std::vector<Tensor>& primaries, const std::vector<Tensor>& tensors)
        : graph_(primaries.front().graph_data()), trace_(*graph_) {
        OpId first = primaries.front().ref().op;
        OpId last = 0;
        std::vector<TensorRef> roots;
        for (const Tensor& primary : primaries) {
            roots.push_back(primary.ref());
            last = std::max(last, primary.ref().op + 1);
        }
        for (const Tensor& tensor : tensors) {
            active_.insert(tensor.ref());
            first = std::min(first, tensor.ref().op);
        }
        mark_active(first, last);
        lists_.push_back(operations_between(first, last, roots));
    }

    void run(const std::vector<Tensor>& primaries, const std::vector<Tensor>& seeds) {
        for (std::size_t k = 0; k < primaries.size(); ++k) receive(primaries[k].ref(), seeds[k]);
        while (!lists_.empty()) {
            if (lists_.back().empty()) {
                lists_.pop_back();
                continue;
            }
            const OpId id = lists_.back().back();
            lists_.back().pop_back();
            visit(id);  // may push a list
        }
    }

    Tensor gradient_of(const Tensor& tensor) const {
        const auto found = gradients_.find(tensor.ref());
        return found == gradients_.end() ? Tensor() : found->second;
    }

private:
    // A tensor is active when it depends on a requested one through floating-point (or complex) tensors.
    void mark_active(OpId first, OpId last) {
        for (OpId id = first; id < last; ++id) {
            const OpNode& node = graph_->find(id);
            if (std::holds_alternative<ConstantInGradients>(node.def->gradient)) continue;
            const auto is_active = [this](TensorRef ref) { return active_.contains(ref); };
            if (std::none_of(node.inputs.begin(), node.inputs.end(), is_active)) continue;
            for (std::size_t k = 0; k < node.outputs.size(); ++k) {
                const DType dtype = node.outputs[k].dtype;
                if (is_floating(dtype) || is_complex(dtype)) active_.insert({id, static_cast<std::int32_t>(k)});
            }
        }
    }

    // The operations in [first, last) on a way from a requested tensor to one of `roots`, in creation order, which is a
    // topological one.
    std::vector<OpId> operations_between(OpId first, OpId last, const std::vector<TensorRef>& roots) const {
        std::vector<bool> reached(static_cast<std::size_t>(last - first), false);
        const auto reach = [&](TensorRef ref) {
            if (ref.op >= first && ref.op < last && active_.contains(ref)) {
                reached[static_cast<std::size_t>(ref.op - first)] = true;
            }
        };
        std::for_each(roots.begin(), roots.end(), reach);
        std::vector<OpId> operations;
        for (OpId id = last; id-- > first;) {
            if (!reached[static_cast<std::size_t>(id - first)]) continue;
            operations.push_back(id);
            const OpNode& node = graph_->find(id);
            std::for_each(node.inputs.begin(), node.inputs.end(), reach);
        }
        std::reverse(operations.begin(), operations.end());
        return operations;
    }

    void receive(TensorRef ref, const Tensor& gradient) {
        if (!active_.contains(ref)) return;
        Tensor& total = gradients_[ref];
        total = total ? expr::operator+(total, gradient) : gradient;
    }

    void visit(OpId id) {
        const OpNode& node = graph_->find(id);
        std::vector<bool> needed;
        for (const TensorRef input : node.inputs) needed.push_back(active_.contains(input));
        if (std::find(needed.begin(), needed.end(), true) == needed.end()) return;  // a requested tensor itself

        std::vector<Tensor> incoming(node.outputs.size());
        for (std::size_t k = 0; k < incoming.size(); ++k) {
            const auto found = gradients_.find({id, static_cast<std::int32_t>(k)});
            if (found != gradients_.end()) incoming[k] = found->second;
        }
        if (std::none_of(incoming.begin(), incoming.end(), [](const Tensor& t) { return static_cast<bool>(t); }))
            return;

        if (const auto* refusal = std::get_if<NotDifferentiable>(&node.def->gradient)) {
            throw UserError(concat("[gradients] ", trace_.describe(id), " is not differentiable, because ",
                                   refusal->reason, ". The gradient comes to it on the path ",
                                   trace_.path_through(id, active_),
                                   ". Apply stop_gradient to its result to treat that as a constant"));
        }
        const ScopedLocation scope(node.location);  // what is added comes from the operation that it differentiates
        if (std::holds_alternative<FromExpansion>(node.def->gradient)) {
            expand(id, node, incoming);
        } else {
            apply_rule(id, node, std::move(incoming), std::move(needed));
        }
    }

    std::vector<Tensor> tensors_of(const std::vector<TensorRef>& refs) const {
        std::vector<Tensor> tensors;
        for (const TensorRef ref : refs) tensors.emplace_back(graph_, ref);
        return tensors;
    }

    void apply_rule(OpId id, const OpNode& node, std::vector<Tensor> incoming, std::vector<bool> needed) {
        std::vector<TensorType> types;
        for (const TensorRef input : node.inputs)
            types.push_back(graph_->find(input.op).outputs[static_cast<std::size_t>(input.output)]);
        std::vector<Tensor> outputs;
        for (std::size_t k = 0; k < node.outputs.size(); ++k) {
            outputs.emplace_back(graph_, TensorRef{id, static_cast<std::int32_t>(k)});
        }
        const OpView view(*node.def, types, node.outputs, node.attributes, &node.location);
        GradientContext context(tensors_of(node.inputs), std::move(outputs), std::move(incoming), std::move(needed),
                                view);
        context.differentiate = differentiate;
        const std::vector<Tensor> results = std::get<GradientRule>(node.def->gradient)(context);

        internal_check(results.size() == node.inputs.size(),
                       "a gradient rule gives another number of tensors than inputs");
        for (std::size_t k = 0; k < results.size(); ++k) {
            if (!results[k] || !active_.contains(node.inputs[k])) continue;
            if (results[k].dtype() != types[k].dtype || !shapes_agree(results[k].shape(), types[k].shape)) {
                throw InternalError(concat("[", node.def->name, "] its gradient rule gives ", results[k].type().str(),
                                           " for input ", k, ", which is ", types[k].str()));
            }
            trace_.flows(id, node.inputs[k].op);
            receive(node.inputs[k], results[k]);
        }
    }

    static std::vector<Tensor> differentiate(const std::vector<Tensor>& outputs, const std::vector<Tensor>& seeds,
                                             const std::vector<Tensor>& tensors) {
        std::vector<Tensor> results(tensors.size());
        if (outputs.empty() || tensors.empty()) return results;
        ReverseWalk walk(outputs, tensors);
        walk.run(outputs, seeds);
        for (std::size_t k = 0; k < tensors.size(); ++k) results[k] = walk.gradient_of(tensors[k]);
        return results;
    }

    // Differentiates the operations that a composite stands for: they are walked before anything else.
    void expand(OpId id, const OpNode& node, const std::vector<Tensor>& incoming) {
        const auto first = static_cast<OpId>(graph_->size());
        const std::vector<Tensor> results =
            expand_composite(graph_, *node.def, tensors_of(node.inputs), node.attributes);
        const auto last = static_cast<OpId>(graph_->size());
        for (OpId part = first; part < last; ++part) trace_.expands(id, part);
        mark_active(first, last);
        std::vector<TensorRef> roots;
        for (std::size_t k = 0; k < results.size(); ++k) {
            if (!incoming[k]) continue;
            roots.push_back(results[k].ref());
            trace_.flows(id, results[k].ref().op);
            receive(results[k].ref(), incoming[k]);
        }
        lists_.push_back(operations_between(first, last, roots));
    }

    std::shared_ptr<GraphData> graph_;
    autodiff::Trace trace_;
    std::unordered_set<TensorRef> active_;
    std::unordered_map<TensorRef, Tensor> gradients_;
    std::vector<std::vector<OpId>> lists_;  // still to visit, the next one last
};

void check_seed(const Tensor& seed, const Tensor& primary) {
    check_differentiable(seed, primary, "seed");
    if (seed.dtype() == primary.dtype() && shapes_agree(seed.shape(), primary.shape())) return;
    throw UserError(concat("[gradients] the seed is ", seed.type().str(), ", but the primary tensor is ",
                           primary.type().str(), "; a seed weighs each element, so it has the same dtype and shape"));
}

}  // namespace

std::unordered_map<Tensor, Tensor> gradients(const Tensor& primary, const std::vector<Tensor>& tensors,
                                             const Tensor& given_seed) {
    check_differentiable(primary, primary, "primary tensor");
    // In the body of a loop or branch, what it uses of the graph around counts as its own.
    std::vector<Tensor> own;
    for (const Tensor& tensor : tensors) {
        own.push_back(tensor ? captured(primary.graph_data(), tensor) : tensor);
        check_differentiable(own.back(), primary, "tensor to differentiate by");
    }
    const Tensor seed = given_seed ? captured(primary.graph_data(), given_seed) : given_seed;
    if (seed) check_seed(seed, primary);

    std::unordered_map<Tensor, Tensor> results;
    if (tensors.empty()) return results;
    const ScopedBody same_graph(primary.graph_data());  // whatever body is being described
    ReverseWalk walk({primary}, own);
    walk.run({primary}, {seed ? seed : expr::ones_like(primary)});
    for (std::size_t k = 0; k < own.size(); ++k) {
        const Tensor gradient = walk.gradient_of(own[k]);
        results.emplace(tensors[k], gradient ? gradient : expr::zeros_like(own[k]));
    }
    return results;
}

}  // namespace topstitch
