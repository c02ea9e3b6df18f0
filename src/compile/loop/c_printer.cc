#include <fmt/format.h>

#include <cmath>

#include "base/assert.h"
#include "compile/loop/c_prelude.h"
#include "compile/loop/loop_kernel.h"

namespace tutti {
namespace {

// How a kind of number is kept in memory and in registers. Truths are masks in registers.
struct Words {
  const char* memory;  // the C type of an element
  const char* load;    // the suffix of load_…, store_…
  char vector;         // f, i, u or l: of vectors and functions
};

Words words(DType dtype) {
  switch (dtype) {
    case DType::f32: return {"float", "f", 'f'};
    case DType::bf16: return {"unsigned short", "h", 'f'};
    case DType::f16: return {"_Float16", "hf", 'f'};
    case DType::i32: return {"int", "i", 'i'};
    case DType::i64: return {"long long", "l", 'l'};
    case DType::u32: return {"unsigned", "u", 'u'};
    case DType::u8: return {"unsigned char", "b", 'i'};
    case DType::boolean: return {"unsigned char", "b", 'i'};
    default: break;
  }
  TUTTI_ASSERT(false, "check_type() lets no others pass");
  return {};
}

// What a sum begins with, or a maximum: no number is less.
const char* beginning(LoopOp op, char vector) {
  if (op == LoopOp::sum) return "0";
  switch (vector) {
    case 'i': return "-2147483647 - 1";
    case 'l': return "-9223372036854775807ll - 1";
    case 'u': return "0";
    default: return "-INFINITE";
  }
}

std::string number_text(double value, DType dtype) {
  if (!is_float(dtype)) return fmt::format("{}ll", static_cast<int64_t>(value));
  if (std::isnan(value)) return "__builtin_nanf(\"\")";
  if (std::isinf(value)) return value > 0 ? "INFINITE" : "-INFINITE";
  return double_text(static_cast<double>(static_cast<float>(value))) + "f";
}

class KernelText {
 public:
  explicit KernelText(const LoopKernel& kernel) : kernel_(kernel) {}

  std::string run() {
    out_ = fmt::format(
        "void {}(void* const* parameters, long first_row, long end_row, long first_column,\n"
        "        long end_column) {{\n",
        kernel_.name);
    out_ += "  for (long row = first_row; row < end_row; ++row) {\n";
    row_indices();
    for (size_t i = 0; i < kernel_.parameters.size(); ++i) row_pointer(i);
    for (uint32_t stage = 0; stage <= kernel_.stages; ++stage) {
      for (const uint32_t place : kernel_.before_loop(stage)) row_node(place);
      if (!kernel_.in_loop(stage).empty()) loop(stage);
    }
    return out_ + "  }\n}\n";
  }

 private:
  template <class... Args>
  void line(int depth, fmt::format_string<Args...> format, Args&&... args) {
    out_.append(static_cast<size_t>(2 * depth), ' ');
    out_ += fmt::format(format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void row_indices() {
    line(2, "long left = row;");
    for (size_t i = kernel_.rows.size(); i-- > 0;) {
      line(2, "const long i{} = left % {};", i, kernel_.rows[i].size);
      line(2, "left /= {};", kernel_.rows[i].size);
    }
    line(2, "(void)left;");
  }

  void row_pointer(size_t i) {
    const Access& access = kernel_.parameters[i];
    std::string offset;
    for (size_t dim = 0; dim < access.row_strides.size(); ++dim)
      if (access.row_strides[dim] != 0)
        offset += fmt::format(" + i{} * {}", dim, access.row_strides[dim]);
    const char* type = words(access.dtype).memory;
    line(2, "{0}{1}* p{2} = ({0}{1}*)parameters[{2}]{3};", i < kernel_.reads ? "const " : "", type,
         i, offset);
  }

  // A loaded vector as it is computed with.
  static std::string widened(DType dtype, const std::string& loaded) {
    switch (dtype) {
      case DType::bf16: return fmt::format("from_bf16({})", loaded);
      case DType::f16: return fmt::format("__builtin_convertvector({}, vf)", loaded);
      case DType::u8: return fmt::format("__builtin_convertvector({}, vi)", loaded);
      case DType::boolean: return fmt::format("(__builtin_convertvector({}, vi) != 0)", loaded);
      default: return loaded;
    }
  }
  static std::string narrowed(DType dtype, const std::string& value) {
    switch (dtype) {
      case DType::bf16: return fmt::format("to_bf16({})", value);
      case DType::f16: return fmt::format("__builtin_convertvector({}, vhf)", value);
      case DType::u8: return fmt::format("__builtin_convertvector({}, vb)", value);
      case DType::boolean: return fmt::format("__builtin_convertvector({} & 1, vb)", value);
      default: return value;
    }
  }

  void row_node(uint32_t place) {
    const LoopNode& node = kernel_.nodes[place];
    const Words w = words(node.dtype);
    switch (node.op) {
      case LoopOp::load:
        line(2, "const v{} n{} = {};", w.vector, place,
             widened(node.dtype, fmt::format("load_far_{}(p{}, 0, LANES)", w.load, node.index)));
        return;
      case LoopOp::store:
        line(2, "store_part_{}(p{}, {}, 1);", w.load, node.index,
             narrowed(node.dtype, fmt::format("n{}", node.operands[0])));
        return;
      default: line(2, "const v{} n{} = {};", w.vector, place, value(place)); return;
    }
  }

  // Sixteen columns at a time, in as many vectors as they take, then what is left of the row.
  void loop(uint32_t stage) {
    const auto places = kernel_.in_loop(stage);
    for (const uint32_t place : places) {
      const LoopNode& node = kernel_.nodes[place];
      if (node.op != LoopOp::sum && node.op != LoopOp::max) continue;
      const char v = words(node.dtype).vector;
      line(2, "v{} s{}[PARTS];", v, place);
      line(2, "for (int h = 0; h < PARTS; ++h) s{}[h] = splat_{}({});", place, v,
           beginning(node.op, v));
    }
    line(2, "long first{} = first_column;", stage);
    line(2, "for (; first{0} + 16 <= end_column; first{0} += 16) {{", stage);
    line(3, "for (int h = 0; h < PARTS; ++h) {{");
    line(4, "const long c{0} = first{0} + h * LANES;", stage);
    for (const uint32_t place : places) column_node(place, stage, false);
    line(3, "}}");
    line(2, "}}");
    line(2, "for (int h = 0; h < PARTS && first{} + h * LANES < end_column; ++h) {{", stage);
    line(3, "const long c{0} = first{0} + h * LANES;", stage);
    line(3, "const long left = end_column - c{};", stage);
    line(3, "const long some = left < LANES ? left : LANES;");
    for (const uint32_t place : places) column_node(place, stage, true);
    line(2, "}}");
    for (const uint32_t place : places) {
      const LoopNode& node = kernel_.nodes[place];
      if (node.op != LoopOp::sum && node.op != LoopOp::max) continue;
      const char v = words(node.dtype).vector;
      const char* join = node.op == LoopOp::sum ? "sum" : "max";
      const std::string joined = fmt::format("splat_{0}({1}_lanes_{0}(s{2}))", v, join, place);
      line(2, "const v{} n{} = {};", v, place, rounded_to(node.dtype, joined));
    }
  }

  void column_node(uint32_t place, uint32_t stage, bool part) {
    const LoopNode& node = kernel_.nodes[place];
    const Words w = words(node.dtype);
    const int depth = part ? 3 : 4;
    switch (node.op) {
      case LoopOp::load:
        line(depth, "const v{} n{} = {};", w.vector, place,
             widened(node.dtype, transfer("load", node, stage, part, "")));
        return;
      case LoopOp::store:
        line(depth, "{};",
             transfer("store", node, stage, part,
                      ", " + narrowed(node.dtype, fmt::format("n{}", node.operands[0]))));
        return;
      case LoopOp::index:
        line(depth, "const v{} n{} = {};", w.vector, place,
             from_int(node.dtype, fmt::format("(splat_i((int)c{}) + lanes)", stage)));
        return;
      case LoopOp::random:
        line(depth, "const vu n{} = random_u({}ull, *p{}, row * {} + c{}, {});", place, node.key,
             node.index, kernel_.columns, stage, part ? "some" : "LANES");
        return;
      case LoopOp::sum:
      case LoopOp::max: {
        std::string term = fmt::format("n{}", node.operands[0]);
        if (part)
          term = fmt::format("pick_{0}(lanes < (int)some, {1}, splat_{0}({2}))", w.vector, term,
                             beginning(node.op, w.vector));
        if (node.op == LoopOp::sum)
          line(depth, "s{0}[h] = s{0}[h] + {1};", place, term);
        else
          line(depth, "s{0}[h] = max_{1}(s{0}[h], {2});", place, w.vector, term);
        return;
      }
      default: line(depth, "const v{} n{} = {};", w.vector, place, value(place)); return;
    }
  }

  std::string transfer(const char* verb, const LoopNode& node, uint32_t stage, bool part,
                       const std::string& stored) const {
    const Access& access = kernel_.parameters[node.index];
    const char* kind = words(access.dtype).load;
    if (access.column_stride == 1)
      return part ? fmt::format("{}_part_{}(p{} + c{}{}, some)", verb, kind, node.index, stage,
                                stored)
                  : fmt::format("{}_{}(p{} + c{}{})", verb, kind, node.index, stage, stored);
    return fmt::format("{}_far_{}(p{} + c{} * {}{}, {}, {})", verb, kind, node.index, stage,
                       access.column_stride, stored, access.column_stride, part ? "some" : "LANES");
  }

  static std::string from_int(DType dtype, const std::string& value) {
    const char vector = words(dtype).vector;
    if (vector == 'i') return value;
    return fmt::format("__builtin_convertvector({}, v{})", value, vector);
  }

  std::string value(uint32_t place) const {
    const LoopNode& node = kernel_.nodes[place];
    const char vector = words(node.dtype).vector;
    if (node.op == LoopOp::constant) {
      if (node.dtype == DType::boolean) return node.number != 0 ? "splat_i(-1)" : "splat_i(0)";
      return fmt::format("splat_{}({})", vector, number_text(node.number, node.dtype));
    }
    if (node.op == LoopOp::index)
      return from_int(node.dtype, fmt::format("splat_i((int)i{})", node.index));
    return rounded_to(node.dtype, applied(node, vector));
  }

  // Halves are computed as f32 and rounded after every operation, as the interpreter does; bytes
  // as i32.
  static std::string rounded_to(DType dtype, const std::string& value) {
    if (dtype == DType::bf16) return fmt::format("from_bf16(to_bf16({}))", value);
    if (dtype == DType::f16)
      return fmt::format("__builtin_convertvector(__builtin_convertvector({}, vhf), vf)", value);
    if (dtype == DType::u8) return fmt::format("({}) & 255", value);
    return value;
  }

  std::string compared(const LoopNode& node, const char* sign) const {
    const auto text = fmt::format("(n{} {} n{})", node.operands[0], sign, node.operands[1]);
    const DType of = kernel_.nodes[node.operands[0]].dtype;
    return words(of).vector == 'l' ? fmt::format("narrow_l{}", text) : fmt::format("(vi){}", text);
  }

  std::string cast(const LoopNode& node) const {
    const DType from = kernel_.nodes[node.operands[0]].dtype;
    const std::string x = fmt::format("n{}", node.operands[0]);
    if (node.dtype == DType::boolean)
      return words(from).vector == 'l' ? fmt::format("narrow_l({} != 0)", x)
                                       : fmt::format("(vi)({} != 0)", x);
    const std::string whole = from == DType::boolean ? fmt::format("({} & 1)", x) : x;
    const std::string bytes = node.dtype == DType::u8 ? " & 255" : "";
    if (words(from).vector == words(node.dtype).vector)
      return bytes.empty() ? whole : fmt::format("({}{})", whole, bytes);
    return fmt::format("(__builtin_convertvector({}, v{}){})", whole, words(node.dtype).vector,
                       bytes);
  }

  std::string applied(const LoopNode& node, char v) const {
    const auto n = [&](size_t i) { return fmt::format("n{}", node.operands[i]); };
    const auto infix = [&](const char* sign) { return fmt::format("{} {} {}", n(0), sign, n(1)); };
    const auto call = [&](const char* name) { return fmt::format("{}_f({})", name, n(0)); };
    const auto extreme = [&](const char* name, const char* sign) {
      if (v == 'f') return fmt::format("{}_f({}, {})", name, n(0), n(1));
      return fmt::format("pick_{}({}, {}, {})", v, compared(node, sign), n(0), n(1));
    };
    switch (node.kind) {
      case OpKind::neg: return fmt::format("-{}", n(0));
      case OpKind::abs:
      case OpKind::sign:
        return fmt::format("{}_{}({})", node.kind == OpKind::abs ? "abs" : "sign", v, n(0));
      case OpKind::exp: return call("exp");
      case OpKind::log: return call("log");
      case OpKind::sqrt: return call("sqrt");
      case OpKind::rsqrt: return fmt::format("1.0f / sqrt_f({})", n(0));
      case OpKind::tanh: return call("tanh");
      case OpKind::erf: return call("erf");
      case OpKind::sin: return call("sin");
      case OpKind::cos: return call("cos");
      case OpKind::floor: return call("floor");
      case OpKind::logical_not: return fmt::format("~{}", n(0));
      case OpKind::is_finite: return fmt::format("(vi)(abs_f({}) < INFINITE)", n(0));
      case OpKind::cast: return cast(node);
      case OpKind::add: return infix("+");
      case OpKind::sub: return infix("-");
      case OpKind::mul: return infix("*");
      case OpKind::div: return v == 'f' ? infix("/") : fmt::format("div_{}({}, {})", v, n(0), n(1));
      case OpKind::pow: return fmt::format("pow_f({}, {})", n(0), n(1));
      case OpKind::maximum: return extreme("max", ">");
      case OpKind::minimum: return extreme("min", "<");
      case OpKind::logical_and: return infix("&");
      case OpKind::logical_or: return infix("|");
      case OpKind::shift_right: return infix(">>");
      case OpKind::equal: return compared(node, "==");
      case OpKind::less: return compared(node, "<");
      case OpKind::less_equal: return compared(node, "<=");
      case OpKind::select: return fmt::format("pick_{}({}, {}, {})", v, n(0), n(1), n(2));
      default: return "0";
    }
  }

  const LoopKernel& kernel_;
  std::string out_;
};

class CPrinter final : public KernelPrinter {
 public:
  std::string prelude() const override { return kCPrelude; }
  std::string kernel(const LoopKernel& kernel) const override { return KernelText(kernel).run(); }
};

}  // namespace

std::unique_ptr<KernelPrinter> make_c_printer() { return std::make_unique<CPrinter>(); }

}  // namespace tutti
