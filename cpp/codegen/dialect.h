// What the C-like languages of GPUs differ in: names of types, address spaces, positions of threads, built-in
// functions. The emitter writes everything else, which is the same in all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topstitch/dtype.h"

namespace topstitch::codegen {

// What a machine that speaks the dialect has.
struct Limits {
    bool float64 = false;
    int buffers = 31;                     // of one kernel, with the one that holds its sizes
    std::int64_t group_bytes = 32 << 10;  // memory that the threads of a group share
    std::int64_t thread_bytes = 8 << 10;  // arrays of one thread
    int simd_width = 32;                  // threads that exchange values without memory
    int group_threads = 256;              // the most in a group
    int matrix_side = 8;                  // of the square matrices that the threads of a simdgroup hold together
};

// Functions that every dialect has, exactly rounded in all of them.
enum class BuiltIn : std::uint8_t { abs, ceil, copysign, floor, fma, popcount, round_even, sqrt, trunc };

// The parameters of a kernel.
struct KernelHead {
    struct Buffer {
        std::string type;
        std::string name;
        bool written = false;
        std::string comment;
    };
    std::string name;
    std::vector<Buffer> buffers;        // in slots 0, 1, ...
    bool sizes = false;                 // a further slot: the struct Sizes
    std::vector<Buffer> group_buffers;  // memory of a group, whose length the launch gives; in slots of their own
    bool groups = false;                // a group of threads for each iteration, not one thread
};

class Dialect {
public:
    virtual ~Dialect() = default;

    virtual const Limits& limits() const = 0;
    virtual std::string name() const = 0;  // for people: "Metal"
    // What a source begins with; one that has matrices of a type, with what these need.
    virtual std::string prologue(std::optional<DType> matrices) const = 0;
    virtual bool is_reserved(std::string_view word) const = 0;

    // --- Types and literals.

    virtual std::string type(DType type) const = 0;         // that values have
    virtual std::string memory_type(DType type) const = 0;  // that buffers have; bool and bfloat16 as bits
    virtual std::string integer(std::int64_t value, DType type) const = 0;
    virtual std::string real(float value) const = 0;

    // --- Declarations.

    // Ends with the opening brace. It makes known: `at`, the thread's position (x, y); for groups instead `group`,
    // `thread_index` (in the group), `lane` and `simdgroup`.
    virtual std::string head(const KernelHead& head) const = 0;
    virtual std::string function() const = 0;                            // what precedes a function: "inline "
    virtual std::string group_array(const std::string& type) const = 0;  // "threadgroup float"
    virtual std::string group_pointer(const std::string& type) const = 0;
    virtual std::string buffer_pointer(const std::string& type, bool written) const = 0;  // "device const float*"
    virtual std::string reference(const std::string& type) const = 0;                     // to a variable of the thread

    // --- Expressions and statements.

    virtual std::string call(BuiltIn function) const = 0;
    virtual std::string bits_as(const std::string& type, const std::string& value) const = 0;
    // Every thread of a group waits for the others, and sees what they wrote: to the group's memory, and if `buffers`
    // to the buffers.
    virtual std::string barrier(bool buffers) const = 0;
    // The value of the lane whose number differs in the bit `distance`.
    virtual std::string exchanged(DType type, const std::string& value, const std::string& distance) const = 0;
    // The value of the lane of number `from`.
    virtual std::string value_of_lane(DType type, const std::string& value, const std::string& from) const = 0;

    // --- Four neighbours in memory at once; types that memory has, of at most 32 bits. Components are subscripted.

    virtual std::string wide_type(DType type) const = 0;
    // The alignment of one element must suffice.
    virtual std::string wide_load(DType type, const std::string& pointer) const = 0;
    virtual std::string wide_store(DType type, const std::string& pointer, const std::string& value) const = 0;

    // --- Square matrices that the threads of a simdgroup hold together, of float32 or a 16-bit float.

    // Of elements of a tile in the group's memory, where the values of `type` are exact; it may be a wider type.
    virtual std::string tile_type(DType type) const = 0;
    virtual std::string matrix_type(DType type) const = 0;
    virtual std::string zero_matrix() const = 0;  // of float32
    // `pitch`: elements from one row to the next; `across`: its columns lie there.
    virtual std::string load_matrix(const std::string& matrix, const std::string& pointer, const std::string& pitch,
                                    bool across) const = 0;
    virtual std::string store_matrix(const std::string& matrix, const std::string& pointer,
                                     const std::string& pitch) const = 0;
    virtual std::string multiply_accumulate(const std::string& sum, const std::string& a,
                                            const std::string& b) const = 0;
    // The threads of a simdgroup wait for each other, and see what they wrote to the group's memory.
    virtual std::string simdgroup_barrier() const = 0;
    virtual std::string unroll() const = 0;  // a line before a loop
};

// The Metal shading language.
const Dialect& msl_dialect();

}  // namespace topstitch::codegen
