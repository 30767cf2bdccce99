// The text of an array, after NumPy's repr: aligned columns, shortest digits, long arrays abbreviated.
// Independent of the locale.
#include <algorithm>
#include <cmath>
#include <locale>
#include <sstream>
#include <vector>

#include "core/scalar_convert.h"
#include "topstitch/error.h"
#include "topstitch/ndarray.h"

namespace topstitch {

namespace {

constexpr std::int64_t abbreviate_above = 1000;
constexpr std::int64_t edge_items = 3;
constexpr std::size_t line_width = 75;
constexpr int fraction_digits = 8;

std::string format(double value, std::ios_base::fmtflags style, int precision) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.setf(style, std::ios_base::floatfield);
    out.precision(precision);
    out << value;
    return out.str();
}

// The value after a round trip through `dtype`.
double rounded_to(double value, DType dtype) {
    double element = 0;
    store_scalar(value, dtype, &element);
    return load_scalar(&element, dtype);
}

// Digits after the point in scientific notation that tell `value` from every other value of `dtype`.
int shortest_precision(double value, DType dtype) {
    for (int precision = 0; precision < 16; ++precision) {
        std::istringstream in(format(value, std::ios_base::scientific, precision));
        in.imbue(std::locale::classic());
        double parsed = 0;
        in >> parsed;
        if (rounded_to(parsed, dtype) == value) return precision;
    }
    return 16;
}

// "1.500" -> "1.5", "2.000" -> "2."
std::string without_trailing_zeros(std::string text) {
    if (text.find('.') == std::string::npos) return text + ".";
    while (text.back() == '0') text.pop_back();
    return text;
}

class RealFormat {
public:
    // Chooses between fixed and scientific notation as NumPy does, from all values that will be shown.
    RealFormat(const std::vector<double>& values, DType dtype) : dtype_(dtype) {
        double largest = 0;
        double smallest = INFINITY;
        for (const double value : values) {
            if (!std::isfinite(value) || value == 0) continue;
            largest = std::max(largest, std::fabs(value));
            smallest = std::min(smallest, std::fabs(value));
        }
        scientific_ = largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000;
    }

    std::string operator()(double value) const {
        if (std::isnan(value)) return "nan";
        if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
        const int precision = value == 0 ? 0 : shortest_precision(value, dtype_);
        if (scientific_) {
            const std::string text = format(value, std::ios_base::scientific, std::min(precision, fraction_digits));
            const std::size_t exponent = text.find('e');
            return without_trailing_zeros(text.substr(0, exponent)) + text.substr(exponent);
        }
        const int exponent = value == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::fabs(value))));
        const int digits = std::clamp(precision - exponent, 0, fraction_digits);
        return without_trailing_zeros(format(value, std::ios_base::fixed, digits));
    }

private:
    DType dtype_;
    bool scientific_ = false;
};

// Positions shown along an axis; -1 stands for the dots.
std::vector<std::int64_t> shown_positions(std::int64_t size, bool abbreviated) {
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < size; ++i) {
        if (abbreviated && size > 2 * edge_items && i == edge_items) {
            positions.push_back(-1);
            i = size - edge_items;
        }
        positions.push_back(i);
    }
    return positions;
}

class Printer {
public:
    explicit Printer(const NDArray& array) : array_(array), abbreviated_(array.size() > abbreviate_above) {}

    std::string str() {
        collect(static_cast<const char*>(array_.data()), 0);
        format_cells();
        std::string text;
        write(text, 0, prefix().size());
        return prefix() + text + concat(", dtype=", name_of(array_.dtype()), ")");
    }

private:
    static std::string prefix() { return "NDArray("; }

    void collect(const char* data, int axis) {
        if (axis == array_.rank()) {
            elements_.push_back(data);
            return;
        }
        const auto dim = static_cast<std::size_t>(axis);
        for (const std::int64_t i : shown_positions(array_.shape()[dim], abbreviated_)) {
            if (i >= 0) collect(data + i * array_.byte_strides()[dim], axis + 1);
        }
    }

    void format_cells() {
        const DType dtype = array_.dtype();
        if (is_floating(dtype)) {
            std::vector<double> values;
            for (const char* element : elements_) values.push_back(load_scalar(element, dtype));
            const RealFormat real(values, dtype);
            for (const double value : values) cells_.push_back(real(value));
            align_points();
        } else if (is_complex(dtype)) {
            std::vector<double> values;
            for (const char* element : elements_) {
                values.push_back(load_scalar(element, DType::float32));
                values.push_back(load_scalar(element + sizeof(float), DType::float32));
            }
            const RealFormat real(values, DType::float32);
            for (std::size_t i = 0; i < values.size(); i += 2) {
                const bool negative = std::signbit(values[i + 1]);
                cells_.push_back(real(values[i]) + (negative ? "-" : "+") + real(std::fabs(values[i + 1])) + "j");
            }
        } else {
            for (const char* element : elements_) cells_.push_back(integer_text(element, dtype));
        }
        std::size_t width = 0;
        for (const std::string& cell : cells_) width = std::max(width, cell.size());
        for (std::string& cell : cells_) cell.insert(0, width - cell.size(), ' ');
    }

    static std::string integer_text(const char* element, DType dtype) {
        if (dtype == DType::boolean) return load_scalar(element, dtype) != 0 ? "True" : "False";
        // The widest types do not fit in a double.
        if (dtype == DType::int64) return std::to_string(*reinterpret_cast<const std::int64_t*>(element));
        if (dtype == DType::uint64) return std::to_string(*reinterpret_cast<const std::uint64_t*>(element));
        return std::to_string(static_cast<std::int64_t>(load_scalar(element, dtype)));
    }

    // Pads on the right, so that decimal points come to stand below each other.
    void align_points() {
        const auto after_point = [](const std::string& cell) {
            const std::size_t point = cell.find('.');
            return point == std::string::npos ? std::size_t{0} : cell.size() - point - 1;
        };
        std::size_t longest = 0;
        for (const std::string& cell : cells_) longest = std::max(longest, after_point(cell));
        for (std::string& cell : cells_) {
            if (cell.find('.') != std::string::npos) cell.append(longest - after_point(cell), ' ');
        }
    }

    void write(std::string& text, int axis, std::size_t indent) {
        if (axis == array_.rank()) {
            text += cells_[next_++];
            return;
        }
        const bool innermost = axis + 1 == array_.rank();
        const std::vector<std::int64_t> positions =
            shown_positions(array_.shape()[static_cast<std::size_t>(axis)], abbreviated_);
        const std::string new_line = "\n" + std::string(indent + 1, ' ');
        text += "[";
        std::size_t column = indent + 1;
        for (std::size_t i = 0; i < positions.size(); ++i) {
            const std::size_t width = positions[i] < 0 || !innermost ? 3 : cells_[next_].size();
            if (i > 0) {
                text += ",";
                const bool wrap = innermost ? column + 2 + width > line_width : true;
                if (wrap) {
                    if (!innermost) text.append(static_cast<std::size_t>(array_.rank() - axis - 2), '\n');
                    text += new_line;
                    column = indent + 1;
                } else {
                    text += " ";
                    column += 2;
                }
            }
            column += width;
            if (positions[i] < 0) {
                text += "...";
            } else {
                write(text, axis + 1, indent + 1);
            }
        }
        text += "]";
    }

    const NDArray& array_;
    const bool abbreviated_;
    std::vector<const char*> elements_;
    std::vector<std::string> cells_;
    std::size_t next_ = 0;
};

}  // namespace

std::string NDArray::str() const {
    if (size_ == 0) {
        return concat("NDArray([], ", shape_.size() == 1 ? "" : concat("shape=", sizes_str(shape_), ", "),
                      "dtype=", name_of(dtype_), ")");
    }
    return Printer(*this).str();
}

}  // namespace topstitch
