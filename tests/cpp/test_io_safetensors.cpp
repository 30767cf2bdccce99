// The safetensors format in C++: bytes worked out by hand, and files that are damaged at random.
// Each rule of the format is broken by itself in tests/python/test_load_hostile.py.
#include <cstring>
#include <random>

#include "io/json.h"
#include "io/safetensors.h"
#include "test_io_support.h"

using namespace topstitch;
using namespace topstitch::io_test;

namespace {

std::string packed(const std::string& header, const std::string& data = "") {
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header + data;
}

const std::map<std::string, NDArray>& example() {
    static const std::map<std::string, NDArray> arrays = [] {
        const std::array<std::uint16_t, 3> halves{0x3c00, 0x7e01, 0x8000};
        const std::array<double, 2> doubles{1.5, -2.0};
        const std::array<std::uint8_t, 3> bools{0, 1, 7};
        return std::map<std::string, NDArray>{
            {"halves \"\xc3\xa9\"\n", NDArray::copy_of(halves.data(), DType::bfloat16, {3})},
            {"doubles", NDArray::copy_of(doubles.data(), DType::float64, {1, 2})},
            {"bools", NDArray::copy_of(bools.data(), DType::boolean, {3})},
            {"empty", NDArray(DType::complex64, {0, 5})},
            {"scalar", NDArray::scalar(7, DType::int32)},
        };
    }();
    return arrays;
}

// Whether it loads; anything but a UserError is a failure.
bool loads(const std::filesystem::path& path, const std::string& contents) {
    write_file(path, contents);
    try {
        const SafetensorsFile file(path, "test");
        for (const auto& [name, array] : file.arrays()) file.read(array);
        return true;
    } catch (const UserError&) { return false; } catch (const std::exception& error) {
        FAIL_CHECK("an unexpected error: ", error.what());
    }
    return false;
}

}  // namespace

TEST_CASE("safetensors: the bytes of a file") {
    const Folder folder;
    write_safetensors(folder.path() / "a", "test", example(), {{"key", "value \x01"}});
    const std::string contents = read_file(folder.path() / "a");
    std::string header = R"({"__metadata__":{"key":"value \u0001"},)"
                         R"("doubles":{"dtype":"F64","shape":[1,2],"data_offsets":[0,16]},)"
                         R"("empty":{"dtype":"C64","shape":[0,5],"data_offsets":[16,16]},)"
                         R"("scalar":{"dtype":"I32","shape":[],"data_offsets":[16,20]},)"
                         "\"halves \\\"\xc3\xa9\\\"\\n\":"
                         R"({"dtype":"BF16","shape":[3],"data_offsets":[20,26]},)"
                         R"("bools":{"dtype":"BOOL","shape":[3],"data_offsets":[26,29]}})";
    header.append(64 - (8 + header.size()) % 64, ' ');
    CHECK(contents.substr(8, header.size()) == header);
    const std::string data("\0\0\0\0\0\0\xf8\x3f\0\0\0\0\0\0\0\xc0\x07\0\0\0\0\x3c\x01\x7e\0\x80\0\x01\x01", 29);
    CHECK(contents == packed(header, data));
}

TEST_CASE("safetensors: what is written is read") {
    const Folder folder;
    write_safetensors(folder.path() / "a", "test", example(), {{"\n\"\\\xf0\x9f\x98\x80", std::string("\0\x1f", 2)}});
    const SafetensorsFile file(folder.path() / "a", "test");
    CHECK(file.metadata() == Metadata{{"\n\"\\\xf0\x9f\x98\x80", std::string("\0\x1f", 2)}});
    CHECK(file.arrays().size() == example().size());
    for (const auto& [name, expected] : example()) {
        const NDArray found = file.read(file.arrays().at(name));
        CHECK(found.dtype() == expected.dtype());
        CHECK(found.shape() == expected.shape());
        if (name == "bools") continue;  // of which 7 became 1
        CHECK(std::string(found.data_as<char>(), found.bytes()) ==
              std::string(expected.data_as<char>(), expected.bytes()));
    }
}

TEST_CASE("safetensors: names must be UTF-8, and the header must not pass 100 MB") {
    const Folder folder;
    const auto write = [&](const std::string& name, const std::string& value) {
        return [&folder, name, value] {
            write_safetensors(folder.path() / "a", "test", {{name, NDArray()}}, {{"k", value}});
        };
    };
    CHECK(contains(message_of(write("a\xff", "")), "the name \"a\\xff\" is not UTF-8"));
    CHECK(contains(message_of(write("a", "\xc3")), "the metadata k \"\\xc3\" is not UTF-8"));
    CHECK(contains(message_of(write("a", std::string(100'000'000, 'x'))), "but the format allows 100000000"));
    CHECK(folder.entries() == 0);
}

TEST_CASE("safetensors: cut off at every length") {
    const Folder folder;
    const auto path = folder.path() / "a";
    write_safetensors(path, "test", example(), {{"key", "value"}});
    const std::string contents = read_file(path);
    for (std::size_t length = 0; length < contents.size(); ++length) {
        if (loads(path, contents.substr(0, length))) FAIL_CHECK("loads with only ", length, " bytes");
    }
    CHECK(loads(path, contents));
}

TEST_CASE("safetensors: damaged at random") {
    const Folder folder;
    const auto path = folder.path() / "a";
    write_safetensors(path, "test", example(), {{"key", "value \xc3\xa9"}});
    const std::string good = read_file(path);
    const std::string alphabet = "{}[]\":,\\u0123456789-.e \n\xff\xc3";
    std::mt19937 random(7);
    int loaded = 0;
    for (int round = 0; round < 4000; ++round) {
        std::string bytes = good;
        for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
            const std::size_t at = 8 + random() % (bytes.size() - 8);
            switch (random() % 5) {
                case 0:
                    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
                    break;
                case 1:
                    bytes[at] = alphabet[random() % alphabet.size()];
                    break;
                case 2:
                    bytes.erase(at, 1 + random() % 9);
                    break;
                case 3:
                    bytes.insert(at, good.substr(random() % good.size(), random() % 40));
                    break;
                default: {
                    const std::size_t first = bytes.find_first_of("0123456789", at);
                    if (first == std::string::npos) break;
                    const std::size_t last = std::min(bytes.find_first_not_of("0123456789", first), bytes.size());
                    const std::array<const char*, 6> numbers{"0", "1", "29", "4294967296", "9223372036854775807", "-1"};
                    bytes.replace(first, last - first, numbers[random() % numbers.size()]);
                }
            }
            if (bytes.size() < 10) bytes = good;
        }
        if (random() % 3 > 0) {  // so that more than the length of the header is tried
            const std::uint64_t length = bytes.rfind('}') - 7;
            if (length < bytes.size()) std::memcpy(bytes.data(), &length, 8);
        }
        loaded += loads(path, bytes) ? 1 : 0;
    }
    CHECK(loaded > 0);
    CHECK(loaded < 4000);
}

TEST_CASE("json: numbers and strings at their limits") {
    CHECK(JsonReader(" 9223372036854775807 ").whole_number("n") == 9223372036854775807);
    CHECK(JsonReader("0").whole_number("n") == 0);
    for (const char* bad : {"", "-1", "+1", "01", "1.0", "1e3", "9223372036854775808", "a", "\"1\""}) {
        CHECK(contains(message_of([bad] { JsonReader(bad).whole_number("n"); }), "of the header: "));
    }
    CHECK(JsonReader(R"("\u0041\u00e9\u20ac\ud83d\ude00\b\f\/")").string("s") ==
          "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\b\f/");
    for (const char* bad :
         {"\"", "\"\\", "\"\\u", "\"\\u123", "\"\\uzzzz\"", "\"\\ud800\"", "\"\\ud800\\u", "\"\\x\"", "'a'"}) {
        CHECK(contains(message_of([bad] { JsonReader(bad).string("s"); }), "of the header: "));
    }
}
