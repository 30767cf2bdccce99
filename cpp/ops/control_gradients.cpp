// The gradient of a branch is the same branch over the gradients of its functions; that of a loop is a loop in the
// opposite direction, which computes each iteration again from the carried tensors that were there before it.
#include "ops/control_gradients.h"

#include <algorithm>
#include <map>

#include "graph/function.h"
#include "ops/control.h"
#include "ops/control_sums.h"
#include "ops/expr.h"
#include "ops/rules.h"

namespace topstitch::ops {

using namespace expr;

namespace {

bool carries_gradient(DType dtype) {
    return is_floating(dtype) || is_complex(dtype);
}

Tensor or_zeros(const Tensor& gradient, const Tensor& like) {
    return gradient ? gradient : zeros_like(like);
}

// Which of the inputs [first, first + count) want a gradient and can have one.
std::vector<int> wanted(const GradientContext& g, int first, int count) {
    std::vector<int> list;
    for (int k = first; k < first + count; ++k) {
        if (g.needs(k) && carries_gradient(g.input(k).dtype())) list.push_back(k);
    }
    return list;
}

std::vector<Tensor> parameters(FunctionBuilder& builder, const std::vector<TensorType>& types) {
    std::vector<Tensor> made;
    for (const TensorType& type : types) made.push_back(builder.parameter(type));
    return made;
}

// The function that gives, for the captures and the gradients of the results, those of the captures `by`.
FunctionPtr branch_gradient(const GradientContext& g, const Function& function,
                            const std::vector<TensorType>& capture_types, const std::vector<int>& seeded,
                            const std::vector<int>& by) {
    FunctionBuilder builder(g.input().graph_data());
    const std::vector<Tensor> captures = parameters(builder, capture_types);
    std::vector<Tensor> seeds;
    for (const int k : seeded) seeds.push_back(builder.parameter(g.output(k).type()));
    const std::vector<Tensor> results = inline_function(builder.graph(), function, captures);
    std::vector<Tensor> outputs;
    for (const int k : seeded) outputs.push_back(results[static_cast<std::size_t>(k)]);
    std::vector<Tensor> by_tensors;
    for (const int k : by) by_tensors.push_back(captures[static_cast<std::size_t>(k - 1)]);
    std::vector<Tensor> gradients = g.differentiate(outputs, seeds, by_tensors);
    for (std::size_t k = 0; k < gradients.size(); ++k) gradients[k] = or_zeros(gradients[k], by_tensors[k]);
    return builder.finish(gradients, {});
}

// How the parameters and results of the reverse loop of a scan are put together.
class ReverseScan {
public:
    explicit ReverseScan(GradientContext& g) : g_(g), layout_(g.op), builder_(g.input().graph_data()) {
        for (int k = 0; k < layout_.carried; ++k) {
            if (carries_gradient(g.input(k).dtype())) carried_.push_back(k);
        }
        by_sequences_ = wanted(g, layout_.carried, layout_.sequences);
        by_captures_ = wanted(g, layout_.carried + layout_.sequences, layout_.captures);
        for (int k = 0; k < layout_.stacked; ++k) {
            if (g.grad(layout_.output_of_stacked(k))) seeded_.push_back(k);
        }
        for (const int k : carried_) {
            if (g.grad(layout_.output_of_history(k))) seeded_history_.push_back(k);
        }
    }

    std::vector<Tensor> run() {
        add_parameters();
        const FunctionPtr whole = builder_.finish(iteration(), {});
        return unpack(apply_reverse(*whole));
    }

private:
    Tensor parameter(const Tensor& like, bool part, std::vector<Tensor>& inputs, const Tensor& input) {
        inputs.push_back(input);
        Tensor made = builder_.parameter({like.dtype(), part ? shape_of_part(like.shape()) : like.shape()});
        if (part) sequence_of_[made.ref()] = input;
        return made;
    }

    // Carried: the gradients of the carried tensors, and those of the captures so far (unless their sum is deferred).
    // Sequences: the gradients of what was stacked, the history, the sequences of the loop.
    void add_parameters() {
        index_ = builder_.parameter({DType::int32, Shape(std::vector<Dim>{})});
        for (const int k : carried_) {
            const Tensor& last = g_.output(k);
            carried_gradients_.push_back(parameter(last, false, initial_, or_zeros(g_.grad(k), last)));
        }
        for (const int k : by_captures_)
            capture_gradients_.push_back(parameter(g_.input(k), false, initial_, zeros_like(g_.input(k))));
        for (const int k : seeded_) {
            const Tensor& gradient = g_.grad(layout_.output_of_stacked(k));
            stacked_gradients_.push_back(parameter(gradient, true, sequences_, gradient));
        }
        for (const int k : seeded_history_) {
            const Tensor& gradient = g_.grad(layout_.output_of_history(k));
            history_gradients_.push_back(parameter(gradient, true, sequences_, gradient));
        }
        for (int k = 0; k < layout_.carried; ++k) {
            const Tensor& history = g_.output(layout_.output_of_history(k));
            history_.push_back(parameter(history, true, sequences_, history));
        }
        for (int k = layout_.carried; k < layout_.carried + layout_.sequences; ++k)
            parts_.push_back(parameter(g_.input(k), true, sequences_, g_.input(k)));
        for (int k = layout_.carried + layout_.sequences; k < g_.op.num_inputs(); ++k)
            captures_.push_back(parameter(g_.input(k), false, captured_, g_.input(k)));
    }

    // The results: the new carried ones, then the gradients of the parts, then the factors of deferred sums.
    std::vector<Tensor> iteration() {
        std::vector<Tensor> arguments = {index_};
        arguments.insert(arguments.end(), history_.begin(), history_.end());
        arguments.insert(arguments.end(), parts_.begin(), parts_.end());
        arguments.insert(arguments.end(), captures_.begin(), captures_.end());
        const std::vector<Tensor> forward = inline_function(builder_.graph(), g_.op.function("body"), arguments);

        std::vector<Tensor> outputs;
        std::vector<Tensor> seeds;
        for (std::size_t k = 0; k < carried_.size(); ++k) {
            outputs.push_back(forward[static_cast<std::size_t>(carried_[k])]);
            seeds.push_back(carried_gradients_[k]);
        }
        for (std::size_t k = 0; k < seeded_.size(); ++k) {
            outputs.push_back(forward[static_cast<std::size_t>(layout_.carried + seeded_[k])]);
            seeds.push_back(stacked_gradients_[k]);
        }
        std::vector<Tensor> by;
        for (const int k : carried_) by.push_back(history_[static_cast<std::size_t>(k)]);
        for (const int k : by_captures_)
            by.push_back(captures_[static_cast<std::size_t>(k - layout_.carried - layout_.sequences)]);
        for (const int k : by_sequences_) by.push_back(parts_[static_cast<std::size_t>(k - layout_.carried)]);
        std::vector<Tensor> results = g_.differentiate(outputs, seeds, by);
        for (std::size_t k = 0; k < results.size(); ++k) results[k] = or_zeros(results[k], by[k]);
        for (std::size_t h = 0; h < seeded_history_.size(); ++h) {
            for (std::size_t k = 0; k < carried_.size(); ++k) {
                if (carried_[k] == seeded_history_[h]) results[k] = results[k] + history_gradients_[h];
            }
        }
        return with_sums(results);
    }

    // Adds up the gradients of the captures, or leaves that for later.
    std::vector<Tensor> with_sums(const std::vector<Tensor>& gradients) {
        std::vector<Tensor> results(gradients.begin(),
                                    gradients.begin() + static_cast<std::ptrdiff_t>(carried_.size()));
        std::vector<Tensor> factors;
        const Iterations iterations{layout_.length, [this](const Tensor& tensor) {
                                        return std::find(captures_.begin(), captures_.end(), tensor) != captures_.end();
                                    }};
        for (std::size_t k = 0; k < by_captures_.size(); ++k) {
            const Tensor& gradient = gradients[carried_.size() + k];
            std::vector<Tensor> own;
            const bool defer = can_defer_sum(gradient, iterations, own);
            deferred_.push_back(defer ? gradient : Tensor());
            if (defer) {
                factors.insert(factors.end(), own.begin(), own.end());
            } else {
                results.push_back(capture_gradients_[k] + gradient);
            }
        }
        const std::size_t first_stacked = results.size();
        results.insert(results.end(), gradients.end() - static_cast<std::ptrdiff_t>(by_sequences_.size()),
                       gradients.end());
        stack(factors, first_stacked, results);
        return results;
    }

    // Sees to it that the loop stacks the factors: parts of sequences lie in stacks, and so do gradients of parts.
    void stack(const std::vector<Tensor>& factors, std::size_t first_stacked, std::vector<Tensor>& results) {
        for (const Tensor& factor : factors) {
            if (sequence_of_.contains(factor.ref())) continue;
            const auto found = std::find_if(results.begin() + static_cast<std::ptrdiff_t>(first_stacked), results.end(),
                                            [&](const Tensor& result) { return result.ref() == factor.ref(); });
            stacked_at_[factor.ref()] = static_cast<std::size_t>(found - results.begin());
            if (found == results.end()) results.push_back(factor);
        }
    }

    // What the gradients do not depend on need not be kept, so that the loop does not take it; nor do deferred sums.
    std::vector<Tensor> apply_reverse(const Function& whole) {
        std::vector<bool> kept(whole.parameters.size(), false);
        std::fill_n(kept.begin(), 1 + carried_.size(), true);
        if (!g_.op.has("length") && layout_.length.is_unknown()) {  // only a sequence of the loop tells it
            kept[1 + initial_.size() + sequences_.size() - static_cast<std::size_t>(layout_.sequences)] = true;
        }
        const FunctionPtr body = without_unused(whole, kept);
        std::vector<Tensor> inputs;
        const auto take = [&](const std::vector<Tensor>& candidates, std::size_t first) {
            const std::size_t before = inputs.size();
            for (std::size_t k = 0; k < candidates.size(); ++k) {
                if (kept[first + k]) inputs.push_back(candidates[k]);
            }
            return static_cast<std::int64_t>(inputs.size() - before);
        };
        const std::int64_t carried = take(initial_, 1);
        const std::int64_t sequences = take(sequences_, 1 + initial_.size());
        take(captured_, 1 + initial_.size() + sequences_.size());
        NamedAttributes attributes = {
            {"body", body}, {"carried", carried}, {"sequences", sequences}, {"reverse", !g_.op.flag("reverse")}};
        // An open length is that of the sequences, if there are any left.
        if (g_.op.has("length")) {
            attributes.emplace_back("length", g_.op.shape("length"));
        } else if (sequences == 0) {
            attributes.emplace_back("length", Shape({layout_.length}));
        }
        return apply(g_.input().graph_data(), *find_op("scan"), inputs, attributes);
    }

    std::vector<Tensor> unpack(const std::vector<Tensor>& results) const {
        std::vector<Tensor> gradients(static_cast<std::size_t>(g_.op.num_inputs()));
        std::size_t next = 0;
        for (const int k : carried_) gradients[static_cast<std::size_t>(k)] = results[next++];
        const auto stack_of = [&](const Tensor& factor) {
            const auto sequence = sequence_of_.find(factor.ref());
            return sequence != sequence_of_.end() ? sequence->second : results[stacked_at_.at(factor.ref())];
        };
        for (std::size_t k = 0; k < by_captures_.size(); ++k) {
            gradients[static_cast<std::size_t>(by_captures_[k])] =
                deferred_[k] ? deferred_sum(deferred_[k], stack_of) : results[next++];
        }
        for (const int k : by_sequences_) gradients[static_cast<std::size_t>(k)] = results[next++];
        return gradients;
    }

    GradientContext& g_;
    ScanLayout layout_;
    FunctionBuilder builder_;
    std::vector<int> carried_;                            // positions of the carried tensors that have gradients
    std::vector<int> by_sequences_, by_captures_;         // positions of the inputs that want one
    std::vector<int> seeded_, seeded_history_;            // outputs that have one
    std::vector<Tensor> initial_, sequences_, captured_;  // the inputs of the reverse loop
    Tensor index_;
    std::vector<Tensor> carried_gradients_, capture_gradients_, stacked_gradients_, history_gradients_;
    std::vector<Tensor> history_, parts_, captures_;
    std::map<TensorRef, Tensor> sequence_of_;      // of which a parameter is the present part
    std::vector<Tensor> deferred_;                 // by capture: what is summed up behind the loop, if it is
    std::map<TensorRef, std::size_t> stacked_at_;  // outputs of the reverse loop that are stacks of factors
};

}  // namespace

std::vector<Tensor> if_else_gradient(GradientContext& g) {
    const std::vector<int> by = wanted(g, 1, g.op.num_inputs() - 1);
    std::vector<int> seeded;
    const auto count = static_cast<int>(g.op.function("then").results.size());
    for (int k = 0; k < count; ++k) {
        if (g.grad(k)) seeded.push_back(k);
    }
    const std::vector<TensorType> types = parameter_types(g.op);
    std::vector<Tensor> inputs = g.inputs();
    for (const int k : seeded) inputs.push_back(g.grad(k));
    const std::vector<Tensor> results =
        apply(g.input().graph_data(), *find_op("if_else"), inputs,
              {{"then", branch_gradient(g, g.op.function("then"), types, seeded, by)},
               {"otherwise", branch_gradient(g, g.op.function("otherwise"), types, seeded, by)}});
    std::vector<Tensor> gradients(static_cast<std::size_t>(g.op.num_inputs()));
    for (std::size_t k = 0; k < by.size(); ++k) gradients[static_cast<std::size_t>(by[k])] = results[k];
    return gradients;
}

std::vector<Tensor> scan_gradient(GradientContext& g) {
    return ReverseScan(g).run();
}

}  // namespace topstitch::ops
