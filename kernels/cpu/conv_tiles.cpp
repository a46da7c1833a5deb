// The table of register tiles: one function for each size within the limits of conv.h.
#include <utility>

#include "conv.h"

namespace {

template <int ROWS, int BLOCKS, int... COLUMNS>
RunTile choose(int64_t columns, bool neighbours, std::integer_sequence<int, COLUMNS...>) {
    static const RunTile table[2][sizeof...(COLUMNS)] = {{run_tile<ROWS, COLUMNS + 1, BLOCKS, 0>...},
                                                         {run_tile<ROWS, COLUMNS + 1, BLOCKS, LANES>...}};
    return table[neighbours][columns - 1];
}

template <int ROWS, int BLOCKS, int WIDEST_COLUMNS> RunTile choose(int64_t columns, bool neighbours) {
    return choose<ROWS, BLOCKS>(columns, neighbours, std::make_integer_sequence<int, WIDEST_COLUMNS>());
}

}  // namespace

RunTile find_tile(int64_t rows, int64_t columns, int64_t blocks, int64_t x_pixel) {
    const bool neighbours = x_pixel == LANES;
    if constexpr (WIDEST_IN_TWO_ROWS > 0)
        if (rows == 2) return choose<2, 2, WIDEST_IN_TWO_ROWS>(columns, neighbours);
    if constexpr (MOST_BLOCKS > 1)
        if (blocks == 2) return choose<1, 2, WIDEST[MOST_BLOCKS]>(columns, neighbours);
    return choose<1, 1, WIDEST[1]>(columns, neighbours);
}
