// Uses the public C++ API of an installed topstitch and prints what it got, for test_package.py to compare.
// Exits with 1 when an exception of topstitch cannot be caught as what it is.
#include <topstitch/dim.h>
#include <topstitch/error.h>
#include <topstitch/ndarray.h>
#include <topstitch/shape.h>

#include <iostream>

namespace ts = topstitch;

namespace {

void print(const char* what, const ts::NDArray& array) {
    std::cout << what;
    for (std::int64_t i = 0; i < array.size(); ++i) std::cout << ' ' << array.at(i);
    std::cout << '\n';
}

void use_arrays() {
    const float values[] = {1, 2, 3, 4, 5, 6};
    const ts::NDArray array = ts::NDArray::copy_of(values, ts::DType::float32, {2, 3});
    print("transpose", array.transpose({1, 0}));
    print("reversed", array.slice(1, -1, -4, -1));
    const ts::Shape shape{ts::Dim::symbol("batch"), 3};
    std::cout << "shape " << shape.str() << '\n';
}

bool catches_errors() {
    try {
        const ts::NDArray array(ts::DType::float32, {-1});
    } catch (const ts::UserError& error) {
        std::cout << "error " << error.what() << '\n';
        return true;
    }
    return false;
}

}  // namespace

int main() {
    use_arrays();
    return catches_errors() ? 0 : 1;
}
