#include "run/heavy_launch.h"

#include <array>
#include <functional>

#include "base/assert.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/reduce.h"
#include "kernels/row_groups.h"
#include "kernels/share.h"
#include "run/adamw_launch.h"
#include "run/pointer.h"
#include "run/update_launch.h"

namespace tutti {
namespace {

using Refs = std::vector<TensorRef>;

// More parameters than an edge has.
constexpr size_t kMostParameters = 128;

class GemmLaunch final : public Launch {
 public:
  GemmLaunch(const Instruction& instruction, LoopFunction edge, const float* panel, int threads)
      : a_(instruction.operands[0]), b_(instruction.operands[1]), c_(instruction.results[0]) {
    const TensorRef& a = instruction.operands[0];
    const TensorRef& b = instruction.operands[1];
    const TensorRef& c = instruction.results[0];
    gemm_ = {.m = a.type.dims[0].size,
             .n = b.type.dims[1].size,
             .k = a.type.dims[1].size,
             .a = {nullptr, a.strides[0], a.strides[1]},
             .b = {nullptr, b.strides[0], b.strides[1]},
             .c = nullptr,
             .c_row_stride = c.strides[0],
             .accumulate = instruction.attributes.get<bool>("accumulate"),
             .edge = {.finish = edge},
             .panel = panel,
             .threads = threads};
    for (const TensorRef& ref : instruction.edge) edge_.emplace_back(ref);
    TUTTI_ASSERT(edge_.size() <= kMostParameters, "edges have few parameters");
  }

  int phases() const override { return gemm_phases(gemm_); }
  size_t shared_bytes() const override { return gemm_shared_bytes(gemm_); }
  size_t workspace_bytes() const override { return gemm_workspace_bytes(gemm_); }

  Result<void> run(const LaunchCall& call) const override {
    Gemm gemm = gemm_;
    gemm.a.data = a_.as<const float>(call);
    gemm.b.data = b_.as<const float>(call);
    gemm.c = c_.as<float>(call);
    std::array<void*, kMostParameters> parameters;
    for (size_t i = 0; i < edge_.size(); ++i) parameters[i] = edge_[i].in(call);
    gemm.edge.parameters = parameters.data();
    tutti::gemm(gemm, {.phase = call.phase,
                       .thread = call.thread,
                       .turns = call.turns,
                       .shared = call.shared,
                       .workspace = call.workspace});
    return {};
  }

 private:
  Gemm gemm_;
  Pointer a_;
  Pointer b_;
  Pointer c_;
  std::vector<Pointer> edge_;
};

// Batch, heads, time and head of a tensor of attention, whatever the order it lies in: all other
// dimensions but those of the key's heads are the batch.
struct HeadsRef {
  Pointer at;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t time_stride = 0;

  HeadsOf<float> in(const LaunchCall& call) const {
    return {at.as<float>(call), batch_stride, head_stride, time_stride};
  }
  ConstHeads constant(const LaunchCall& call) const {
    return {at.as<const float>(call), batch_stride, head_stride, time_stride};
  }
};

// What of a query's dimensions are what; nothing if the kernel's shape does not fit.
struct AttentionNames {
  std::string batch;  // empty: there is none
  std::string heads;
  std::string group;  // of query heads for one of keys
  std::string query;
  std::string key;
  std::string head;
};

std::optional<AttentionNames> names_of(const Instruction& instruction, const Type& q,
                                       const Type& k) {
  AttentionNames names{.query = instruction.attributes.get<std::string>("query"),
                       .key = instruction.attributes.get<std::string>("key"),
                       .head = instruction.attributes.get<std::string>("head")};
  Names shared;
  for (const Dim& dim : q.dims) {
    if (dim.name == names.query || dim.name == names.head) continue;
    if (k.has(dim.name)) {
      shared.push_back(dim.name);
    } else {
      if (!names.group.empty()) return std::nullopt;
      names.group = dim.name;
    }
  }
  if (shared.size() > 2) return std::nullopt;
  if (!shared.empty()) names.heads = shared.back();
  if (shared.size() == 2) names.batch = shared.front();
  return names;
}

int64_t size_of(const Type& type, const std::string& name) {
  return name.empty() ? 1 : type.size_of(name);
}

int64_t stride_of(const TensorRef& ref, const std::string& name) {
  const auto place = name.empty() ? std::nullopt : ref.type.find(name);
  return place ? ref.strides[*place] : 0;
}

class AttentionLaunch final : public Launch {
 public:
  static std::unique_ptr<Launch> make(const Instruction& instruction) {
    const bool grad = instruction.kernel == Kernel::attention_grad;
    const TensorRef& q = instruction.operands[grad ? 1 : 0];
    const TensorRef& k = instruction.operands[grad ? 2 : 1];
    const auto names = names_of(instruction, q.type, k.type);
    if (!names || q.type.dtype != DType::f32) return nullptr;
    auto made = std::make_unique<AttentionLaunch>();
    const int64_t group = size_of(q.type, names->group);
    const int64_t heads = size_of(q.type, names->heads);
    made->shape_ = {.batch = size_of(q.type, names->batch),
                    .query_heads = heads * group,
                    .kv_heads = heads,
                    .queries = q.type.size_of(names->query),
                    .keys = k.type.size_of(names->key),
                    .head_size = q.type.size_of(names->head),
                    .scale = static_cast<float>(instruction.attributes.get<double>("scale")),
                    .causal = instruction.attributes.get<bool>("causal")};
    for (const auto* refs : {&instruction.operands, &instruction.results})
      for (const TensorRef& ref : *refs) {
        if (!grad && refs == &instruction.operands && &ref - refs->data() == 3) {
          // Positions: one, or one for each of the batch.
          if (!ref.type.dims.empty() && ref.type.dims[0].name != names->batch) return nullptr;
          if (ref.type.dims.size() > 1) return nullptr;
          made->positions_ = Pointer(ref);
          made->position_stride_ = ref.type.dims.empty() ? 0 : 1;
          continue;
        }
        if (!ref.type.has(names->head)) {
          // Sums of exponentials, [batch][heads][queries] for the kernel.
          Names order;
          for (const std::string& name : {names->batch, names->heads, names->group, names->query})
            if (!name.empty()) order.push_back(name);
          for (size_t i = 0; i < order.size(); ++i)
            if (ref.type.dims[i].name != order[i]) return nullptr;
          made->lse_ = Pointer(ref);
          continue;
        }
        // Query heads that share keys must follow one another.
        const bool queries = ref.type.has(names->query);
        if (queries && group > 1 && heads > 1 &&
            stride_of(ref, names->heads) != stride_of(ref, names->group) * group)
          return nullptr;
        const std::string& step = queries && group > 1 ? names->group : names->heads;
        made->tensors_.push_back(
            {.at = Pointer(ref),
             .batch_stride = stride_of(ref, names->batch),
             .head_stride = stride_of(ref, step),
             .time_stride = stride_of(ref, queries ? names->query : names->key)});
      }
    made->grad_ = grad;
    return made;
  }

  size_t workspace_bytes() const override {
    return grad_ ? attention_grad_workspace_bytes(shape_) : attention_workspace_bytes(shape_);
  }

  Result<void> run(const LaunchCall& call) const override {
    const auto& t = tensors_;
    if (!grad_) {
      attention({.shape = shape_,
                 .q = t[0].constant(call),
                 .k = t[1].constant(call),
                 .v = t[2].constant(call),
                 .out = t[3].in(call),
                 .lse = lse_.as<float>(call),
                 .positions = positions_ ? positions_->as<const int64_t>(call) : nullptr,
                 .position_stride = position_stride_},
                *call.turns, call.workspace);
      return {};
    }
    attention_grad({.shape = shape_,
                    .dout = t[0].constant(call),
                    .q = t[1].constant(call),
                    .k = t[2].constant(call),
                    .v = t[3].constant(call),
                    .out = t[4].constant(call),
                    .lse = lse_.as<const float>(call),
                    .dq = t[5].in(call),
                    .dk = t[6].in(call),
                    .dv = t[7].in(call)},
                   *call.turns, call.workspace);
    return {};
  }

 private:
  AttentionShape shape_{};
  bool grad_ = false;
  std::vector<HeadsRef> tensors_;
  Pointer lse_;
  std::optional<Pointer> positions_;
  int64_t position_stride_ = 0;
};

// A kernel whose call is a closure over places.
class FunctionLaunch final : public Launch {
 public:
  using Function = std::function<Result<void>(const LaunchCall& call)>;
  explicit FunctionLaunch(Function function) : function_(std::move(function)) {}
  Result<void> run(const LaunchCall& call) const override { return function_(call); }

 private:
  Function function_;
};

std::unique_ptr<Launch> launch(FunctionLaunch::Function function) {
  return std::make_unique<FunctionLaunch>(std::move(function));
}

std::vector<Pointer> pointers(const Instruction& instruction) {
  std::vector<Pointer> all;
  for (const auto* refs : {&instruction.operands, &instruction.results})
    for (const TensorRef& ref : *refs) all.emplace_back(ref);
  return all;
}

std::unique_ptr<Launch> norm_launch(const Instruction& instruction) {
  const bool layer = instruction.kernel == Kernel::layer_norm;
  const Type& x = instruction.operands[0].type;
  LayerNorm norm{.rows = x.elements() / x.dims.back().size, .width = x.dims.back().size};
  norm.epsilon = static_cast<float>(instruction.attributes.get<double>("epsilon"));
  return launch([norm, layer, p = pointers(instruction)](const LaunchCall& call) -> Result<void> {
    LayerNorm given = norm;
    size_t next = 0;
    given.x = p[next++].as<const float>(call);
    given.scale = p[next++].as<const float>(call);
    if (layer) given.shift = p[next++].as<const float>(call);
    given.y = p[next++].as<float>(call);
    if (layer) given.mean = p[next++].as<float>(call);
    given.inverse = p[next].as<float>(call);
    (layer ? layer_norm : rms_norm)(given, call.thread, call.threads);
    return {};
  });
}

std::unique_ptr<Launch> norm_grad_launch(const Instruction& instruction) {
  const bool layer = instruction.kernel == Kernel::layer_norm_grad_rows;
  const Type& x = instruction.operands[1].type;
  LayerNormGrad grad{.rows = x.elements() / x.dims.back().size, .width = x.dims.back().size};
  TUTTI_ASSERT(instruction.attributes.get<int64_t>("group") == kRowsPerGroup,
               "programs and kernels agree on groups of rows");
  return launch([grad, layer, p = pointers(instruction)](const LaunchCall& call) -> Result<void> {
    LayerNormGrad given = grad;
    size_t next = 0;
    given.dy = p[next++].as<const float>(call);
    given.x = p[next++].as<const float>(call);
    given.scale = p[next++].as<const float>(call);
    if (layer) given.mean = p[next++].as<const float>(call);
    given.inverse = p[next++].as<const float>(call);
    given.dx = p[next++].as<float>(call);
    given.group_sums = p[next].as<float>(call);
    (layer ? layer_norm_grad_rows : rms_norm_grad_rows)(given, call.thread, call.threads);
    return {};
  });
}

// Of a scale, and of a shift if there is one, whose sums lie beside it.
std::unique_ptr<Launch> norm_join_launch(const Instruction& instruction) {
  const TensorRef& sums = instruction.operands[0];
  const RowGroupSums join{.sums = nullptr,
                          .groups = sums.type.dims[0].size,
                          .row_stride = sums.strides[0],
                          .columns = sums.type.dims[1].size,
                          .total = nullptr};
  return launch([join, p = pointers(instruction)](const LaunchCall& call) -> Result<void> {
    for (size_t i = 0; i < p.size() / 2; ++i) {
      RowGroupSums given = join;
      given.sums = p[i].as<float>(call);
      given.total = p[p.size() / 2 + i].as<float>(call);
      join_row_groups(given, call.thread, call.threads);
    }
    return {};
  });
}

std::unique_ptr<Launch> sum_rows_launch(const Instruction& instruction) {
  const TensorRef& x = instruction.operands[0];
  TUTTI_ASSERT(instruction.attributes.get<int64_t>("group") == kRowsPerGroup,
               "programs and kernels agree on groups of rows");
  const SumRows rows{.rows = x.type.dims[0].size,
                     .columns = x.type.dims[1].size,
                     .x = nullptr,
                     .row_stride = x.strides[0],
                     .out = nullptr,
                     .group_sums = nullptr};
  return launch([rows, p = pointers(instruction)](const LaunchCall& call) -> Result<void> {
    SumRows given = rows;
    given.x = p[0].as<const float>(call);
    given.group_sums = p[1].as<float>(call);
    sum_rows(given, call.thread, call.threads);
    return {};
  });
}

std::unique_ptr<Launch> cross_entropy_launch(const Instruction& instruction) {
  const TensorRef& logits = instruction.operands[0];
  const bool with_gradient = instruction.operands.size() > 2;
  if (instruction.operands[1].type.dtype != DType::i32) return nullptr;
  const CrossEntropy rows{.rows = logits.type.dims[0].size,
                          .vocab = logits.type.dims[1].size,
                          .logits = nullptr,
                          .row_stride = logits.strides[0],
                          .targets = nullptr,
                          .dloss = nullptr,
                          .loss = nullptr};
  const int64_t first = instruction.operands[1].offset;  // of some rows at a time
  return launch([rows, with_gradient, first,
                 p = pointers(instruction)](const LaunchCall& call) -> Result<void> {
    CrossEntropy given = rows;
    given.logits = p[0].as<float>(call);
    given.targets = p[1].as<const int32_t>(call);
    if (with_gradient) given.dloss = p[2].as<const float>(call);
    given.loss = p[with_gradient ? 3 : 2].as<float>(call);
    const auto bad = cross_entropy(given, call.thread, call.threads);
    if (!bad) return {};
    return fail(Code::invalid, "target {} is {}, which is not below the vocabulary of {}",
                first + *bad, given.targets[*bad], given.vocab);
  });
}

Result<void> told(BadToken bad, const int32_t* ids, int64_t rows) {
  if (!bad) return {};
  return fail(Code::invalid, "token {} is {}, which is outside of the table's {} rows", *bad,
              ids[*bad], rows);
}

std::unique_ptr<Launch> embedding_launch(const Instruction& instruction) {
  const bool gathers = instruction.kernel == Kernel::gather;
  const TensorRef& ids = instruction.operands[gathers ? 1 : 0];
  const Type& table = (gathers ? instruction.operands[0] : instruction.results[0]).type;
  if (ids.type.dtype != DType::i32) return nullptr;
  const int64_t tokens = ids.type.elements();
  const int64_t rows = table.dims[0].size;
  const int64_t width = table.elements() / rows;
  return launch([gathers, tokens, rows, width,
                 p = pointers(instruction)](const LaunchCall& call) -> Result<void> {
    if (gathers) {
      const Embedding given{.tokens = tokens,
                            .table_rows = rows,
                            .width = width,
                            .ids = p[1].as<const int32_t>(call),
                            .table = p[0].as<const float>(call),
                            .out = p[2].as<float>(call)};
      return told(embedding(given, call.thread, call.threads), given.ids, rows);
    }
    const EmbeddingGrad given{.tokens = tokens,
                              .table_rows = rows,
                              .width = width,
                              .ids = p[0].as<const int32_t>(call),
                              .dout = p[1].as<const float>(call),
                              .dtable = p[2].as<float>(call)};
    return told(embedding_grad(given, call.thread, call.threads), given.ids, rows);
  });
}

std::unique_ptr<Launch> chunks_launch(const Instruction& instruction) {
  const bool joins = instruction.kernel == Kernel::join_chunks;
  const bool squares = instruction.kernel == Kernel::square_chunks;
  const int64_t elements = instruction.operands[0].type.elements();
  if (instruction.operands[0].type.dtype != DType::f32) return nullptr;
  return launch([joins, squares, elements,
                 p = pointers(instruction)](const LaunchCall& call) -> Result<void> {
    if (joins) {
      if (call.thread == 0) *p[1].as<float>(call) = join_chunks(p[0].as<float>(call), elements);
    } else {
      (squares ? sum_square_chunks : sum_chunks)(p[0].as<const float>(call), elements,
                                                 p[1].as<float>(call), call.thread, call.threads);
    }
    return {};
  });
}

}  // namespace

std::unique_ptr<Launch> make_heavy_launch(const Program& program, const Instruction& instruction,
                                          std::span<const LoopFunction> loops,
                                          std::span<float* const> panels, int threads) {
  switch (instruction.kernel) {
    case Kernel::gemm:
      return std::make_unique<GemmLaunch>(
          instruction,
          instruction.loops < 0 ? nullptr : loops[static_cast<size_t>(instruction.loops)],
          instruction.panels.empty() ? nullptr : panels[instruction.panels[0]], threads);
    case Kernel::attention:
    case Kernel::attention_grad: return AttentionLaunch::make(instruction);
    case Kernel::layer_norm:
    case Kernel::rms_norm: return norm_launch(instruction);
    case Kernel::layer_norm_grad_rows:
    case Kernel::rms_norm_grad_rows: return norm_grad_launch(instruction);
    case Kernel::layer_norm_grad_join:
    case Kernel::rms_norm_grad_join:
    case Kernel::sum_rows_join: return norm_join_launch(instruction);
    case Kernel::sum_rows: return sum_rows_launch(instruction);
    case Kernel::cross_entropy: return cross_entropy_launch(instruction);
    case Kernel::gather:
    case Kernel::scatter_add: return embedding_launch(instruction);
    case Kernel::update: return make_update_launch(instruction);
    case Kernel::sum_chunks:
    case Kernel::square_chunks:
    case Kernel::join_chunks: return chunks_launch(instruction);
    case Kernel::adamw: return make_adamw_launch(program, instruction, panels);
    default: return nullptr;
  }
}

}  // namespace tutti
