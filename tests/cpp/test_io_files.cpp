// Reading and replacing files: the old contents or all of the new, and reasons for what cannot be read.
// The rules of the format are in test_io_safetensors.cpp.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "core/utf8.h"
#include "io/atomic_file.h"
#include "io/input_file.h"
#include "test_io_support.h"

using namespace topstitch;
using namespace topstitch::io_test;

TEST_CASE("utf8: well-formed sequences and no others") {
    for (const std::string_view good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                                        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"}) {
        CHECK(is_utf8(good));
    }
    for (const std::string_view bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2z", "\xe0\x9f\xbf",
                                       "\xe0\xa0", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf",
                                       "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x90\x80", "\xff", "ab\xe2\x82"}) {
        CHECK_FALSE(is_utf8(bad));
    }
    CHECK(printable("a\n\xff\xc3\xa9") == "a\\x0a\\xff\xc3\xa9");
    CHECK(printable(std::string(1000, 'x')).size() <= 203);
}

TEST_CASE("atomic file: what is not committed leaves nothing behind") {
    const Folder folder;
    const auto path = folder.path() / "a";
    {
        AtomicFile file(path, "test");
        file.write("abc", 3);
    }
    CHECK(folder.entries() == 0);
    {
        AtomicFile file(path, "test");
        file.write("abc", 3);
        file.commit();
    }
    CHECK(read_file(path) == "abc");
    {
        AtomicFile file(path, "test");
        file.write("defg", 4);
        CHECK(read_file(path) == "abc");
    }
    CHECK(read_file(path) == "abc");
    CHECK(folder.entries() == 1);
}

TEST_CASE("atomic file: a relative path without a folder") {
    const Folder folder;
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    AtomicFile file("a", "test");
    file.write("abc", 3);
    file.commit();
    std::filesystem::current_path(before);
    CHECK(read_file(folder.path() / "a") == "abc");
}

TEST_CASE("atomic file: a full disk is an error with the system's reason") {
    const Folder folder;
    const auto path = folder.path() / "a";
    write_file(path, "old");
    const auto before = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
    const rlimit small{1000, limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    int code = 0;
    std::string message;
    try {
        AtomicFile file(path, "test");
        const std::string large(5000, 'x');
        file.write(large.data(), large.size());
        file.commit();
    } catch (const IoError& error) {
        code = error.code();
        message = error.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, before);
    CHECK(code == EFBIG);
    CHECK(message == "[test] \"" + path.string() + "\" cannot be written: File too large");
    CHECK(read_file(path) == "old");
    CHECK(folder.entries() == 1);
}

TEST_CASE("files: folders, pipes and missing ones") {
    const Folder folder;
    const auto pipe = folder.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const auto open = [](const std::filesystem::path& path) { return [path] { InputFile(path, "test"); }; };
    const auto replace = [](const std::filesystem::path& path) { return [path] { AtomicFile(path, "test"); }; };
    CHECK(contains(message_of(open(folder.path())), "is a folder"));
    CHECK(contains(message_of(open(pipe)), "is no regular file"));
    CHECK(contains(message_of(replace(folder.path())), "is a folder"));
    CHECK(contains(message_of(replace(pipe)), "is no regular file"));
    CHECK(contains(message_of<IoError>(open(folder.path() / "b")), "cannot be opened: No such file"));
    CHECK(contains(message_of<IoError>(open("")), "cannot be opened"));
    CHECK(contains(message_of<IoError>(replace(folder.path() / "b" / "c")), "cannot be written"));
    CHECK(contains(message_of(replace("")), "names no file"));
}

TEST_CASE("input file: one that shrinks while it is read") {
    const Folder folder;
    const auto path = folder.path() / "a";
    write_file(path, std::string(10000, 'x'));
    const InputFile file(path, "test");
    std::filesystem::resize_file(path, 100);
    std::string buffer(10000, '\0');
    CHECK(contains(message_of([&] { file.read(0, buffer.data(), buffer.size()); }), "became shorter"));
}
