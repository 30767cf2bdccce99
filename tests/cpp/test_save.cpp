// Saving and loading from C++: graphs, executables and variables, and files that are damaged at random.
// Under the sanitizers this is what covers loading; forms and messages are tested from Python.
#include <array>
#include <cstring>
#include <random>

#include "runtime/executable_impl.h"
#include "test_io_support.h"
#include "topstitch/topstitch.h"

using namespace topstitch;
using namespace topstitch::io_test;

namespace {

NDArray ramp(const Sizes& shape, float step) {
    const NDArray array(DType::float32, shape);
    for (std::int64_t k = 0; k < array.size(); ++k) array.data_as<float>()[k] = step * static_cast<float>(k);
    return array;
}

std::string bytes_of(const NDArray& array) {
    const NDArray packed = array.contiguous();
    return {static_cast<const char*>(packed.data()), packed.bytes()};
}

// A product with a variable that a step changes, beside a constant that no target needs.
struct Example {
    Graph graph;
    Tensor x = graph.placeholder(Shape{Dim::symbol("n"), 6}, DType::float32, "x");
    Tensor w = graph.variable(ramp({6, 5}, 0.1F), "w");
    Tensor unused = graph.constant(ramp({30}, 1), "unused");
    Tensor y = softmax(matmul(x, w), -1);
    Operation step = graph.assign(w, w * 0.5, "step");

    Executable executable() const { return compile(graph, {{x, {x.shape(), x.dtype()}}}, {y}, {step}); }
};

std::string mutated(const std::string& good, std::mt19937& random) {
    std::string bytes = good;
    std::uint64_t length = 0;
    std::memcpy(&length, good.data(), 8);
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
        const std::size_t at = 8 + random() % std::min<std::size_t>(bytes.size() - 8, length);
        switch (random() % 5) {
            case 0:
                bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 7));
                break;
            case 1:
                bytes.erase(at, 1 + random() % 9);
                break;
            case 2:
                bytes.insert(at, good.substr(random() % good.size(), random() % 40));
                break;
            default: {
                const std::size_t first = bytes.find_first_of("0123456789", at);
                if (first == std::string::npos) break;
                const std::size_t last = std::min(bytes.find_first_not_of("0123456789", first), bytes.size());
                const std::array<const char*, 7> numbers{"0", "1", "2", "-1", "4294967296", "9223372036854775807",
                                                         "17"};
                bytes.replace(first, last - first, numbers[random() % numbers.size()]);
            }
        }
        if (bytes.size() < 64) bytes = good;
    }
    const std::uint64_t rest = good.size() - 8 - length;
    length = bytes.size() - 8 - std::min<std::uint64_t>(rest, bytes.size() - 8);
    std::memcpy(bytes.data(), &length, 8);
    return bytes;
}

template <typename Load>
int fuzz(const std::filesystem::path& path, int rounds, unsigned seed, const Load& load) {
    const std::string good = read_file(path);
    std::mt19937 random(seed);
    int loaded = 0;
    for (int round = 0; round < rounds; ++round) {
        write_file(path, mutated(good, random));
        try {
            load();
            ++loaded;
        } catch (const UserError&) {  // as it should be
        } catch (const std::exception& error) { FAIL_CHECK("seed ", seed, ", round ", round, ": ", error.what()); }
    }
    return loaded;
}

}  // namespace

TEST_CASE("save: a graph with the present values of its variables") {
    const Folder folder;
    const Example example;
    const NDArray value = ramp({6, 5}, -2);
    Graph graph = example.graph;
    graph.set_variable_value(example.w, value);
    save(graph, folder.path() / "g");
    const Graph loaded = load_graph(folder.path() / "g");
    loaded.verify();
    CHECK(loaded.structural_hash() == graph.structural_hash());
    REQUIRE(loaded.variables().size() == 1);
    CHECK(bytes_of(loaded.variable_value(loaded.variables()[0])) == bytes_of(value));
}

TEST_CASE("save: names of any bytes") {
    const Folder folder;
    Graph graph;
    graph.constant(ramp({20}, 1), "\xff\xfe");
    graph.variable(ramp({2}, 1), std::string("\0\"\n\xe2\x82\xac", 6));
    save(graph, folder.path() / "g");
    const Graph loaded = load_graph(folder.path() / "g");
    for (std::size_t k = 0; k < 2; ++k) CHECK(loaded.operations()[k].name() == graph.operations()[k].name());
    CHECK(Graph::parse(graph.str()).operations()[0].name() == "\xff\xfe");
}

TEST_CASE("save: an executable gives the same bits, and is compiled for the same shapes") {
    const Folder folder;
    const Example example;
    const Executable executable = example.executable();
    for (const std::int64_t rows : {3, 1, 0}) executable.run(std::vector{ramp({rows, 6}, 0.3F)});
    save(executable, folder.path() / "e", {{"author", "\xc3\xa9"}});
    std::map<std::string, std::string> metadata{{"old", ""}};
    const Executable loaded = load_executable(folder.path() / "e", {}, &metadata);
    CHECK(metadata == std::map<std::string, std::string>{{"author", "\xc3\xa9"}});
    CHECK(loaded.variants() == 3);
    CHECK(loaded.impl()->compiled_shapes() == executable.impl()->compiled_shapes());
    for (const Operation& operation : loaded.graph().operations()) CHECK(operation.name() != "unused");
    for (const std::int64_t rows : {3, 1, 0, 7}) {
        const std::vector inputs{ramp({rows, 6}, 0.7F)};
        CHECK(bytes_of(loaded.run(inputs)[0]) == bytes_of(executable.run(inputs)[0]));
    }
    CHECK(contains(message_of([&] { save(executable, folder.path() / "e", {{"topstitch.x", ""}}); }),
                   "keeps for itself"));
    CHECK(contains(message_of([&] { save(Executable(), folder.path() / "e"); }), "empty Executable"));
}

TEST_CASE("save: an executable whose feed has no rank") {
    const Folder folder;
    Graph graph;
    const Tensor x = graph.placeholder(Shape::unranked());
    const Tensor y = exp(x);
    const Executable executable = find_executable(graph, {x}, {y}, {}, {});
    executable.run(std::vector{ramp({2, 2}, 1)});
    executable.run(std::vector{ramp({3}, 1)});
    save(executable, folder.path() / "e");
    const Executable loaded = load_executable(folder.path() / "e");
    CHECK(loaded.variants() == 2);
    const std::vector inputs{ramp({2, 3, 4}, 0.1F)};
    CHECK(bytes_of(loaded.run(inputs)[0]) == bytes_of(executable.run(inputs)[0]));
}

TEST_CASE("save: variables come back all or none") {
    const Folder folder;
    const Example example;
    Graph graph = example.graph;
    const NDArray before = graph.variable_value(example.w);
    save_variables(graph, folder.path() / "v");
    graph.set_variable_value(example.w, ramp({6, 5}, 9));
    load_variables(graph, folder.path() / "v");
    CHECK(bytes_of(graph.variable_value(example.w)) == bytes_of(before));
    save_arrays({{"w", ramp({6, 5}, 3)}, {"v", ramp({1}, 3)}}, folder.path() / "v");
    CHECK(contains(message_of([&] { load_variables(graph, folder.path() / "v"); }), "unknown in the graph: v"));
    CHECK(bytes_of(graph.variable_value(example.w)) == bytes_of(before));
}

TEST_CASE("save: damaged graphs") {
    const Folder folder;
    const auto path = folder.path() / "g";
    save(Example().graph, path);
    CHECK(fuzz(path, 1500, 1, [&] { load_graph(path).verify(); }) > 0);
}

TEST_CASE("save: damaged executables") {
    const Folder folder;
    const auto path = folder.path() / "e";
    save(Example().executable(), path);
    CHECK(fuzz(path, 300, 2, [&] { load_executable(path); }) > 0);
}
