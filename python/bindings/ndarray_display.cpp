// How NDArrays look in Python: NumPy's text, and a table in notebooks.
// Long arrays are abbreviated in both.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "bind_ndarray.h"
#include "ndarray_parts.h"
#include "topstitch/error.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

constexpr std::int64_t most_rows = 10;
constexpr std::int64_t most_columns = 10;

// The first and last positions of a long dim; -1 stands for what is left out.
std::vector<std::int64_t> shown_positions(std::int64_t size, std::int64_t most) {
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < size; ++i) {
        if (size > most && i == most / 2) {
            positions.push_back(-1);
            i = size - most / 2;
        }
        positions.push_back(i);
    }
    return positions;
}

std::string array_text(const NDArray& array, const std::string& prefix) {
    const py::object function = py::module_::import("numpy").attr("array2string");
    return py::str(function(ndarray_to_numpy(array), py::arg("separator") = ", ", py::arg("prefix") = prefix));
}

std::string cell_text(const NDArray& cell) {
    return py::str(py::object(ndarray_to_numpy(cell)[py::tuple()]));
}

std::string table_of(const NDArray& matrix) {
    const std::vector<std::int64_t> columns = shown_positions(matrix.shape()[1], most_columns);
    std::string html = "<table>";
    for (const std::int64_t row : shown_positions(matrix.shape()[0], most_rows)) {
        html += "<tr>";
        for (const std::int64_t column : columns) {
            html += "<td>";
            if (row < 0) {
                html += "&#8942;";
            } else if (column < 0) {
                html += "&#8230;";
            } else {
                html += cell_text(matrix.slice(0, row, row + 1).slice(1, column, column + 1).reshape({}));
            }
            html += "</td>";
        }
        html += "</tr>";
    }
    return html + "</table>";
}

}  // namespace

std::string repr_of(const NDArray& array) {
    const std::string prefix = "NDArray(";
    const std::string dtype(name_of(array.dtype()));
    if (array.size() == 0) {
        const std::string shape = array.rank() == 1 ? "" : "shape=" + sizes_str(array.shape()) + ", ";
        return prefix + "[], " + shape + "dtype=" + dtype + ")";
    }
    return prefix + array_text(array, prefix) + ", dtype=" + dtype + ")";
}

std::string html_of(const NDArray& array) {
    std::string html = concat("<div><b>NDArray</b> ", sizes_str(array.shape()), " ", name_of(array.dtype()));
    if (array.size() == 0) return html + ", empty</div>";
    html += "</div>";
    if (array.rank() == 1) return html + table_of(array.reshape({1, array.size()}));
    if (array.rank() == 2) return html + table_of(array);
    return html + "<pre>" + array_text(array, "") + "</pre>";
}

}  // namespace topstitch::bindings
