// The caches that everything else uses: values made once and shared, files with checksums, and the gate before a fork.
// Threads race on purpose: run under TSan.
#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/disk_cache.h"
#include "core/fork_gate.h"
#include "core/settings.h"
#include "core/shared_cache.h"
#include "topstitch/error.h"

#if !defined(_WIN32)
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace topstitch;
namespace fs = std::filesystem;

TEST_CASE("shared cache: a value is made once, however many ask for it") {
    SharedCache<int, int> cache([] { return std::size_t{100}; });
    std::atomic<int> made{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&] {
            for (int key = 0; key < 50; ++key) {
                const auto value = cache.get(key, [&] {
                    ++made;
                    return std::make_shared<const int>(key * key);
                });
                CHECK(*value == key * key);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(made == 50);
    CHECK(cache.stats().misses == 50);
    CHECK(cache.stats().hits == 350);
    CHECK(cache.stats().entries == 50);
}

TEST_CASE("shared cache: a failure is told and forgotten, the oldest go first") {
    SharedCache<int, int> cache([] { return std::size_t{2}; });
    const auto make = [](int value) { return [value] { return std::make_shared<const int>(value); }; };
    CHECK_THROWS_AS(cache.get(1, []() -> std::shared_ptr<const int> { throw UserError("no"); }), UserError);
    CHECK(*cache.get(1, make(1)) == 1);
    cache.get(2, make(2));
    CHECK(cache.find(1) != nullptr);  // now the most recently used
    cache.get(3, make(3));
    CHECK(cache.find(2) == nullptr);
    CHECK(cache.find(1) != nullptr);
    CHECK(cache.stats().evictions == 1);
    cache.clear();
    CHECK(cache.stats().entries == 0);
}

#if !defined(_WIN32)

namespace {

// A fresh folder as the cache's, and the settings of before at the end.
class Folder {
public:
    Folder() : path_(fs::temp_directory_path() / concat("topstitch-cache-test-", ::getpid())) {
        fs::remove_all(path_);
        override_setting(Setting::cache_dir, path_.string());
    }
    ~Folder() {
        fs::remove_all(path_);
        override_setting(Setting::cache_dir, "off");
        override_setting(Setting::cache_megabytes, "256");
    }
    const fs::path& path() const { return path_; }
    std::vector<fs::path> files() const {
        std::vector<fs::path> found;
        for (const auto& entry : fs::recursive_directory_iterator(path_)) {
            if (entry.is_regular_file()) found.push_back(entry.path());
        }
        return found;
    }

private:
    fs::path path_;
};

std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

TEST_CASE("disk cache: what is stored is found, by this key and in this section only") {
    const Folder folder;
    DiskCache cache("a", "1");
    CHECK(!cache.find("key"));
    const std::string value("with\0zeros and \xff", 17);
    cache.store("key", value);
    CHECK(cache.find("key") == value);
    CHECK(!cache.find("key2"));
    CHECK(!DiskCache("b", "1").find("key"));
    cache.store("key", "another");
    CHECK(cache.find("key") == "another");
    CHECK(folder.files().size() == 1);
    CHECK((fs::status(folder.path()).permissions() & fs::perms::all) == fs::perms::owner_all);
}

TEST_CASE("disk cache: any damage is noticed, and the file is thrown away") {
    const Folder folder;
    DiskCache cache("a", "1");
    const std::string value = "0123456789";
    cache.store("key", value);
    const fs::path path = folder.files().at(0);
    const std::string good = contents(path);
    for (std::size_t size = 0; size < good.size(); ++size) {
        write(path, good.substr(0, size));
        CHECK(!cache.find("key"));
        CHECK(!fs::exists(path));
        cache.store("key", value);
    }
    for (std::size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 4);
        write(path, bad);
        CHECK(!cache.find("key"));
        cache.store("key", value);
    }
    write(path, good + "x");
    CHECK(!cache.find("key"));
    // The file of another key, under this one's name.
    cache.store("other", value);
    fs::rename(folder.files().at(0), path);
    CHECK(!cache.find("key"));
}

TEST_CASE("disk cache: folders and files that others could have written are not used") {
    const Folder folder;
    DiskCache cache("a", "1");
    cache.store("key", "value");
    const fs::path path = folder.files().at(0);
    ::chmod(folder.path().c_str(), 0777);
    CHECK(!cache.find("key"));
    ::chmod(folder.path().c_str(), 0700);
    ::chmod(path.c_str(), 0666);
    CHECK(!cache.find("key"));
    ::chmod(path.c_str(), 0600);
    CHECK(cache.find("key") == "value");
    // A link is not followed.
    const fs::path target = folder.path() / "target";
    fs::rename(path, target);
    fs::create_symlink(target, path);
    CHECK(!cache.find("key"));
    // Nor does a device or a pipe hang.
    fs::remove(path);
    ::mkfifo(path.c_str(), 0600);
    CHECK(!cache.find("key"));
}

TEST_CASE("disk cache: the oldest files go when there are too many bytes") {
    const Folder folder;
    override_setting(Setting::cache_megabytes, "1");
    DiskCache cache("a", "1");
    const std::string large(200 << 10, 'x');
    for (int k = 0; k < 20; ++k) cache.store(concat("key ", k), large);
    std::uintmax_t total = 0;
    for (const fs::path& path : folder.files()) total += fs::file_size(path);
    CHECK(total <= (1U << 20) + (1U << 18));
    CHECK(cache.find("key 19") == large);
    CHECK(!cache.find("key 0"));
}

TEST_CASE("disk cache: without a folder there is nothing, and nothing fails") {
    override_setting(Setting::cache_dir, "/proc/no/such/folder");
    DiskCache cache("a", "1");
    cache.store("key", "value");
    CHECK(!cache.find("key"));
    override_setting(Setting::cache_dir, "off");
    cache.store("key", "value");
    CHECK(!cache.find("key"));
}

TEST_CASE("disk cache: many threads read and write the same keys") {
    const Folder folder;
    DiskCache cache("a", "1");
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int k = 0; k < 60; ++k) {
                const std::string key = concat(k % 5);
                cache.store(key, "value of " + key);
                const auto found = cache.find(key);
                if (found && *found != "value of " + key) ++wrong;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("fork gate: a fork waits for what is inside, and the child finds the gate open") {
    std::atomic<int> state{0};
    std::thread worker([&] {
        const ForkGate gate;
        const ForkGate nested;
        state = 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        state = 2;
    });
    while (state == 0) std::this_thread::yield();
    const std::uint32_t before = fork_generation();
    int ends[2] = {-1, -1};
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const ForkGate gate;
        const char answer = state == 2 && fork_generation() == before + 1 ? 'y' : 'n';
        static_cast<void>(::write(ends[1], &answer, 1));
        ::kill(::getpid(), SIGKILL);  // not an exit, at which a sanitizer misses the thread that only the parent has
    }
    ::close(ends[1]);
    char answer = '?';
    CHECK(::read(ends[0], &answer, 1) == 1);
    CHECK(answer == 'y');
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    worker.join();
    CHECK(fork_generation() == before);
}

#endif
