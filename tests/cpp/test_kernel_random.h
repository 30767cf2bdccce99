// Random kernels: loop nests, schedules, types, index forms, guards, locals and reductions.
// All that they compute is exact in any order, so that whatever runs them must agree with the interpreter in every
// byte.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "loopir/scalar_op.h"
#include "test_kernel_support.h"
#include "topstitch/error.h"

namespace topstitch::testing {

// Makes one kernel: up to three nested loops, values at every depth, a reduction now and then, and stores to
// places that no other iteration writes.
class RandomKernel {
    using Builder = loopir::Builder;
    using Combiner = loopir::Combiner;
    using Index = loopir::Index;
    using Kernel = loopir::Kernel;
    using ScalarOp = loopir::ScalarOp;
    using ValueId = loopir::ValueId;
    using Role = loopir::BufferParam::Role;
    static constexpr ValueId no_value = loopir::no_value;

public:
    explicit RandomKernel(std::uint64_t seed, bool float64 = true) : random_(seed), float64_(float64) {
        const int depth = 1 + pick(3);
        for (int level = 0; level < depth; ++level) {
            extents_.push_back(level == 0 ? pick(40) : level == 1 ? pick(25) : 1 + pick(9));
            symbolic_.push_back(pick(2) == 0);
        }
        build();
    }

    Kernel kernel() const { return kernel_; }
    std::int64_t extent_value(std::string_view name) const { return extents_[static_cast<std::size_t>(name[1] - '0')]; }
    std::vector<std::int64_t> sizes() const {
        std::vector<std::int64_t> result;
        for (const Dim& param : loopir::size_params(kernel_)) result.push_back(number(param));
        return result;
    }
    std::vector<Data> buffers() {
        std::vector<Data> result;
        for (const loopir::BufferParam& buffer : kernel_.buffers) {
            if (buffer.role == Role::local) continue;
            Data data;
            const auto count = static_cast<std::size_t>(number(buffer.size));
            data.bytes.resize(count * size_of(buffer.dtype));
            fill(data.bytes.data(), buffer.dtype, count, random_);
            result.push_back(std::move(data));
        }
        return result;
    }

private:
    int pick(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }
    template <typename T>
    const T& one_of(const std::vector<T>& items) {
        return items[static_cast<std::size_t>(pick(static_cast<int>(items.size())))];
    }
    DType allowed(DType type) const { return type == DType::float64 && !float64_ ? DType::float32 : type; }
    DType any_type() {
        const DType type = one_of(std::vector<DType>{
            DType::boolean, DType::int8, DType::uint8, DType::int16, DType::int32, DType::int64, DType::uint32,
            DType::float16, DType::bfloat16, DType::float32, DType::float32, DType::float32, DType::float64});
        return allowed(type);
    }
    Dim extent(std::size_t level) const {
        return symbolic_[level] ? Dim::symbol("e" + std::to_string(level)) : Dim(extents_[level]);
    }
    std::int64_t number(const Dim& dim) const {
        return dim.evaluate([&](std::string_view name) { return extents_[static_cast<std::size_t>(name[1] - '0')]; });
    }

    void build() {
        const std::size_t depth = extents_.size();
        const int inputs = 1 + pick(3);
        for (int k = 0; k < inputs; ++k)
            inputs_.push_back(b_.add_buffer({"x" + std::to_string(k), any_type(), Role::input, Dim(4000)}));
        if (depth > 1 && pick(2) == 0) local_ = b_.add_buffer({"t", any_type(), Role::local, Dim(8)});
        Index place;
        Dim places = 1;
        for (std::size_t level = 0; level < depth; ++level) {
            vars_.push_back(b_.begin_loop("i" + std::to_string(level), extent(level)));
            place = place * extent(level) + vars_.back();
            places = places * extent(level);
            add_values(1 + pick(3));
            if (local_ >= 0 && level == 0) {
                for (int k = 0; k < 8; ++k)
                    b_.store(local_, Index(k), converted(any_value(), b_.kernel().buffers[local_].dtype));
            }
            if (pick(3) == 0) add_reduction();
        }
        add_values(1 + pick(4));
        const int outputs = 1 + pick(2);
        for (int k = 0; k < outputs; ++k) {
            const DType type = any_type();
            const int spread = pick(4) == 0 ? 2 : 1;  // sometimes every second element
            const bool backward = pick(4) == 0;
            const int y = b_.add_buffer({"y" + std::to_string(k), type, Role::output, places * spread});
            const Index at = backward ? Index(places * spread - 1) - place * spread : place * spread;
            b_.store(y, at, converted(any_value(), type), pick(4) == 0 ? condition() : no_value);
        }
        for (std::size_t level = 0; level < depth; ++level) b_.end_loop();
        kernel_ = b_.finish("random");
        Schedule schedule;
        bool vector = false;
        for (std::size_t level = 0; level < depth; ++level) {
            LoopSchedule loop;
            loop.parallel = level == 0 && pick(2) == 0;
            loop.vector = !vector && pick(2) == 0;
            loop.unroll = 1 + pick(3);
            vector = vector || loop.vector;
            schedule["i" + std::to_string(level)] = loop;
        }
        for (int k = 0; k < 4; ++k) {
            if (!vector)
                schedule["r" + std::to_string(k)] = {false, pick(2) == 0, 1 + pick(4)};
            else
                schedule["r" + std::to_string(k)] = {false, false, 1 + pick(3)};
        }
        kernel_ = scheduled(kernel_, schedule, pick(3) == 0);
    }

    // Somewhere in [0, 4000), whatever the variables are.
    Index somewhere() {
        Index index = Index(pick(20));
        for (const Index& var : vars_) {
            switch (pick(8)) {
                case 0:
                    break;
                case 1:
                    index = index + loopir::mod(var, 1 + pick(9)) * pick(7);
                    break;
                case 2:
                    index = index + loopir::floor_div(var + pick(5), 1 + pick(6)) * (1 + pick(4));
                    break;
                case 3:
                    index = index + loopir::mod(floor_div(var * 3 + 1, 2), 8);
                    break;
                case 4:
                    index = index + var * (2 + pick(6));
                    break;
                case 5:
                    index = index + Index(60) - var;
                    break;
                default:
                    index = index + var;
                    break;
            }
        }
        return index;
    }

    ValueId condition() {
        const ValueId position = b_.index_value(somewhere());
        const auto limit = b_.constant_int(pick(120), DType::int64);
        return pick(2) == 0 ? b_.op(ScalarOp::lt, position, limit) : b_.op(ScalarOp::le, limit, position);
    }

    ValueId any_value() { return one_of(values_); }
    ValueId converted(ValueId value, DType type) { return b_.cast(value, compute_type(type)); }

    ValueId load() {
        const int buffer = one_of(inputs_);
        if (!values_.empty() && pick(8) == 0) {  // at a place that was loaded
            const ValueId raw = b_.cast(any_value(), DType::int64);
            const ValueId wrapped = b_.op(ScalarOp::bit_and, raw, b_.constant_int(1023, DType::int64));
            return b_.load(buffer, Index::value(wrapped) + pick(4), pick(2) == 0 ? condition() : no_value);
        }
        return b_.load(buffer, somewhere(), pick(3) == 0 ? condition() : no_value);
    }

    void add_values(int count) {
        if (values_.empty()) values_.push_back(load());
        for (int k = 0; k < count; ++k) {
            ValueId value = no_value;
            switch (pick(5)) {
                case 0:
                    value = load();
                    break;
                case 1:
                    value = b_.cast(b_.index_value(somewhere()), compute_type(any_type()));
                    break;
                case 2:
                    value = local_ >= 0 && vars_.size() > 1 ? b_.load(local_, Index(pick(8))) : load();
                    break;
                default:
                    value = operation();
                    break;
            }
            values_.push_back(value);
        }
    }

    ValueId operation() {
        static const std::vector<ScalarOp> ops = {
            ScalarOp::add,     ScalarOp::sub,     ScalarOp::mul,        ScalarOp::div,   ScalarOp::rem,
            ScalarOp::neg,     ScalarOp::abs,     ScalarOp::min,        ScalarOp::max,   ScalarOp::fmin,
            ScalarOp::fmax,    ScalarOp::floor,   ScalarOp::ceil,       ScalarOp::trunc, ScalarOp::sqrt,
            ScalarOp::bit_and, ScalarOp::bit_xor, ScalarOp::shl,        ScalarOp::shr,   ScalarOp::eq,
            ScalarOp::lt,      ScalarOp::select,  ScalarOp::round_even, ScalarOp::exp,   ScalarOp::copysign,
            ScalarOp::tanh,    ScalarOp::fma,     ScalarOp::popcount};
        const ValueId a = any_value();
        const ScalarOp op = one_of(ops);
        const int arity = loopir::info(op).arity;
        try {
            if (op == ScalarOp::select) return b_.select(condition(), a, b_.cast(any_value(), b_.type(a)));
            return b_.op(op, a, arity > 1 ? b_.cast(any_value(), b_.type(a)) : no_value,
                         arity > 2 ? b_.cast(any_value(), b_.type(a)) : no_value);
        } catch (const InternalError&) {
            return b_.add(b_.cast(a, DType::float32), b_.constant(1, DType::float32));  // not defined on this type
        }
    }

    // Exact in any order: sums of integers, extrema, and logic.
    void add_reduction() {
        const int number = reductions_++;
        if (number >= 4) return;
        const DType type = allowed(one_of(std::vector<DType>{DType::boolean, DType::int32, DType::uint8, DType::int64,
                                                             DType::float32, DType::float64}));
        const Combiner combiner =
            type == DType::boolean ? (pick(2) == 0 ? Combiner::logical_and : Combiner::logical_or)
            : is_integer(type)
                ? one_of(std::vector<Combiner>{Combiner::sum, Combiner::product, Combiner::max, Combiner::argmin})
                : one_of(std::vector<Combiner>{Combiner::min, Combiner::max, Combiner::fmax, Combiner::argmax,
                                               Combiner::argmin});
        const int acc = b_.add_accumulator(combiner, type);
        b_.init_acc(acc);
        const std::size_t known = values_.size();
        vars_.push_back(b_.begin_loop("r" + std::to_string(number), Dim(pick(45))));
        add_values(1 + pick(2));
        const bool position = loopir::is_arg_reduction(combiner);
        b_.accumulate(acc, converted(pick(2) == 0 ? load() : any_value(), type),
                      position ? b_.index_value(vars_.back()) : no_value, pick(3) == 0 ? condition() : no_value);
        b_.end_loop();
        vars_.pop_back();
        values_.resize(known);  // the others are out of reach now
        values_.push_back(b_.acc_read(acc));
        if (position) values_.push_back(b_.acc_read(acc, 1));
    }

    std::mt19937_64 random_;
    bool float64_;
    std::vector<std::int64_t> extents_;
    std::vector<bool> symbolic_;
    Builder b_;
    std::vector<int> inputs_;
    int local_ = -1;
    std::vector<Index> vars_;
    std::vector<ValueId> values_;
    int reductions_ = 0;
    Kernel kernel_;
};

}  // namespace topstitch::testing
