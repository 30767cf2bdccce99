// <metal_simdgroup_matrix>: 8 x 8 matrices that the 32 threads of a simdgroup hold together, two elements each.
// Which thread holds which elements is the device's own affair: thread_elements() is left out on purpose.
#pragma once
#pragma clang system_header

#include "msl/simdgroup.h"

namespace metal {

// The row and the first of two columns that a lane holds.
inline void __place(uint lane, int& row, int& column) {
    row = static_cast<int>(lane) / 4;
    column = static_cast<int>(lane) % 4 * 2;
}

template <class T, int rows, int columns>
struct simdgroup_matrix {
    static_assert(rows == 8 && columns == 8, "simdgroup_matrix: only 8 x 8 exists");
    static_assert(is_floating_point<T>::value, "simdgroup_matrix: the elements are half, bfloat or float");
    T __elements[2];

    simdgroup_matrix() { __builtin_memset(__elements, 0xff, sizeof __elements); }  // NaN until it is set
    // `value` on the diagonal, zero elsewhere.
    explicit simdgroup_matrix(T value) {
        int row, column;
        __place(msl_simd_lane(), row, column);
        for (int k = 0; k < 2; ++k) __elements[k] = row == column + k ? value : T(0);
    }
};
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;

template <class T, int rows, int columns>
inline simdgroup_matrix<T, rows, columns> make_filled_simdgroup_matrix(typename __given<T>::type value) {
    simdgroup_matrix<T, rows, columns> result;
    result.__elements[0] = result.__elements[1] = value;
    return result;
}
template <class T, int rows, int columns>
inline simdgroup_matrix<T, rows, columns> make_diagonal_simdgroup_matrix(typename __given<T>::type value) {
    return simdgroup_matrix<T, rows, columns>(value);
}

// Where element k of this lane lies.
inline ulong __position(int k, ulong elements_per_row, ulong2 origin, bool transpose) {
    int row, column;
    __place(msl_simd_lane(), row, column);
    const ulong y = origin.y + static_cast<ulong>(transpose ? column + k : row);
    const ulong x = origin.x + static_cast<ulong>(transpose ? row : column + k);
    return y * elements_per_row + x;
}

#define __MSL_MATRIX_MEMORY(space)                                                                                     \
    template <class T>                                                                                                 \
    inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& matrix, const space T* source, ulong elements_per_row = 8,   \
                               ulong2 origin = (ulong2)(0), bool transpose = false) {                                  \
        for (int k = 0; k < 2; ++k) matrix.__elements[k] = source[__position(k, elements_per_row, origin, transpose)]; \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& matrix, space T* destination,                         \
                                ulong elements_per_row = 8, ulong2 origin = (ulong2)(0), bool transpose = false) {     \
        for (int k = 0; k < 2; ++k)                                                                                    \
            destination[__position(k, elements_per_row, origin, transpose)] = matrix.__elements[k];                    \
    }
__MSL_MATRIX_MEMORY(device)
__MSL_MATRIX_MEMORY(threadgroup)
#undef __MSL_MATRIX_MEMORY

// The operands of d = a * b + c that one lane holds.
template <class D, class A, class B, class C>
struct __product_lane {
    simdgroup_matrix<D, 8, 8>* d;
    const simdgroup_matrix<A, 8, 8>* a;
    const simdgroup_matrix<B, 8, 8>* b;
    const simdgroup_matrix<C, 8, 8>* c;
};

template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c,
                                          int line = __builtin_LINE()) {
    using Lane = __product_lane<D, A, B, C>;
    Lane mine{&d, &a, &b, &c};
    msl_simd_exchange(
        &mine,
        [](void** lanes, unsigned long) {
            float left[8][8], right[8][8];
            for (int i = 0; i < msl_simd_width; ++i) {
                const Lane& lane = *static_cast<Lane*>(lanes[i]);
                int row, column;
                __place(i, row, column);
                for (int k = 0; k < 2; ++k) {
                    left[row][column + k] = static_cast<float>(lane.a->__elements[k]);
                    right[row][column + k] = static_cast<float>(lane.b->__elements[k]);
                }
            }
            for (int i = 0; i < msl_simd_width; ++i) {
                const Lane& lane = *static_cast<Lane*>(lanes[i]);
                int row, column;
                __place(i, row, column);
                for (int k = 0; k < 2; ++k) {
                    float sum = static_cast<float>(lane.c->__elements[k]);
                    for (int q = 0; q < 8; ++q) sum += left[row][q] * right[q][column + k];
                    lane.d->__elements[k] = static_cast<D>(sum);
                }
            }
        },
        1, line);
}

template <class T>
inline void simdgroup_multiply(simdgroup_matrix<T, 8, 8>& d, const simdgroup_matrix<T, 8, 8>& a,
                               const simdgroup_matrix<T, 8, 8>& b, int line = __builtin_LINE()) {
    const auto zero = make_filled_simdgroup_matrix<T, 8, 8>(0);
    simdgroup_multiply_accumulate(d, a, b, zero, line);
}

}  // namespace metal
