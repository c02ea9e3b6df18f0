#include "compile/program/interpret_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "base/philox.h"
#include "compile/program/tensor_view.h"

namespace tutti {
namespace {

using Memory = std::vector<std::byte*>;

template <class T>
double read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

template <class T>
void write_as(std::byte* at, double value) {
  const T number = static_cast<T>(value);
  std::memcpy(at, &number, sizeof number);
}

// Halves go over the exact f32 they are.
double read_half(const std::byte* at, bool bf16) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  if (bf16) return std::bit_cast<float>(uint32_t{bits} << 16);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

void write_half(std::byte* at, double value, bool bf16) {
  uint16_t bits = 0;
  if (bf16) {
    const auto near = static_cast<float>(rounded(value, DType::bf16));
    bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(near) >> 16);
  } else {
    const double near = rounded(value, DType::f16);
    const uint16_t sign = std::signbit(near) ? 0x8000 : 0;
    const double size = std::abs(near);
    if (std::isnan(near)) {
      bits = 0x7e00;
    } else if (std::isinf(size)) {
      bits = sign | 0x7c00;
    } else if (size < 0x1p-14) {
      bits = sign | static_cast<uint16_t>(size * 0x1p24);
    } else {
      const int exponent = std::ilogb(size);
      const double fraction = std::ldexp(size, -exponent) - 1;
      bits =
          static_cast<uint16_t>(sign | (exponent + 15) << 10 | static_cast<int>(fraction * 1024));
    }
  }
  std::memcpy(at, &bits, sizeof bits);
}

double read(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f32: return read_as<float>(at);
    case DType::bf16: return read_half(at, true);
    case DType::f16: return read_half(at, false);
    case DType::i32: return read_as<int32_t>(at);
    case DType::i64: return read_as<int64_t>(at);
    case DType::u32: return read_as<uint32_t>(at);
    case DType::f64: return read_as<double>(at);
    case DType::i8: return read_as<int8_t>(at);
    case DType::u8:
    case DType::boolean: return read_as<uint8_t>(at);
    case DType::i16:
    case DType::u16:
    case DType::u64: break;  // in no graph
  }
  return 0;
}

void write(DType dtype, std::byte* at, double value) {
  const double near = rounded(value, dtype);
  switch (dtype) {
    case DType::f32: return write_as<float>(at, near);
    case DType::bf16: return write_half(at, near, true);
    case DType::f16: return write_half(at, near, false);
    case DType::i32: return write_as<int32_t>(at, near);
    case DType::i64: return write_as<int64_t>(at, near);
    case DType::u32: return write_as<uint32_t>(at, near);
    case DType::f64: return write_as<double>(at, near);
    case DType::i8: return write_as<int8_t>(at, near);
    case DType::u8:
    case DType::boolean: return write_as<uint8_t>(at, near);
    case DType::i16:
    case DType::u16:
    case DType::u64: break;  // in no graph
  }
}

// Calls visit(offset in elements) for each element in order.
template <class Visit>
void visit(const TensorRef& ref, const Visit& visit_one) {
  std::vector<int64_t> index(ref.type.dims.size());
  int64_t offset = ref.offset;
  for (int64_t n = ref.type.elements(); n > 0; --n) {
    visit_one(offset);
    for (size_t i = index.size(); i-- > 0;) {
      offset += ref.strides[i];
      if (++index[i] < ref.type.dims[i].size) break;
      offset -= ref.strides[i] * ref.type.dims[i].size;
      index[i] = 0;
    }
  }
}

Array fetch(const Memory& memory, const TensorRef& ref) {
  Array array{ref.type, {}};
  const int64_t bytes = element_bytes(ref.type.dtype);
  visit(ref, [&](int64_t offset) {
    array.values.push_back(read(ref.type.dtype, memory[ref.buffer] + offset * bytes));
  });
  return array;
}

void put(const Memory& memory, const TensorRef& ref, const std::vector<double>& values) {
  const int64_t bytes = element_bytes(ref.type.dtype);
  size_t next = 0;
  visit(ref, [&](int64_t offset) {
    write(ref.type.dtype, memory[ref.buffer] + offset * bytes, values[next++]);
  });
}

// One generated kernel over all of its rows.
class Loops {
 public:
  Loops(const LoopKernel& kernel, const Memory& memory, const std::vector<TensorRef>& refs)
      : kernel_(kernel), memory_(memory), refs_(refs), values_(kernel.nodes.size()) {}

  void run() {
    std::vector<int64_t> index(kernel_.rows.size());
    for (int64_t row = 0; row < kernel_.row_count(); ++row) {
      int64_t left = row;
      for (size_t i = index.size(); i-- > 0; left /= kernel_.rows[i].size)
        index[i] = left % kernel_.rows[i].size;
      run_row(row, index);
    }
  }

 private:
  void run_row(int64_t row, const std::vector<int64_t>& index) {
    for (uint32_t stage = 0; stage <= kernel_.stages; ++stage) {
      for (const uint32_t place : kernel_.before_loop(stage)) compute(place, row, index, 0);
      const auto loop = kernel_.in_loop(stage);
      std::map<uint32_t, double> totals;
      if (loop.empty()) continue;
      for (int64_t column = 0; column < kernel_.columns; ++column) {
        for (const uint32_t place : loop) {
          const LoopNode& node = kernel_.nodes[place];
          if (node.op == LoopOp::sum || node.op == LoopOp::max) {
            const double term = values_[node.operands[0]];
            const auto [total, first] = totals.emplace(place, term);
            if (!first && node.op == LoopOp::sum) total->second += term;
            if (!first && node.op == LoopOp::max) total->second = std::max(total->second, term);
          } else {
            compute(place, row, index, column);
          }
        }
      }
      for (const auto& [place, total] : totals)
        values_[place] = rounded(total, kernel_.nodes[place].dtype);
    }
  }

  std::byte* address(uint32_t parameter, const std::vector<int64_t>& index, int64_t column) const {
    const Access& access = kernel_.parameters[parameter];
    const TensorRef& ref = refs_[parameter];
    int64_t offset = ref.offset + column * access.column_stride;
    for (size_t i = 0; i < index.size(); ++i) offset += index[i] * access.row_strides[i];
    return memory_[ref.buffer] + offset * element_bytes(access.dtype);
  }

  void compute(uint32_t place, int64_t row, const std::vector<int64_t>& index, int64_t column) {
    const LoopNode& node = kernel_.nodes[place];
    double& value = values_[place];
    switch (node.op) {
      case LoopOp::load: value = read(node.dtype, address(node.index, index, column)); return;
      case LoopOp::store:
        write(node.dtype, address(node.index, index, column), values_[node.operands[0]]);
        return;
      case LoopOp::constant: value = node.number; return;
      case LoopOp::index:
        value = static_cast<double>(node.index < index.size() ? index[node.index] : column);
        return;
      case LoopOp::random: {
        const double step = read(DType::i64, address(node.index, index, column));
        value = random_bits(node.key, static_cast<uint64_t>(step),
                            static_cast<uint64_t>(row * kernel_.columns + column));
        return;
      }
      case LoopOp::apply: value = apply(node); return;
      default: return;
    }
  }

  // As the interpreter of graphs does it.
  double apply(const LoopNode& node) const {
    std::vector<double> in;
    for (const uint32_t operand : node.operands) in.push_back(values_[operand]);
    return rounded(apply_elementwise(node.kind, in), node.dtype);
  }

  const LoopKernel& kernel_;
  const Memory& memory_;
  const std::vector<TensorRef>& refs_;
  std::vector<double> values_;
};

// The operation that an instruction is, as far as there is one.
std::optional<OpKind> operation(const Instruction& instruction) {
  switch (instruction.kernel) {
    case Kernel::attention: return OpKind::attention;
    case Kernel::attention_grad: return OpKind::attention_grad;
    case Kernel::layer_norm: return OpKind::layer_norm;
    case Kernel::rms_norm: return OpKind::rms_norm;
    case Kernel::gather: return OpKind::gather;
    case Kernel::scatter_add: return OpKind::scatter_add;
    case Kernel::update: return OpKind::update;
    case Kernel::adamw: return OpKind::adamw;
    case Kernel::plain: return instruction.kind;
    default: return std::nullopt;
  }
}

Result<void> run_operation(OpKind kind, const Instruction& instruction, const Memory& memory) {
  Graph one;
  Node op{.kind = kind, .attributes = instruction.attributes};
  std::vector<Array> inputs;
  for (const TensorRef& ref : instruction.operands) {
    op.operands.push_back(one.add_input(fmt::format("in{}", inputs.size()), ref.type));
    inputs.push_back(fetch(memory, ref));
  }
  TRY(const auto made, one.add(std::move(op), &instruction.results[0].type));
  for (size_t i = 0; i < made.size(); ++i) one.add_output(fmt::format("out{}", i), made[i]);
  TRY(const auto results, interpret(one, std::move(inputs)));
  for (size_t i = 0; i < results.size(); ++i)
    put(memory, instruction.results[i], results[i].values);
  return {};
}

void run_gemm(const Instruction& instruction, const Memory& memory) {
  const Array a = fetch(memory, instruction.operands[0]);
  const Array b = fetch(memory, instruction.operands[1]);
  Array c = fetch(memory, instruction.results[0]);
  const auto m = static_cast<size_t>(a.type.dims[0].size);
  const auto k = static_cast<size_t>(a.type.dims[1].size);
  const auto n = static_cast<size_t>(b.type.dims[1].size);
  const bool accumulate = instruction.attributes.get<bool>("accumulate");
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      float sum = accumulate ? static_cast<float>(c.values[i * n + j]) : 0;
      for (size_t l = 0; l < k; ++l)
        sum = std::fma(static_cast<float>(a.values[i * k + l]),
                       static_cast<float>(b.values[l * n + j]), sum);
      c.values[i * n + j] = sum;
    }
  put(memory, instruction.results[0], c.values);
}

// Gradients of norms: dx and the sums of groups of rows.
Result<void> run_norm_grad(const Instruction& instruction, const Memory& memory) {
  const bool layer = instruction.kernel == Kernel::layer_norm_grad_rows;
  const auto group = instruction.attributes.get<int64_t>("group");
  const Type& whole = instruction.operands[1].type;
  const Dim columns = whole.dims.back();
  const int64_t rows = whole.elements() / columns.size;
  for (int64_t first = 0; first < rows; first += group) {
    const int64_t count = std::min(group, rows - first);
    const auto some = [&](const TensorRef& ref, bool has_columns) {
      const int64_t width = has_columns ? columns.size : 1;
      TensorRef out = ref;
      out.offset += first * width;
      out.type.dims = {{"row", count}};
      out.strides = {width};
      if (has_columns) {
        out.type.dims.push_back(columns);
        out.strides.push_back(1);
      }
      return out;
    };
    Instruction part{.kernel = Kernel::plain, .attributes = {{"dim", columns.name}}};
    part.operands = {some(instruction.operands[0], true), some(instruction.operands[1], true),
                     instruction.operands[2]};
    for (size_t i = 3; i < instruction.operands.size(); ++i)
      part.operands.push_back(some(instruction.operands[i], false));
    part.results = {some(instruction.results[0], true)};
    for (size_t i = 1; i < instruction.results.size(); ++i) {
      TensorRef sums = tutti::part(instruction.results[i], first / group);
      part.results.push_back(std::move(sums));
    }
    TRY_DO(run_operation(layer ? OpKind::layer_norm_grad : OpKind::rms_norm_grad, part, memory));
  }
  return {};
}

// The sum of each group of rows of a matrix.
void run_sum_rows(const Instruction& instruction, const Memory& memory, int64_t group) {
  const Array x = fetch(memory, instruction.operands[0]);
  const int64_t columns = instruction.results[0].type.elements() /
                          (group == 0 ? 1 : instruction.results[0].type.dims[0].size);
  const auto rows = std::ssize(x.values) / columns;
  std::vector<double> sums(static_cast<size_t>(instruction.results[0].type.elements()));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      sums[static_cast<size_t>((group == 0 ? 0 : row / group) * columns + column)] +=
          x.values[static_cast<size_t>(row * columns + column)];
  put(memory, instruction.results[0], sums);
}

void run_chunks(const Instruction& instruction, const Memory& memory) {
  const Array x = fetch(memory, instruction.operands[0]);
  const auto chunk = instruction.kernel == Kernel::join_chunks
                         ? x.values.size()
                         : static_cast<size_t>(instruction.attributes.get<int64_t>("chunk"));
  std::vector<double> sums((x.values.size() + chunk - 1) / chunk);
  for (size_t i = 0; i < x.values.size(); ++i)
    sums[i / chunk] +=
        instruction.kernel == Kernel::square_chunks ? x.values[i] * x.values[i] : x.values[i];
  put(memory, instruction.results[0], sums);
}

Result<void> run_cross_entropy(const Instruction& instruction, const Memory& memory) {
  Array logits = fetch(memory, instruction.operands[0]);
  const Array targets = fetch(memory, instruction.operands[1]);
  const bool with_gradient = instruction.operands.size() > 2;
  const Array dloss = with_gradient ? fetch(memory, instruction.operands[2]) : targets;
  const auto words = static_cast<size_t>(logits.type.dims[1].size);
  std::vector<double> loss(targets.values.size());
  for (size_t row = 0; row < loss.size(); ++row) {
    double* x = logits.values.data() + row * words;
    const auto target = static_cast<int64_t>(targets.values[row]);
    if (std::cmp_greater_equal(target, words))
      return fail(Code::invalid, "target {} is {}, which is not below the vocabulary of {}",
                  instruction.operands[1].offset + static_cast<int64_t>(row), target, words);
    const double highest = *std::max_element(x, x + words);
    double total = 0;
    for (size_t i = 0; i < words; ++i) total += std::exp(x[i] - highest);
    if (target >= 0) loss[row] = highest + std::log(total) - x[target];
    for (size_t i = 0; i < words; ++i)
      x[i] = target < 0 ? 0
                        : (std::exp(x[i] - highest) / total - (std::cmp_equal(i, target) ? 1 : 0)) *
                              dloss.values[row];
  }
  put(memory, instruction.results[0], loss);
  if (with_gradient) put(memory, instruction.results[1], logits.values);
  return {};
}

}  // namespace

void write_array(const Array& array, std::byte* to) {
  put({to}, dense(0, array.type), array.values);
}

Array read_array(const Type& type, const std::byte* from) {
  return fetch({const_cast<std::byte*>(from)}, dense(0, type));
}

Result<void> interpret_instruction(const Program& program, const Instruction& instruction,
                                   const std::vector<std::byte*>& buffers) {
  if (const auto kind = operation(instruction)) return run_operation(*kind, instruction, buffers);
  switch (instruction.kernel) {
    case Kernel::loops: {
      std::vector<TensorRef> refs = instruction.operands;
      refs.insert(refs.end(), instruction.results.begin(), instruction.results.end());
      Loops(program.loops[static_cast<size_t>(instruction.loops)], buffers, refs).run();
      return {};
    }
    case Kernel::gemm:
      run_gemm(instruction, buffers);
      if (instruction.loops >= 0)
        Loops(program.loops[static_cast<size_t>(instruction.loops)], buffers, instruction.edge)
            .run();
      return {};
    case Kernel::layer_norm_grad_rows:
    case Kernel::rms_norm_grad_rows: return run_norm_grad(instruction, buffers);
    case Kernel::layer_norm_grad_join:
    case Kernel::rms_norm_grad_join:
      for (size_t i = 0; i < instruction.operands.size(); ++i)
        run_sum_rows({.kernel = Kernel::sum_rows_join,
                      .operands = {instruction.operands[i]},
                      .results = {instruction.results[i]}},
                     buffers, 0);
      return {};
    case Kernel::sum_rows:
      run_sum_rows(instruction, buffers, instruction.attributes.get<int64_t>("group"));
      return {};
    case Kernel::sum_rows_join: run_sum_rows(instruction, buffers, 0); return {};
    case Kernel::collective_start:
    case Kernel::collective_wait:
      return fail(Code::unsupported, "{} takes other workers; nobody computes it alone",
                  instruction.attributes.get<std::string>("call"));
    case Kernel::cross_entropy: return run_cross_entropy(instruction, buffers);
    default: run_chunks(instruction, buffers); return {};
  }
}

Result<std::vector<Array>> interpret_program(const Program& program,
                                             const std::vector<Array>& inputs) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> buffers;
  for (const ProgramBuffer& buffer : program.buffers) {
    memory.emplace_back(static_cast<size_t>(buffer.bytes));
    buffers.push_back(memory.back().data());
    if (buffer.place == BufferPlace::input) write_array(inputs[buffer.index], buffers.back());
    if (buffer.place != BufferPlace::output) continue;
    for (size_t i = 0; i < program.inputs.size(); ++i)
      if (program.inputs[i].role == InputRole::state &&
          program.inputs[i].name == program.outputs[buffer.index].name)
        buffers.back() = buffers[program.inputs[i].value];
  }
  for (const Instruction& instruction : program.instructions)
    TRY_DO(interpret_instruction(program, instruction, buffers));
  std::vector<Array> outputs;
  for (size_t i = 0; i < program.outputs.size(); ++i)
    outputs.push_back(read_array(program.output_types[i], buffers[program.outputs[i].value]));
  return outputs;
}

}  // namespace tutti
