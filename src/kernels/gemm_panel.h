// Panels: an operand B that stays packed from product to product, in the order in which the tiles
// of the kernel in use read it. For weights that many products with few rows read before they
// change.
//
//   std::vector<std::byte> room(gemm_panel_bytes(n, k));       // aligned to 64
//   gemm_pack_panel(panel, {0, k, 0, n});
//   Gemm product{…, .panel = panel.packed};
//
// A product with a panel has the bits of one without. Products too thin to be packed read b in
// place all the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gemm.h"

namespace tutti {

struct GemmPanel {
  MatrixView b;  // k × n
  int64_t n;
  int64_t k;
  float* packed;  // aligned to 64
};

// Columns begin at a multiple of kPanelColumns, and end at one or at n.
struct GemmPanelPart {
  int64_t first_k;
  int64_t end_k;
  int64_t first_column;
  int64_t end_column;
};
constexpr int64_t kPanelColumns = 32;

// 0 if the kernel in use does not pack.
size_t gemm_panel_bytes(int64_t n, int64_t k);
// Threads may pack parts that do not overlap at once.
void gemm_pack_panel(const GemmPanel& panel, const GemmPanelPart& part);

}  // namespace tutti
