// Convolutions and their gradients as Metal source, run on the simulated device in three orders of threads, against
// plain loops in double. They are products in tiles whose addresses and guards make windows and padding.
#include <algorithm>

#include "test_codegen_products.h"

using namespace topstitch;
using namespace topstitch::testing;

namespace {

// Two spatial axes, NHWC by HWIO or NCHW by OIHW.
struct Convolution {
    std::int64_t images, height, width, channels, filters, window, stride, dilation, padding, groups;
    bool channels_last;

    std::int64_t out(std::int64_t size) const {
        return (size + 2 * padding - (window - 1) * dilation - 1) / stride + 1;
    }
    Sizes x_shape() const {
        return channels_last ? Sizes{images, height, width, channels} : Sizes{images, channels, height, width};
    }
    Sizes w_shape() const {
        const std::int64_t inner = channels / groups;
        return channels_last ? Sizes{window, window, inner, filters} : Sizes{filters, inner, window, window};
    }
    std::int64_t x_at(std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) const {
        return channels_last ? ((n * height + y) * width + x) * channels + c
                             : ((n * channels + c) * height + y) * width + x;
    }
    std::int64_t w_at(std::int64_t o, std::int64_t c, std::int64_t u, std::int64_t v) const {
        const std::int64_t inner = channels / groups;
        return channels_last ? ((u * window + v) * inner + c) * filters + o
                             : ((o * inner + c) * window + u) * window + v;
    }
    // Calls `use` with (result, element of the image, weight) for every product.
    void for_each_product(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& use) const {
        const std::int64_t rows = out(height), columns = out(width), inner = channels / groups;
        const std::int64_t results = images * filters * rows * columns;
        for (std::int64_t result = 0; result < results; ++result) {
            const std::int64_t o = channels_last ? result % filters : result / (rows * columns) % filters;
            const std::int64_t place = channels_last ? result / filters : result;
            const std::int64_t left = place % columns, top = place / columns % rows;
            const std::int64_t n = place / columns / rows / (channels_last ? 1 : filters);
            for (std::int64_t c = 0; c < inner; ++c) {
                for (std::int64_t u = 0; u < window; ++u) {
                    for (std::int64_t v = 0; v < window; ++v) {
                        const std::int64_t y = top * stride + u * dilation - padding;
                        const std::int64_t x = left * stride + v * dilation - padding;
                        if (y < 0 || y >= height || x < 0 || x >= width) continue;
                        use(result, x_at(n, o / (filters / groups) * inner + c, y, x), w_at(o, c, u, v));
                    }
                }
            }
        }
    }
};

void check_convolution(const Convolution& convolution, DType dtype, Form form = Form::tiles) {
    Graph graph;
    const NDArray image = numbers(dtype, convolution.x_shape(), 1);
    const NDArray weights = numbers(dtype, convolution.w_shape(), 2);
    const Tensor x = graph.placeholder(shape_of(image), dtype, "image");
    const Tensor w = graph.placeholder(shape_of(weights), dtype, "weights");
    const Tensor y =
        conv2d(x, w, {convolution.stride}, {convolution.dilation}, Ints{convolution.padding}, convolution.groups,
               convolution.channels_last ? "NHWC" : "NCHW", convolution.channels_last ? "HWIO" : "OIHW");
    std::vector<SumOfProducts> sums(
        static_cast<std::size_t>(convolution.images * convolution.filters * convolution.out(convolution.height) *
                                 convolution.out(convolution.width)));
    convolution.for_each_product([&](std::int64_t result, std::int64_t from, std::int64_t by) {
        sums[static_cast<std::size_t>(result)].add(image.at(from), weights.at(by));
    });
    // A plain epilogue that keeps errors as they are.
    check(graph, {{x, image}, {w, weights}}, relu(y), form, [&](std::int64_t flat) {
        Expected expected = sums[static_cast<std::size_t>(flat)].expected();
        expected.value = std::max(expected.value, 0.0);
        return expected;
    });
}

}  // namespace

TEST_CASE("convolutions: windows and padding are addresses and guards") {
    check_convolution({2, 9, 10, 8, 12, 3, 1, 1, 1, 1, true}, f32);
    check_convolution({1, 11, 9, 5, 10, 3, 2, 1, 1, 1, true}, DType::float16);
    check_convolution({2, 8, 8, 4, 9, 3, 1, 1, 1, 1, false}, f32);
    check_convolution({1, 12, 11, 3, 16, 3, 2, 2, 2, 1, false}, DType::bfloat16);
    check_convolution({2, 7, 7, 16, 16, 1, 1, 1, 0, 1, false}, f32);
}

TEST_CASE("convolutions: groups; channels that are each by itself are no product") {
    check_convolution({2, 6, 7, 8, 16, 3, 1, 1, 1, 2, false}, f32);
    check_convolution({1, 6, 7, 12, 12, 3, 1, 1, 1, 12, false}, f32, Form::loops);
}

TEST_CASE("convolutions: gradients") {
    Graph graph;
    const Convolution convolution{2, 8, 8, 8, 12, 3, 1, 1, 1, 1, true};
    const NDArray image = numbers(f32, convolution.x_shape(), 1);
    const NDArray weights = numbers(f32, convolution.w_shape(), 2);
    const NDArray gradient = numbers(f32, {2, 8, 8, 12}, 3);
    const Tensor x = graph.placeholder(shape_of(image), f32, "image");
    const Tensor w = graph.placeholder(shape_of(weights), f32, "weights");
    const Tensor g = graph.placeholder(Shape{2, 8, 8, 12}, f32, "gradient");
    std::vector<SumOfProducts> of_image(static_cast<std::size_t>(image.size()));
    std::vector<SumOfProducts> of_weights(static_cast<std::size_t>(weights.size()));
    convolution.for_each_product([&](std::int64_t result, std::int64_t from, std::int64_t by) {
        of_image[static_cast<std::size_t>(from)].add(weights.at(by), gradient.at(result));
        of_weights[static_cast<std::size_t>(by)].add(image.at(from), gradient.at(result));
    });
    const Feeds feeds{{x, image}, {w, weights}, {g, gradient}};
    check(graph, feeds, conv2d_weights_gradient(g, x, w, {1}, {1}, Ints{1}, 1, "NHWC", "HWIO"), Form::tiles,
          [&](std::int64_t flat) { return of_weights[static_cast<std::size_t>(flat)].expected(); });
    check(graph, feeds, conv2d_data_gradient(g, w, x, {1}, {1}, Ints{1}, 1, "NHWC", "HWIO"), Form::tiles,
          [&](std::int64_t flat) { return of_image[static_cast<std::size_t>(flat)].expected(); });
}
