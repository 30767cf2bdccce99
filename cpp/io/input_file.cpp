// Reading by the system's own calls, so that nothing blocks and every failure has its reason.
// See input_file.h.
#include "io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/utf8.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

constexpr std::size_t most_at_once = std::size_t{1} << 30;  // macOS refuses 2 GiB and more

[[noreturn]] void fail(const std::string& subject, const char* verb, int code) {
    throw IoError(concat(subject, " cannot be ", verb, ": ", std::generic_category().message(code)), code);
}

}  // namespace

std::string path_text(const std::filesystem::path& path) {
    return concat("\"", printable(path.string(), 1000), "\"");
}

InputFile::InputFile(const std::filesystem::path& path, std::string_view what)
    : subject_(concat("[", what, "] ", path_text(path))) {
    // Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
    do { file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); } while (file_ < 0 && errno == EINTR);
    if (file_ < 0) fail(subject_, "opened", errno);
    struct stat status{};
    const bool known = ::fstat(file_, &status) == 0;
    if (known && S_ISREG(status.st_mode)) {
        size_ = static_cast<std::uint64_t>(status.st_size);
        return;
    }
    const int code = errno;
    ::close(file_);
    if (!known) fail(subject_, "examined", code);
    throw UserError(concat(subject_,
                           S_ISDIR(status.st_mode) ? " is a folder" : " is no regular file (a pipe or device)",
                           "; give the path of a file"));
}

InputFile::~InputFile() {
    ::close(file_);
}

void InputFile::read(std::uint64_t offset, void* data, std::size_t bytes) const {
    auto* to = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t done = ::pread(file_, to, std::min(bytes, most_at_once), static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail(subject_, "read", errno);
        if (done == 0) throw UserError(concat(subject_, " became shorter while it was read; load it again"));
        to += done;
        offset += static_cast<std::uint64_t>(done);
        bytes -= static_cast<std::size_t>(done);
    }
}

}  // namespace topstitch
