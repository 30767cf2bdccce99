// The Metal shading language: see dialect.h.
// Nothing newer than version 2.1 is used, except that version 3.2 is told to keep every rounding in the source itself.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "codegen/dialect.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

namespace {

// Words that no variable may be called: keywords, types, and functions that the emitter calls.
constexpr std::array reserved = std::to_array<std::string_view>({
    "alignas",
    "alignof",
    "and",
    "as_type",
    "asm",
    "at",
    "atomic",
    "auto",
    "bfloat",
    "bitand",
    "bitor",
    "bool",
    "break",
    "case",
    "catch",
    "ceil",
    "char",
    "char4",
    "class",
    "compl",
    "const",
    "constant",
    "constexpr",
    "continue",
    "copysign",
    "decltype",
    "default",
    "delete",
    "device",
    "do",
    "double",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "fabs",
    "false",
    "float",
    "float4",
    "floor",
    "fma",
    "for",
    "fragment",
    "friend",
    "goto",
    "group",
    "half",
    "half4",
    "if",
    "INFINITY",
    "inline",
    "int",
    "int4",
    "kernel",
    "lane",
    "long",
    "main",
    "make_filled_simdgroup_matrix",
    "max",
    "mem_flags",
    "metal",
    "min",
    "mutable",
    "namespace",
    "NAN",
    "new",
    "noexcept",
    "not",
    "nullptr",
    "operator",
    "or",
    "packed_char4",
    "packed_float4",
    "packed_half4",
    "packed_int4",
    "packed_short4",
    "packed_uchar4",
    "packed_uint4",
    "packed_ushort4",
    "popcount",
    "precise",
    "private",
    "protected",
    "public",
    "ray_data",
    "register",
    "restrict",
    "return",
    "rint",
    "sampler",
    "short",
    "short4",
    "signed",
    "simd_shuffle",
    "simd_shuffle_xor",
    "simdgroup",
    "simdgroup_barrier",
    "simdgroup_load",
    "simdgroup_matrix",
    "simdgroup_multiply_accumulate",
    "simdgroup_store",
    "sizeof",
    "sizes",
    "Sizes",
    "sqrt",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "thread",
    "thread_index",
    "threadgroup",
    "threadgroup_barrier",
    "throw",
    "tile_bfloat",
    "true",
    "trunc",
    "try",
    "typedef",
    "typeid",
    "typename",
    "uchar",
    "uchar4",
    "uint",
    "uint2",
    "uint4",
    "ulong",
    "ulong2",
    "union",
    "unsigned",
    "ushort",
    "ushort4",
    "using",
    "vertex",
    "virtual",
    "void",
    "volatile",
    "while",
    "xor",
});

class MslDialect : public Dialect {
public:
    const Limits& limits() const override { return limits_; }
    std::string name() const override { return "Metal"; }
    std::string prologue(std::optional<DType> matrices) const override {
        return concat("#include <metal_stdlib>\n", matrices ? "#include <metal_simdgroup_matrix>\n" : "",
                      "using namespace metal;\n"
                      "#if __METAL_VERSION__ >= 320\n"
                      "#pragma METAL fp math_mode(safe)\n"
                      "#pragma METAL fp contract(off)\n"
                      "#else\n"
                      "#pragma clang fp contract(off)\n"
                      "#endif\n",
                      matrices == DType::bfloat16 ? "#if __METAL_VERSION__ >= 310\n"
                                                    "typedef bfloat tile_bfloat;\n"
                                                    "#else\n"
                                                    "typedef float tile_bfloat;\n"
                                                    "#endif\n"
                                                  : "");
    }
    bool is_reserved(std::string_view word) const override {
        return std::find(reserved.begin(), reserved.end(), word) != reserved.end();
    }

    std::string type(DType type) const override {
        switch (type) {
            case DType::boolean:
                return "bool";
            case DType::int8:
                return "char";
            case DType::int16:
                return "short";
            case DType::int32:
                return "int";
            case DType::int64:
                return "long";
            case DType::uint8:
                return "uchar";
            case DType::uint16:
                return "ushort";
            case DType::uint32:
                return "uint";
            case DType::uint64:
                return "ulong";
            case DType::float16:
                return "half";
            case DType::float32:
                return "float";
            case DType::bfloat16:
            case DType::float64:
            case DType::complex64:
                break;
        }
        throw InternalError(concat("Metal: ", name_of(type), " is not a type to compute in"));
    }
    std::string memory_type(DType type) const override {
        if (type == DType::boolean) return "uchar";
        return type == DType::bfloat16 ? "ushort" : this->type(type);
    }

    std::string integer(std::int64_t value, DType type) const override {
        switch (type) {
            case DType::boolean:
                return value != 0 ? "true" : "false";
            case DType::uint64:
                return std::to_string(static_cast<std::uint64_t>(value)) + "UL";
            case DType::uint32:
                return std::to_string(static_cast<std::uint32_t>(value)) + "u";
            case DType::int64:
                // There is no literal for the lowest number: it would be the negative of one that is too large.
                return value == INT64_MIN ? "(-9223372036854775807L - 1L)" : std::to_string(value) + "L";
            case DType::int32:
                return value == INT32_MIN ? "(-2147483647 - 1)" : std::to_string(value);
            default:
                return concat(this->type(type), "(", value, ")");
        }
    }
    std::string real(float value) const override {
        if (std::isnan(value)) return "NAN";
        if (std::isinf(value)) return value < 0 ? "-INFINITY" : "INFINITY";
        char text[64];
        const auto end = std::to_chars(text, text + sizeof text, value);
        std::string digits(text, end.ptr);
        if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
        return digits + "f";
    }

    std::string head(const KernelHead& head) const override {
        struct Parameter {
            std::string text;
            std::string comment;
        };
        std::vector<Parameter> parameters;
        for (const KernelHead::Buffer& buffer : head.buffers) {
            parameters.push_back({concat(buffer_pointer(buffer.type, buffer.written), " ", buffer.name, " [[buffer(",
                                         parameters.size(), ")]]"),
                                  buffer.comment});
        }
        if (head.sizes) {
            parameters.push_back({concat("constant Sizes& sizes [[buffer(", parameters.size(), ")]]"), ""});
        }
        for (std::size_t slot = 0; slot < head.group_buffers.size(); ++slot) {
            const KernelHead::Buffer& buffer = head.group_buffers[slot];
            parameters.push_back(
                {concat("threadgroup ", buffer.type, "* ", buffer.name, " [[threadgroup(", slot, ")]]"),
                 buffer.comment});
        }
        if (!head.groups) {
            parameters.push_back({"uint2 at [[thread_position_in_grid]]", ""});
        } else {
            parameters.push_back({"uint group [[threadgroup_position_in_grid]]", ""});
            parameters.push_back({"uint thread_index [[thread_index_in_threadgroup]]", ""});
            parameters.push_back({"uint lane [[thread_index_in_simdgroup]]", ""});
            parameters.push_back({"uint simdgroup [[simdgroup_index_in_threadgroup]]", ""});
        }
        std::string text = "kernel void " + head.name + "(";
        const std::string margin(text.size(), ' ');
        for (std::size_t k = 0; k < parameters.size(); ++k) {
            const bool last = k + 1 == parameters.size();
            const std::string& comment = parameters[k].comment;
            text += concat(k == 0 ? "" : margin, parameters[k].text, last ? ") {" : ",", comment.empty() ? "" : "  // ",
                           comment, "\n");
        }
        return text;
    }
    std::string function() const override { return "inline "; }
    std::string group_array(const std::string& type) const override { return "threadgroup " + type; }
    std::string group_pointer(const std::string& type) const override { return "threadgroup " + type + "*"; }
    std::string buffer_pointer(const std::string& type, bool written) const override {
        return concat("device ", written ? "" : "const ", type, "*");
    }
    std::string reference(const std::string& type) const override { return "thread " + type + "&"; }

    std::string call(BuiltIn function) const override {
        switch (function) {
            case BuiltIn::abs:
                return "fabs";
            case BuiltIn::ceil:
                return "ceil";
            case BuiltIn::copysign:
                return "copysign";
            case BuiltIn::floor:
                return "floor";
            case BuiltIn::fma:
                return "fma";
            case BuiltIn::popcount:
                return "popcount";
            case BuiltIn::round_even:
                return "rint";
            case BuiltIn::sqrt:
                return "precise::sqrt";
            case BuiltIn::trunc:
                return "trunc";
        }
        throw InternalError("Metal: unknown function");
    }
    std::string bits_as(const std::string& type, const std::string& value) const override {
        return concat("as_type<", type, ">(", value, ")");
    }
    std::string barrier(bool buffers) const override {
        return concat("threadgroup_barrier(", buffers ? "mem_flags::mem_device | " : "",
                      "mem_flags::mem_threadgroup);");
    }
    std::string exchanged(DType type, const std::string& value, const std::string& distance) const override {
        return shuffled("simd_shuffle_xor", type, value, distance);
    }
    std::string value_of_lane(DType type, const std::string& value, const std::string& from) const override {
        return shuffled("simd_shuffle", type, value, concat("ushort(", from, ")"));
    }

    std::string wide_type(DType type) const override { return memory_type(type) + "4"; }
    std::string wide_load(DType type, const std::string& pointer) const override {
        const std::string packed = buffer_pointer(concat("packed_", wide_type(type)), false);
        return concat(wide_type(type), "(*(", packed, ")(", pointer, "))");
    }
    std::string wide_store(DType type, const std::string& pointer, const std::string& value) const override {
        const std::string packed = buffer_pointer(concat("packed_", wide_type(type)), true);
        return concat("*(", packed, ")(", pointer, ") = ", value, ";");
    }

    std::string tile_type(DType type) const override {
        return type == DType::bfloat16 ? "tile_bfloat" : this->type(type);
    }
    std::string matrix_type(DType type) const override {
        return concat("simdgroup_matrix<", tile_type(type), ", 8, 8>");
    }
    std::string zero_matrix() const override { return "make_filled_simdgroup_matrix<float, 8, 8>(0.0f)"; }
    std::string load_matrix(const std::string& matrix, const std::string& pointer, const std::string& pitch,
                            bool across) const override {
        return concat("simdgroup_load(", matrix, ", ", pointer, ", ", pitch, across ? ", ulong2(0), true" : "", ");");
    }
    std::string store_matrix(const std::string& matrix, const std::string& pointer,
                             const std::string& pitch) const override {
        return concat("simdgroup_store(", matrix, ", ", pointer, ", ", pitch, ");");
    }
    std::string multiply_accumulate(const std::string& sum, const std::string& a, const std::string& b) const override {
        return concat("simdgroup_multiply_accumulate(", sum, ", ", a, ", ", b, ", ", sum, ");");
    }
    std::string simdgroup_barrier() const override { return "simdgroup_barrier(mem_flags::mem_threadgroup);"; }
    std::string unroll() const override { return "#pragma unroll"; }

private:
    std::string shuffled(const char* function, DType type, const std::string& value,
                         const std::string& argument) const {
        const auto call = [&](const std::string& operand) {
            return concat(function, "(", operand, ", ", argument, ")");
        };
        // Numbers of 64 bits are exchanged as pairs, and those below 32 bits and bool as int.
        if (size_of(type) == 8) return bits_as(this->type(type), call(bits_as("uint2", value)));
        if (size_of(type) < 4) return concat(this->type(type), "(", call(concat("int(", value, ")")), ")");
        return call(value);
    }

    Limits limits_;
};

}  // namespace

const Dialect& msl_dialect() {
    static const MslDialect dialect;
    return dialect;
}

}  // namespace topstitch::codegen
