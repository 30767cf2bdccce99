// Symbol visibility of the shared library.
// Everything is hidden unless it carries TOPSTITCH_API.
#pragma once

#if defined(_WIN32)
#if defined(TOPSTITCH_BUILDING)
#define TOPSTITCH_API __declspec(dllexport)
#else
#define TOPSTITCH_API __declspec(dllimport)
#endif
#else
#define TOPSTITCH_API __attribute__((visibility("default")))
#endif
