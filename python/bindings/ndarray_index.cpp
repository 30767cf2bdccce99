// Indexing of NDArrays: integers, slices, ... and None give views, everything else goes through NumPy.
// The rules are NumPy's.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "bind_ndarray.h"
#include "ndarray_parts.h"
#include "topstitch/error.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

std::vector<py::object> parts_of(const py::object& key) {
    if (!py::isinstance<py::tuple>(key)) return {key};
    std::vector<py::object> parts;
    for (const py::handle part : key.cast<py::tuple>()) parts.push_back(py::reinterpret_borrow<py::object>(part));
    return parts;
}

bool is_integer(const py::object& part) {
    if (PyLong_CheckExact(part.ptr())) return true;
    if (PyBool_Check(part.ptr()) || py::isinstance<py::array>(part) || py::isinstance<NDArray>(part)) return false;
    return PyIndex_Check(part.ptr()) != 0;
}

bool is_ellipsis(const py::object& part) {
    return part.ptr() == Py_Ellipsis;
}

bool is_basic(const std::vector<py::object>& parts) {
    for (const py::object& part : parts) {
        const bool basic = is_integer(part) || PySlice_Check(part.ptr()) || is_ellipsis(part) || part.is_none();
        if (!basic) return false;
    }
    return true;
}

// Walks along the dims of an array and collects those of the view.
class ViewBuilder {
public:
    explicit ViewBuilder(const NDArray& array) : array_(array), data_(static_cast<char*>(array.data())) {}

    void add_new_axis() {
        shape_.push_back(1);
        strides_.push_back(0);
    }

    void keep(std::int64_t dims) {
        for (; dims > 0; --dims, ++axis_) {
            shape_.push_back(size());
            strides_.push_back(stride());
        }
    }

    void pick(const py::object& part) {
        const Py_ssize_t index = PyNumber_AsSsize_t(part.ptr(), PyExc_IndexError);
        if (index == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
        if (index < -size() || index >= size()) {
            throw py::index_error(
                concat("NDArray: index ", index, " is out of range for axis ", axis_, " of size ", size()));
        }
        data_ += (index < 0 ? index + size() : index) * stride();
        ++axis_;
    }

    void slice(const py::object& part) {
        Py_ssize_t start = 0;
        Py_ssize_t stop = 0;
        Py_ssize_t step = 0;
        if (PySlice_Unpack(part.ptr(), &start, &stop, &step) != 0) throw py::error_already_set();
        const Py_ssize_t count = PySlice_AdjustIndices(size(), &start, &stop, step);
        shape_.push_back(count);
        strides_.push_back(count > 1 ? stride() * step : stride());  // a lone element's step might not fit
        if (count > 0) data_ += start * stride();
        ++axis_;
    }

    NDArray finish() {
        keep(array_.rank() - static_cast<std::int64_t>(axis_));
        return NDArray(array_.buffer(), data_, array_.dtype(), std::move(shape_), std::move(strides_));
    }

private:
    std::int64_t size() const { return array_.shape()[axis_]; }
    std::int64_t stride() const { return array_.byte_strides()[axis_]; }

    const NDArray& array_;
    char* data_;
    std::size_t axis_ = 0;
    Sizes shape_;
    Sizes strides_;
};

NDArray view(const NDArray& array, const std::vector<py::object>& parts) {
    std::int64_t consumed = 0;
    int ellipses = 0;
    for (const py::object& part : parts) {
        ellipses += is_ellipsis(part) ? 1 : 0;
        consumed += is_ellipsis(part) || part.is_none() ? 0 : 1;
    }
    if (consumed > array.rank()) {
        throw py::index_error(concat("NDArray: ", consumed, " indices were given for an array of ", array.rank(),
                                     (array.rank() == 1 ? " dim" : " dims")));
    }
    if (ellipses > 1) throw py::index_error("NDArray: an index can have only one ellipsis (...)");
    ViewBuilder builder(array);
    for (const py::object& part : parts) {
        if (part.is_none()) {
            builder.add_new_axis();
        } else if (is_ellipsis(part)) {
            builder.keep(array.rank() - consumed);
        } else if (is_integer(part)) {
            builder.pick(part);
        } else {
            builder.slice(part);
        }
    }
    return builder.finish();
}

}  // namespace

py::object get_item(py::object self, py::object key) {
    const auto& array = self.cast<const NDArray&>();
    const std::vector<py::object> parts = parts_of(key);
    if (is_basic(parts)) return py::cast(view(array, parts));
    const py::object picked = ndarray_to_numpy(array, self)[key];
    return py::cast(ndarray_from_python(picked, std::nullopt, "NDArray"));
}

void set_item(py::object self, py::object key, py::object value) {
    ndarray_to_numpy(self.cast<const NDArray&>(), self)[key] = value;
}

}  // namespace topstitch::bindings
