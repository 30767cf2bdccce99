// Random products as Metal source on the simulated device: any number of axes in any order in memory, windows with
// padding, all types, against loops in double. TOPSTITCH_TEST_SEED and TOPSTITCH_TEST_KERNELS choose which and how
// many.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "loopir/builder.h"
#include "test_codegen_device.h"
#include "test_codegen_support.h"
#include "test_kernel_support.h"

using namespace topstitch;
using namespace topstitch::testing;
using loopir::Index;
using Role = loopir::BufferParam::Role;

namespace {

int kernel_count() {
    const char* text = std::getenv("TOPSTITCH_TEST_KERNELS");
    return text != nullptr ? std::atoi(text) : 8;
}

// One loop of the product, and the step that each array takes along it: 0 where it does not depend on it.
struct Axis {
    enum class Kind { batch, row, column, step };
    Kind kind = Kind::row;
    std::int64_t extent = 1;
    std::int64_t x = 0, w = 0, y = 0;
};

class RandomProduct {
public:
    explicit RandomProduct(std::uint64_t seed) : random_(seed) {
        dtype_ = std::vector{DType::float32, DType::float32, DType::float16, DType::bfloat16}[below(4)];
        add_axes(Axis::Kind::batch, below(2), 3);
        add_axes(Axis::Kind::row, below(4), below(4) == 0 ? 5 : 100);
        add_axes(Axis::Kind::column, 1 + below(3), below(4) == 0 ? 5 : 100);
        add_axes(Axis::Kind::step, 1 + below(3), 120);
        std::shuffle(axes_.begin(), axes_.end(), random_);
        // Steps are the inner loops.
        std::stable_partition(axes_.begin(), axes_.end(),
                              [](const Axis& axis) { return axis.kind != Axis::Kind::step; });
        choose_window();
        lay_out(&Axis::x, x_size_, [](Axis::Kind kind) { return kind != Axis::Kind::column; });
        lay_out(&Axis::w, w_size_, [](Axis::Kind kind) { return kind != Axis::Kind::row; });
        lay_out(&Axis::y, y_size_, [](Axis::Kind kind) { return kind != Axis::Kind::step; });
        bias_ = below(2) == 0;
        scale_ = below(2) == 0;
    }

    loopir::Kernel kernel() const {
        loopir::Builder b;
        const int x = b.add_buffer({"x", dtype_, Role::input, x_size_});
        const int w = b.add_buffer({"w", dtype_, Role::input, w_size_});
        const int bias = b.add_buffer({"bias", DType::float32, Role::input, y_size_});
        const int y = b.add_buffer({"y", DType::float32, Role::output, y_size_});
        Index x_at = 0, w_at = 0, y_at = 0, in_window = 0;
        int sum = -1;
        for (std::size_t k = 0; k < axes_.size(); ++k) {
            const Axis& axis = axes_[k];
            if (axis.kind == Axis::Kind::step && sum < 0) {
                sum = b.add_accumulator(loopir::Combiner::sum, DType::float32);
                b.init_acc(sum);
            }
            const Index i = b.begin_loop(concat("i", k), axis.extent);
            x_at = x_at + i * Dim(axis.x);
            w_at = w_at + i * Dim(axis.w);
            y_at = y_at + i * Dim(axis.y);
            if (is_in_window(k)) in_window = in_window + i;
        }
        loopir::ValueId guard = loopir::no_value;
        if (window_ >= 0) {
            x_at = x_at - Index(axes_[static_cast<std::size_t>(window_)].x);
            const loopir::ValueId place = b.index_value(in_window - Index(1));
            guard = b.op(loopir::ScalarOp::bit_and, b.op(loopir::ScalarOp::le, b.constant_int(0, DType::int64), place),
                         b.op(loopir::ScalarOp::lt, place, b.constant_int(window_length_, DType::int64)));
        }
        loopir::ValueId left = b.load(x, x_at, guard);
        if (scale_) left = b.mul(left, b.constant(0.375, DType::float32));
        b.accumulate(sum, b.mul(left, b.load(w, w_at)));
        for (const Axis& axis : axes_) {
            if (axis.kind == Axis::Kind::step) b.end_loop();
        }
        loopir::ValueId result = b.acc_read(sum);
        if (bias_) result = b.add(result, b.load(bias, y_at));
        b.store(y, y_at, result);
        for (const Axis& axis : axes_) {
            if (axis.kind != Axis::Kind::step) b.end_loop();
        }
        return scheduled(b.finish("random_product"), {{"i0", {true, false, 1}}});
    }

    // The first wrong element, or "".
    std::string check(const codegen::Source& source) {
        const std::vector<float> x = numbers(x_size_), w = numbers(w_size_), bias = numbers(y_size_);
        const std::vector<float> empty(static_cast<std::size_t>(y_size_), -7.0f);
        const auto results = run_in_each_order(source, {stored(x), stored(w), Data::of(bias), Data::of(empty)}, {});
        const std::vector<float> y = results.at(3).as<float>();
        std::vector<double> sums(y.size()), magnitudes(y.size());
        double steps = 0;
        std::vector<std::int64_t> at(axes_.size(), 0);
        do {
            std::int64_t x_at = 0, w_at = 0, y_at = 0, place = 0;
            for (std::size_t k = 0; k < axes_.size(); ++k) {
                x_at += at[k] * axes_[k].x;
                w_at += at[k] * axes_[k].w;
                y_at += at[k] * axes_[k].y;
                if (is_in_window(k)) place += at[k];
            }
            double left = 0;
            if (window_ < 0) {
                left = static_cast<double>(x[static_cast<std::size_t>(x_at)]);
            } else if (place >= 1 && place <= window_length_) {
                left =
                    static_cast<double>(x[static_cast<std::size_t>(x_at - axes_[static_cast<std::size_t>(window_)].x)]);
            }
            const double product = (scale_ ? 0.375 : 1) * left * static_cast<double>(w[static_cast<std::size_t>(w_at)]);
            sums[static_cast<std::size_t>(y_at)] += product;
            magnitudes[static_cast<std::size_t>(y_at)] += std::abs(product);
        } while (advance(at));
        for (const Axis& axis : axes_) {
            if (axis.kind == Axis::Kind::step) steps = std::max(steps, 1.0) * static_cast<double>(axis.extent);
        }
        for (std::size_t k = 0; k < y.size(); ++k) {
            const double more = bias_ ? static_cast<double>(bias[k]) : 0;
            const double allowed = (steps + 3) * 0x1p-24 * (magnitudes[k] + std::abs(more)) + 1e-30;
            const double error = std::abs(static_cast<double>(y[k]) - (sums[k] + more));
            if (!(error <= allowed)) return concat("element ", k, " is ", y[k], ", not ", sums[k] + more);
        }
        return "";
    }

private:
    std::int64_t below(std::int64_t count) {
        return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(count));
    }

    void add_axes(Axis::Kind kind, std::int64_t count, std::int64_t most) {
        static const std::vector<std::int64_t> extents{1, 2, 3, 4, 5, 7, 8, 11, 12, 16, 33, 40, 65};
        for (; count > 0; --count) {
            std::vector<std::int64_t> fitting;
            for (const std::int64_t extent : extents) {
                if (extent <= most) fitting.push_back(extent);
            }
            // The last axis of a kind takes most of what is left.
            const auto size = static_cast<std::int64_t>(fitting.size());
            const std::int64_t choice = count == 1 ? size - 1 - below(std::min<std::int64_t>(size, 4)) : below(size);
            axes_.push_back({kind, fitting[static_cast<std::size_t>(choice)]});
            most = std::max<std::int64_t>(most / axes_.back().extent, 1);
        }
    }

    // Sometimes a row and a step walk along the same axis of x, which is padded by one on both sides.
    void choose_window() {
        if (below(2) == 0) return;
        for (std::size_t k = 0; k < axes_.size(); ++k) {
            if (axes_[k].kind == Axis::Kind::row) window_ = static_cast<int>(k);
            if (axes_[k].kind == Axis::Kind::step) window_step_ = static_cast<int>(k);
        }
        if (window_ < 0) return;
        window_length_ =
            axes_[static_cast<std::size_t>(window_)].extent + axes_[static_cast<std::size_t>(window_step_)].extent - 3;
        if (window_length_ < 1) window_ = -1;
    }
    bool is_in_window(std::size_t k) const {
        return window_ >= 0 && (static_cast<int>(k) == window_ || static_cast<int>(k) == window_step_);
    }

    // Steps of a packed array whose axes come in a random order.
    template <typename Uses>
    void lay_out(std::int64_t Axis::* step, std::int64_t& size, Uses uses) {
        const bool windowed = step == &Axis::x && window_ >= 0;
        std::vector<std::size_t> order;
        for (std::size_t k = 0; k < axes_.size(); ++k) {
            if (uses(axes_[k].kind) && !(windowed && static_cast<int>(k) == window_step_)) order.push_back(k);
        }
        std::shuffle(order.begin(), order.end(), random_);
        size = 1;
        for (const std::size_t k : order) {
            axes_[k].*step = size;
            size *= windowed && static_cast<int>(k) == window_ ? window_length_ : axes_[k].extent;
        }
        if (windowed) {
            axes_[static_cast<std::size_t>(window_step_)].*step = axes_[static_cast<std::size_t>(window_)].*step;
        }
    }

    bool advance(std::vector<std::int64_t>& at) const {
        for (std::size_t k = at.size(); k-- > 0;) {
            if (++at[k] < axes_[k].extent) return true;
            at[k] = 0;
        }
        return false;
    }

    // Exact in every type.
    std::vector<float> numbers(std::int64_t count) {
        std::vector<float> result;
        for (std::int64_t k = 0; k < count; ++k) result.push_back(static_cast<float>(below(255) - 127) / 64.0f);
        return result;
    }
    Data stored(const std::vector<float>& values) const {
        if (dtype_ == DType::float32) return Data::of(values);
        std::vector<std::uint16_t> bits;
        for (const float value : values) {
            bits.push_back(dtype_ == DType::float16 ? float_to_half(value) : float_to_bfloat(value));
        }
        return Data::of(bits);
    }

    std::mt19937_64 random_;
    DType dtype_ = DType::float32;
    std::vector<Axis> axes_;
    int window_ = -1, window_step_ = -1;
    std::int64_t window_length_ = 0;
    std::int64_t x_size_ = 0, w_size_ = 0, y_size_ = 0;
    bool bias_ = false, scale_ = false;
};

}  // namespace

TEST_CASE("products: random ones") {
    int tiles = 0;
    for (int number = 0; number < kernel_count(); ++number) {
        const std::uint64_t seed = test_seed() + static_cast<std::uint64_t>(number);
        RandomProduct product(seed);
        const loopir::Kernel kernel = product.kernel();
        const codegen::Source source = emitted(kernel, {.narrow = true});
        if (source.text.find("simdgroup_multiply_accumulate") != std::string::npos) ++tiles;
        std::string found;
        try {
            found = product.check(source);
        } catch (const InternalError& error) { found = error.what(); }
        CHECK_MESSAGE(found.empty(), "seed ", seed, ": ", found, "\n", loopir::print(kernel), source.text);
    }
    CHECK(tiles > 0);
}
