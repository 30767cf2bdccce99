// Write, flush, rename, flush the folder: the order that survives a crash at any point.
// See atomic_file.h.
#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>

#include "io/input_file.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

constexpr std::size_t most_at_once = std::size_t{1} << 30;  // macOS refuses 2 GiB and more
constexpr int most_attempts = 100;

// Short, so that it fits wherever the name of the file does.
std::string temporary_name() {
    std::random_device random;
    std::string name(32, '\0');
    name.resize(static_cast<std::size_t>(std::snprintf(name.data(), name.size(), ".topstitch-%08x.tmp", random())));
    return name;
}

}  // namespace

void AtomicFile::fail(const char* verb, int code) {
    throw IoError(concat(subject_, " cannot be ", verb, ": ", std::generic_category().message(code)), code);
}

AtomicFile::AtomicFile(const std::filesystem::path& path, std::string_view what)
    : path_(path), subject_(concat("[", what, "] ", path_text(path))) {
    if (path.empty()) throw UserError(concat(subject_, " names no file; give a path"));
    std::error_code ignored;
    if (std::filesystem::is_symlink(path_, ignored)) {
        std::filesystem::path target = std::filesystem::canonical(path_, ignored);
        if (!ignored) path_ = std::move(target);
    }
    struct stat old{};
    const bool exists = ::stat(path_.c_str(), &old) == 0;
    if (exists && !S_ISREG(old.st_mode)) {
        throw UserError(concat(subject_,
                               S_ISDIR(old.st_mode) ? " is a folder" : " is no regular file (a pipe or device)",
                               "; give the path of a file"));
    }
    for (int attempt = 0; file_ < 0; ++attempt) {
        temporary_ = path_.parent_path() / temporary_name();
        file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file_ >= 0 || errno == EINTR) continue;
        const int code = errno;
        if (code != EEXIST || attempt >= most_attempts) {
            temporary_.clear();
            fail("written (a new file cannot be made in its folder)", code);
        }
    }
    // What only its owner may read stays so. Some file systems have no permissions.
    if (exists && ::fchmod(file_, old.st_mode & 0777U) != 0) errno = 0;
}

AtomicFile::~AtomicFile() {
    if (file_ >= 0) ::close(file_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t done = ::write(file_, from, std::min(bytes, most_at_once));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("written", errno);
        from += done;
        bytes -= static_cast<std::size_t>(done);
    }
}

void AtomicFile::commit() {
    int done = 0;
    do { done = ::fsync(file_); } while (done != 0 && errno == EINTR);
    // A file system that cannot flush says so by these two.
    if (done != 0 && errno != EINVAL && errno != ENOTSUP) fail("written", errno);
    const int closed = ::close(file_);
    file_ = -1;
    if (closed != 0 && errno != EINTR) fail("written", errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replaced", errno);
    temporary_.clear();
    // The new file is in place; whether its name is on the disk yet, only some file systems can be asked.
    const std::filesystem::path folder = path_.parent_path().empty() ? "." : path_.parent_path();
    const int directory = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC);
    if (directory < 0) return;
    ::fsync(directory);
    ::close(directory);
}

}  // namespace topstitch
