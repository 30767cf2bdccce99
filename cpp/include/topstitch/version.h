// The version: read by C++, CMake and pyproject.toml alike.
// Change it here only.
#pragma once

#define TOPSTITCH_VERSION "0.1.0"
