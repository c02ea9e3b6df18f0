#include "fabric/bucket.h"

#include <algorithm>
#include <map>

#include "fabric/fold.h"

namespace tutti {

Result<std::unique_ptr<Buckets>> Buckets::make(std::shared_ptr<Group> group,
                                               std::vector<BucketTensor> tensors,
                                               BucketsOptions options) {
  std::unique_ptr<Buckets> buckets(
      new Buckets(std::move(group), std::move(tensors), std::move(options)));
  TRY_DO(buckets->check());
  buckets->deal();
  for (Bucket& bucket : buckets->buckets_) TRY_DO(buckets->place(bucket));
  return buckets;
}

Buckets::Buckets(std::shared_ptr<Group> group, std::vector<BucketTensor> tensors,
                 BucketsOptions options)
    : group_(std::move(group)),
      tensors_(std::move(tensors)),
      options_(std::move(options)),
      bucket_of_(tensors_.size()),
      is_ready_(tensors_.size()) {}

// Others may still read what is under way: that memory is not given back in this epoch.
Buckets::~Buckets() {
  if (done_ < begun_) return;
  for (const uint64_t offset : staged_) group_->heap().free(offset);
}

Result<void> Buckets::check() const {
  if (options_.bytes == 0) return fail(Code::invalid, "a bucket has at least one byte");
  const size_t inputs = options_.lanes == 0 ? 1 : options_.nodes.size();
  if (options_.lanes == 0 && !options_.nodes.empty())
    return fail(Code::invalid, "nodes come with lanes");
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].inputs.size() != inputs)
      return fail(Code::invalid, "tensor {} of the buckets has {} inputs, not {}", i,
                  tensors_[i].inputs.size(), inputs);
  return {};
}

uint64_t Buckets::bytes_of(uint32_t tensor) const {
  return tensors_[tensor].elements * dtype_bytes(tensors_[tensor].type);
}

// Alike on all members: by types and sizes alone. One bucket of each type is open at a time.
void Buckets::deal() {
  std::map<DType, Bucket> open;
  const auto close = [&](DType type) {
    if (!open[type].tensors.empty()) buckets_.push_back(std::exchange(open[type], {}));
  };
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const BucketTensor& tensor = tensors_[i];
    if (bytes_of(i) >= options_.bytes) {
      buckets_.push_back({.type = tensor.type, .tensors = {i}, .elements = tensor.elements});
      continue;
    }
    const uint64_t filled = open[tensor.type].elements * dtype_bytes(tensor.type);
    if (filled + bytes_of(i) > options_.bytes) close(tensor.type);
    Bucket& bucket = open[tensor.type];
    bucket.type = tensor.type;
    bucket.tensors.push_back(i);
    bucket.elements += tensor.elements;
  }
  for (auto& [type, bucket] : open) close(type);
  // Tensors become ready in about their order, and so do buckets by the last of theirs.
  std::ranges::sort(buckets_, {}, [](const Bucket& bucket) { return bucket.tensors.back(); });
  for (uint32_t i = 0; i < buckets_.size(); ++i)
    for (const uint32_t tensor : buckets_[i].tensors) bucket_of_[tensor] = i;
}

Result<std::byte*> Buckets::room(const Bucket& bucket) {
  TRY(const uint64_t offset, group_->heap().allocate(bucket.elements * dtype_bytes(bucket.type)));
  staged_.push_back(offset);
  return group_->heap().at(offset);
}

// Where its tensors lie one after the other that is its place, else it is a copy.
Result<void> Buckets::place(Bucket& bucket) {
  const auto begins = [&](const auto& where) {
    decltype(where(0)) first = nullptr;
    uint64_t before = 0;
    for (const uint32_t tensor : bucket.tensors) {
      if (bytes_of(tensor) == 0) continue;
      if (before == 0) first = where(tensor);
      if (where(tensor) != first + before) return decltype(first)(nullptr);
      before += bytes_of(tensor);
    }
    return first;
  };
  const uint64_t bytes = bucket.elements * dtype_bytes(bucket.type);
  const size_t inputs = tensors_[bucket.tensors[0]].inputs.size();
  std::byte* copy = nullptr;
  for (size_t i = 0; i < inputs; ++i) {
    const std::byte* input = begins([&](uint32_t tensor) { return tensors_[tensor].inputs[i]; });
    if (input == nullptr && bytes != 0) {
      TRY(copy, room(bucket));
      copied_bytes_ += bytes;
    }
    bucket.copies.push_back(input == nullptr ? copy : nullptr);
    bucket.inputs.push_back(input == nullptr ? copy : input);
  }
  bucket.output = begins([&](uint32_t tensor) { return tensors_[tensor].output; });
  bucket.unpacks = bucket.output == nullptr && bytes != 0;
  if (!bucket.unpacks) return {};
  copied_bytes_ += bytes;
  bucket.output = copy;  // it is read where it is written, element by element
  if (copy == nullptr) {
    TRY(bucket.output, room(bucket));
  }
  return {};
}

Result<void> Buckets::begin(Bucket& bucket) {
  for (size_t i = 0; i < bucket.inputs.size(); ++i) {
    std::byte* to = bucket.copies[i];
    if (to == nullptr) continue;
    for (const uint32_t tensor : bucket.tensors) {
      copy_bytes(to, tensors_[tensor].inputs[i], bytes_of(tensor), false);
      to += bytes_of(tensor);
    }
  }
  Call call{.kind = CallKind::all_reduce,
            .type = bucket.type,
            .op = options_.op,
            .elements = bucket.elements,
            .output = bucket.output,
            .lanes = options_.lanes,
            .keeps = options_.keeps,
            .site = options_.site};
  // Members whose tensors differ are told, also where their sum does not.
  for (const uint32_t tensor : bucket.tensors) call.shape.push_back(tensors_[tensor].elements);
  if (options_.lanes == 0) call.input = bucket.inputs[0];
  for (size_t i = 0; i < options_.nodes.size(); ++i)
    call.parts.push_back({options_.nodes[i], bucket.inputs[i]});
  TRY(bucket.operation, group_->start(std::move(call)));
  return {};
}

Result<void> Buckets::ready(uint32_t tensor) {
  if (tensor >= tensors_.size())
    return fail(Code::invalid, "there is no tensor {} among {} of the buckets", tensor,
                tensors_.size());
  if (is_ready_[tensor])
    return fail(Code::invalid, "tensor {} is ready already; wait() comes before the next round",
                tensor);
  is_ready_[tensor] = true;
  ++buckets_[bucket_of_[tensor]].ready;
  TRY_DO(begin_ready());
  // Helps along what is under way.
  if (done_ < begun_) TRY_DO(group_->poll(*buckets_[begun_ - 1].operation));
  return {};
}

Result<void> Buckets::begin_ready() {
  while (begun_ < buckets_.size() && buckets_[begun_].ready == buckets_[begun_].tensors.size()) {
    TRY_DO(begin(buckets_[begun_]));
    ++begun_;
  }
  return {};
}

Result<void> Buckets::all_ready() const {
  const auto late = std::ranges::find(is_ready_, false);
  if (late == is_ready_.end()) return {};
  return fail(Code::invalid, "tensor {} of the buckets is not ready", late - is_ready_.begin());
}

void Buckets::finish(Bucket& bucket) {
  if (bucket.unpacks) {
    const std::byte* from = bucket.output;
    for (const uint32_t tensor : bucket.tensors) {
      copy_bytes(tensors_[tensor].output, from, bytes_of(tensor), false);
      from += bytes_of(tensor);
    }
  }
  bucket.ready = 0;
  bucket.operation = nullptr;
  if (++done_ < buckets_.size()) return;
  begun_ = done_ = 0;
  is_ready_.assign(is_ready_.size(), false);
}

Result<void> Buckets::wait(Duration timeout) {
  TRY_DO(all_ready());
  TRY_DO(begin_ready());  // what could not begin when it was ready
  const Instant deadline = group_->parking().now() + timeout;
  for (size_t left = buckets_.size() - done_; left > 0; --left) {
    Bucket& bucket = buckets_[done_];
    TRY_DO(group_->wait(*bucket.operation, deadline - group_->parking().now()));
    finish(bucket);
  }
  return {};
}

Task<Result<void>> Buckets::wait(World& world, Duration timeout) {
  CO_TRY_DO(all_ready());
  CO_TRY_DO(begin_ready());
  const Instant deadline = world.clock().now() + timeout;
  for (size_t left = buckets_.size() - done_; left > 0; --left) {
    Bucket& bucket = buckets_[done_];
    const Duration rest = deadline - world.clock().now();
    auto waited = co_await group_->wait(world, bucket.operation, rest);
    if (!waited) co_return waited;
    finish(bucket);
  }
  co_return Result<void>{};
}

}  // namespace tutti
