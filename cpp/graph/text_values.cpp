// Reads the values of attributes: numbers, lists, dims, shapes and arrays.
// The counterpart of attribute_text().
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include "graph/suggest.h"
#include "graph/text.h"
#include "graph/text_reader.h"

namespace topstitch {

namespace {

// Deeper or longer than any shape that inference makes; beyond, the algebra of dims takes too long.
constexpr int deepest_dim = 16;
constexpr std::size_t longest_dim = 1024;

template <typename T>
void put(const NDArray& array, std::int64_t k, T value) {
    std::memcpy(static_cast<char*>(array.data()) + static_cast<std::size_t>(k) * sizeof(T), &value, sizeof(T));
}

}  // namespace

// A part of a dim, and whether it is a sum in brackets, which may be divided but not multiplied: products of sums are
// never written, and multiplying many out would take exponential time.
struct TextReader::DimPart {
    Dim value;
    bool is_sum = false;
};

TextReader::DimPart TextReader::dim_factor(int depth) {
    if (depth > deepest_dim) fail(concat("a dim may be nested ", deepest_dim, " levels deep at most"));
    skip_blanks();
    if (accept("(")) {
        const DimPart inner = dim_sum(depth + 1);
        expect(")");
        return inner;
    }
    const char c = peek();
    if (c >= '0' && c <= '9') return {Dim(integer("a number"))};
    const std::size_t start = position_;
    constexpr std::string_view reserved = " \t\r\n+-*/%(),?";  // as Dim::symbol() has it
    while (!at_end() && reserved.find(peek()) == std::string_view::npos) ++position_;
    const std::string_view name = text_.substr(start, position_ - start);
    if (name.empty()) fail(concat("expected a dim (a number, a name, or '?'), but found ", found()));
    const bool minimum = name == "min";
    if ((minimum || name == "max") && accept("(")) {
        const Dim a = dim_sum(depth + 1).value;
        expect(",");
        const Dim b = dim_sum(depth + 1).value;
        expect(")");
        return {minimum ? min(a, b) : max(a, b)};
    }
    return {Dim::symbol(name)};
}

TextReader::DimPart TextReader::dim_product(int depth) {
    DimPart result = dim_factor(depth);
    for (;;) {
        const bool times = accept("*");
        const bool quotient = !times && accept("//");
        if (!times && !quotient && !accept("%")) return result;
        const Place where = place();
        const DimPart right = dim_factor(depth);
        if (times) {
            if (result.is_sum || right.is_sum) fail_at(where, "a sum cannot be multiplied; multiply its terms");
            result.value = result.value * right.value;
        } else {
            const bool positive = provably_nonnegative(right.value - 1);
            if (!positive) fail_at(where, concat("the divisor ", right.value.str(), " is not known to be 1 or more"));
            result.value = quotient ? floor_div(result.value, right.value) : mod(result.value, right.value);
            result.is_sum = false;
        }
    }
}

TextReader::DimPart TextReader::dim_sum(int depth) {
    DimPart result;
    if (accept("-")) {
        result.value = Dim(0) - dim_product(depth).value;
    } else {
        result = dim_product(depth);
    }
    for (;;) {
        const bool plus = accept("+");
        if (!plus && !accept("-")) return result;
        const Dim term = dim_product(depth).value;
        result.value = plus ? result.value + term : result.value - term;
        result.is_sum = true;
    }
}

Dim TextReader::dim() {
    skip_blanks();
    const Place where = place();
    if (accept("?")) return Dim::unknown();
    // Bounds the work before any is done.
    const std::size_t end = text_.find('\n', position_);
    const std::string_view rest = text_.substr(position_, end == std::string_view::npos ? end : end - position_);
    int depth = 0;
    std::size_t length = 0;
    for (; length < rest.size(); ++length) {
        if (rest[length] == '(') ++depth;
        if (rest[length] == ')' && depth-- == 0) break;
        if (rest[length] == ',' && depth == 0) break;
    }
    if (length > longest_dim) fail_at(where, concat("a dim may have ", longest_dim, " characters at most"));
    try {
        return dim_sum(0).value;
    } catch (const UserError& error) {
        const std::string_view message = error.what();
        if (message.starts_with("graph text")) throw;
        fail_at(where, std::string(message));
    }
}

Shape TextReader::shape() {
    const Place where = place();
    expect("(");
    if (accept("?...")) {
        expect(")");
        return Shape::unranked();
    }
    std::vector<Dim> dims;
    while (!accept(")")) {
        if (!dims.empty()) {
            expect(",");
            if (accept(")")) break;
        }
        if (dims.size() == static_cast<std::size_t>(max_rank)) fail(concat("a shape has ", max_rank, " dims at most"));
        dims.push_back(dim());
        if (dims.back().is_known() && dims.back().value() < 0) fail_at(where, "a dim must be 0 or more");
    }
    return Shape(std::move(dims));
}

DType TextReader::dtype() {
    skip_blanks();
    const Place where = place();
    const std::string_view name = word("a dtype");
    if (const auto dtype = dtype_from_name(name)) return *dtype;
    std::vector<std::string_view> names;
    for (const DType known : all_dtypes()) names.push_back(name_of(known));
    fail_at(where, concat("'", name, "' is not a dtype; they are ", quoted_list(names), did_you_mean(name, names)));
}

bool TextReader::boolean() {
    if (accept("true")) return true;
    if (accept("false")) return false;
    fail(concat("expected true or false, but found ", found()));
}

std::string_view TextReader::number_token() {
    skip_blanks();
    const std::size_t start = position_;
    constexpr std::string_view allowed = "0123456789+-.abcdefinxABCDEFINX";
    while (!at_end() && allowed.find(peek()) != std::string_view::npos) ++position_;
    // nan(0x7fc00001)
    if (text_.substr(start, position_ - start) == "nan" && peek() == '(') {
        const std::size_t close = text_.find_first_of(")\n", position_);
        if (close != std::string_view::npos) position_ = close + (text_[close] == ')' ? 1 : 0);
    }
    return text_.substr(start, position_ - start);
}

double TextReader::real() {
    skip_blanks();
    const Place where = place();
    const std::string_view token = number_token();
    const auto value = read_double(token);
    if (!value) fail_at(where, concat("expected a real number, but found '", token.substr(0, 40), "'"));
    return *value;
}

std::vector<std::int64_t> TextReader::integers() {
    std::vector<std::int64_t> values;
    expect("[");
    while (!accept("]")) {
        if (!values.empty()) expect(",");
        values.push_back(integer("an integer"));
    }
    return values;
}

void TextReader::element(const NDArray& array, std::int64_t k) {
    skip_blanks();
    const Place where = place();
    const auto float_value = [&] {
        const std::string_view token = number_token();
        const auto value = read_float(token);
        if (!value) fail_at(where, concat("'", token.substr(0, 40), "' is not a ", name_of(array.dtype())));
        return *value;
    };
    const auto whole = [&]<typename T>(T value) {
        const std::string_view token = number_token();
        const auto result = std::from_chars(token.data(), token.data() + token.size(), value);
        if (result.ec != std::errc() || result.ptr != token.data() + token.size()) {
            fail_at(where, concat("'", token.substr(0, 40), "' is not a ", name_of(array.dtype())));
        }
        put(array, k, value);
    };
    switch (array.dtype()) {
        case DType::boolean:
            put<std::uint8_t>(array, k, boolean() ? 1 : 0);
            return;
        case DType::int8:
            return whole(std::int8_t{});
        case DType::int16:
            return whole(std::int16_t{});
        case DType::int32:
            return whole(std::int32_t{});
        case DType::int64:
            return whole(std::int64_t{});
        case DType::uint8:
            return whole(std::uint8_t{});
        case DType::uint16:
            return whole(std::uint16_t{});
        case DType::uint32:
            return whole(std::uint32_t{});
        case DType::uint64:
            return whole(std::uint64_t{});
        case DType::float16:
            put(array, k, float_to_half(float_value()));
            return;
        case DType::bfloat16:
            put(array, k, float_to_bfloat(float_value()));
            return;
        case DType::float32:
            put(array, k, float_value());
            return;
        case DType::float64:
            put(array, k, real());
            return;
        case DType::complex64: {
            expect("(");
            put(array, 2 * k, float_value());
            expect(",");
            skip_blanks();
            put(array, 2 * k + 1, float_value());
            expect(")");
            return;
        }
    }
}

NDArray TextReader::external_array(DType type, const Sizes& sizes) {
    skip_blanks();
    const Place where = place();
    const std::string name = string();
    if (!fetch_) {
        fail_at(where, concat("the array \"", name,
                              "\" is kept outside of this text, in the file that the text was "
                              "saved in; load that file with Graph.load (C++: load_graph)"));
    }
    NDArray stored = fetch_(name);
    if (stored.dtype() != type || stored.shape() != sizes) {
        fail_at(where, concat("the text says ", name_of(type), sizes_str(sizes), ", but the array that is kept as \"",
                              name, "\" is ", name_of(stored.dtype()), sizes_str(stored.shape())));
    }
    return stored;
}

NDArray TextReader::array() {
    const DType type = dtype();
    skip_blanks();
    const Place where = place();
    const auto sizes = shape().sizes();
    if (!sizes) fail_at(where, "the shape of an array must be known");
    std::int64_t count = 0;
    try {
        count = num_elements(*sizes);
    } catch (const UserError& error) { fail_at(where, error.what()); }
    if (accept("external")) return external_array(type, *sizes);
    if (accept("base64")) {
        skip_blanks();
        const Place start = place();
        expect("\"");
        const std::size_t end = text_.find_first_of("\"\n", position_);
        if (end == std::string_view::npos || text_[end] == '\n')
            fail_at(start, "this string has no closing '\"' in its line");
        const auto bytes = base64_decode(text_.substr(position_, end - position_));
        if (!bytes) fail_at(start, "this is not base64");
        if (bytes->size() % size_of(type) != 0 || bytes->size() / size_of(type) != static_cast<std::size_t>(count)) {
            fail_at(start, concat("an array of ", count, " elements of ", name_of(type), " needs ", size_of(type),
                                  " bytes for each, but there are ", bytes->size(), " bytes"));
        }
        if (type == DType::boolean) {
            for (const char byte : *bytes) {
                if (byte != 0 && byte != 1) fail_at(start, "the bytes of a bool array must be 0 or 1");
            }
        }
        position_ = end + 1;
        return NDArray::copy_of(bytes->data(), type, *sizes);
    }
    expect("[");
    // Each element takes one character at least.
    if (static_cast<std::uint64_t>(count) > text_.size() - position_) {
        fail(concat("the array has ", count, " elements, more than the text lists"));
    }
    const NDArray result(type, *sizes);
    for (std::int64_t k = 0; k < count; ++k) {
        if (k > 0) expect(",");
        element(result, k);
    }
    expect("]");
    return result;
}

Dim dim_from_text(std::string_view text) {
    TextReader reader(text);
    try {
        const Dim dim = reader.dim();
        reader.skip_blanks();
        if (!reader.at_end()) reader.fail(concat("expected the end of the dim, but found ", reader.found()));
        return dim;
    } catch (const UserError& error) {
        // The text is one dim, so that line and column say nothing.
        const std::string message = error.what();
        throw UserError(concat("shape: the dim '", text.substr(0, 60),
                               "' is not understood: ", message.substr(message.find(": ") + 2)));
    }
}

Attribute TextReader::attribute(AttributeKind kind) {
    switch (kind) {
        case AttributeKind::none:
            break;
        case AttributeKind::boolean:
            return boolean();
        case AttributeKind::integer:
            return integer("an integer");
        case AttributeKind::real:
            return real();
        case AttributeKind::string:
            return string();
        case AttributeKind::dtype:
            return dtype();
        case AttributeKind::integers:
            return integers();
        case AttributeKind::shape:
            return shape();
        case AttributeKind::array:
            return array();
        case AttributeKind::function:
            break;  // parse.cpp
    }
    return std::monostate();
}

}  // namespace topstitch
