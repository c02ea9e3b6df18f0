#include "run/update_launch.h"

#include <cstring>

#include "kernels/share.h"
#include "run/pointer.h"

namespace tutti {
namespace {

// A dimension of the rows, and how far apart its elements are where they are and where they go.
struct Step {
  int64_t size;
  int64_t from;
  int64_t to;
  int64_t position;
  bool along;  // the dimension that positions count
};

class UpdateLaunch final : public Launch {
 public:
  explicit UpdateLaunch(const Instruction& instruction)
      : cache_(instruction.operands[0]),
        rows_(instruction.operands[1]),
        position_(instruction.operands[2]),
        out_(instruction.results[0]),
        dim_(instruction.attributes.get<std::string>("dim")) {
    const TensorRef& cache = instruction.results[0];
    const TensorRef& rows = instruction.operands[1];
    const TensorRef& position = instruction.operands[2];
    bytes_ = element_bytes(cache.type.dtype);
    cache_bytes_ = static_cast<size_t>(cache.type.bytes());
    places_ = cache.type.size_of(dim_);
    positions_ = position.type.elements();
    for (size_t i = 0; i < rows.type.dims.size(); ++i) {
      const auto place = position.type.find(rows.type.dims[i].name);
      steps_.push_back({.size = rows.type.dims[i].size,
                        .from = rows.strides[i],
                        .to = cache.strides[i],
                        .position = place ? position.strides[*place] : 0,
                        .along = rows.type.dims[i].name == dim_});
      if (steps_.back().along) step_ = steps_.back().to;
    }
    // Elements that lie side by side are copied at once, unless each may be past the end.
    const Step& last = steps_.back();
    if (!last.along && last.from == 1 && last.to == 1 && last.position == 0) {
      run_ = last.size;
      steps_.pop_back();
    }
    for (const Step& step : steps_) runs_ *= step.size;
  }

  Result<void> run(const LaunchCall& call) const override {
    const auto* positions = position_.as<const int64_t>(call);
    for (int64_t i = 0; i < positions_; ++i)
      if (positions[i] < 0 || positions[i] > places_)
        return fail(Code::invalid, "position {} is outside of the cache, which has {} places of {}",
                    positions[i], places_, dim_);
    Part part = part_of(runs_, call.thread, call.threads);
    if (cache_.in(call) != out_.in(call)) {
      if (call.thread != 0) return {};
      std::memcpy(out_.in(call), cache_.in(call), cache_bytes_);
      part = {0, runs_};
    }
    for (int64_t i = part.first; i < part.end; ++i) copy_run(call, positions, i);
    return {};
  }

 private:
  void copy_run(const LaunchCall& call, const int64_t* positions, int64_t index) const {
    int64_t from = 0;
    int64_t to = 0;
    int64_t position = 0;
    int64_t row = 0;
    for (size_t i = steps_.size(); i-- > 0; index /= steps_[i].size) {
      const int64_t at = index % steps_[i].size;
      from += at * steps_[i].from;
      to += at * steps_[i].to;
      position += at * steps_[i].position;
      if (steps_[i].along) row = at;
    }
    if (positions[position] + row >= places_) return;
    to += positions[position] * step_;
    std::memcpy(out_.in(call) + to * bytes_, rows_.in(call) + from * bytes_,
                static_cast<size_t>(run_ * bytes_));
  }

  Pointer cache_;
  Pointer rows_;
  Pointer position_;
  Pointer out_;
  std::string dim_;
  int64_t bytes_ = 0;
  size_t cache_bytes_ = 0;
  int64_t places_ = 0;
  int64_t positions_ = 0;
  int64_t step_ = 0;  // of places in the cache
  int64_t run_ = 1;   // elements
  int64_t runs_ = 1;
  std::vector<Step> steps_;
};

}  // namespace

std::unique_ptr<Launch> make_update_launch(const Instruction& instruction) {
  return std::make_unique<UpdateLaunch>(instruction);
}

}  // namespace tutti
