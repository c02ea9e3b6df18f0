// The loops between heavy kernels: rows one after the other, each row in stages, each stage a loop
// over the row's columns that may end in sums or maxima, which later stages of the row can use.
//
// A value is a vector within a loop ("column value"), or one number per row ("row value"). Stages
// are independent of each other but for row values: what two of them need, both compute.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compile/graph.h"

namespace tutti {

// Where the elements of a tensor are, as the loops go: how far apart for one step of each
// dimension. 0 where the tensor is the same for all.
struct Access {
  DType dtype;
  std::vector<int64_t> row_strides;  // in elements, one for each row dimension
  int64_t column_stride;             // 0 or 1, or more for what is read against the grain
};

enum class LoopOp : uint8_t {
  load,      // parameter `index`
  store,     // parameter `index`; operand 0
  constant,  // `number`
  index,     // along row dimension `index`, or the columns if it is their number
  random,    // parameter `index` is the step; `number` the key, the place of the element its index
  apply,     // `kind`, element by element
  sum,       // over the columns: a row value
  max,
};

struct LoopNode {
  LoopOp op;
  OpKind kind = OpKind::add;       // of apply
  DType dtype = DType::f32;        // of the result
  std::vector<uint32_t> operands;  // nodes of this kernel
  uint32_t index = 0;
  double number = 0;
  uint64_t key = 0;  // of random
  // Whether it is one number per row; loads and stores of such have column stride 0.
  bool per_row = false;
  // Of a row value: the stage before whose loop it is computed, or in whose loop it is summed. Of a
  // column value: the first stage that could compute it, and of a store the one that does.
  uint32_t stage = 0;
};

struct LoopKernel {
  std::string name;
  Dims rows;
  int64_t columns = 1;
  std::string column_name;         // for people
  std::vector<Access> parameters;  // what it reads, then what it writes
  size_t reads = 0;                // so many of them
  std::vector<LoopNode> nodes;     // each after its operands
  uint32_t stages = 1;

  int64_t row_count() const;
  // What is computed before the loop of a stage (or after the last), and what in it, in order.
  std::vector<uint32_t> before_loop(uint32_t stage) const;
  std::vector<uint32_t> in_loop(uint32_t stage) const;
  bool reduces() const;
  std::string text() const;
};

// How far apart elements are along each dimension of the body's inputs and outputs.
struct LoopStrides {
  std::vector<std::vector<int64_t>> inputs;
  std::vector<std::vector<int64_t>> outputs;
};

struct LoweringOptions {
  const LoopStrides* strides = nullptr;  // without, everything lies in order, without gaps
  size_t columns = 0;  // so many of the last dimensions are the columns; 0: choose
};

// The loops of a fused operation's body: element by element, along with broadcasts, transposes, and
// sums and maxima over dimensions, the same ones in all of them.
Result<LoopKernel> lower_to_loops(const Graph& body, std::string name,
                                  LoweringOptions options = {});

// A language that kernels are printed in.
class KernelPrinter {
 public:
  virtual ~KernelPrinter() = default;
  // What comes before the kernels of a file.
  virtual std::string prelude() const = 0;
  virtual std::string kernel(const LoopKernel& kernel) const = 0;
};

// C with vector extensions, for gcc and clang. Each kernel is a function
//   void NAME(void* const* parameters, long first_row, long end_row, long first_column,
//             long end_column)
// whose results do not depend on how rows and columns are divided among calls, nor on the width of
// registers. One that reduces takes all columns at once.
std::unique_ptr<KernelPrinter> make_c_printer();

}  // namespace tutti
