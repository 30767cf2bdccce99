// DLPack in and out: the memory of torch, jax and others as an NDArray, and an NDArray as theirs.
// Whoever reads keeps the other side's memory alive; both may end on any thread.
#include <pybind11/pybind11.h>

#include <cstring>
#include <memory>
#include <optional>

#include "bind_ndarray.h"
#include "core/checked.h"
#include "dlpack.h"
#include "ndarray_parts.h"
#include "topstitch/error.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

using namespace dlpack;

constexpr const char* plain_name = "dltensor";
constexpr const char* versioned_name = "dltensor_versioned";

std::optional<DType> dtype_of(const DLDataType& type) {
    if (type.lanes != 1) return std::nullopt;
    const auto pick = [&](DType b8, DType b16, DType b32, DType b64) -> std::optional<DType> {
        switch (type.bits) {
            case 8:
                return b8;
            case 16:
                return b16;
            case 32:
                return b32;
            case 64:
                return b64;
            default:
                return std::nullopt;
        }
    };
    switch (type.code) {
        case code_int:
            return pick(DType::int8, DType::int16, DType::int32, DType::int64);
        case code_uint:
            return pick(DType::uint8, DType::uint16, DType::uint32, DType::uint64);
        case code_float:
            if (type.bits == 8) return std::nullopt;
            return pick(DType::float16, DType::float16, DType::float32, DType::float64);
        case code_bfloat:
            return type.bits == 16 ? std::optional(DType::bfloat16) : std::nullopt;
        case code_complex:
            return type.bits == 64 ? std::optional(DType::complex64) : std::nullopt;
        case code_bool:
            return type.bits == 8 ? std::optional(DType::boolean) : std::nullopt;
        default:
            return std::nullopt;
    }
}

DLDataType type_of(DType dtype) {
    const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
    if (dtype == DType::boolean) return {code_bool, bits, 1};
    if (dtype == DType::bfloat16) return {code_bfloat, bits, 1};
    if (is_complex(dtype)) return {code_complex, bits, 1};
    if (is_floating(dtype)) return {code_float, bits, 1};
    return {is_signed_integer(dtype) ? code_int : code_uint, bits, 1};
}

// ---- In ----

// A tensor taken over from a producer: the release function gives it back.
struct Taken {
    const DLTensor* tensor = nullptr;
    bool readonly = false;
    std::shared_ptr<void> keep_alive;
};

template <typename Managed>
Taken take(py::capsule capsule, const char* used_name, bool readonly) {
    auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), capsule.name()));
    if (managed == nullptr || PyCapsule_SetName(capsule.ptr(), used_name) != 0) throw py::error_already_set();
    Taken taken;
    taken.keep_alive = std::shared_ptr<void>(managed, [managed](void*) {
        if (managed->deleter != nullptr) with_gil_unless_finalizing([managed] { managed->deleter(managed); });
    });
    taken.tensor = &managed->dl_tensor;
    taken.readonly = readonly;
    return taken;
}

Taken take_from_capsule(const py::object& object, const std::string& what) {
    if (PyCapsule_IsValid(object.ptr(), versioned_name) != 0) {
        const auto* managed =
            static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(object.ptr(), versioned_name));
        const bool readonly = (managed->flags & flag_read_only) != 0;
        const DLPackVersion version = managed->version;
        Taken taken = take<DLManagedTensorVersioned>(py::reinterpret_borrow<py::capsule>(object),
                                                     "used_dltensor_versioned", readonly);
        if (version.major != 1) {
            throw UnsupportedError(concat(what, ": the array comes as DLPack ", version.major, ".", version.minor,
                                          "; only versions 1.x are supported"));
        }
        return taken;
    }
    if (PyCapsule_IsValid(object.ptr(), plain_name) != 0) {
        // Without versions, a producer cannot say whether its memory may be written.
        return take<DLManagedTensor>(py::reinterpret_borrow<py::capsule>(object), "used_dltensor", true);
    }
    throw TypeError(concat(what, ": __dlpack__ did not return a fresh DLPack capsule"));
}

void check_device(py::handle object, const std::string& what) {
    const py::tuple device = object.attr("__dlpack_device__")();
    int overflow = 0;
    const bool pair = device.size() == 2 && PyIndex_Check(py::object(device[0]).ptr()) != 0;
    const long type = pair ? PyLong_AsLongAndOverflow(py::int_(device[0]).ptr(), &overflow) : 0;
    if (!pair || overflow != 0) {
        throw TypeError(concat(what, ": __dlpack_device__ returned ", std::string(py::repr(device)),
                               " instead of a device type and a number, which are integers"));
    }
    if (type == cpu || type == cuda_host || type == rocm_host) return;
    throw UserError(
        concat(what, ": the array lives on a device (", std::string(py::str(device)),
               " in DLPack's terms), not in the memory of the CPU; copy it there first, e.g. with tensor.cpu()"));
}

// torch may keep the sign beside the numbers, and does not say so by DLPack.
void check_sign(py::handle object, const std::string& what) {
    if (!py::hasattr(object, "is_neg") || !py::hasattr(object, "resolve_neg")) return;
    if (object.attr("is_neg")().ptr() == Py_True)
        throw UserError(concat(what, ": the tensor has its negative bit set; pass tensor.resolve_neg()"));
}

py::object request_capsule(py::handle object) {
    const py::object method = object.attr("__dlpack__");
    try {
        return method(py::arg("max_version") = py::make_tuple(1, 0));
    } catch (py::error_already_set& error) {
        // From before version 1.0, and not a producer that refuses by a TypeError of its own.
        const bool unknown = std::string(py::str(error.value())).find("argument") != std::string::npos;
        if (!error.matches(PyExc_TypeError) || !unknown) throw;
        return method();
    }
}

}  // namespace

NDArray ndarray_from_dlpack(py::handle object, const std::string& what) {
    check_device(object, what);
    check_sign(object, what);
    const Taken taken = take_from_capsule(request_capsule(object), what);
    const DLTensor& tensor = *taken.tensor;
    const auto dtype = dtype_of(tensor.dtype);
    if (!dtype) {
        throw TypeError(concat(what, ": the array has an element type (DLPack code ", int{tensor.dtype.code}, ", ",
                               int{tensor.dtype.bits}, " bits, ", tensor.dtype.lanes,
                               " lanes) that is not supported; convert it first, e.g. to float32"));
    }
    if (tensor.ndim < 0 || tensor.ndim > max_rank) {
        throw UserError(concat(what, ": the array has ", tensor.ndim, " dims; at most ", max_rank,
                               " are supported, so merge some with reshape"));
    }
    const auto rank = static_cast<std::size_t>(tensor.ndim);
    const Sizes shape(tensor.shape, tensor.shape + rank);
    const std::size_t element = size_of(*dtype);
    Sizes strides = contiguous_byte_strides(shape, element);
    const bool empty = num_elements(shape) == 0;
    if (!empty && tensor.data == nullptr) throw UserError(concat(what, ": the array has no memory: its address is 0"));
    for (std::size_t i = 0; i < rank && !empty; ++i) {
        if (shape[i] < 0) throw UserError(concat(what, ": the shape ", sizes_str(shape), " of the array is negative"));
        if (tensor.strides == nullptr || shape[i] == 1) continue;
        const auto stride = checked_mul(tensor.strides[i], static_cast<std::int64_t>(element));
        if (!stride) throw UserError(concat(what, ": the strides of the array are too large"));
        strides[i] = *stride;
    }
    const Extent extent = extent_of(shape, strides, element, what);
    char* first = static_cast<char*>(tensor.data) + (empty ? 0 : tensor.byte_offset);
    const auto view = [&](void* data) {
        char* begin = static_cast<char*>(data) + extent.low;
        const auto buffer = Buffer::borrow(begin, extent.bytes(), taken.readonly,
                                           [keep = taken.keep_alive]() mutable { keep.reset(); });
        return NDArray(buffer, data, *dtype, shape, strides);
    };
    const std::size_t alignment = is_complex(*dtype) ? element / 2 : element;
    if (empty || reinterpret_cast<std::uintptr_t>(first) % alignment == 0) return view(first);
    // Misaligned: move all the bytes to aligned memory and view them there.
    const auto moved = Buffer::allocate(extent.bytes());
    std::memcpy(moved->data(), first + extent.low, moved->bytes());
    return NDArray(moved, static_cast<char*>(moved->data()) - extent.low, *dtype, shape, strides);
}

// ---- Out ----

namespace {

// What a consumer holds on to.
template <typename Managed>
struct Export {
    Managed managed{};
    NDArray array;
    Sizes shape;
    Sizes strides;
};

template <typename Managed>
void destroy(Managed* managed) {
    delete static_cast<Export<Managed>*>(managed->manager_ctx);
}

// Runs when a capsule dies; one whose tensor was taken over has another name by then.
template <typename Managed>
void destroy_capsule(PyObject* capsule, const char* name) {
    if (PyCapsule_IsValid(capsule, name) == 0) return;
    auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
    managed->deleter(managed);
}

template <typename Managed>
py::object export_as(const NDArray& array, const char* name, PyCapsule_Destructor destructor, Managed prototype) {
    auto exported = std::make_unique<Export<Managed>>();
    exported->managed = prototype;
    exported->array = array;
    exported->shape = array.shape();
    for (const std::int64_t stride : array.byte_strides()) {
        exported->strides.push_back(stride / static_cast<std::int64_t>(size_of(array.dtype())));
    }
    DLTensor& tensor = exported->managed.dl_tensor;
    tensor.data = array.data();
    tensor.device = {cpu, 0};
    tensor.ndim = array.rank();
    tensor.dtype = type_of(array.dtype());
    tensor.shape = exported->shape.data();
    tensor.strides = exported->strides.data();
    tensor.byte_offset = 0;
    exported->managed.manager_ctx = exported.get();
    exported->managed.deleter = &destroy<Managed>;
    PyObject* capsule = PyCapsule_New(&exported->managed, name, destructor);
    if (capsule == nullptr) throw py::error_already_set();
    exported.release();  // the capsule's now
    return py::reinterpret_steal<py::object>(capsule);
}

[[noreturn]] void refuse(const std::string& why) {
    throw py::buffer_error("__dlpack__: " + why);
}

bool has_element_strides(const NDArray& array) {
    const auto element = static_cast<std::int64_t>(size_of(array.dtype()));
    for (const std::int64_t stride : array.byte_strides()) {
        if (stride % element != 0) return false;
    }
    return true;
}

}  // namespace

py::object ndarray_to_dlpack(const NDArray& array, py::handle stream, py::handle max_version, py::handle dl_device,
                             py::handle copy) {
    if (!stream.is_none()) refuse("an NDArray in CPU memory has no streams; pass stream=None");
    if (!dl_device.is_none() && !dl_device.equal(py::make_tuple(static_cast<int>(cpu), 0))) {
        refuse("the NDArray lives in CPU memory, (1, 0) in DLPack's terms; it cannot be exported to device " +
               std::string(py::str(dl_device)));
    }
    const bool copy_wanted = !copy.is_none() && py::bool_(py::reinterpret_borrow<py::object>(copy));
    const bool copy_forbidden = !copy.is_none() && !copy_wanted;
    const bool copy_needed = !has_element_strides(array);
    if (copy_needed && copy_forbidden)
        refuse("the strides are not multiples of the element size, so that a copy is needed, but copy is False");
    const bool copied = copy_wanted || copy_needed;
    const NDArray source = copied ? array.copy() : array;

    const bool versioned = !max_version.is_none() && py::int_(max_version.cast<py::tuple>()[0]).cast<int>() >= 1;
    if (versioned) {
        DLManagedTensorVersioned prototype{};
        prototype.version = {1, 0};
        prototype.flags = (source.readonly() ? flag_read_only : 0) | (copied ? flag_is_copied : 0);
        return export_as(
            source, versioned_name,
            [](PyObject* capsule) { destroy_capsule<DLManagedTensorVersioned>(capsule, versioned_name); }, prototype);
    }
    if (source.readonly()) {
        refuse(
            "the NDArray is read-only, which DLPack before version 1.0 cannot say; pass max_version=(1, 0), or "
            "copy=True");
    }
    return export_as(
        source, plain_name, [](PyObject* capsule) { destroy_capsule<DLManagedTensor>(capsule, plain_name); },
        DLManagedTensor{});
}

}  // namespace topstitch::bindings
