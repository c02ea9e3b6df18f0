// Writes a graph the way people think of it: tensors, matched by the names of their dimensions.
//
//   Builder b("step");
//   Tensor x = b.input("x", {DType::f32, {{"batch", 16}, {"embed", 384}}});
//   Tensor w = b.state("w", {DType::f32, {{"embed", 384}, {"hidden", 1536}}});
//   b.output("y", b.gelu(b.matmul(x, w, {"embed"})));
//   TRY(Graph graph, b.build());
//
// Operands of arithmetic need not have the same dimensions: what one has not, it is repeated along.
// The result has the first one's dimensions in their order, then the others of the second.
//
// The first mistake is kept and told by build(); what is made after it is empty. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compile/graph.h"

namespace tutti {

class Builder;

// A value being built; as good as its Builder lives.
class Tensor {
 public:
  Tensor() = default;

  const Type& type() const;
  Builder& builder() const { return *builder_; }
  explicit operator bool() const { return builder_ != nullptr && value_ != kNoValue; }

 private:
  friend class Builder;
  Tensor(Builder* builder, ValueId value) : builder_(builder), value_(value) {}

  Builder* builder_ = nullptr;
  ValueId value_ = kNoValue;
};

// Arithmetic with numbers takes the tensor's kind of number.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, double b);
Tensor operator-(const Tensor& a, double b);
Tensor operator*(const Tensor& a, double b);
Tensor operator/(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
Tensor operator-(const Tensor& a);

struct AttentionOptions {
  bool causal = true;
  double scale = 0;  // 0: one over the root of the head's size
  std::string query = "time";
  std::string key = "keys";
  std::string head = "head";
};

struct RepeatOptions {
  int64_t count;
  std::string stack = "layer";
  bool reversed = false;
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double decay = 0.01;
};

class Builder {
 public:
  explicit Builder(std::string name) { graph_.name = std::move(name); }
  explicit Builder(Graph graph) : graph_(std::move(graph)) {}  // to go on with it
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // The line of the user's that what follows is made for.
  void at(std::string where) { at_ = std::move(where); }
  const std::string& at() const { return at_; }

  Tensor input(std::string name, Type type);
  Tensor state(std::string name, Type type);
  void output(std::string name, const Tensor& value);
  // The graph until now. Tensors keep their types; nothing is to be added after it.
  Result<Graph> build();
  const std::optional<Error>& error() const { return error_; }
  void refuse(Error error);  // as a mistake of an operation is

  Tensor constant(double value, const Type& type);
  Tensor iota(std::string dim, const Type& type);
  Tensor random(const Tensor& step, int64_t seed, std::string stream, Dims dims);

  Tensor unary(OpKind kind, const Tensor& x);
  Tensor binary(OpKind kind, const Tensor& a, const Tensor& b);
  Tensor select(const Tensor& condition, const Tensor& yes, const Tensor& no);
  Tensor cast(const Tensor& x, DType dtype);

  Tensor reshape(const Tensor& x, Dims dims);
  Tensor rename(const Tensor& x, const std::string& from, const std::string& to);
  Tensor transpose(const Tensor& x, Names order);
  Tensor broadcast(const Tensor& x, const Dims& dims);  // and transposed where need be
  Tensor slice(const Tensor& x, std::string dim, int64_t start, int64_t size);
  Tensor pad(const Tensor& x, std::string dim, int64_t low, int64_t high);
  Tensor concat(const std::vector<Tensor>& parts, std::string dim);

  Tensor sum(const Tensor& x, Names dims);
  Tensor mean(const Tensor& x, const Names& dims);
  Tensor max(const Tensor& x, Names dims);
  Tensor argmax(const Tensor& x, std::string dim);
  Tensor cumulative_sum(const Tensor& x, std::string dim);
  Tensor gather(const Tensor& table, const Tensor& indices, std::string dim);
  Tensor scatter_add(const Tensor& indices, const Tensor& updates, std::string dim, int64_t size);

  // The cache with rows in place of those from `position` on: i64 without dimensions, or with some
  // of the cache's, but not `dim`. Rows past the cache's end are lost.
  Tensor update(const Tensor& cache, const Tensor& rows, const Tensor& position, std::string dim);

  Tensor matmul(const Tensor& a, const Tensor& b, Names over);
  Tensor gelu(const Tensor& x, bool by_tanh = false);
  Tensor softmax(const Tensor& x, std::string dim);
  Tensor layer_norm(const Tensor& x, const Tensor& scale, const Tensor& shift, std::string dim,
                    double epsilon = 1e-5);
  Tensor rms_norm(const Tensor& x, const Tensor& scale, std::string dim, double epsilon = 1e-6);
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                   AttentionOptions options = {});
  // Over a cache of keys and values: query i sees those up to position + i.
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position,
                   AttentionOptions options = {});
  // One loss for each target; `weight` is [vocab, over].
  Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                              std::string over, std::string vocab);
  Tensor squared_norm(const std::vector<Tensor>& parts);
  std::vector<Tensor> adamw(const Tensor& weight, const Tensor& first, const Tensor& second,
                            const Tensor& gradient, const Tensor& gradient_scale,
                            const Tensor& rate, const Tensor& step, const AdamWOptions& options);

  // The body gets a builder of its own, the carried values, and of each sliced one the part of its
  // round; it returns the carried values for the next round, then what is to be stacked. Tensors of
  // this builder may be used in it as they are.
  using Body = std::function<std::vector<Tensor>(Builder& body, const std::vector<Tensor>& carried,
                                                 const std::vector<Tensor>& parts)>;
  std::vector<Tensor> repeat(const RepeatOptions& options, const std::vector<Tensor>& carried,
                             const std::vector<Tensor>& sliced, const Body& body);
  // The same in steps. The body's builder may be asked for a further part at any time; carried
  // values that are not to be returned anew are returned as they are.
  std::unique_ptr<Builder> open_body(RepeatOptions options, const std::vector<Tensor>& carried);
  std::vector<Tensor> carried();     // of a body: as its rounds see them
  Tensor part(const Tensor& outer);  // of a body: what its round sees of a tensor outside of it
  std::vector<Tensor> close_body(Builder& body, const std::vector<Tensor>& returned);

  // Any operation, as it is in the graph.
  std::vector<Tensor> add(OpKind kind, const std::vector<Tensor>& operands, Attributes attributes,
                          const Type* given = nullptr, std::shared_ptr<const Graph> body = nullptr);
  const Type& type_of(ValueId value) const { return graph_.type(value); }
  Tensor tensor(ValueId value) { return {this, value}; }
  ValueId id(const Tensor& tensor) { return use(tensor); }
  Graph& graph() { return graph_; }
  // Whether it builds the body of an operation of the other.
  bool is_within(const Builder& other) const;

 private:
  friend class Tensor;
  Tensor attend(const std::vector<Tensor>& operands, AttentionOptions options);
  // A tensor of a builder around this one, and the input that stands for it here.
  struct Taken {
    Tensor outer;
    ValueId inside;
  };
  Tensor one(OpKind kind, const std::vector<Tensor>& operands, Attributes attributes,
             const Type* given = nullptr) {
    const auto made = add(kind, operands, std::move(attributes), given);
    return made.empty() ? Tensor() : made.front();
  }
  // Its id here; what belongs to a builder around this one is captured.
  ValueId use(const Tensor& tensor);
  // Dimensions of both, a's first. Nothing if a size is not the same in both.
  std::optional<Dims> joined(OpKind kind, const Type& a, const Type& b);

  Graph graph_;
  std::string at_;
  std::optional<Error> error_;
  Builder* around_ = nullptr;
  // Of the builder around, in the order in which they were used.
  std::vector<Taken> captured_;
  // Of the body of a repeat.
  RepeatOptions rounds_{.count = 1};
  std::vector<Taken> carried_;
  std::vector<Taken> parts_;
};

}  // namespace tutti
