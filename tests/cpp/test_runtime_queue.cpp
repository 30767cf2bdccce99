// Queues, command buffers, events and jobs from C++, with many threads: run under TSan.
// Expected values are worked out by hand.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "topstitch/topstitch.h"

using namespace topstitch;

namespace {

NDArray filled(std::int64_t size, float value) {
    NDArray array(DType::float32, {size});
    for (std::int64_t k = 0; k < size; ++k) array.data_as<float>()[k] = value;
    return array;
}

// y = 2 x + 1 of a vector of any length.
Executable doubler() {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{-1}, DType::float32, "x");
    return compile(graph, {{x, {Shape{-1}, DType::float32}}}, {x * 2.0 + 1.0});
}

}  // namespace

TEST_CASE("queue: jobs run in order and give their results") {
    const Executable executable = doubler();
    const Queue queue;
    std::vector<int> order;
    std::vector<Job> jobs;
    for (int k = 0; k < 50; ++k) {
        jobs.push_back(executable.run_async({filled(k + 2, static_cast<float>(k))}, {}, queue));
        jobs.back().add_completed_handler([&order, k] { order.push_back(k); });
    }
    CHECK(queue.wait());
    for (int k = 0; k < 50; ++k) {
        const NDArray result = jobs[static_cast<std::size_t>(k)].results().at(0);
        CHECK(result.size() == k + 2);
        CHECK(result.at(0) == 2.0 * k + 1);
        CHECK(jobs[static_cast<std::size_t>(k)].status() == JobStatus::completed);
    }
    // The last handler may still be running when the last job is done.
    const Job last = executable.run_async({filled(2, 0)}, {}, queue);
    last.wait();
    CHECK(order.size() == 50);
    for (int k = 0; k < 50; ++k) CHECK(order[static_cast<std::size_t>(k)] == k);
}

TEST_CASE("queue: a failing run reports through its job, and the queue goes on") {
    const Executable executable = doubler();
    const Queue queue;
    const Job wrong = executable.run_async({NDArray(DType::float64, {3})}, {}, queue);
    const Job right = executable.run_async({filled(3, 5)}, {}, queue);
    CHECK_THROWS_AS(wrong.results(), TypeError);
    CHECK(wrong.status() == JobStatus::failed);
    CHECK(right.results().at(0).at(2) == 11);
}

TEST_CASE("command buffer: later runs read what earlier ones write") {
    const Executable executable = doubler();
    const Queue queue;
    CommandBuffer commands(queue);
    NDArray value = filled(4, 1);
    for (int k = 0; k < 5; ++k) value = executable.encode(commands, {value}).at(0);
    const NDArray reversed = executable.encode(commands, {value.slice(0, 3, NDArray::min_index, -1)}).at(0);
    const Job job = commands.commit();
    CHECK_THROWS_AS(commands.commit(), UserError);
    CHECK_THROWS_AS(executable.encode(commands, {value}), UserError);
    CHECK(job.results().size() == 6);
    CHECK(value.at(0) == 63);  // 1, 3, 7, 15, 31, 63
    CHECK(reversed.at(0) == 127);
}

TEST_CASE("event: queues take turns") {
    const Executable executable = doubler();
    const Queue left;
    const Queue right;
    const Event event;
    NDArray value = filled(3, 0);
    std::vector<Job> jobs;
    for (std::uint64_t turn = 0; turn < 20; ++turn) {
        CommandBuffer commands(turn % 2 == 0 ? left : right);
        commands.wait_for(event, turn);
        value = executable.encode(commands, {value}).at(0);
        commands.signal(event, turn + 1);
        jobs.push_back(commands.commit());
    }
    CHECK(event.wait(20));
    CHECK(value.at(0) == (1 << 20) - 1);
    CHECK_THROWS_AS(event.signal(3), UserError);
    CHECK(!event.wait(21, 0.01));
}

TEST_CASE("event: whoever waits for work that failed is told so") {
    const Executable executable = doubler();
    const Queue first;
    const Queue second;
    const Event event;
    CommandBuffer fails(first);
    fails.wait_for(event, 5);  // never comes
    executable.encode(fails, {filled(2, 1)});
    fails.signal(event, 1);
    CommandBuffer waits(second);
    waits.wait_for(event, 1);
    executable.encode(waits, {filled(2, 1)});
    const Job cancelled = fails.commit();
    const Job wrong = waits.commit();
    cancelled.cancel();
    CHECK_THROWS_AS(cancelled.results(), Cancelled);
    CHECK_THROWS_AS(wrong.results(), UserError);
    CHECK_THROWS_AS(event.wait(1), UserError);
    CHECK(event.value() == 0);
}

TEST_CASE("job: cancelled while it waits, its arrays are let go") {
    const Executable executable = doubler();
    const Queue queue;
    const Event event;
    CommandBuffer blocked(queue);
    blocked.wait_for(event, 1);
    executable.encode(blocked, {filled(2, 1)});
    const Job first = blocked.commit();
    auto buffer = std::make_shared<std::atomic<int>>(0);
    float data[2] = {1, 2};
    const auto borrowed = [&] {
        return NDArray(Buffer::borrow(data, sizeof data, true, [buffer] { ++*buffer; }), data, DType::float32, {2},
                       {4});
    };
    const Job second = executable.run_async({borrowed()}, {}, queue);
    CHECK(*buffer == 0);
    CHECK(second.cancel());
    CHECK(*buffer == 1);
    CHECK_THROWS_AS(second.results(), Cancelled);
    event.signal(1);
    CHECK(first.results().at(0).at(1) == 3);
}

TEST_CASE("job: a handler that waits for its own queue is told that this would never end") {
    const Executable executable = doubler();
    const Queue queue;
    std::atomic<int> refused{0};
    const Event event;
    CommandBuffer commands(queue);
    commands.wait_for(event, 1);
    const Job first = commands.commit();
    Job second;
    first.add_completed_handler([&] {
        try {
            second.wait();
        } catch (const UserError&) { ++refused; }
    });
    second = executable.run_async({filled(2, 1)}, {}, queue);
    event.signal(1);
    second.wait();
    CHECK(refused == 1);
}

TEST_CASE("runs: one executable from many threads, shared variables, changing sizes") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{-1}, DType::float32, "x");
    const Tensor total = graph.variable(NDArray::scalar(0.0, DType::float64), "total");
    const Tensor count = graph.variable(NDArray::scalar(0, DType::int64), "count");
    const Operation add = graph.assign(total, total + cast(sum(x), DType::float64));
    const Operation step = graph.assign(count, count + 1.0);
    const Executable executable =
        compile(graph, {{x, {Shape{-1}, DType::float32}}}, {x + 1.0}, {add, step}, {.threads = 1});
    constexpr int threads = 8;
    constexpr int runs = 50;
    std::atomic<int> wrong{0};
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
        workers.emplace_back([&, t] {
            for (int k = 0; k < runs; ++k) {
                const auto result = executable.run(std::vector{filled(2 + (t + k) % 7, static_cast<float>(t))});
                if (result.at(0).size() != 2 + (t + k) % 7 || result.at(0).at(1) != t + 1) ++wrong;
            }
        });
    }
    for (std::thread& worker : workers) worker.join();
    double expected = 0;
    for (int t = 0; t < threads; ++t) {
        for (int k = 0; k < runs; ++k) expected += t * (2 + (t + k) % 7);
    }
    CHECK(wrong == 0);
    CHECK(graph.variable_value(total).at(0) == expected);
    CHECK(graph.variable_value(count).at(0) == threads * runs);
}

TEST_CASE("compiling: many threads ask for equal graphs, which share one program") {
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&] {
            Graph graph;
            const Tensor x = graph.placeholder(Shape{-1, 3});
            const Tensor y = exp(x) * 1.75 - x;
            const auto [executable, job] = compile_async(graph, {{x, {Shape{-1, 3}, DType::float32}}}, {y});
            job.results();
            const NDArray in = NDArray::zeros(DType::float32, {5, 3});
            if (executable.run(std::vector{in}).at(0).at(14) != 1.75) ++wrong;
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("profile: kernels with their bytes and FLOPs") {
    Graph graph;
    const Tensor a = graph.placeholder(Shape{64, 32});
    const Tensor b = graph.placeholder(Shape{32, 48});
    const Executable executable =
        compile(graph, {{a, {Shape{64, 32}, DType::float32}}, {b, {Shape{32, 48}, DType::float32}}}, {matmul(a, b)});
    const Profile profile = executable.profile(
        std::vector{NDArray::zeros(DType::float32, {64, 32}), NDArray::zeros(DType::float32, {32, 48})}, 3);
    REQUIRE(!profile.kernels.empty());
    std::int64_t flops = 0;
    for (const Profile::Kernel& kernel : profile.kernels) flops += kernel.cost.flops;
    CHECK(flops >= 2 * 64 * 32 * 48);
    CHECK(flops < 3 * 64 * 32 * 48);
    CHECK(profile.kernels.back().cost.bytes_written == 64 * 48 * 4);
    CHECK(profile.str().find("matmul") != std::string::npos);
    CHECK(profile.trace_json().find("\"traceEvents\"") != std::string::npos);
}
