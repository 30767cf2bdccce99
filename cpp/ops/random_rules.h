// Declares operations that draw random numbers: the frame that each distribution fills in.
// Every distribution gives three: X and X_like for users, and the internal draw_X that computes the numbers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/philox.h"
#include "ops/rules.h"

namespace topstitch::ops {

struct Distribution {
    std::string name;  // "random_uniform"
    std::string doc;
    std::vector<AttrDef> attributes;  // beside shape and dtype
    DType dtype = DType::float32;     // unless given
    DTypes allowed = floats;
    std::function<void(const OpView&)> check;  // of the attributes; may be empty
    std::function<int(const OpView&)> words;   // that each element takes: 1, 2 or 4
    std::function<Value(ElementContext&, const RandomWords&)> element;
    std::vector<std::string> mpsgraph;
    std::string onnx, onnx_like;
};

std::vector<OpDef> draw_ops(const Distribution& distribution);

// UserError unless input `k` is a random state, as far as known.
void require_state(const OpView& view, int k);

// Words for one number of the output's dtype: two for 64 bits, else one.
int words_for_dtype(const OpView& view);
// The words of an element as one uint64, the first being the low one; one word is zero-extended.
loopir::ValueId joined_words(ElementContext& c, const RandomWords& words, int count);

}  // namespace topstitch::ops
