// How a kernel is called: each parameter's type comes from the function's own type, what it stands for from the
// scanner. Types that Metal does not allow for a parameter fail here, as static assertions.
#pragma once
#pragma clang system_header

namespace __msl {

// The number of components when T is uint or ushort, or a vector of them; else 0.
template <class T>
struct unsigned_length {
    static constexpr int value = 0;
};
template <>
struct unsigned_length<unsigned> {
    static constexpr int value = 1;
};
template <>
struct unsigned_length<unsigned short> {
    static constexpr int value = 1;
};
template <class T, int N>
struct unsigned_length<T __attribute__((ext_vector_type(N)))> {
    static constexpr int value = unsigned_length<T>::value == 0 ? 0 : N;
};

template <class T, int length>
struct FromCounts {
    static T get(const unsigned* counts) {
        T result;
        for (int i = 0; i < length; ++i) result[i] = counts[i];
        return result;
    }
};
template <class T>
struct FromCounts<T, 1> {
    static T get(const unsigned* counts) { return static_cast<T>(counts[0]); }
};

inline void counts_of(unsigned kind, const msl_thread* self, unsigned* counts) {
    const msl_launch& launch = *self->launch;
    const unsigned* source = nullptr;
    unsigned single = 0;
    switch (kind) {
        case msl_thread_position_in_grid:
            for (int d = 0; d < 3; ++d) {
                counts[d] =
                    launch.threadgroup_position[d] * launch.dispatch_threads_per_threadgroup[d] + self->position[d];
            }
            return;
        case msl_threads_per_grid:
            source = launch.threads_per_grid;
            break;
        case msl_thread_position_in_threadgroup:
            source = self->position;
            break;
        case msl_threads_per_threadgroup:
            source = launch.threads_per_threadgroup;
            break;
        case msl_threadgroup_position_in_grid:
            source = launch.threadgroup_position;
            break;
        case msl_threadgroups_per_grid:
            source = launch.threadgroups_per_grid;
            break;
        case msl_dispatch_threads_per_threadgroup:
            source = launch.dispatch_threads_per_threadgroup;
            break;
        case msl_grid_origin:
            counts[0] = counts[1] = counts[2] = 0;
            return;
        case msl_thread_index_in_threadgroup:
            single = self->index;
            break;
        case msl_thread_index_in_simdgroup:
            single = self->index % msl_simd_width;
            break;
        case msl_simdgroup_index_in_threadgroup:
            single = self->index / msl_simd_width;
            break;
        case msl_simdgroups_per_threadgroup:
            single = launch.simdgroups_per_threadgroup;
            break;
        case msl_dispatch_simdgroups_per_threadgroup: {
            const unsigned* size = launch.dispatch_threads_per_threadgroup;
            single = (size[0] * size[1] * size[2] + msl_simd_width - 1) / msl_simd_width;
            break;
        }
        default:
            single = msl_simd_width;
            break;
    }
    for (int d = 0; d < 3; ++d) counts[d] = source ? source[d] : single;
}

// A position, size or index, by value.
template <unsigned kind, unsigned index, class A>
struct Argument {
    static constexpr unsigned long bytes = 0, alignment = 1;
    static A get(const msl_thread* self) {
        static_assert(kind != msl_buffer, "[[buffer]] needs a pointer or reference to device or constant memory");
        static_assert(kind != msl_threadgroup, "[[threadgroup]] needs a pointer to threadgroup memory");
        static_assert(unsigned_length<A>::value >= 1,
                      "a position, size or index in the grid must be uint or ushort, or a vector of them");
        static_assert(unsigned_length<A>::value <= 3, "a position or size in the grid has at most 3 components");
        static_assert(kind < msl_thread_index_in_threadgroup || unsigned_length<A>::value == 1,
                      "this index or count is a scalar");
        unsigned counts[3];
        counts_of(kind, self, counts);
        return FromCounts<A, unsigned_length<A>::value>::get(counts);
    }
};

template <class T>
struct Size {
    static constexpr unsigned long bytes = sizeof(T), alignment = alignof(T);
};
template <>
struct Size<void> {
    static constexpr unsigned long bytes = 0, alignment = 1;
};
template <>
struct Size<const void> : Size<void> {};

template <unsigned index, class T>
struct Argument<msl_buffer, index, device T*> {
    static constexpr unsigned long bytes = 0, alignment = Size<T>::alignment;
    static device T* get(const msl_thread* self) { return (device T*)self->launch->buffers[index]; }
};
template <unsigned index, class T>
struct Argument<msl_buffer, index, device T&> {
    static constexpr unsigned long bytes = sizeof(T), alignment = alignof(T);
    static device T& get(const msl_thread* self) { return *(device T*)self->launch->buffers[index]; }
};
template <unsigned index, class T>
struct Argument<msl_buffer, index, constant T*> {
    static constexpr unsigned long bytes = 0, alignment = Size<T>::alignment;
    static constant T* get(const msl_thread* self) { return (constant T*)self->launch->buffers[index]; }
};
template <unsigned index, class T>
struct Argument<msl_buffer, index, constant T&> {
    static constexpr unsigned long bytes = sizeof(T), alignment = alignof(T);
    static constant T& get(const msl_thread* self) { return *(constant T*)self->launch->buffers[index]; }
};
template <unsigned index, class T>
struct Argument<msl_threadgroup, index, threadgroup T*> {
    static constexpr unsigned long bytes = 0, alignment = alignof(T);
    static threadgroup T* get(const msl_thread* self) {
        return (threadgroup T*)self->launch->threadgroup_memory[index];
    }
};

template <unsigned kind, unsigned index>
struct Slot {};

template <class Function, class... Slots>
struct Call;
template <class... A, unsigned... kind, unsigned... index>
struct Call<void(A...), Slot<kind, index>...> {
    static_assert(sizeof...(A) == sizeof...(kind), "the kernel has another number of parameters than were found");
    template <void (*function)(A...)>
    static void entry(const msl_thread* self) {
        function(Argument<kind, index, A>::get(self)...);
    }
    static constexpr msl_parameter parameters[sizeof...(A) + 1] = {
        {kind, index, Argument<kind, index, A>::bytes, Argument<kind, index, A>::alignment}..., {}};
};
template <class... A, unsigned... kind, unsigned... index>
constexpr msl_parameter Call<void(A...), Slot<kind, index>...>::parameters[sizeof...(A) + 1];

// How large the variables in threadgroup memory are: the table is read when the library is loaded.
template <class T, unsigned id>
struct VariableSize {
    static const msl_threadgroup_variable_size entry;
};
template <class T, unsigned id>
__attribute__((used, section("msl_tgvars")))
const msl_threadgroup_variable_size VariableSize<T, id>::entry = {id, sizeof(T)};

template <class T, unsigned id>
inline threadgroup T& threadgroup_variable() {
    (void)&VariableSize<T, id>::entry;
    return *(threadgroup T*)msl_threadgroup_variable(id);
}

}  // namespace __msl

// Where that table begins and ends; both are null when there are no such variables.
extern "C" {
extern const msl_threadgroup_variable_size __start_msl_tgvars[] __attribute__((weak, visibility("hidden")));
extern const msl_threadgroup_variable_size __stop_msl_tgvars[] __attribute__((weak, visibility("hidden")));
extern const msl_threadgroup_variable_size* const msl_variable_sizes[2]
    __attribute__((visibility("default"))) = {__start_msl_tgvars, __stop_msl_tgvars};
}

namespace __msl {

// Not a constant expression, so that a function constant cannot be the length of an array.
template <class T, int N>
__attribute__((noinline)) T function_constant(const unsigned char (&bytes)[N]) {
    T value = T();
    __builtin_memcpy(&value, bytes, N < sizeof(T) ? N : sizeof(T));
    return value;
}

}  // namespace __msl

// What the compiler's checks of undefined behaviour report goes to the simulation, with the line.
namespace __msl {

struct Place {
    const char* file;
    unsigned line, column;
};
struct TypeName {
    unsigned short kind, info;
    char name[1];
};
struct BoundsReport {
    Place place;
    const TypeName* array;
    const TypeName* index;
};

inline char* append(char* to, const char* text) {
    while (*text) *to++ = *text++;
    *to = 0;
    return to;
}

inline char* append(char* to, long number) {
    char digits[24];
    int n = 0;
    const bool negative = number < 0;
    unsigned long rest = negative ? -(unsigned long)number : number;
    do digits[n++] = '0' + rest % 10;
    while (rest /= 10);
    if (negative) digits[n++] = '-';
    while (n > 0) *to++ = digits[--n];
    *to = 0;
    return to;
}

}  // namespace __msl

extern "C" {
#define __MSL_HANDLER(name, what)                                                                 \
    __attribute__((visibility("hidden"), used)) void __ubsan_handle_##name(__msl::Place* place) { \
        msl_fail(place->line, what);                                                              \
    }
__MSL_HANDLER(add_overflow, "signed integer overflow, which is undefined; use unsigned integers to wrap")
__MSL_HANDLER(sub_overflow, "signed integer overflow, which is undefined; use unsigned integers to wrap")
__MSL_HANDLER(mul_overflow, "signed integer overflow, which is undefined; use unsigned integers to wrap")
__MSL_HANDLER(negate_overflow, "signed integer overflow, which is undefined; use unsigned integers to wrap")
__MSL_HANDLER(divrem_overflow, "an integer divided by zero, or the smallest one by -1")
__MSL_HANDLER(shift_out_of_bounds, "an integer shifted by its number of bits or more, or by less than nothing")
#undef __MSL_HANDLER
__attribute__((visibility("hidden"), used)) void __ubsan_handle_out_of_bounds(__msl::BoundsReport* report,
                                                                              unsigned long index) {
    static char text[512];
    char* end = __msl::append(text, "index ");
    end = __msl::append(end, (long)index);
    end = __msl::append(end, " is outside of ");
    __msl::append(end, report->array->name);
    msl_fail(report->place.line, text);
}
}

// Rounds to bfloat, to nearest even: libgcc has this only from version 13 on.
extern "C" __attribute__((visibility("hidden"), used)) bfloat __truncsfbf2(float value) {
    const unsigned bits = __builtin_bit_cast(unsigned, value);
    if (value != value) return __builtin_bit_cast(bfloat, (unsigned short)((bits >> 16) | 0x40));
    return __builtin_bit_cast(bfloat, (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16));
}
