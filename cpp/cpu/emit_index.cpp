// Index expressions over copies and lanes: affine parts stay scalar and are hoisted; what varies irregularly
// between lanes becomes a vector. Quotients and remainders stay scalar where a vector cannot straddle a multiple.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "cpu/emitter.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

using llvm::Value;
using loopir::Index;
using loopir::IndexTerm;

namespace {

std::optional<std::int64_t> constant_of(Value* value) {
    const auto* constant = llvm::dyn_cast_or_null<llvm::ConstantInt>(value);
    if (constant == nullptr) return std::nullopt;
    return constant->getSExtValue();
}

bool fits_in_32_bits(const Dim& dim) {
    return dim.is_known() && dim.value() < std::numeric_limits<std::int32_t>::max();
}

// Limits of magnitudes: what passes 31 bits has no limit.
std::int64_t checked(std::int64_t limit) {
    return limit < std::numeric_limits<std::int32_t>::max() ? limit : LaneIndex::no_limit;
}
std::int64_t bounded_sum(std::int64_t a, std::int64_t b) {
    return a == LaneIndex::no_limit || b == LaneIndex::no_limit ? LaneIndex::no_limit : checked(a + b);
}
std::int64_t bounded_product(std::int64_t limit, std::int64_t factor) {
    if (limit == LaneIndex::no_limit) return limit;
    const std::int64_t size = checked(std::abs(factor));
    return size == LaneIndex::no_limit ? size : checked(limit * size);
}

int lanes_in(Value* vector) {
    return static_cast<int>(llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements());
}
llvm::Type* wide_type(Value* vector) {
    llvm::Type* i64 = llvm::Type::getInt64Ty(vector->getContext());
    return llvm::FixedVectorType::get(i64, static_cast<unsigned>(lanes_in(vector)));
}

}  // namespace

LaneIndex Emitter::lane_index(const Index& index, const CopyId& id) {
    LaneIndex sum;
    if (index.constant().is_known()) {
        sum.base.constant = index.constant().value();
        sum.alignment = sum.base.constant;
    } else {
        sum.base.addends.push_back(dim(index.constant()));
        sum.alignment = 1;
        sum.step = 1;
    }
    for (const Index::Part& part : index.parts()) add_term(sum, part, id);
    return sum;
}

void Emitter::add_term(LaneIndex& sum, const Index::Part& part, const CopyId& id) {
    LaneIndex term = term_index(part.term, id);
    scale(term, dim(part.coefficient));
    sum.base.constant += term.base.constant;
    sum.base.addends.append(term.base.addends.begin(), term.base.addends.end());
    sum.alignment = std::gcd(sum.alignment, term.alignment);
    sum.step = std::gcd(sum.step, term.step);
    if (term.stride != nullptr) sum.stride = sum.stride == nullptr ? term.stride : code_.add(sum.stride, term.stride);
    if (term.varying == nullptr) return;
    if (sum.varying == nullptr) {
        sum.varying = term.varying;
        sum.limit = term.limit;
        return;
    }
    sum.limit = bounded_sum(sum.limit, term.limit);
    llvm::Type* type = sum.limit == LaneIndex::no_limit ? wide_type(sum.varying) : sum.varying->getType();
    sum.varying = code_.add(code_.resize(sum.varying, type), code_.resize(term.varying, type));
}

void Emitter::scale(LaneIndex& index, Value* factor) {
    const std::optional<std::int64_t> number = constant_of(factor);
    if (number == 1) return;
    if (number) {
        index.base.constant *= *number;
        index.alignment *= *number;
        index.step *= *number;
    } else if (index.base.constant != 0) {
        index.step = std::gcd(index.step, index.base.constant);
        index.base.addends.push_back(code_.number(index.base.constant));
        index.base.constant = 0;
    }
    for (Value*& addend : index.base.addends) addend = code_.mul(addend, factor);
    if (index.stride != nullptr) index.stride = code_.mul(index.stride, factor);
    if (index.varying != nullptr) {
        index.limit = number ? bounded_product(index.limit, *number) : LaneIndex::no_limit;
        if (index.limit == LaneIndex::no_limit) index.varying = code_.resize(index.varying, wide_type(index.varying));
        llvm::Type* type = index.varying->getType()->getScalarType();
        index.varying = code_.mul(index.varying, code_.splat(code_.resize(factor, type), lanes_in(index.varying)));
    }
}

LaneIndex Emitter::term_index(const IndexTerm& term, const CopyId& id) {
    switch (term.kind) {
        case IndexTerm::Kind::var:
            return var_index(term.var, id);
        case IndexTerm::Kind::floor_div:
        case IndexTerm::Kind::mod:
            return quotient_index(term, id);
        case IndexTerm::Kind::value:
            break;
    }
    LaneIndex result;
    const Copies& value = copies(term.value);
    Value* found = value.values[number_of(id, value.axes)];
    if (found->getType()->isVectorTy()) {
        result.varying = found;
        result.limit = LaneIndex::no_limit;
    } else {
        result.alignment = 1;
        result.step = 1;
        result.base.addends.push_back(found);
    }
    return result;
}

LaneIndex Emitter::var_index(loopir::VarId var, const CopyId& id) {
    const Var& state = vars_[static_cast<std::size_t>(var)];
    LaneIndex result;
    result.alignment = state.alignment;
    if (const std::optional<std::int64_t> number = constant_of(state.position)) {
        result.base.constant = *number;
        result.alignment = *number;
    } else {
        result.base.addends.push_back(state.position);
        result.step = state.alignment;
    }
    if (state.offset != 0) {
        result.base.constant += state.offset;
        result.alignment = std::gcd(result.alignment, state.offset);
    }
    int axis_number = 0;
    if (const Axis* axis = axis_of(var, &axis_number)) {
        const std::int64_t offset = static_cast<std::int64_t>(id[static_cast<std::size_t>(axis_number)]) * axis->lanes;
        result.base.constant += offset;
        result.alignment = std::gcd(result.alignment, offset);
        if (axis->lanes > 1) result.stride = code_.number(1);
    }
    return result;
}

LaneIndex Emitter::quotient_index(const IndexTerm& term, const CopyId& id) {
    const LaneIndex inner = lane_index(*term.inner, id);
    const bool quotient = term.kind == IndexTerm::Kind::floor_div;
    // Hoisting may evaluate this where no element exists and a size is 0.
    Value* divisor = dim(term.extent);
    if (!term.extent.is_known()) divisor = code_.at_least_one(divisor);
    const bool nonnegative = provably_nonnegative(term.inner->lower_bound());
    const auto apply = [&](Value* dividend, Value* by) {
        if (nonnegative) return quotient ? code_.quotient(dividend, by) : code_.remainder(dividend, by);
        Value* floor = code_.floor_quotient(dividend, by);
        return quotient ? floor : code_.sub(dividend, code_.mul(floor, by));
    };

    LaneIndex result;
    // No lane reaches the next multiple of the divisor if the first lane is at a multiple of `common`.
    const std::optional<std::int64_t> stride = constant_of(inner.stride);
    const int lanes = lanes_of(axes_of(*term.inner));
    bool together = inner.uniform();
    if (!together && inner.varying == nullptr && stride && *stride > 0 && term.extent.is_known()) {
        const std::int64_t common = std::gcd(inner.alignment, term.extent.value());
        together = *stride * (lanes - 1) < common;
    }
    if (together) {
        // What the constant exceeds a multiple of `step` by reaches no further multiple of the divisor: copies that
        // differ in nothing else have the same quotient, and it is computed once.
        const std::int64_t extent = term.extent.is_known() ? term.extent.value() : 0;
        const std::int64_t step = extent > 0 ? std::gcd(inner.step, extent) : 1;
        Affine whole = inner.base;
        const std::int64_t rest = (whole.constant % step + step) % step;
        whole.constant -= rest;
        if (step == extent) {  // and so is what remains a multiple of the divisor
            if (quotient && !whole.addends.empty()) {
                const Affine addends{whole.addends, 0};
                result.base.addends.push_back(code_.floor_quotient(sum_of(addends), divisor));
                result.step = inner.step / extent;
            }
            result.base.constant = quotient ? whole.constant / extent : rest;
            result.alignment = std::gcd(result.step, result.base.constant);
        } else {
            result.base.addends.push_back(apply(sum_of(whole), divisor));
            result.base.constant = quotient ? 0 : rest;
            result.alignment = quotient || extent == 0 ? 1 : std::gcd(inner.alignment, extent);
            result.step = quotient ? 1 : step;
        }
        if (!quotient) result.stride = inner.stride;
        return result;
    }
    const std::int64_t known = term.extent.is_known() ? term.extent.value() : 0;
    if (known > 0 && inner.varying == nullptr && stride && *stride > 0 && inner.alignment % known == 0) {
        // The first lane is at a multiple of the divisor: what the others make of it are numbers.
        llvm::SmallVector<std::uint32_t, 16> parts;
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
            const std::int64_t ahead = *stride * lane;
            parts.push_back(static_cast<std::uint32_t>(quotient ? ahead / known : ahead % known));
        }
        if (quotient) result.base.addends.push_back(code_.floor_quotient(sum_of(inner.base), divisor));
        result.alignment = quotient ? 1 : 0;
        result.step = quotient ? 1 : 0;
        result.varying = llvm::ConstantDataVector::get(ir_.getContext(), parts);
        result.limit = checked(*stride * lanes);
        return result;
    }
    const bool narrow = nonnegative && fits_in_32_bits(term.extent) && fits_in_32_bits(term.inner->upper_bound());
    llvm::Type* type = narrow ? ir_.getInt32Ty() : code_.i64();
    Value* dividends = lane_values(inner, type, lanes);
    result.varying = apply(dividends, code_.splat(code_.resize(divisor, type), lanes));
    result.limit = LaneIndex::no_limit;
    if (narrow) result.limit = quotient ? term.inner->upper_bound().value() : term.extent.value();
    return result;
}

// Outer addends first, so that what is common to the iterations of a loop is added outside of it.
Value* Emitter::sum_of(const Affine& affine) {
    llvm::SmallVector<Value*, 4> addends(affine.addends);
    std::stable_sort(addends.begin(), addends.end(),
                     [&](Value* a, Value* b) { return code_.depth_of(a) < code_.depth_of(b); });
    Value* sum = code_.number(0);
    for (Value* addend : addends) sum = code_.add(sum, addend);
    return code_.add(sum, code_.number(affine.constant));
}

Value* Emitter::lane_values(const LaneIndex& index, llvm::Type* type, int lanes) {
    llvm::Type* vector = llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes));
    Value* sum = code_.splat(code_.resize(sum_of(index.base), type), lanes);
    if (index.stride != nullptr) {
        Value* stride = code_.splat(code_.resize(index.stride, type), lanes);
        sum = code_.add(sum, code_.mul(stride, code_.counting(type, lanes)));
    }
    if (index.varying != nullptr) sum = code_.add(sum, code_.resize(index.varying, vector));
    return sum;
}

Copies Emitter::index_value(const Index& index) {
    Copies result;
    result.axes = axes_of(index);
    const int lanes = lanes_of(result.axes);
    for_each_copy(result.axes, [&](const CopyId& id) {
        const LaneIndex at = lane_index(index, id);
        result.values.push_back(lanes > 1 ? lane_values(at, code_.i64(), lanes) : sum_of(at.base));
    });
    return result;
}

Place Emitter::place(int buffer, const Index& index, const CopyId& id) {
    LaneIndex at = lane_index(index, id);
    // A local's element has one place for each copy and lane that it is private to.
    const AxisSet own = private_axes(buffer);
    if (own != 0) {
        const int lanes = lanes_of(own);
        scale(at, code_.number(static_cast<std::int64_t>(count_of(own)) * lanes));
        at.base.constant += static_cast<std::int64_t>(number_of(id, own)) * lanes;
        if (lanes > 1) at.stride = code_.add(at.stride == nullptr ? code_.number(0) : at.stride, code_.number(1));
    }
    llvm::Type* type = memory_type(buffer);
    // One step for each depth: the pointer to a row is computed outside of the loop over its columns.
    llvm::SmallVector<Value*, 4> addends(at.base.addends);
    std::stable_sort(addends.begin(), addends.end(),
                     [&](Value* a, Value* b) { return code_.depth_of(a) < code_.depth_of(b); });
    Value* pointer = buffers_[static_cast<std::size_t>(buffer)];
    for (std::size_t i = 0; i < addends.size();) {
        const int depth = code_.depth_of(addends[i]);
        Value* offset = addends[i];
        for (++i; i < addends.size() && code_.depth_of(addends[i]) == depth; ++i)
            offset = code_.add(offset, addends[i]);
        pointer = code_.element(type, pointer, offset);
    }
    pointer = code_.element(type, pointer, code_.number(at.base.constant));
    return {pointer, at.stride, at.varying};
}

}  // namespace topstitch::cpu
