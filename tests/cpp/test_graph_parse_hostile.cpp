// Fuzzing the text of graphs: whatever is parsed ends in a graph that verifies or in a UserError with line and column.
// Mutated attributes also try the type rules of operations with odd numbers.
#include <random>

#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

namespace {

const std::string builtin_text =
    "topstitch graph 1\n"
    "%0 = placeholder(shape=(?, 2*width + 1, min(a, b) // 2), dtype=float16) \"x\" : float16(?, 2*width + 1, ?)\n"
    "%1 = variable(value=float32(2,)[0.5, nan]) \"w\" : float32(2,)\n"
    "%2 = constant(value=complex64(1,)[(1.0, -inf)])\n"
    "%3 = constant(value=int8(17,)base64\"AAAAAAAAAAAAAAAAAAAAAAA=\") : int8(17,)\n"
    "%4 = assign(%1, %1) \"step\" after %0\n"
    "%5 = read(%1) after %4, %0 : float32(2,)  # a.py:1\n"
    "%6 = stop_gradient(%0) : float16(?...)\n";

const std::string operations_text =
    "topstitch graph 1\n"
    "%0 = placeholder(shape=(2, 3, 4), dtype=float32)\n"
    "%1 = placeholder(shape=(n, 3, ?), dtype=float32)\n"
    "%2 = placeholder(shape=(2, 3, 4), dtype=int32)\n"
    "%3 = sum(%0, axes=[0, -1], keepdims=true)\n"
    "%4 = max(%1, axes=[1], keepdims=false, nan=\"ignore\")\n"
    "%5 = argmax(%0, axis=2, keepdims=false, dtype=int64)\n"
    "%6 = reshape(%0, shape=(?, 6))\n"
    "%7 = reshape(%1, shape=(n, 3, 1, ?))\n"
    "%8 = transpose(%1, permutation=[2, 0, 1])\n"
    "%9 = expand_dims(%0, axes=[0, 4])\n"
    "%10 = squeeze(%9, axes=[0])\n"
    "%11 = slice(%0, starts=[0, -1], stops=[2, -5], steps=[1, -1], axes=[0, 2])\n"
    "%12 = slice(%1, starts=[1], stops=[9223372036854775807], steps=[2], axes=[0])\n"
    "%13 = concat(%0, %1, axis=0)\n"
    "%14 = split(%0, num_splits=2, axis=2)\n"
    "%15 = split(%0, sizes=[1, 2], axis=1)\n"
    "%16 = stack(%14.0, %14.1, axis=-1)\n"
    "%17 = tile(%1, multiples=[2, 1, 3])\n"
    "%18 = pad(%0, left=[1, 0, 2], right=[0, 3, 1], mode=\"reflect\", value=0.5)\n"
    "%19 = coordinates(%1, axis=1, dtype=int32)\n"
    "%20 = one_hot(%2, depth=5, axis=1, dtype=float16, on_value=1.0, off_value=-inf)\n"
    "%21 = gather_along_axis(%0, %2, axis=1)\n"
    "%22 = band_part(%0, num_lower=1, num_upper=-1)\n"
    "%23 = roll(%0, shifts=[1, -2], axes=[0, 1])\n"
    "%24 = cast(%0, dtype=bfloat16)\n"
    "%25 = softmax(%1, axis=-1)\n"
    "%26 = matmul(%0, %8)\n"
    "%27 = variance(%0, axes=[1], keepdims=false, ddof=1)\n"
    "%28 = broadcast_to(%0, shape=(5, 2, 3, 4))\n"
    "%29 = flatten2d(%1, axis=2)\n"
    "%30 = full_like(%1, value=3.0, dtype=int8)\n";

struct Tally {
    int parsed = 0;
    int refused = 0;
};

std::string mutate(const std::string& good, std::mt19937& random) {
    static const std::string alphabet = "%0123456789()[],=\"\\.:#?*/+-abcdefinx \n\t\r\x01\xff";
    static const std::vector<std::string> numbers = {"-1",
                                                     "0",
                                                     "1",
                                                     "7",
                                                     "-9223372036854775808",
                                                     "9223372036854775807",
                                                     "4611686018427387904",
                                                     "2147483648",
                                                     "-16",
                                                     "1e308",
                                                     "nan",
                                                     "?",
                                                     "n"};
    std::string text = good;
    for (std::size_t edits = 1 + random() % 4; edits > 0; --edits) {
        if (text.empty()) text = good;
        const std::size_t at = random() % text.size();
        const std::size_t length = random() % 8;
        switch (random() % 7) {
            case 0:
                text[at] = alphabet[random() % alphabet.size()];
                break;
            case 1:
                text.insert(at, 1, alphabet[random() % alphabet.size()]);
                break;
            case 2:
                text.erase(at, length + 1);
                break;
            case 3:
                text.insert(at, good.substr(random() % good.size(), length * 4));
                break;
            case 4:
                text.resize(at + 1);
                break;
            default: {  // another number in place of the next one
                const std::size_t first = text.find_first_of("0123456789", at);
                if (first == std::string::npos) break;
                std::size_t last = text.find_first_not_of("0123456789", first);
                if (last == std::string::npos) last = text.size();
                text.replace(first, last - first, numbers[random() % numbers.size()]);
            }
        }
    }
    return text;
}

void try_to_parse(const std::string& text, Tally& tally) {
    CAPTURE(text);
    try {
        const Graph graph = Graph::parse(text);
        graph.verify();
        const std::string printed = graph.str();
        if (Graph::parse(printed).str() != printed) FAIL_CHECK("the text does not round trip: ", printed);
        ++tally.parsed;
    } catch (const UserError& error) {
        const std::string message = error.what();
        if (!message.starts_with("graph text, line ")) FAIL_CHECK("no place in: ", message);
        ++tally.refused;
    } catch (const std::exception& error) { FAIL_CHECK("an unexpected error: ", error.what()); }
}

Tally fuzz(const std::string& good, int rounds, unsigned seed) {
    std::mt19937 random(seed);
    Tally tally;
    for (int round = 0; round < rounds; ++round) try_to_parse(mutate(good, random), tally);
    return tally;
}

}  // namespace

TEST_CASE("the unmutated texts are good and use every kind of attribute") {
    Tally tally;
    try_to_parse(builtin_text, tally);
    try_to_parse(operations_text, tally);
    CHECK(tally.parsed == 2);
    std::vector<bool> seen(9, false);
    for (const std::string& text : {builtin_text, operations_text}) {
        const Graph graph = Graph::parse(text);
        for (const Operation& operation : graph.operations()) {
            for (const auto& [name, value] : operation.attributes()) seen[value.index()] = true;
        }
    }
    for (std::size_t kind = 0; kind < seen.size(); ++kind) {
        CAPTURE(kind);
        CHECK(seen[kind]);
    }
}

TEST_CASE("hostile text of built-in operations ends in an error, never in a crash") {
    const Tally tally = fuzz(builtin_text, 20000, 1234);
    CHECK(tally.parsed > 100);
    CHECK(tally.refused > 10000);
}

TEST_CASE("hostile attributes of operations end in an error, never in a crash") {
    const Tally tally = fuzz(operations_text, 10000, 99);
    CHECK(tally.parsed > 100);
    CHECK(tally.refused > 5000);
}
