// Words of the control buffer that kernels read; minigraph/ops/control.py says what is in them.
#pragma once

constexpr int LOSS_SCALE = 3, RESCALE = 4, CLIP = 5, COUNT = 7, FIRST_RATE = 8;
