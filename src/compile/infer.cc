#include "compile/infer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compile/chunk.h"
#include "compile/collective.h"
#include "compile/gradient_part.h"
#include "compile/graph.h"

namespace tutti {
namespace {

using Types = std::vector<Type>;

struct Inference {
  OpKind kind;
  std::span<const Type> in;
  const Attributes& attributes;
  const Graph* body;
  const Type* given;

  std::string_view name() const { return op_info(kind).name; }

  template <class... Args>
  std::unexpected<Error> wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(Code::invalid, "{}: {}", name(), fmt::format(format, std::forward<Args>(args)...));
  }

  template <class T>
  Result<T> attribute(std::string_view key) const {
    const T* found = attributes.find<T>(key);
    if (found == nullptr) return wrong("attribute {} is missing or of the wrong kind", key);
    return *found;
  }

  // The named dimension of an operand.
  Result<Dim> dim(const Type& type, std::string_view wanted) const {
    const auto place = type.find(wanted);
    if (!place) return wrong("{} has no dimension {}", type.text(), wanted);
    return type.dims[*place];
  }
  Result<Dim> dim_of(const Type& type, std::string_view key) const {
    TRY(const std::string wanted, attribute<std::string>(key));
    return dim(type, wanted);
  }

  Result<void> want_float(const Type& type) const {
    if (!is_float(type.dtype)) return wrong("{} is not of floating point", type.text());
    return {};
  }
  Result<void> want_whole(const Type& type) const {
    if (is_float(type.dtype) || type.dtype == DType::boolean)
      return wrong("{} is not of whole numbers", type.text());
    return {};
  }
  Result<void> want_each_once(const Names& names) const {
    for (const std::string& each : names)
      if (std::ranges::count(names, each) > 1) return wrong("{} is named more than once", each);
    return {};
  }
  Result<void> want_same(const Type& a, const Type& b) const {
    if (a != b) return wrong("{} and {} differ", a.text(), b.text());
    return {};
  }

  Result<Types> source() const;
  Result<Types> unary() const;
  Result<Types> binary() const;
  Result<Types> select() const;
  Result<Types> reshape() const;
  Result<Types> transpose() const;
  Result<Types> broadcast() const;
  Result<Types> slice() const;
  Result<Types> pad() const;
  Result<Types> concat() const;
  Result<Types> reduce() const;
  Result<Types> argmax() const;
  Result<Types> gather() const;
  Result<Types> scatter_add() const;
  // Where in a cache: one number, or one for each of some dimensions of what is kept there.
  Result<void> want_position(const Type& position, const Type& of, std::string_view along) const;
  Result<Types> update() const;
  Result<Types> repeat() const;
  Result<Types> fused() const;
  Result<Types> matmul() const;
  Result<Types> softmax() const;
  Result<Types> norm() const;
  Result<Types> norm_grad() const;
  Result<Types> attention() const;
  Result<Types> attention_grad() const;
  Result<Types> linear_cross_entropy() const;
  Result<Types> parted(Types all) const;
  Result<Types> squared_norm() const;
  Result<void> lanes() const;
  Result<std::pair<int64_t, int64_t>> shard() const;
  Result<Types> lane_all_reduce() const;
  Result<Types> lane_reduce_scatter() const;
  Result<Types> shard_gather() const;
  Result<Types> square_chunks() const;
  Result<Types> join_chunks() const;
  Result<Types> adamw() const;
  Result<Types> collective() const;
  Result<Types> run() const;
};

Result<Types> Inference::source() const {
  if (kind == OpKind::constant && attributes.find<double>("value") == nullptr)
    return wrong("attribute value is missing or not a number with a point");
  if (kind == OpKind::iota) TRY_DO(dim_of(*given, "dim"));
  if (kind == OpKind::random) {
    TRY_DO(attribute<int64_t>("seed"));
    TRY_DO(attribute<std::string>("stream"));
    TRY_DO(want_same(in[0], Type{DType::i64, {}}));
    if (given->dtype != DType::u32) return wrong("gives u32, not {}", given->text());
  }
  return Types{*given};
}

Result<Types> Inference::unary() const {
  if (kind == OpKind::cast) {
    if (given->dims != in[0].dims)
      return wrong("{} cannot become {}: only the kind of number may change", in[0].text(),
                   given->text());
    return Types{*given};
  }
  if (kind == OpKind::logical_not) {
    if (in[0].dtype != DType::boolean) return wrong("{} is not of truth values", in[0].text());
    return Types{in[0]};
  }
  if (kind == OpKind::neg || kind == OpKind::abs || kind == OpKind::sign) {
    if (in[0].dtype == DType::boolean) return wrong("{} is not of numbers", in[0].text());
    return Types{in[0]};
  }
  TRY_DO(want_float(in[0]));
  return Types{kind == OpKind::is_finite ? in[0].with(DType::boolean) : in[0]};
}

Result<Types> Inference::binary() const {
  TRY_DO(want_same(in[0], in[1]));
  const bool truth = in[0].dtype == DType::boolean;
  switch (kind) {
    case OpKind::logical_and:
    case OpKind::logical_or:
      if (!truth) return wrong("{} is not of truth values", in[0].text());
      return Types{in[0]};
    case OpKind::equal:
    case OpKind::less:
    case OpKind::less_equal: return Types{in[0].with(DType::boolean)};
    case OpKind::shift_right:
      if (in[0].dtype != DType::u32) return wrong("{} is not of u32", in[0].text());
      return Types{in[0]};
    case OpKind::pow: TRY_DO(want_float(in[0])); return Types{in[0]};
    default: break;
  }
  if (truth) return wrong("{} is not of numbers", in[0].text());
  return Types{in[0]};
}

Result<Types> Inference::select() const {
  TRY_DO(want_same(in[1], in[2]));
  TRY_DO(want_same(in[0], in[1].with(DType::boolean)));
  return Types{in[1]};
}

Result<Types> Inference::reshape() const {
  if (given->dtype != in[0].dtype || given->elements() != in[0].elements())
    return wrong("{} cannot become {}: they must have as many elements of the same kind",
                 in[0].text(), given->text());
  return Types{*given};
}

Result<Types> Inference::transpose() const {
  TRY(const Names order, attribute<Names>("order"));
  Type out{in[0].dtype, {}};
  for (const std::string& wanted : order) {
    TRY(Dim found, dim(in[0], wanted));
    out.dims.push_back(std::move(found));
  }
  if (order.size() != in[0].dims.size())
    return wrong("the order [{}] does not name every dimension of {}", fmt::join(order, ", "),
                 in[0].text());
  return Types{out};
}

Result<Types> Inference::broadcast() const {
  size_t next = 0;
  for (const Dim& dim : given->dims)
    if (next < in[0].dims.size() && in[0].dims[next] == dim) ++next;
  if (next != in[0].dims.size() || given->dtype != in[0].dtype)
    return wrong("{} cannot become {}: its dimensions must be there, in order and of the same size",
                 in[0].text(), given->text());
  return Types{*given};
}

Result<Types> Inference::slice() const {
  TRY(const Dim cut, dim_of(in[0], "dim"));
  TRY(const int64_t start, attribute<int64_t>("start"));
  TRY(const int64_t size, attribute<int64_t>("size"));
  if (start < 0 || size < 1 || start > cut.size - size)
    return wrong("{} to {} is outside of {}={} in {}", start, start + size, cut.name, cut.size,
                 in[0].text());
  Type out = in[0];
  out.dims[*out.find(cut.name)].size = size;
  return Types{out};
}

Result<Types> Inference::pad() const {
  TRY(const Dim padded, dim_of(in[0], "dim"));
  TRY(const int64_t low, attribute<int64_t>("low"));
  TRY(const int64_t high, attribute<int64_t>("high"));
  if (low < 0 || high < 0) return wrong("cannot add {} and {} elements", low, high);
  Type out = in[0];
  out.dims[*out.find(padded.name)].size += low + high;
  return Types{out};
}

Result<Types> Inference::concat() const {
  if (in.empty()) return wrong("has no operands");
  TRY(const Dim first, dim_of(in[0], "dim"));
  Type out = in[0];
  int64_t& size = out.dims[*out.find(first.name)].size;
  for (const Type& next : in.subspan(1)) {
    TRY(const Dim its, dim(next, first.name));
    Type same = in[0];
    same.dims[*same.find(first.name)].size = its.size;
    if (same != next)
      return wrong("{} and {} differ in more than {}", in[0].text(), next.text(), first.name);
    size += its.size;
  }
  return Types{out};
}

Result<Types> Inference::reduce() const {
  if (kind == OpKind::cumulative_sum) {
    TRY_DO(dim_of(in[0], "dim"));
    return Types{in[0]};
  }
  TRY(const Names dims, attribute<Names>("dims"));
  for (const std::string& wanted : dims) TRY_DO(dim(in[0], wanted));
  TRY_DO(want_each_once(dims));
  if (in[0].dtype == DType::boolean) return wrong("{} is not of numbers", in[0].text());
  return Types{in[0].without(dims)};
}

Result<Types> Inference::argmax() const {
  TRY(const Dim over, dim_of(in[0], "dim"));
  return Types{in[0].without({over.name}).with(DType::i32)};
}

Result<Types> Inference::gather() const {
  TRY(const Dim rows, dim_of(in[0], "dim"));
  TRY_DO(want_whole(in[1]));
  Type out{in[0].dtype, in[1].dims};
  for (const Dim& dim : in[0].dims)
    if (dim.name != rows.name) out.dims.push_back(dim);
  return Types{out};
}

Result<Types> Inference::scatter_add() const {
  TRY(const std::string rows, attribute<std::string>("dim"));
  TRY(const int64_t size, attribute<int64_t>("size"));
  TRY_DO(want_whole(in[0]));
  const Dims& indices = in[0].dims;
  if (in[1].dims.size() < indices.size() ||
      !std::equal(indices.begin(), indices.end(), in[1].dims.begin()))
    return wrong("{} does not begin with the dimensions of {}", in[1].text(), in[0].text());
  Type out{in[1].dtype, {{rows, size}}};
  out.dims.insert(out.dims.end(), in[1].dims.begin() + std::ssize(indices), in[1].dims.end());
  return Types{out};
}

Result<void> Inference::want_position(const Type& position, const Type& of,
                                      std::string_view along) const {
  if (position.dtype != DType::i64) return wrong("position {} is not of i64", position.text());
  for (const Dim& dim : position.dims)
    if (dim.name == along || !of.has(dim.name) || of.size_of(dim.name) != dim.size)
      return wrong("position {} has a dimension {}={} that {} has not besides {}", position.text(),
                   dim.name, dim.size, of.text(), along);
  return {};
}

Result<Types> Inference::update() const {
  const Type& cache = in[0];
  TRY(const Dim along, dim_of(cache, "dim"));
  TRY(const Dim rows, dim_of(in[1], "dim"));
  Type same = cache;
  same.dims[*same.find(along.name)].size = rows.size;
  if (same != in[1])
    return wrong("{} and {} differ in more than {}", cache.text(), in[1].text(), along.name);
  if (rows.size > along.size) return wrong("{} rows do not fit into {}", rows.size, cache.text());
  TRY_DO(want_position(in[2], cache, along.name));
  return Types{cache};
}

Result<Types> Inference::repeat() const {
  TRY(const int64_t count, attribute<int64_t>("count"));
  TRY(const int64_t carried, attribute<int64_t>("carried"));
  TRY(const int64_t sliced, attribute<int64_t>("sliced"));
  TRY(const std::string stack, attribute<std::string>("stack"));
  TRY_DO(attribute<bool>("reversed"));
  if (body == nullptr) return wrong("has no body");
  if (count < 1 || carried < 0 || sliced < 0 || carried + sliced > std::ssize(in))
    return wrong("{} carried and {} sliced of {} operands, {} times, make no sense", carried,
                 sliced, in.size(), count);
  if (body->inputs.size() != in.size())
    return wrong("its body takes {} values and gets {}", body->inputs.size(), in.size());
  for (int64_t i = 0; i < std::ssize(in); ++i) {
    Type inside = in[i];
    if (i >= carried && i < carried + sliced) {
      if (inside.dims.empty() || inside.dims[0].size != count)
        return wrong("{} has no first dimension of size {} to be cut along", in[i].text(), count);
      inside.dims.erase(inside.dims.begin());
    }
    const Type& wanted = body->type(body->inputs[i].value);
    if (inside != wanted)
      return wrong("operand {} is {} in the body, which takes {}", i, inside.text(), wanted.text());
  }
  Types out;
  for (size_t i = 0; i < body->outputs.size(); ++i) {
    Type type = body->type(body->outputs[i].value);
    if (std::cmp_less(i, carried)) {
      TRY_DO(want_same(in[i], type));
    } else {
      if (type.has(stack)) return wrong("{} already has a dimension {}", type.text(), stack);
      type.dims.insert(type.dims.begin(), Dim{stack, count});
    }
    out.push_back(std::move(type));
  }
  if (std::cmp_less(out.size(), carried))
    return wrong("its body returns {} values, fewer than the {} carried", out.size(), carried);
  return out;
}

Result<Types> Inference::fused() const {
  if (body == nullptr) return wrong("has no body");
  if (body->inputs.size() != in.size())
    return wrong("its body takes {} values and gets {}", body->inputs.size(), in.size());
  for (size_t i = 0; i < in.size(); ++i)
    TRY_DO(want_same(in[i], body->type(body->inputs[i].value)));
  Types out;
  for (const Output& output : body->outputs) out.push_back(body->type(output.value));
  return out;
}

Result<Types> Inference::matmul() const {
  TRY(const Names over, attribute<Names>("over"));
  TRY_DO(want_each_once(over));
  if (in[0].dtype != in[1].dtype)
    return wrong("{} and {} are of different kinds; cast one", in[0].text(), in[1].text());
  TRY_DO(want_float(in[0]));
  for (const std::string& wanted : over) {
    const auto a = in[0].find(wanted);
    const auto b = in[1].find(wanted);
    if (!a || !b)
      return wrong("{} and {} have no dimension {} in common to sum over", in[0].text(),
                   in[1].text(), wanted);
    if (in[0].dims[*a].size != in[1].dims[*b].size)
      return wrong("{} and {} have different sizes of {}", in[0].text(), in[1].text(), wanted);
  }
  Type out = in[0].without(over);
  for (const Dim& dim : in[1].without(over).dims) {
    const auto shared = out.find(dim.name);
    if (shared && out.dims[*shared].size != dim.size)
      return wrong("{} and {} have different sizes of {}", in[0].text(), in[1].text(), dim.name);
    if (!shared) out.dims.push_back(dim);
  }
  return Types{out};
}

Result<Types> Inference::softmax() const {
  TRY_DO(want_float(in[0]));
  TRY_DO(dim_of(in[0], "dim"));
  return Types{in[0]};
}

Result<Types> Inference::norm() const {
  TRY_DO(want_float(in[0]));
  TRY(const Dim over, dim_of(in[0], "dim"));
  TRY_DO(attribute<double>("epsilon"));
  for (const Type& affine : in.subspan(1)) TRY_DO(want_same(affine, Type{in[0].dtype, {over}}));
  const Type rows = in[0].without({over.name});
  if (kind == OpKind::layer_norm) return Types{in[0], rows, rows};
  return Types{in[0], rows};
}

Result<Types> Inference::norm_grad() const {
  TRY_DO(want_same(in[0], in[1]));
  TRY(const Dim over, dim_of(in[1], "dim"));
  const Type affine{in[1].dtype, {over}};
  TRY_DO(want_same(in[2], affine));
  for (const Type& rows : in.subspan(3)) TRY_DO(want_same(rows, in[1].without({over.name})));
  if (kind == OpKind::layer_norm_grad) return parted({in[1], affine, affine});
  return parted({in[1], affine});
}

Result<Types> Inference::parted(Types all) const {
  const Attribute* part = attributes.find(kPart);
  if (part != nullptr && *part != Attribute(kInputPart) && *part != Attribute(kWeightsPart))
    return wrong("attribute part is neither \"{}\" nor \"{}\"", kInputPart, kWeightsPart);
  return in_part(kind, attributes, std::move(all));
}

Result<Types> Inference::attention() const {
  if (in.size() != 3 && in.size() != 4)
    return wrong("takes queries, keys, values and perhaps a position, not {} operands", in.size());
  const Type& q = in[0];
  const Type& k = in[1];
  TRY_DO(want_float(q));
  TRY_DO(attribute<bool>("causal"));
  TRY_DO(attribute<double>("scale"));
  TRY(const Dim query, dim_of(q, "query"));
  TRY(const Dim head, dim_of(q, "head"));
  TRY(const Dim key, dim_of(k, "key"));
  TRY_DO(want_same(k, in[2]));
  if (k.dtype != q.dtype || !k.has(head.name) || k.size_of(head.name) != head.size)
    return wrong("{} and {} have different {}", q.text(), k.text(), head.name);
  if (k.has(query.name) || q.has(key.name))
    return wrong("{} and {}: {} must be in the first only, {} in the second only", q.text(),
                 k.text(), query.name, key.name);
  for (const Dim& dim : k.dims) {
    if (dim.name == key.name || dim.name == head.name) continue;
    if (!q.has(dim.name) || q.size_of(dim.name) != dim.size)
      return wrong("{} has no dimension {}={} of {}", q.text(), dim.name, dim.size, k.text());
  }
  if (attributes.get<bool>("causal") && key.size < query.size)
    return wrong("{} keys are too few for {} queries that look back", key.size, query.size);
  if (in.size() == 4) {
    if (!attributes.get<bool>("causal"))
      return wrong("queries with a position look back only: causal has to be true");
    TRY_DO(want_position(in[3], k, key.name));
  }
  Type sums = q.without({head.name, query.name}).with(DType::f32);
  sums.dims.push_back(query);
  return Types{q, sums};
}

Result<Types> Inference::attention_grad() const {
  const Inference forward{OpKind::attention, in.subspan(1, 3), attributes, nullptr, nullptr};
  TRY(const Types results, forward.attention());
  TRY_DO(want_same(in[0], results[0]));
  TRY_DO(want_same(in[4], results[0]));
  TRY_DO(want_same(in[5], results[1]));
  return Types{in[1], in[2], in[3]};
}

Result<Types> Inference::linear_cross_entropy() const {
  const Type& x = in[0];
  const Type& w = in[1];
  TRY(const Dim over, dim_of(x, "over"));
  TRY(const Dim vocab, dim_of(w, "vocab"));
  TRY_DO(want_float(x));
  TRY_DO(want_same(w, Type{x.dtype, {vocab, over}}));
  TRY_DO(want_whole(in[2]));
  const Type loss = x.without({over.name}).with(DType::f32);
  TRY_DO(want_same(in[2], loss.with(in[2].dtype)));
  if (kind == OpKind::linear_cross_entropy) return Types{loss};
  TRY_DO(want_same(in[3], loss));
  return parted({loss, x, w});
}

Result<Types> Inference::squared_norm() const {
  for (const Type& type : in) TRY_DO(want_float(type));
  return Types{Type{DType::f32, {}}};
}

Result<Types> Inference::adamw() const {
  for (const char* key : {"beta1", "beta2", "epsilon", "decay"}) TRY_DO(attribute<double>(key));
  for (size_t i = 1; i < 4; ++i) TRY_DO(want_same(in[0], in[i]));
  TRY_DO(want_same(in[4], Type{DType::f32, {}}));
  TRY_DO(want_same(in[5], Type{DType::f32, {}}));
  TRY_DO(want_same(in[6], Type{DType::i64, {}}));
  return Types{in[0], in[1], in[2]};
}

Result<Types> Inference::collective() const {
  TRY_DO(attribute<std::string>("axis"));
  TRY(const int64_t ranks, attribute<int64_t>("ranks"));
  if (ranks < 1) return wrong("between {} ranks makes no sense", ranks);
  Type out = in[0];
  const auto part = [&](std::string_view key) -> Result<void> {
    TRY(const Dim cut, dim_of(out, key));
    if (cut.size % ranks != 0)
      return wrong("{}={} of {} does not divide by {} ranks", cut.name, cut.size, in[0].text(),
                   ranks);
    out.dims[*out.find(cut.name)].size /= ranks;
    return {};
  };
  const auto join = [&](std::string_view key) -> Result<void> {
    TRY(const Dim whole, dim_of(out, key));
    out.dims[*out.find(whole.name)].size *= ranks;
    return {};
  };
  switch (kind) {
    case OpKind::all_reduce:
      if (attributes.find("op") != nullptr && *attributes.find("op") != Attribute(kMaxOp))
        return wrong("attribute op is not \"{}\"", kMaxOp);
      return Types{out};
    case OpKind::all_gather: TRY_DO(join("dim")); return Types{out};
    case OpKind::all_to_all:
      TRY_DO(part("to"));
      TRY_DO(join("from"));
      return Types{out};
    default: TRY_DO(part("dim")); return Types{out};
  }
}

// Which node of the tree an operand is follows from the lanes.
Result<void> Inference::lanes() const {
  TRY_DO(attribute<std::string>("axis"));
  TRY(const int64_t all, attribute<int64_t>("lanes"));
  TRY(const int64_t first, attribute<int64_t>("first"));
  TRY(const int64_t count, attribute<int64_t>("count"));
  if (first < 0 || count < 1 || count > all - first)
    return wrong("{} lanes from {} on are not among {}", count, first, all);
  if (in.empty()) return wrong("has no sums to begin with");
  TRY_DO(want_float(in[0]));
  for (const Type& type : in) TRY_DO(want_same(in[0], type));
  return {};
}

Result<Types> Inference::lane_all_reduce() const {
  TRY_DO(lanes());
  return Types{in[0]};
}

// Elements of this worker's shard, and of all.
Result<std::pair<int64_t, int64_t>> Inference::shard() const {
  TRY_DO(attribute<std::string>("axis"));
  TRY(const auto counts, attribute<std::vector<int64_t>>("counts"));
  TRY(const int64_t rank, attribute<int64_t>("rank"));
  if (rank < 0 || std::cmp_greater_equal(rank, counts.size()))
    return wrong("worker {} is not among {}", rank, counts.size());
  int64_t all = 0;
  for (const int64_t count : counts) {
    if (count < 1) return wrong("a shard of {} elements", count);
    all += count;
  }
  return std::pair{counts[static_cast<size_t>(rank)], all};
}

Result<Types> Inference::lane_reduce_scatter() const {
  TRY_DO(lanes());
  TRY(const auto sizes, shard());
  if (sizes.second != in[0].elements())
    return wrong("shards of {} elements are not all of {}", sizes.second, in[0].text());
  return Types{Type{in[0].dtype, {{"shard", sizes.first}}}};
}

Result<Types> Inference::shard_gather() const {
  TRY(const auto sizes, shard());
  if (sizes.first != in[0].elements() || sizes.second != given->elements() ||
      in[0].dtype != given->dtype)
    return wrong("{}, a shard of {} elements of {}, is no part of {}", in[0].text(), sizes.first,
                 sizes.second, given->text());
  return Types{*given};
}

Result<Types> Inference::square_chunks() const {
  TRY_DO(want_same(in[0], in[0].with(DType::f32)));
  return Types{Type{DType::f32, {{"chunk", chunks_of(in[0].elements())}}}};
}

Result<Types> Inference::join_chunks() const {
  TRY_DO(want_same(in[0], Type{DType::f32, {{"chunk", in[0].elements()}}}));
  return Types{Type{DType::f32, {}}};
}

Result<Types> Inference::run() const {
  switch (op_class(kind)) {
    case OpClass::source: return source();
    case OpClass::unary: return unary();
    case OpClass::binary: return binary();
    case OpClass::collective: return collective();
    default: break;
  }
  switch (kind) {
    case OpKind::select: return select();
    case OpKind::reshape: return reshape();
    case OpKind::transpose: return transpose();
    case OpKind::broadcast: return broadcast();
    case OpKind::slice: return slice();
    case OpKind::pad: return pad();
    case OpKind::concat: return concat();
    case OpKind::reduce_sum:
    case OpKind::reduce_max:
    case OpKind::cumulative_sum: return reduce();
    case OpKind::argmax: return argmax();
    case OpKind::gather: return gather();
    case OpKind::scatter_add: return scatter_add();
    case OpKind::update: return update();
    case OpKind::repeat: return repeat();
    case OpKind::fused: return fused();
    case OpKind::lane_all_reduce: return lane_all_reduce();
    case OpKind::lane_reduce_scatter: return lane_reduce_scatter();
    case OpKind::shard_gather: return shard_gather();
    case OpKind::square_chunks: return square_chunks();
    case OpKind::join_chunks: return join_chunks();
    case OpKind::matmul: return matmul();
    case OpKind::softmax: return softmax();
    case OpKind::gelu: TRY_DO(want_float(in[0])); return Types{in[0]};
    case OpKind::gelu_grad: TRY_DO(want_same(in[0], in[1])); return Types{in[0]};
    case OpKind::layer_norm:
    case OpKind::rms_norm: return norm();
    case OpKind::layer_norm_grad:
    case OpKind::rms_norm_grad: return norm_grad();
    case OpKind::attention: return attention();
    case OpKind::attention_grad: return attention_grad();
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad: return linear_cross_entropy();
    case OpKind::squared_norm: return squared_norm();
    case OpKind::adamw: return adamw();
    default: return wrong("is not an operation");
  }
}

}  // namespace

Result<std::vector<Type>> infer(OpKind kind, std::span<const Type> operands,
                                const Attributes& attributes, const Graph* body,
                                const Type* given) {
  const OpInfo& info = op_info(kind);
  if (info.operands != kAnyNumber && std::cmp_not_equal(operands.size(), info.operands))
    return fail(Code::invalid, "{} takes {} operands, not {}", info.name, info.operands,
                operands.size());
  if (info.typed) {
    if (given == nullptr) return fail(Code::invalid, "{} has to say its type", info.name);
    TRY_DO(check_type(*given));
  }
  TRY(auto results, (Inference{kind, operands, attributes, body, given}.run()));
  for (const Type& type : results) TRY_DO(check_type(type));
  return results;
}

}  // namespace tutti
