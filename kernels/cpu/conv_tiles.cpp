// The table of register tiles: one function for each size within the limits of conv.h.
#include <utility>

#include "conv.h"

namespace {

template <int ROWS, int BLOCKS, int... COLUMNS>
RunTile choose(int64_t columns, std::integer_sequence<int, COLUMNS...>) {
    static const RunTile table[] = {run_tile<ROWS, COLUMNS + 1, BLOCKS>...};
    return table[columns - 1];
}

template <int ROWS, int BLOCKS, int WIDEST_COLUMNS> RunTile choose(int64_t columns) {
    return choose<ROWS, BLOCKS>(columns, std::make_integer_sequence<int, WIDEST_COLUMNS>());
}

}  // namespace

RunTile find_tile(int64_t rows, int64_t columns, int64_t blocks) {
    if constexpr (WIDEST_IN_TWO_ROWS > 0)
        if (rows == 2) return choose<2, 2, WIDEST_IN_TWO_ROWS>(columns);
    if constexpr (MOST_BLOCKS > 1)
        if (blocks == 2) return choose<1, 2, WIDEST[MOST_BLOCKS]>(columns);
    return choose<1, 1, WIDEST[1]>(columns);
}
