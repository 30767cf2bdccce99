// Short vectors as sets: looking through a few entries beats hashing them.
// For lists of values, loops and the like that belong to one loop.
#pragma once

#include <algorithm>
#include <vector>

namespace topstitch {

template <typename T>
bool contains(const std::vector<T>& list, const T& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

template <typename T>
void add_once(std::vector<T>& list, const T& item) {
    if (!contains(list, item)) list.push_back(item);
}

}  // namespace topstitch
