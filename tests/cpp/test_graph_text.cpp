// Tests of the text of graphs: exact lines, and the round trip of every kind of value.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "graph/text.h"
#include "graph/text_reader.h"
#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

namespace {

// The value after writing and reading it.
Attribute round_trip(const Attribute& value) {
    const std::string text = attribute_text(value);
    TextReader reader(text);
    Attribute back = reader.attribute(kind_of(value));
    CHECK(reader.at_end());
    return back;
}

void check_round_trip(const Attribute& value) {
    CAPTURE(attribute_text(value));
    CHECK(equal(round_trip(value), value));
}

}  // namespace

TEST_CASE("attributes read well") {
    CHECK(attribute_text(true) == "true");
    CHECK(attribute_text(std::int64_t{-3}) == "-3");
    CHECK(attribute_text(1.0) == "1.0");
    CHECK(attribute_text(0.1) == "0.1");
    CHECK(attribute_text(-0.0) == "-0.0");
    CHECK(attribute_text(1e300) == "1e+300");
    CHECK(attribute_text(-std::numeric_limits<double>::infinity()) == "-inf");
    CHECK(attribute_text(std::numeric_limits<double>::quiet_NaN()) == "nan");
    CHECK(attribute_text(std::string("a \"b\"\\\n\x01")) == R"("a \"b\"\\\n\x01")");
    CHECK(attribute_text(DType::bfloat16) == "bfloat16");
    CHECK(attribute_text(std::vector<std::int64_t>{0, -1}) == "[0, -1]");
    CHECK(attribute_text(std::vector<std::int64_t>{}) == "[]");
    CHECK(attribute_text(Shape{Dim::symbol("batch") * 2 + 1, Dim::unknown(), 3}) == "(2*batch + 1, ?, 3)");
    CHECK(attribute_text(Shape{}) == "()");
    CHECK(attribute_text(Shape::unranked()) == "(?...)");
    CHECK(attribute_text(floats({2}, {0.1f, 2})) == "float32(2,)[0.1, 2.0]");
    CHECK(attribute_text(array_of<std::uint8_t>(DType::boolean, {2}, {1, 0})) == "bool(2,)[true, false]");
    CHECK(attribute_text(array_of<float>(DType::complex64, {}, {1, -2})) == "complex64()[(1.0, -2.0)]");
    CHECK(attribute_text(NDArray::zeros(DType::uint8, {17})) == "uint8(17,)base64\"AAAAAAAAAAAAAAAAAAAAAAA=\"");
    CHECK(attribute_text(NDArray(DType::float32, {0, 3})) == "float32(0, 3)[]");
}

TEST_CASE("scalars round trip exactly") {
    using Limits = std::numeric_limits<double>;
    for (const double value : {0.0, -0.0, 1.0, 0.1, 1.0 / 3, Limits::min(), Limits::denorm_min(), Limits::max(),
                               Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN(),
                               std::bit_cast<double>(std::uint64_t{0x7ff0000000000001U}), 9007199254740993.0}) {
        check_round_trip(value);
    }
    std::mt19937_64 random(20240607);
    for (int k = 0; k < 2000; ++k) check_round_trip(std::bit_cast<double>(random()));
    for (const std::int64_t value :
         {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), std::int64_t{0}}) {
        check_round_trip(value);
        check_round_trip(std::vector{value, std::int64_t{1}, value});
    }
    check_round_trip(true);
    check_round_trip(false);
    for (const DType dtype : all_dtypes()) check_round_trip(dtype);
}

TEST_CASE("strings of all bytes round trip") {
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    check_round_trip(all);
    check_round_trip(std::string());
    check_round_trip(std::string("größe # not a comment"));
}

TEST_CASE("shapes round trip") {
    const Dim n = Dim::symbol("n"), m = Dim::symbol("größe#1");
    check_round_trip(Shape{});
    check_round_trip(Shape{0});
    check_round_trip(Shape::unranked());
    check_round_trip(Shape{Dim::unknown(), n, 3 * n - 2, n * m + 1});
    check_round_trip(Shape{floor_div(n + 1, 2), mod(n, 3) + 1, min(n, m), max(n * 2, 7)});
    check_round_trip(Shape{ceil_div(n * m + 3, 4) * n, 2 * floor_div(max(n, m) + 1, n + 1) + mod(n - m, 5)});
    check_round_trip(Shape(std::vector<Dim>(16, n)));
    check_round_trip(Shape{Dim::symbol("min"), Dim::symbol("max") + 1});
}

TEST_CASE("arrays of every dtype round trip by their bits") {
    std::mt19937_64 random(7);
    for (const DType dtype : all_dtypes()) {
        for (const Sizes& shape : {Sizes{}, Sizes{0}, Sizes{3}, Sizes{2, 8}, Sizes{17}, Sizes{2, 0, 5}}) {
            for (int repeat = 0; repeat < 50; ++repeat) {
                const NDArray array(dtype, shape);
                auto* bytes = static_cast<unsigned char*>(array.data());
                for (std::size_t k = 0; k < array.bytes(); ++k) {
                    bytes[k] = static_cast<unsigned char>(dtype == DType::boolean ? random() % 2 : random());
                }
                check_round_trip(array);
            }
        }
    }
}

TEST_CASE("every 16-bit float round trips") {
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
        int wrong = 0;
        for (std::uint32_t bits = 0; bits < 65536; ++bits) {
            const Attribute value = array_of<std::uint16_t>(dtype, {}, {static_cast<std::uint16_t>(bits)});
            if (!equal(round_trip(value), value)) ++wrong;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("base64 as in RFC 4648, section 10") {
    const std::pair<std::string, std::string> rows[] = {{"", ""},
                                                        {"f", "Zg=="},
                                                        {"fo", "Zm8="},
                                                        {"foo", "Zm9v"},
                                                        {"foob", "Zm9vYg=="},
                                                        {"fooba", "Zm9vYmE="},
                                                        {"foobar", "Zm9vYmFy"}};
    for (const auto& [bytes, text] : rows) {
        CHECK(base64_encode(bytes.data(), bytes.size()) == text);
        CHECK(base64_decode(text) == bytes);
    }
    for (const char* wrong : {"Z", "Zg=", "Zg==Zg==", "Z===", "====", "Zm9 ", "Zm=v"}) CHECK(!base64_decode(wrong));
}

TEST_CASE("the text of a graph, line by line, and back") {
    Graph graph;
    const Tensor x = graph.placeholder({Dim::unknown(), Dim::symbol("width")}, DType::float16, "say \"x\"");
    const Tensor w = graph.variable(floats({2}, {0.5f, -1}), "w");
    set_current_location({"dir/model.py", 12});
    const Tensor c = graph.constant(3.0, DType::float32);
    set_current_location({});
    const Operation assign = graph.assign(w, w, "step");
    Tensor read;
    graph.control_dependencies({assign, x.operation()}, [&] { read = graph.read(w); });
    apply("stop_gradient", {x});
    const std::string expected =
        "topstitch graph 1\n"
        "%0 = placeholder(shape=(?, width), dtype=float16) \"say \\\"x\\\"\" : float16(?, width)\n"
        "%1 = variable(value=float32(2,)[0.5, -1.0]) \"w\" : float32(2,)\n"
        "%2 = constant(value=float32()[3.0]) : float32()\n"
        "%3 = assign(%1, %1) \"step\"\n"
        "%4 = read(%1) after %3, %0 : float32(2,)\n"
        "%5 = stop_gradient(%0) : float16(?, width)\n";
    CHECK(graph.str() == expected);
    CHECK(contains(graph_text(*graph.data(), true), "float32()\n") == false);
    CHECK(contains(graph_text(*graph.data(), true), "[3.0]) : float32()  # dir/model.py:12\n"));
    CHECK(assign.str() == "%3 = assign(%1, %1) \"step\"");
    CHECK(read.operation().control_dependencies().size() == 2);

    for (const std::string& text : {expected, graph_text(*graph.data(), true)}) {
        const Graph back = Graph::parse(text);
        back.verify();
        CHECK(back.str() == expected);
        CHECK(back.structural_hash() == graph.structural_hash());
        CHECK(back.operations().at(4).location().str() == "graph text:6");
        CHECK(values_of(back.variable_value(back.variables().at(0))) == std::vector<double>{0.5, -1});
    }
}

TEST_CASE("text by hand: any numbers, blanks, comments, types left out") {
    const Graph graph = Graph::parse(
        "# made by hand\r\n\n  topstitch graph 1  # version\n"
        "%10=placeholder( shape = ( 2 ,3, ), dtype=int8 )# x\n\n"
        "\t%7 = stop_gradient( %10.0 ) \"y\"\r\n");
    CHECK(graph.operations().size() == 2);
    CHECK(graph.operations()[1].name() == "y");
    CHECK(graph.operations()[1].outputs()[0].type().str() == "int8(2, 3)");
    CHECK(Graph::parse("topstitch graph 1").operations().empty());
    CHECK(Graph::parse("topstitch graph 1\n%0 = placeholder(shape=(3,)) : float32(?,)").placeholders().size() == 1);
}
