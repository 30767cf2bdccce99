// <metal_simdgroup>, <metal_quadgroup>, <metal_compute>: barriers, and operations in which lanes exchange values.
// Each thread hands its value to the scheduler; the last one to arrive computes for all lanes that are in the
// operation.
#pragma once
#pragma clang system_header

#include "msl/prelude.h"

namespace metal {

enum class mem_flags : uint {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8,
    mem_object_data = 16
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
    return static_cast<mem_flags>(static_cast<uint>(a) | static_cast<uint>(b));
}

inline void threadgroup_barrier(mem_flags, int line = __builtin_LINE()) {
    msl_threadgroup_barrier(line);
}
inline void simdgroup_barrier(mem_flags, int line = __builtin_LINE()) {
    msl_simd_exchange(nullptr, [](void**, unsigned long) {}, 0, line);
}

// What a lane brings to an operation, and takes away.
template <class T>
struct __lane {
    T in;
    T out;
    uint argument;
};

// The lanes of one operation; `active` has a bit for each that is in it.
template <class T>
struct __lanes {
    void** pointers;
    unsigned long active;
    bool has(int i) const { return i >= 0 && i < msl_simd_width && ((active >> i) & 1) != 0; }
    __lane<T>& operator[](int i) const { return *static_cast<__lane<T>*>(pointers[i]); }
};

// A value that no lane provided: all bits set, which is a NaN.
template <class T>
inline T __absent() {
    T value;
    __builtin_memset(&value, 0xff, sizeof value);
    return value;
}

template <class T>
struct __exchangeable {
    using element = typename __parts<T>::element;
    static_assert(is_floating_point<element>::value || is_integral<element>::value,
                  "simdgroup operations take numbers");
    static_assert(sizeof(element) <= 4, "simdgroup operations take types of at most 32 bits");
    static_assert(!is_same<element, bool>::value, "simdgroup operations do not take bool");
};

// F::perform(lanes) sets `out` of each lane.
template <class T, class F>
inline T __exchange(T value, uint argument, F, int line) {
    (void)sizeof(__exchangeable<T>);
    __lane<T> lane{value, value, argument};
    msl_simd_exchange(
        &lane, [](void** pointers, unsigned long active) { F::perform(__lanes<T>{pointers, active}); }, 0, line);
    return lane.out;
}

// Combines the lanes of each group of `width` with F::combine.
template <class F, int width>
struct __reduction {
    template <class T>
    static void perform(__lanes<T> lanes) {
        for (int begin = 0; begin < msl_simd_width; begin += width) {
            bool first = true;
            T sum = T();
            for (int i = begin; i < begin + width; ++i) {
                if (!lanes.has(i)) continue;
                sum = first ? lanes[i].in : F::combine(sum, lanes[i].in);
                first = false;
            }
            for (int i = begin; i < begin + width; ++i) {
                if (lanes.has(i)) lanes[i].out = sum;
            }
        }
    }
};

template <class F, bool inclusive>
struct __prefix {
    template <class T>
    static void perform(__lanes<T> lanes) {
        T sum = F::template neutral<T>();
        for (int i = 0; i < msl_simd_width; ++i) {
            if (!lanes.has(i)) continue;
            const T next = F::combine(sum, lanes[i].in);
            lanes[i].out = inclusive ? next : sum;
            sum = next;
        }
    }
};

// F::source(lane, argument): from which lane a value comes; a lane outside of the group keeps its own.
template <class F, int width>
struct __shuffle {
    template <class T>
    static void perform(__lanes<T> lanes) {
        for (int i = 0; i < msl_simd_width; ++i) {
            if (!lanes.has(i)) continue;
            const int begin = i / width * width;
            const int from = F::source(i - begin, static_cast<int>(lanes[i].argument), width);
            if (from < 0 || from >= width)
                lanes[i].out = lanes[i].in;
            else
                lanes[i].out = lanes.has(begin + from) ? lanes[begin + from].in : __absent<T>();
        }
    }
};

struct __sum {
    template <class T>
    static T neutral() {
        return T(0);
    }
    template <class T>
    static T combine(T a, T b) {
        return a + b;
    }
};
struct __product {
    template <class T>
    static T neutral() {
        return T(1);
    }
    template <class T>
    static T combine(T a, T b) {
        return a * b;
    }
};
template <class T>
inline T __smaller(T a, T b) {
    return b < a || a != a ? b : a;
}
template <class T>
inline T __larger(T a, T b) {
    return a < b || a != a ? b : a;
}
template <class T, int N>
inline vec<T, N> __smaller(vec<T, N> a, vec<T, N> b) {
    return __map(a, b, [](T x, T y) { return __smaller(x, y); });
}
template <class T, int N>
inline vec<T, N> __larger(vec<T, N> a, vec<T, N> b) {
    return __map(a, b, [](T x, T y) { return __larger(x, y); });
}
struct __min {
    template <class T>
    static T combine(T a, T b) {
        return __smaller(a, b);
    }
};
struct __max {
    template <class T>
    static T combine(T a, T b) {
        return __larger(a, b);
    }
};
struct __and {
    template <class T>
    static T combine(T a, T b) {
        return a & b;
    }
};
struct __or {
    template <class T>
    static T combine(T a, T b) {
        return a | b;
    }
};
struct __xor {
    template <class T>
    static T combine(T a, T b) {
        return a ^ b;
    }
};
struct __from {
    static int source(int, int argument, int) { return argument; }
};
struct __from_xor {
    static int source(int lane, int argument, int) { return lane ^ argument; }
};
struct __from_up {
    static int source(int lane, int argument, int) { return lane - argument; }
};
struct __from_down {
    static int source(int lane, int argument, int) { return lane + argument; }
};
struct __from_rotate_up {
    static int source(int lane, int argument, int width) { return ((lane - argument) % width + width) % width; }
};
struct __from_rotate_down {
    static int source(int lane, int argument, int width) { return (lane + argument) % width; }
};

#define __MSL_REDUCTION(name, F)                                             \
    template <class T>                                                       \
    inline T simd_##name(T value, int line = __builtin_LINE()) {             \
        return __exchange(value, 0, __reduction<F, msl_simd_width>(), line); \
    }                                                                        \
    template <class T>                                                       \
    inline T quad_##name(T value, int line = __builtin_LINE()) {             \
        return __exchange(value, 0, __reduction<F, 4>(), line);              \
    }
__MSL_REDUCTION(sum, __sum)
__MSL_REDUCTION(product, __product)
__MSL_REDUCTION(min, __min)
__MSL_REDUCTION(max, __max)
__MSL_REDUCTION(and, __and)
__MSL_REDUCTION(or, __or)
__MSL_REDUCTION(xor, __xor)
#undef __MSL_REDUCTION

#define __MSL_SHUFFLE(name, F)                                                    \
    template <class T>                                                            \
    inline T simd_##name(T value, ushort argument, int line = __builtin_LINE()) { \
        return __exchange(value, argument, __shuffle<F, msl_simd_width>(), line); \
    }                                                                             \
    template <class T>                                                            \
    inline T quad_##name(T value, ushort argument, int line = __builtin_LINE()) { \
        return __exchange(value, argument, __shuffle<F, 4>(), line);              \
    }
__MSL_SHUFFLE(broadcast, __from)
__MSL_SHUFFLE(shuffle, __from)
__MSL_SHUFFLE(shuffle_xor, __from_xor)
__MSL_SHUFFLE(shuffle_up, __from_up)
__MSL_SHUFFLE(shuffle_down, __from_down)
__MSL_SHUFFLE(shuffle_rotate_up, __from_rotate_up)
__MSL_SHUFFLE(shuffle_rotate_down, __from_rotate_down)
#undef __MSL_SHUFFLE

template <class T>
inline T simd_prefix_exclusive_sum(T value, int line = __builtin_LINE()) {
    return __exchange(value, 0, __prefix<__sum, false>(), line);
}
template <class T>
inline T simd_prefix_inclusive_sum(T value, int line = __builtin_LINE()) {
    return __exchange(value, 0, __prefix<__sum, true>(), line);
}
template <class T>
inline T simd_prefix_exclusive_product(T value, int line = __builtin_LINE()) {
    return __exchange(value, 0, __prefix<__product, false>(), line);
}
template <class T>
inline T simd_prefix_inclusive_product(T value, int line = __builtin_LINE()) {
    return __exchange(value, 0, __prefix<__product, true>(), line);
}

struct __first {
    template <class T>
    static void perform(__lanes<T> lanes) {
        const T value = lanes[__builtin_ctzl(lanes.active)].in;
        for (int i = 0; i < msl_simd_width; ++i) {
            if (lanes.has(i)) lanes[i].out = value;
        }
    }
};
template <class T>
inline T simd_broadcast_first(T value, int line = __builtin_LINE()) {
    return __exchange(value, 0, __first(), line);
}

// A mask of lanes.
class simd_vote {
public:
    using vote_t = ulong;
    explicit constexpr simd_vote(vote_t vote = 0) : vote_(vote) {}
    explicit constexpr operator vote_t() const { return vote_; }
    constexpr bool all() const { return vote_ == 0xffffffff; }
    constexpr bool any() const { return vote_ != 0; }

private:
    vote_t vote_;
};

inline bool simd_any(bool value, int line = __builtin_LINE()) {
    return __exchange<uint>(value, 0, __reduction<__or, msl_simd_width>(), line) != 0;
}
inline bool simd_all(bool value, int line = __builtin_LINE()) {
    return __exchange<uint>(value, 0, __reduction<__and, msl_simd_width>(), line) != 0;
}
inline simd_vote simd_ballot(bool value, int line = __builtin_LINE()) {
    return simd_vote(
        __exchange<uint>(value ? 1u << msl_simd_lane() : 0u, 0, __reduction<__or, msl_simd_width>(), line));
}
inline simd_vote simd_active_threads_mask(int line = __builtin_LINE()) {
    return simd_ballot(true, line);
}
inline bool simd_is_first(int line = __builtin_LINE()) {
    return __exchange<uint>(msl_simd_lane(), 0, __first(), line) == msl_simd_lane();
}

}  // namespace metal
