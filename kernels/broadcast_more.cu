// broadcast_more.cu: powers, extrema, remainders, hypotenuses and comparisons of tensors that are repeated to
// one shape.
//
// Memory: n floats of out are written; each operand is read where its strides lead, with stride 0 on the axes
// along which it is repeated. out may be an operand of its size. No workspace.
//
// Bytes: 4 (lhs + rhs + n). FLOPs: n, counting a function as one.
#include "broadcast.h"
#include "common.h"
#include "modulo.h"

BROADCAST(broadcast_power_forward_strided, return powf(x, y))
BROADCAST(broadcast_maximum_forward_strided, return max_nan(x, y))
BROADCAST(broadcast_minimum_forward_strided, return min_nan(x, y))
BROADCAST(broadcast_hypot_forward_strided, return hypotf(x, y))
BROADCAST(broadcast_mod_forward_strided, return modulo(x, y))
BROADCAST(broadcast_equal_forward_strided, return x == y ? 1.f : 0.f)
BROADCAST(broadcast_not_equal_forward_strided, return x != y ? 1.f : 0.f)
BROADCAST(broadcast_greater_forward_strided, return x > y ? 1.f : 0.f)
BROADCAST(broadcast_greater_equal_forward_strided, return x >= y ? 1.f : 0.f)
BROADCAST(broadcast_lesser_forward_strided, return x < y ? 1.f : 0.f)
BROADCAST(broadcast_lesser_equal_forward_strided, return x <= y ? 1.f : 0.f)
