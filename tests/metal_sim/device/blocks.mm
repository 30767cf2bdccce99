// A blocks runtime: copies blocks to the heap and retains the objects they capture.
// Debian's libBlocksRuntime does not retain Objective-C objects, and GCC's Objective-C library has no blocks.
#import <Foundation/Foundation.h>

#include <cstdlib>
#include <cstring>

namespace {

// The layout and the numbers are those of the blocks ABI, which Clang emits.
struct Descriptor {
    unsigned long reserved, size;
    void (*copy)(void* to, const void* from);
    void (*dispose)(const void* block);
};

struct Block {
    void* isa;
    int flags;
    int reserved;
    void (*invoke)(void*, ...);
    Descriptor* descriptor;
};

// A __block variable.
struct ByReference {
    void* isa;
    ByReference* forwarding;
    int flags;
    unsigned size;
    void (*keep)(ByReference* to, ByReference* from);
    void (*destroy)(ByReference* variable);
};

constexpr int count_mask = 0xfffe;  // the reference count, in steps of 2
constexpr int one_reference = 2;
constexpr int needs_free = 1 << 24;
constexpr int has_copy_dispose = 1 << 25;
constexpr int is_global = 1 << 28;

constexpr int field_is_object = 3;
constexpr int field_is_block = 7;
constexpr int field_is_by_reference = 8;
constexpr int field_is_weak = 16;
constexpr int by_reference_caller = 128;  // __block variables hold objects without retaining them

void add_reference(int& flags) {
    __atomic_fetch_add(&flags, one_reference, __ATOMIC_RELAXED);
}

bool drop_reference(int& flags) {
    return (__atomic_sub_fetch(&flags, one_reference, __ATOMIC_ACQ_REL) & count_mask) == 0;
}

ByReference* copy_by_reference(ByReference* variable) {
    if (variable->forwarding->flags & needs_free) {
        add_reference(variable->forwarding->flags);
        return variable->forwarding;
    }
    auto* copy = static_cast<ByReference*>(std::malloc(variable->size));
    std::memcpy(copy, variable, variable->size);
    copy->flags = (variable->flags & ~count_mask) | needs_free | 2 * one_reference;  // the stack's, and the block's
    copy->forwarding = copy;
    variable->forwarding = copy;
    if (variable->flags & has_copy_dispose) variable->keep(copy, variable);
    return copy;
}

void release_by_reference(ByReference* variable) {
    variable = variable->forwarding;
    if (!(variable->flags & needs_free) || !drop_reference(variable->flags)) return;
    if (variable->flags & has_copy_dispose) variable->destroy(variable);
    std::free(variable);
}

}  // namespace

#define BLOCKS_API __attribute__((visibility("default")))

extern "C" {

BLOCKS_API void* _NSConcreteStackBlock[32];
BLOCKS_API void* _NSConcreteMallocBlock[32];
BLOCKS_API void* _NSConcreteGlobalBlock[32];

BLOCKS_API void* _Block_copy(const void* source) {
    auto* block = static_cast<Block*>(const_cast<void*>(source));
    if (!block || (block->flags & is_global)) return block;
    if (block->flags & needs_free) {
        add_reference(block->flags);
        return block;
    }
    auto* copy = static_cast<Block*>(std::malloc(block->descriptor->size));
    std::memcpy(copy, block, block->descriptor->size);
    copy->isa = _NSConcreteMallocBlock;
    copy->flags = (block->flags & ~count_mask) | needs_free | one_reference;
    if (copy->flags & has_copy_dispose) copy->descriptor->copy(copy, block);
    return copy;
}

BLOCKS_API void _Block_release(const void* source) {
    auto* block = static_cast<Block*>(const_cast<void*>(source));
    if (!block || !(block->flags & needs_free) || !drop_reference(block->flags)) return;
    if (block->flags & has_copy_dispose) block->descriptor->dispose(block);
    std::free(block);
}

BLOCKS_API void _Block_object_assign(void* destination, const void* object, const int flags) {
    auto* place = static_cast<const void**>(destination);
    *place = object;
    switch (flags & ~field_is_weak) {
        case field_is_object:
            [(id)object retain];
            break;
        case field_is_block:
            *place = _Block_copy(object);
            break;
        case field_is_by_reference:
            *place = copy_by_reference(static_cast<ByReference*>(const_cast<void*>(object)));
            break;
        default:
            break;  // by_reference_caller
    }
}

BLOCKS_API void _Block_object_dispose(const void* object, const int flags) {
    if (flags & by_reference_caller) return;
    switch (flags & ~field_is_weak) {
        case field_is_object:
            [(id)object release];
            break;
        case field_is_block:
            _Block_release(object);
            break;
        case field_is_by_reference:
            release_by_reference(static_cast<ByReference*>(const_cast<void*>(object)));
            break;
        default:
            break;
    }
}
}
