// Tests of the settings table.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>

#include "core/settings.h"
#include "topstitch/error.h"

using namespace topstitch;

TEST_CASE("settings: table, override and numbers") {
    for (std::size_t i = 0; i < all_settings().size(); ++i) {
        const SettingInfo& info = all_settings()[i];
        CHECK(static_cast<std::size_t>(info.id) == i);
        CHECK(std::strncmp(info.variable, "TOPSTITCH_", 10) == 0);
        CHECK(std::strlen(info.doc) > 10);
    }
    override_setting(Setting::num_threads, "3");
    CHECK(setting_int(Setting::num_threads) == 3);
    for (const char* bad : {"many", "", "3x", "99999999999999999999"}) {
        override_setting(Setting::num_threads, bad);
        CHECK_THROWS_WITH_AS(setting_int(Setting::num_threads), doctest::Contains("TOPSTITCH_NUM_THREADS"), UserError);
    }
    override_setting(Setting::num_threads, "0");
}

#if !defined(_WIN32)
TEST_CASE("settings are read from the environment once") {
    ::setenv("TOPSTITCH_TARGET_CPU", "first", 1);
    CHECK(setting(Setting::target_cpu) == "first");
    ::setenv("TOPSTITCH_TARGET_CPU", "second", 1);
    CHECK(setting(Setting::target_cpu) == "first");
    override_setting(Setting::target_cpu, "");
    CHECK(setting(Setting::target_cpu).empty());
}
#endif
