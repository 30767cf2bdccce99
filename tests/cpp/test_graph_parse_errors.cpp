// Tests of parsing what is wrong: messages with line and column.
// Random mutations are in test_graph_parse_hostile.cpp.
#include <chrono>

#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

namespace {

std::string complaint(const std::string& lines) {
    return message_of<Error>([&] { Graph::parse("topstitch graph 1\n" + lines); });
}

const std::string x = "%0 = placeholder(shape=(2, 3), dtype=float32)\n";

}  // namespace

TEST_CASE("errors say where and what") {
    const std::pair<std::string, std::string> rows[] = {
        {"%0 = placeholder(shape=(2, 3), dtype=flaot32)", "line 2, column 38: 'flaot32' is not a dtype"},
        {"%0 = placeholder(shape=(2, 3), dtype=flaot32)", "did you mean 'float32'?"},
        {"%0 = placehoder(shape=(2,))",
         "line 2, column 6: there is no operation 'placehoder'; did you mean 'placeholder'?"},
        {"%0 = placeholder(dtype=int8)", "line 2, column 1: [placeholder] needs the attribute 'shape'"},
        {"%0 = placeholder(shap=(2,))", "line 2, column 18: `placeholder` has no attribute 'shap'"},
        {"%0 = placeholder(shape=(2,), shape=(2,))", "given twice"},
        {"%0 = placeholder(shape=(2,)", "line 2, column 28: expected ',', but found the end of the text"},
        {"%0 = placeholder(shape=(2 3))", "line 2, column 27: expected ',', but found '3'"},
        {"%0 = placeholder(shape=(-2,))", "0 or more"},
        {"%0 = placeholder(shape=(a*(b+c),))", "a sum cannot be multiplied"},
        {"%0 = placeholder(shape=(a//0,))", "the divisor 0 is not known to be 1 or more"},
        {"%0 = placeholder(shape=(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1))", "16 dims at most"},
        {"%0 = placeholder(shape=(99999999999999999999,))", "a number does not fit in 64 bits"},
        {"%0 = placeholder(shape=(4611686018427387904*4*a,))", "line 2, column 25: shape: a size is too large"},
        {x + x, "line 3, column 1: %0 is defined twice"},
        {x + "%1 = stop_gradient(%2)", "line 3, column 20: %2 is not defined before this line"},
        {x + "%1 = stop_gradient(%1)", "%1 is not defined"},
        {x + "%1 = stop_gradient(%0.1)", "line 3, column 20: result 1 of `placeholder` is used, but it has 1"},
        {x + "%1 = stop_gradient(%0.-1)", "result -1"},
        {x + "%1 = stop_gradient(%0, %0)", "line 3, column 1: [stop_gradient] takes 1 input, but got 2"},
        {x + "%1 = stop_gradient(%0) : float32(2, 4)", "the text says float32(2, 4), but result 0"},
        {x + "%1 = stop_gradient(%0) : float32(2, 3), float32()", "expected the end of the line, but found ','"},
        {x + "%1 = stop_gradient(%0) after %5", "%5 is not defined"},
        {x + "%1 = stop_gradient(%0) \"y", "line 3, column 24: this string has no closing"},
        {x + "%1 = stop_gradient(%0) \"\\q\"", "after '\\' a string may have"},
        {x + "%1 = read(%0)", "line 3, column 1: [read] input 0 (`variable`) must be a variable"},
        {x + "stop_gradient(%0)", "expected '%', but found 's'"},
        {x + "%1 = stop_gradient(%0) junk", "expected the end of the line, but found 'j'"},
        {"%0 = constant(value=float32(2,)[1.0])", "column 36: expected ',', but found ']'"},
        {"%0 = constant(value=float32(1,)[1.0, 2.0])", "expected ']', but found ','"},
        {"%0 = constant(value=float32(?,)[1.0])", "the shape of an array must be known"},
        {"%0 = constant(value=float32(1000000000000)[1.0])", "1000000000000 elements, more than the text lists"},
        {"%0 = constant(value=float32(1000000000000)base64\"AAAA\")", "there are 3 bytes"},
        {"%0 = constant(value=float32(4294967296, 4294967296)base64\"\")", "does not fit in 63 bits"},
        {"%0 = constant(value=int8(1,)[128])", "'128' is not a int8"},
        {"%0 = constant(value=uint8(1,)[-1])", "'-1' is not a uint8"},
        {"%0 = constant(value=float32(1,)[1e99])", "'1e99' is not a float32"},
        {"%0 = constant(value=float32(1,)[nan(0x1)])", "is not a float32"},
        {"%0 = constant(value=float32(1,)base64\"AA=A\")", "this is not base64"},
        {"%0 = constant(value=bool(3,)base64\"AAEC\")", "must be 0 or 1"},
        {"%0 = constant(value=3.5)", "expected a dtype, but found '3'"},
    };
    for (const auto& [lines, expected] : rows) {
        CAPTURE(lines);
        const std::string message = complaint(lines);
        CAPTURE(message);
        CHECK(message.starts_with("graph text, line "));
        CHECK(contains(message, expected));
        CHECK(!contains(message, "created at"));
    }
    for (const char* text : {"", "topstitch", "topstitch graph", "topstitch graph 2", "graph 1"}) {
        CHECK(message_of([&] { Graph::parse(text); }).starts_with("graph text, line 1"));
    }
    CHECK(contains(message_of([&] { Graph::parse("topstitch graph 2"); }), "reads 1"));
    CHECK_THROWS_AS(Graph::parse("topstitch graph 1\n%0 = variable(value=int8()[1])\n" + std::string("%1 = constant(") +
                                 "value=int16()[1])\n%2 = assign(%0, %1)"),
                    TypeError);
}

TEST_CASE("deep and long dims are refused quickly") {
    const auto start = std::chrono::steady_clock::now();
    const auto shape = [](const std::string& dim) { return complaint("%0 = placeholder(shape=(" + dim + ",))"); };
    CHECK(contains(shape(std::string(100000, '(') + "a"), "1024 characters at most"));
    CHECK(contains(shape(std::string(100, '(') + "a"), "levels deep"));
    std::string nested = "a", products = "a";
    for (int k = 0; k < 14; ++k) nested = "min(" + nested + " + b, a*" + nested.substr(0, 20) + "a)";
    for (int k = 0; k < 200; ++k) products += "*a";
    shape(nested);
    shape(products);
    std::string quotients = "a";
    for (int k = 0; k < 15; ++k) quotients = "((" + quotients + " + b) // (c + " + std::to_string(k) + "))";
    shape(quotients);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    CHECK(seconds.count() < 60);  // a guard against exponential time, not a measurement
}
