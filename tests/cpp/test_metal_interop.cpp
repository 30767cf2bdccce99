// Graphs in a Metal workflow of the caller's, on the simulated device: its device, queue, buffers, command buffers.
// Values are worked out by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "metal_objects.h"
#include "metal_sim/control.h"
#include "settled.h"
#include "topstitch/control.h"
#include "topstitch/error.h"
#include "topstitch/metal.h"
#include "topstitch/ops.h"

using namespace topstitch;
namespace objects = metal_objects;

namespace {

struct Setup {
    objects::Object mtl_device = objects::system_device();
    objects::Object queue = objects::new_queue(mtl_device);
    Device device = metal::device(mtl_device.get());
};

Setup& setup() {
    static Setup made;
    return made;
}

Executable compiled(const Graph& graph, const FeedTypes& feeds, const std::vector<Tensor>& targets,
                    const std::vector<Operation>& operations = {}) {
    CompileOptions options;
    options.device = setup().device;
    return compile(graph, feeds, targets, operations, options);
}

// y = 2 x + 1, of any length.
Executable doubling() {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{-1});
    return compiled(graph, {{x, {Shape{-1}, DType::float32}}}, {x * 2.0F + 1.0F});
}

template <typename F>
std::string message_of(const F& call) {
    try {
        call();
    } catch (const std::exception& error) { return error.what(); }
    return "";
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
}

}  // namespace

TEST_CASE("a device over the caller's, with a queue of the caller's") {
    Setup& own = setup();
    CHECK(own.device.info().type == "metal");
    CHECK(metal::device(own.mtl_device.get()) == own.device);
    CHECK(Device("metal").info().type == "metal");
    const Device with_queue = metal::device(own.mtl_device.get(), own.queue.get());
    CHECK(metal::device(own.mtl_device.get(), own.queue.get()) == with_queue);
    CHECK(!(with_queue == own.device));
    Graph graph;
    const Tensor x = graph.placeholder(Shape{3});
    CompileOptions options;
    options.device = with_queue;
    const std::vector<float> values{1, 2, 3};
    const NDArray in = NDArray::copy_of(values.data(), DType::float32, {3});
    CHECK(run(graph, {{x, in}}, {x * 3.0F}, {}, options)[0].at(2) == 9);
    CHECK(contains(message_of([] { metal::device(nullptr); }), "[metal] the device is null"));
}

TEST_CASE("arrays over the caller's buffers are used in place, and found again") {
    const objects::Object buffer = objects::new_buffer(setup().mtl_device, 4096);
    auto* floats = static_cast<float*>(objects::contents(buffer));
    for (int k = 0; k < 1024; ++k) floats[k] = static_cast<float>(k);
    const NDArray in = metal::array(setup().device, buffer.get(), DType::float32, {100}, 16);
    const NDArray again = metal::array(setup().device, buffer.get(), DType::float32, {4, 5});
    CHECK(in.at(0) == 4);
    const NDArray out = metal::array(setup().device, buffer.get(), DType::float32, {100}, 2048);
    CHECK(metal::buffer(setup().device, in) == std::pair<void*, std::size_t>(buffer.get(), 16));
    const NDArray result = doubling().run(std::vector<NDArray>{in}, std::vector<NDArray>{out})[0];
    CHECK(result.data() == floats + 512);
    for (int k = 0; k < 100; ++k) CHECK(floats[512 + k] == 2 * (4 + k) + 1);
    CHECK(floats[612] == 612);

    const NDArray made = doubling().run(std::vector<NDArray>{in})[0];
    const auto [held, offset] = metal::buffer(setup().device, made);
    CHECK(held != nullptr);
    CHECK(offset == 0);
    const NDArray host = NDArray::zeros(DType::float32, {3});
    CHECK(
        contains(message_of([&] { metal::buffer(setup().device, host); }), "does not lie in a buffer of this device"));
}

TEST_CASE("runs are encoded between the caller's own commands") {
    const Executable executable = doubling();
    const objects::Object buffer = objects::new_buffer(setup().mtl_device, 64 * sizeof(float));
    const NDArray in = metal::array(setup().device, buffer.get(), DType::float32, {64});
    std::fill_n(in.data_as<float>(), 64, 7.0F);
    const objects::Object commands = objects::new_command_buffer(setup().queue);
    objects::fill(commands, buffer, 0);
    const NDArray first = metal::encode(executable, commands.get(), std::vector<NDArray>{in})[0];  // 2 * 0 + 1
    std::vector<NDArray> second = metal::encode(executable, commands.get(), std::vector<NDArray>{first});
    CHECK(in.at(0) == 7);  // nothing has run
    objects::commit_and_wait(commands);
    CHECK(in.at(63) == 0);
    CHECK(first.at(63) == 1);
    CHECK(second[0].at(0) == 3);
    CHECK(contains(message_of([&] { metal::encode(executable, commands.get(), std::vector<NDArray>{in}); }),
                   "has been committed"));
}

TEST_CASE("what is encoded stays alive until the GPU is done, or the commands are dropped") {
    const std::vector<float> values{1, 2, 3};
    const objects::Object kept = objects::new_buffer(setup().mtl_device, 3 * sizeof(float));
    {
        const Executable executable = doubling();
        const objects::Object commands = objects::new_command_buffer(setup().queue);
        metal::encode(executable, commands.get(), std::vector{NDArray::copy_of(values.data(), DType::float32, {3})});
    }  // never committed
    const objects::Object commands = objects::new_command_buffer(setup().queue);
    {
        const Executable executable = doubling();
        const NDArray out = metal::array(setup().device, kept.get(), DType::float32, {3});
        metal::encode(executable, commands.get(), std::vector{NDArray::copy_of(values.data(), DType::float32, {3})},
                      std::vector{out});
    }
    objects::commit_and_wait(commands);
    CHECK(static_cast<float*>(objects::contents(kept))[2] == 7);
}

TEST_CASE("what cannot be encoded is refused with a reason, and the command buffer goes on") {
    const objects::Object commands = objects::new_command_buffer(setup().queue);
    const NDArray host = NDArray::zeros(DType::float32, {8});
    const NDArray elsewhere = NDArray::zeros(DType::float32, {8});
    const std::vector<NDArray> inputs{host};
    CHECK(contains(message_of([&] { metal::encode(doubling(), commands.get(), inputs, std::vector{elsewhere}); }),
                   "a result is to lie in memory that the device does not reach"));
    {
        Graph graph;
        const Tensor x = graph.placeholder(Shape{8});
        const Tensor v = graph.variable(NDArray::zeros(DType::float32, {8}), "v");
        const Executable executable = compiled(graph, {{x, {Shape{8}, DType::float32}}}, {v}, {graph.assign(v, v + x)});
        CHECK(contains(message_of([&] { metal::encode(executable, commands.get(), inputs); }),
                       "the graph changes variables"));
    }
    {
        Graph graph;
        const Tensor x = graph.placeholder(Shape{8}, DType::float64);
        const Executable executable = compiled(graph, {{x, {Shape{8}, DType::float64}}}, {x * x});
        const std::vector<NDArray> doubles{NDArray::zeros(DType::float64, {8})};
        CHECK(contains(message_of([&] { metal::encode(executable, commands.get(), doubles); }),
                       "a kernel that runs on the CPU"));
    }
    {
        Graph graph;
        const Tensor x = graph.placeholder(Shape{8});
        const Executable on_cpu = compile(graph, {{x, {Shape{8}, DType::float32}}}, {x + x}, {}, {});
        CHECK(contains(message_of([&] { metal::encode(on_cpu, commands.get(), inputs); }), "has no command buffers"));
    }
    CHECK(contains(message_of([&] { metal::encode(doubling(), nullptr, inputs); }), "the command buffer is null"));
    {
        // A kernel before the branch: nothing of it may be left in the commands, whose memory is free by then.
        Graph graph;
        const Tensor x = graph.placeholder(Shape{8});
        const Tensor positive = graph.placeholder(Shape{}, DType::boolean);
        const Tensor twice = x * 2.0F;
        const Tensor y =
            if_else(positive, [&] { return std::vector{twice + 1.0F}; }, [&] { return std::vector{twice - 1.0F}; })[0];
        const Executable executable =
            compiled(graph, {{x, {Shape{8}, DType::float32}}, {positive, {Shape{}, DType::boolean}}}, {y + twice});
        const std::vector<NDArray> both{host, NDArray::scalar(1, DType::boolean)};
        CHECK(contains(message_of([&] { metal::encode(executable, commands.get(), both); }), "waits for the GPU"));
    }
    {
        const objects::Object buffer = objects::new_buffer(setup().mtl_device, 16384);
        const NDArray x = metal::array(setup().device, buffer.get(), DType::float32, {8});
        const NDArray y = metal::array(setup().device, buffer.get(), DType::float32, {8}, 4);
        CHECK(contains(message_of([&] { metal::encode(doubling(), commands.get(), std::vector{x}, std::vector{y}); }),
                       "an input overlaps a result"));
    }
    const NDArray result = metal::encode(doubling(), commands.get(), inputs)[0];
    objects::commit_and_wait(commands);
    CHECK(result.at(5) == 1);
}

TEST_CASE("devices over one GPU share its memory") {
    const Device with_queue = metal::device(setup().mtl_device.get(), setup().queue.get());
    const objects::Object buffer = objects::new_buffer(setup().mtl_device, 100 * sizeof(float));  // no whole pages
    const NDArray in = metal::array(setup().device, buffer.get(), DType::float32, {100});
    std::fill_n(in.data_as<float>(), 100, 3.0F);
    CHECK(metal::buffer(with_queue, in).first == buffer.get());
    Graph graph;
    const Tensor x = graph.placeholder(Shape{100});
    CompileOptions options;
    options.device = with_queue;
    const Executable executable = compile(graph, {{x, {Shape{100}, DType::float32}}}, {x + x}, {}, options);
    const objects::Object commands = objects::new_command_buffer(setup().queue);
    objects::fill(commands, buffer, 0);
    const NDArray result = metal::encode(executable, commands.get(), std::vector{in})[0];
    objects::commit_and_wait(commands);
    CHECK(result.at(99) == 0);  // what the commands before it wrote, no copy
}

TEST_CASE("queues wait for the caller's commands through a shared event, and the other way round") {
    const std::map<std::string, std::int64_t> before = metal_sim_test::settled_objects();
    {
        const objects::Object shared = objects::new_event(setup().mtl_device);
        const Event event = metal::event(shared.get());
        const objects::Object buffer = objects::new_buffer(setup().mtl_device, 16);
        const objects::Object result = objects::new_buffer(setup().mtl_device, 16);
        const NDArray in = metal::array(setup().device, buffer.get(), DType::float32, {4});
        const NDArray out = metal::array(setup().device, result.get(), DType::float32, {4});
        CHECK(event.value() == 0);
        CHECK(!event.wait(1, 0.01));

        // Ours waits for 1, theirs gives it; theirs waits for 2, ours gives it; then theirs gives 3.
        const Queue queue(setup().device);
        CommandBuffer ours(queue);
        ours.wait_for(event, 1);
        doubling().encode(ours, {in}, {out});
        ours.signal(event, 2);
        const Job job = ours.commit();
        CHECK(!job.wait(0.01));
        const objects::Object theirs = objects::new_command_buffer(setup().queue);
        objects::fill(theirs, buffer, 0);  // zeros
        objects::encode_signal(theirs, shared, 1);
        objects::encode_wait(theirs, shared, 2);
        objects::encode_signal(theirs, shared, 3);
        objects::commit(theirs);
        CHECK(job.wait(30.0));
        CHECK(job.error() == nullptr);
        CHECK(event.wait(3, 30.0));
        CHECK(objects::value_of(shared) == 3);
        CHECK(static_cast<float*>(objects::contents(result))[3] == 1);  // 2 * 0 + 1

        // The host, and a second event over the same object.
        const Event same = metal::event(shared.get());
        CHECK(same.value() == 3);
        CHECK(contains(message_of([&] { same.signal(2); }), "the value is 3 and cannot go back to 2"));
        same.signal(5);
        CHECK(objects::value_of(shared) == 5);
        CHECK(event.wait(5, 30.0));
        CHECK(event.value() == 5);
        objects::set_value(shared, 9);
        CHECK(event.value() == 9);
        CHECK(event.wait(8, 30.0));
        CHECK(!event.wait(10, 0.0));  // asked for, and never reached
        CHECK(contains(message_of([] { metal::event(nullptr); }), "[metal] the shared event is null"));
    }
    CHECK(metal_sim_test::settled_objects() == before);
}

TEST_CASE("memory that the GPU cannot have is a MemoryError, and the next run goes on") {
    const std::vector<float> values{1, 2, 3};
    const NDArray in = NDArray::copy_of(values.data(), DType::float32, {3});
    const Executable executable = doubling();
    metal_sim::settings().out_of_memory = true;
    CHECK_THROWS_WITH_AS(executable.run(std::vector{in}), doctest::Contains("[metal] the GPU has not memory enough"),
                         MemoryError);
    metal_sim::settings().out_of_memory = false;
    CHECK(executable.run(std::vector{in})[0].at(2) == 7);
}

TEST_CASE("variables are read as they are when the run is encoded") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{3});
    const Tensor v = graph.variable(NDArray::zeros(DType::float32, {3}), "v");
    const Executable executable = compiled(graph, {{x, {Shape{3}, DType::float32}}}, {x + v});
    CompileOptions options;
    options.device = setup().device;
    const NDArray ones = NDArray::copy_of(std::vector<float>{1, 1, 1}.data(), DType::float32, {3});
    const objects::Object commands = objects::new_command_buffer(setup().queue);
    const NDArray result = metal::encode(executable, commands.get(), std::vector{ones})[0];
    run(graph, {}, {}, {graph.assign(v, v + 5.0F)}, options);
    objects::commit_and_wait(commands);
    CHECK(result.at(0) == 1);
}

TEST_CASE("unsuited buffers are refused with a reason") {
    const Device& device = setup().device;
    const objects::Object buffer = objects::new_buffer(setup().mtl_device, 100);
    const auto message = [&](const Sizes& shape, std::size_t offset) {
        return message_of([&] { metal::array(device, buffer.get(), DType::float32, shape, offset); });
    };
    CHECK(message({25}, 0).empty());
    CHECK(contains(message({26}, 0), "an array of 104 bytes at offset 0 reaches beyond the buffer of 100"));
    CHECK(contains(message({1}, 104), "reaches beyond"));
    CHECK(contains(message({1}, 2), "offset 2 is no multiple of the 4 bytes of float32"));
    const objects::Object hidden = objects::new_buffer(setup().mtl_device, 100, false);
    CHECK(contains(message_of([&] { metal::array(device, hidden.get(), DType::float32, {1}); }),
                   "storage mode must be shared"));
    CHECK(contains(message_of([&] { metal::array(Device("cpu"), buffer.get(), DType::float32, {1}); }),
                   "\"cpu\" is not a Metal device"));
}
