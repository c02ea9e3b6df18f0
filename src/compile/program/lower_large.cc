#include <algorithm>
#include <optional>
#include <ranges>

#include "compile/chunk.h"
#include "compile/gradient_part.h"
#include "compile/program/frame_lowering.h"
#include "compile/program/tensor_view.h"

namespace tutti {
namespace {

// Sums over rows are joined from groups of so many, whoever adds them up.
constexpr int64_t kRowsInGroup = 64;
// Logits of so many rows at a time, and never of more than half: enough that reading and writing
// the gradient of the weights once more for each costs little, and never all.
constexpr int64_t kRowsOfLogits = 512;

int64_t parts(int64_t whole, int64_t each) { return (whole + each - 1) / each; }

Names names_in(const Type& type, const auto& wanted) {
  Names names;
  for (const Dim& dim : type.dims)
    if (wanted(dim.name)) names.push_back(dim.name);
  return names;
}

Names joined_names(Names first, const Names& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TensorRef without_dim(TensorRef ref, std::string_view dim) {
  const auto place = static_cast<ptrdiff_t>(*ref.type.find(dim));
  ref.type.dims.erase(ref.type.dims.begin() + place);
  ref.strides.erase(ref.strides.begin() + place);
  return ref;
}

// As a matrix of the two sets of dimensions, if it can be looked at so.
std::optional<TensorRef> matrix(const TensorRef& ref, const Names& rows, const Names& columns) {
  const auto down = joined(ref, rows);
  const auto across = joined(ref, columns);
  if (!down || !across) return std::nullopt;
  return TensorRef{.buffer = ref.buffer,
                   .offset = ref.offset,
                   .type = {ref.type.dtype, {{"row", down->size}, {"column", across->size}}},
                   .strides = {down->stride, across->stride}};
}

TensorRef turned(const TensorRef& ref) { return transposed(ref, {"column", "row"}); }

TensorRef some_rows(const TensorRef& ref, int64_t first, int64_t count) {
  return sliced(ref, ref.type.dims[0].name, first, count);
}

bool rows_are_dense(const TensorRef& ref, std::string_view last) {
  return ref.is_dense() && !ref.type.dims.empty() && ref.type.dims.back().name == last;
}

}  // namespace

Result<void> FrameLowering::lower_large(const Node& op) {
  switch (op.kind) {
    case OpKind::matmul: return lower_matmul(op);
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad: lower_cross_entropy(op); return {};
    case OpKind::layer_norm:
    case OpKind::rms_norm:
    case OpKind::layer_norm_grad:
    case OpKind::rms_norm_grad: lower_rows(op); return {};
    case OpKind::attention:
    case OpKind::attention_grad: {
      const std::string head = op.attributes.get<std::string>("head");
      const auto fits = [&](const TensorRef& ref) {
        const auto place = ref.type.find(head);
        return place ? ref.strides[*place] == 1 : ref.is_dense();
      };
      std::vector<TensorRef> in;
      for (const TensorRef& ref : operands(op)) in.push_back(fits(ref) ? ref : as_dense(ref));
      std::vector<TensorRef> out;
      for (size_t i = 0; i < op.results.size(); ++i) {
        const bool strided = !wanted_[op.results[i]] || fits(*wanted_[op.results[i]]);
        out.push_back(result(op, i, !strided));
      }
      emit(op.kind == OpKind::attention ? Kernel::attention : Kernel::attention_grad, std::move(in),
           std::move(out), op.attributes);
      return {};
    }
    case OpKind::gather:
    case OpKind::scatter_add: {
      const bool gathers = op.kind == OpKind::gather;
      const Type& table = graph_.type(gathers ? op.operands[0] : op.results[0]);
      if (table.dims[0].name != op.attributes.get<std::string>("dim") ||
          table.dtype != DType::f32) {
        lower_plainly(op);
        return {};
      }
      std::vector<TensorRef> in = dense_operands(op);
      const TensorRef out = result(op, 0, true);
      emit(gathers ? Kernel::gather : Kernel::scatter_add, std::move(in), {out}, op.attributes);
      return {};
    }
    case OpKind::update: {
      // A cache that is a state, or a part of one, whose next value this is stays where it is.
      std::vector<TensorRef> in = operands(op);
      in[0] = as_dense(in[0]);
      in[2] = as_dense(in[2]);
      const TensorRef out = result(op, 0, true);
      emit(Kernel::update, std::move(in), {out}, op.attributes);
      return {};
    }
    case OpKind::squared_norm: lower_squared_norm(op); return {};
    case OpKind::square_chunks: {
      const std::vector<TensorRef> in = dense_operands(op);
      emit(Kernel::square_chunks, in, {result(op, 0, true)}, {{"chunk", kChunkElements}});
      return {};
    }
    case OpKind::join_chunks: {
      const TensorRef sums = scratch(graph_.type(op.operands[0]));  // which are added up in place
      copy(*refs_[op.operands[0]], sums);
      emit(Kernel::join_chunks, {sums}, {result(op, 0, true)});
      return {};
    }
    case OpKind::adamw: {
      std::vector<TensorRef> in = dense_operands(op);
      std::vector<TensorRef> out;
      for (size_t i = 0; i < 3; ++i) out.push_back(result(op, i, true));
      emit(Kernel::adamw, std::move(in), std::move(out), op.attributes);
      return {};
    }
    default: lower_plainly(op); return {};
  }
}

void FrameLowering::gemm(const TensorRef& a, const TensorRef& b, const TensorRef& c,
                         bool accumulate) {
  std::vector<TensorRef> in{a, b};
  emit(Kernel::gemm, std::move(in), {c}, {{"accumulate", accumulate}});
}

Result<void> FrameLowering::lower_matmul(const Node& op) {
  TensorRef a = *refs_[op.operands[0]];
  TensorRef b = *refs_[op.operands[1]];
  if (a.type.dtype != DType::f32) {
    lower_plainly(op);
    return {};
  }
  const Names over = op.attributes.get<Names>("over");
  const auto summed = [&](const std::string& name) { return std::ranges::count(over, name) != 0; };
  const Names rows = names_in(a.type, [&](const auto& name) { return !b.type.has(name); });
  const Names columns = names_in(b.type, [&](const auto& name) { return !a.type.has(name); });
  const Names batch =
      names_in(a.type, [&](const auto& name) { return b.type.has(name) && !summed(name); });
  // Operands that cannot be looked at as matrices are brought into order first.
  if (!matrix(a, rows, over))
    a = as_dense(transposed(a, joined_names(joined_names(batch, rows), over)));
  if (!matrix(b, over, columns))
    b = as_dense(transposed(b, joined_names(joined_names(batch, over), columns)));
  share_with_edge(op);
  TensorRef c = result(op, 0, false);
  const auto fits = [&](const TensorRef& ref) {
    const auto seen = matrix(ref, rows, columns);
    return seen && (seen->strides[1] == 1 || seen->type.dims[1].size == 1);
  };
  if (!fits(c)) {
    c = transposed(
        scratch({DType::f32,
                 transposed(c, joined_names(joined_names(batch, rows), columns)).type.dims}),
        names_in(c.type, [](const auto&) { return true; }));
    refs_[op.results[0]] = c;
  }
  const int64_t each = [&] {
    int64_t product = 1;
    for (const std::string& name : batch) product *= a.type.size_of(name);
    return product;
  }();
  for (int64_t i = 0; i < each; ++i) {
    TensorRef one_a = a;
    TensorRef one_b = b;
    TensorRef one_c = c;
    int64_t left = i;
    for (const std::string& name : std::views::reverse(batch)) {
      const int64_t size = a.type.size_of(name);
      for (TensorRef* ref : {&one_a, &one_b, &one_c})
        *ref = without_dim(sliced(*ref, name, left % size, 1), name);
      left /= size;
    }
    gemm(*matrix(one_a, rows, over), *matrix(one_b, over, columns), *matrix(one_c, rows, columns),
         false);
  }
  if (batch.empty()) attach_edge(op, columns.size());
  return {};
}

// Some rows of logits at a time, which at once become their gradient and are used up. Of a gradient
// that comes in two parts each computes them anew, since there is never room for all.
void FrameLowering::lower_cross_entropy(const Node& op) {
  const bool with_gradient = op.kind == OpKind::linear_cross_entropy_grad;
  const bool with_input = with_gradient && has_input_part(op.attributes);
  const bool with_weights = with_gradient && has_weights_part(op.attributes);
  const std::string over = op.attributes.get<std::string>("over");
  const std::vector<TensorRef> in = dense_operands(op);
  const Names rows = names_in(in[0].type, [&](const auto& name) { return name != over; });
  std::vector<TensorRef> out;
  for (size_t i = 0; i < op.results.size(); ++i) out.push_back(result(op, i, true));
  const TensorRef x = *matrix(
      rows_are_dense(in[0], over) ? in[0] : as_dense(transposed(in[0], joined_names(rows, {over}))),
      rows, {over});
  const TensorRef loss =
      with_gradient && !with_input ? scratch(graph_.type(op.operands[3])) : out[0];
  const TensorRef w = *matrix(in[1], {op.attributes.get<std::string>("vocab")}, {over});
  const int64_t words = w.type.dims[0].size;
  const int64_t all = x.type.dims[0].size;
  const int64_t each = std::min((all + 1) / 2, kRowsOfLogits);
  const TensorRef room = scratch({DType::f32, {{"row", each}, {"column", words}}});
  const auto flat = [&](const TensorRef& ref) {
    return *reshaped(ref, {ref.type.dtype, {{"row", all}}});
  };
  for (int64_t first = 0; first < all; first += each) {
    const int64_t count = std::min(each, all - first);
    const TensorRef logits = some_rows(room, 0, count);
    gemm(some_rows(x, first, count), turned(w), logits, false);
    std::vector<TensorRef> given{logits, some_rows(flat(in[2]), first, count)};
    if (with_gradient) given.push_back(some_rows(flat(in[3]), first, count));
    emit(Kernel::cross_entropy, std::move(given), {some_rows(flat(loss), first, count), logits});
    if (with_input) gemm(logits, w, some_rows(*matrix(out[1], rows, {over}), first, count), false);
    if (with_weights)
      gemm(turned(logits), some_rows(x, first, count),
           *matrix(out.back(), {op.attributes.get<std::string>("vocab")}, {over}), first > 0);
  }
}

void FrameLowering::lower_rows(const Node& op) {
  const std::string dim = op.attributes.get<std::string>("dim");
  const bool grad = op.kind == OpKind::layer_norm_grad || op.kind == OpKind::rms_norm_grad;
  const Type& rows = graph_.type(op.operands[grad ? 1 : 0]);
  if (rows.dims.back().name != dim || rows.dtype != DType::f32) {
    lower_plainly(op);
    return;
  }
  if (op.kind == OpKind::layer_norm_grad) {
    lower_norm_grad(op, Kernel::layer_norm_grad_rows, Kernel::layer_norm_grad_join);
  } else if (op.kind == OpKind::rms_norm_grad) {
    lower_norm_grad(op, Kernel::rms_norm_grad_rows, Kernel::rms_norm_grad_join);
  } else {
    std::vector<TensorRef> in = dense_operands(op);
    std::vector<TensorRef> out;
    for (size_t i = 0; i < op.results.size(); ++i) out.push_back(result(op, i, true));
    emit(op.kind == OpKind::layer_norm ? Kernel::layer_norm : Kernel::rms_norm, std::move(in),
         std::move(out), op.attributes);
  }
}

// One kernel makes the gradient of the rows and the sums of groups. Where only one of them is
// wanted the other is written nowhere in particular: the bits are those of both at once.
void FrameLowering::lower_norm_grad(const Node& op, Kernel rows, Kernel join) {
  std::vector<TensorRef> in = dense_operands(op);
  std::vector<TensorRef> out;
  for (size_t i = 0; i < op.results.size(); ++i) out.push_back(result(op, i, true));
  if (!has_input_part(op.attributes)) out.insert(out.begin(), scratch(in[1].type));
  const Dim columns = in[1].type.dims.back();
  const int64_t groups = parts(in[1].type.elements() / columns.size, kRowsInGroup);
  // Of every group its sums side by side.
  const int64_t each = op.kind == OpKind::layer_norm_grad ? 2 : 1;
  const TensorRef room = scratch({DType::f32, {{"group", groups}, {"sum", each}, columns}});
  std::vector<TensorRef> sums;
  for (int64_t i = 0; i < each; ++i) sums.push_back(without_dim(sliced(room, "sum", i, 1), "sum"));
  std::vector<TensorRef> first{out[0]};
  first.insert(first.end(), sums.begin(), sums.end());
  emit(rows, std::move(in), std::move(first), {{"group", kRowsInGroup}});
  if (!has_weights_part(op.attributes)) return;
  emit(join, std::move(sums), {out.begin() + 1, out.end()}, {{"group", kRowsInGroup}});
}

void FrameLowering::lower_squared_norm(const Node& op) {
  const std::vector<TensorRef> in = dense_operands(op);
  int64_t chunks = 0;
  for (const TensorRef& ref : in) chunks += chunks_of(ref.type.elements());
  const TensorRef sums = scratch({DType::f32, {{"chunk", chunks}}});
  int64_t first = 0;
  for (const TensorRef& ref : in) {
    const int64_t count = chunks_of(ref.type.elements());
    emit(Kernel::square_chunks, {ref}, {some_rows(sums, first, count)},
         {{"chunk", kChunkElements}});
    first += count;
  }
  const TensorRef out = result(op, 0, true);
  emit(Kernel::join_chunks, {sums}, {out});
}

// Over rows: whole rows are added, one after the other.
void FrameLowering::lower_sum_of_rows(const Node& op, const Names& kept, const Names& summed) {
  const TensorRef rows = as_dense(transposed(*refs_[op.operands[0]], joined_names(summed, kept)));
  const TensorRef flat = *matrix(rows, summed, kept);
  const int64_t groups = parts(flat.type.dims[0].size, kRowsInGroup);
  const TensorRef sums =
      scratch({DType::f32, {{"group", groups}, {"column", flat.type.dims[1].size}}});
  emit(Kernel::sum_rows, {flat}, {sums}, {{"group", kRowsInGroup}});
  emit(Kernel::sum_rows_join, {sums}, {result(op, 0, true)});
}

// Sums and maxima. Loops go over columns, which have to lie together: where the dimensions do not,
// a copy is made in which they do.
void FrameLowering::lower_reduction(const Node& op) {
  const TensorRef x = *refs_[op.operands[0]];
  const Names over = op.attributes.get<Names>("dims");
  const auto is_over = [&](const std::string& name) { return std::ranges::count(over, name) != 0; };
  const Names kept = names_in(x.type, [&](const auto& name) { return !is_over(name); });
  const Names last = names_in(x.type, is_over);
  if (over.empty()) {
    copy(x, result(op, 0, false));
    return;
  }
  if (op.kind == OpKind::reduce_sum && is_float(x.type.dtype)) {
    if (x.type.dtype != DType::f32) {
      lower_plainly(op);
      return;
    }
    if (kept.empty()) {
      const TensorRef whole = as_dense(x);
      const TensorRef sums = scratch({DType::f32, {{"chunk", chunks_of(whole.type.elements())}}});
      emit(Kernel::sum_chunks, {whole}, {sums}, {{"chunk", kChunkElements}});
      emit(Kernel::join_chunks, {sums}, {result(op, 0, true)});
      return;
    }
    if (!is_over(x.type.dims.back().name)) {
      lower_sum_of_rows(op, kept, last);
      return;
    }
  }
  std::vector<TensorRef> in = {x};
  if (!lower_to_loops(alone(op, in), "k")) in = {as_dense(transposed(x, joined_names(kept, last)))};
  const TensorRef to = result(op, 0, false);
  emit_loops(alone(op, in), in, {to});
}

}  // namespace tutti
