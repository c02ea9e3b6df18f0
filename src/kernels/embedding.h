// Rows of a table by token, and the gradient of the table.
//
// All threads call with their index; parts are independent: of tokens going forward, of columns
// going back, where rows are added in the order of tokens. The same bits for every number of
// threads.
#pragma once

#include <cstdint>
#include <optional>

namespace tutti {

// The first place of the tokens that names no row of the table; its row is left out.
using BadToken = std::optional<int64_t>;

struct Embedding {
  int64_t tokens;
  int64_t table_rows;
  int64_t width;
  const int32_t* ids;  // [tokens]
  const float* table;  // [table_rows][width]
  float* out;          // [tokens][width]; zeros for a bad token
};
// The first bad token of this thread's part.
BadToken embedding(const Embedding& given, int thread, int threads);

struct EmbeddingGrad {
  int64_t tokens;
  int64_t table_rows;
  int64_t width;
  const int32_t* ids;
  const float* dout;        // [tokens][width]
  float* dtable;            // [table_rows][width]
  bool accumulate = false;  // dtable is the first term of every sum; otherwise zero is
};
// The first bad token of all: every thread finds the same.
BadToken embedding_grad(const EmbeddingGrad& given, int thread, int threads);

void embedding_reference(const Embedding& given);
void embedding_grad_reference(const EmbeddingGrad& given);

}  // namespace tutti
