// Indices as text. They are computed in 32 bits where their bounds allow it, else in 64.
// What has no bound, because it comes from memory, has 64 bits.
#include <algorithm>

#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Index;
using loopir::IndexTerm;

namespace {

bool is_number(const Dim& dim, std::int64_t value) {
    return dim.is_known() && dim.value() == value;
}

}  // namespace

// The largest magnitude of the index and of everything that it is computed from.
SizeExpr Emitter::magnitude(const Index& index, bool& needs_wide) const {
    SizeExpr bound = size(index.constant());
    for (const Index::Part& part : index.parts()) {
        SizeExpr term;
        switch (part.term.kind) {
            case IndexTerm::Kind::var:
                term = extent(part.term.var);
                break;
            case IndexTerm::Kind::value:
                needs_wide = true;
                break;
            case IndexTerm::Kind::floor_div:
            case IndexTerm::Kind::mod:
                // Rounding down may take a negative dividend one further; the divisor is computed too.
                term = magnitude(*part.term.inner, needs_wide) + size(part.term.extent) + 1;
                break;
        }
        bound = bound + size(part.coefficient) * term;
    }
    return bound;
}

void Emitter::note_magnitude(const SizeExpr& bound) {
    if (bound.is_number() && bound.evaluate({}) <= most_narrow) return;
    if (std::find(magnitudes_.begin(), magnitudes_.end(), bound) == magnitudes_.end()) magnitudes_.push_back(bound);
}

bool Emitter::fits_narrow(const Index& index) {
    bool needs_wide = false;
    const SizeExpr bound = magnitude(index, needs_wide);
    if (needs_wide) return false;
    note_magnitude(bound);
    return narrow_;
}

std::string Emitter::offset(const Index& index) {
    return index_text(index, !fits_narrow(index));
}

std::string Emitter::position(const Index& index) {
    if (!narrow_) return index_text(index, true);
    return fits_narrow(index) ? concat(type(DType::int64), "(", index_text(index, false), ")")
                              : index_text(index, true);
}

std::string Emitter::dim_text(const Dim& dim, bool wide) {
    if (dim.is_known()) {
        const bool small = dim.value() == static_cast<std::int32_t>(dim.value());
        return dialect_.integer(dim.value(), small ? DType::int32 : DType::int64);
    }
    const auto found = std::find(size_params_.begin(), size_params_.end(), dim);
    if (found == size_params_.end()) {
        throw InternalError(concat("codegen: kernel ", kernel_.name, ": no argument gives ", dim.str()));
    }
    const auto number = static_cast<std::size_t>(found - size_params_.begin());
    if (!(wide && narrow_)) used_sizes_.insert(number);
    return wide && narrow_ ? concat("sizes.", sizes_[number]) : sizes_[number];
}

std::string Emitter::index_text(const Index& index, bool wide) {
    std::string text;
    const auto add = [&](bool negative, const std::string& summand) {
        if (text.empty()) {
            text = negative ? "-" + summand : summand;
        } else {
            text += (negative ? " - " : " + ") + summand;
        }
    };
    for (const Index::Part& part : index.parts()) {
        const std::string term = term_text(part.term, wide);
        if (is_number(part.coefficient, 1) || is_number(part.coefficient, -1)) {
            add(is_number(part.coefficient, -1), term);
        } else if (part.coefficient.is_known() && part.coefficient.value() < 0) {
            add(true, concat(term, " * ", dim_text(0 - part.coefficient, wide)));
        } else {
            add(false, concat(term, " * ", dim_text(part.coefficient, wide)));
        }
    }
    const Dim& constant = index.constant();
    if (is_number(constant, 0) && !text.empty()) return text;
    if (constant.is_known() && constant.value() < 0 && !text.empty()) {
        add(true, dim_text(0 - constant, wide));
    } else {
        add(false, dim_text(constant, wide));
    }
    return text;
}

std::string Emitter::term_text(const IndexTerm& term, bool wide) {
    switch (term.kind) {
        case IndexTerm::Kind::var:
            return wide && narrow_ ? concat(type(DType::int64), "(", var(term.var), ")") : var(term.var);
        case IndexTerm::Kind::value:
            return value(term.value);
        case IndexTerm::Kind::floor_div:
        case IndexTerm::Kind::mod:
            break;
    }
    return quotient_text(term, wide);
}

std::string Emitter::quotient_text(const IndexTerm& term, bool wide) {
    const bool quotient = term.kind == IndexTerm::Kind::floor_div;
    const std::string dividend = index_text(*term.inner, wide);
    std::string divisor = dim_text(term.extent, wide);
    const DType computed = wide ? DType::int64 : DType::int32;
    // It may be evaluated where no element exists and a size is 0.
    if (!term.extent.is_known() && !provably_nonnegative(term.extent - 1)) {
        divisor = concat("max(", divisor, ", ", dialect_.integer(1, computed), ")");
    }
    if (provably_nonnegative(term.inner->lower_bound())) {
        const bool simple = dividend.find(' ') == std::string::npos;
        return concat("(", simple ? "" : "(", dividend, simple ? "" : ")", quotient ? " / " : " % ", divisor, ")");
    }
    const std::string function = helpers_.use({quotient ? Helper::floor_quotient : Helper::floor_remainder, computed});
    return concat(function, "(", dividend, ", ", divisor, ")");
}

}  // namespace topstitch::codegen
