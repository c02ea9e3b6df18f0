#include "base/alike.h"

#include <algorithm>
#include <new>

namespace tutti {
namespace {

// Equal bytes between two runs that differ, which are worth beginning another run.
constexpr size_t kWorthARun = 3;

void add_number(std::string& onto, size_t number) {
  for (; number >= 0x80; number >>= 7) onto.push_back(static_cast<char>(number | 0x80));
  onto.push_back(static_cast<char>(number));
}

size_t take_number(Bytes& from) {
  size_t number = 0;
  for (int shift = 0;; shift += 7) {
    const auto digit = static_cast<size_t>(from.front());
    from = from.subspan(1);
    number |= (digit & 0x7F) << shift;
    if (digit < 0x80) return number;
  }
}

// How many bytes are the same from `at` on.
size_t same_from(Bytes a, Bytes b, size_t at) {
  return static_cast<size_t>(std::mismatch(a.begin() + static_cast<ptrdiff_t>(at), a.end(),
                                           b.begin() + static_cast<ptrdiff_t>(at))
                                 .first -
                             (a.begin() + static_cast<ptrdiff_t>(at)));
}

// Runs that differ, each behind the number of equal bytes before it and its own. Gives up when they
// take more than `most`.
bool find_runs(Bytes bytes, Bytes model, size_t most, std::string& runs) {
  runs.clear();
  size_t told = 0;
  for (size_t at = same_from(bytes, model, 0); at < bytes.size();) {
    size_t end = at + 1;
    size_t same = 0;
    while (end < bytes.size()) {
      same = same_from(bytes, model, end);
      if (same >= kWorthARun || end + same == bytes.size()) break;
      end += same + 1;
    }
    add_number(runs, at - told);
    add_number(runs, end - at);
    runs += as_text(bytes.subspan(at, end - at));
    if (runs.size() > most) return false;
    told = end;
    at = end + same;
  }
  return true;
}

}  // namespace

// In one piece with the runs behind it.
struct AlikeBytes::Kept {
  AlikePool::Model* model;
  uint32_t size;  // of the runs

  static constexpr size_t kHeader = sizeof(AlikePool::Model*) + sizeof(uint32_t);
  std::byte* runs() { return reinterpret_cast<std::byte*>(this) + kHeader; }
};

AlikePool::~AlikePool() { TUTTI_ASSERT(by_size_.empty(), "a pool outlives what is kept in it"); }

size_t AlikePool::models() const {
  size_t models = 0;
  for (const auto& [size, all] : by_size_) models += all.size();
  return models;
}

AlikeBytes::AlikeBytes(AlikePool& pool, Bytes bytes) {
  if (bytes.empty()) return;
  AlikePool::Models& models = pool.by_size_[bytes.size()];
  AlikePool::Model* model = nullptr;
  std::string runs;
  for (const auto& one : models) {
    if (!find_runs(bytes, as_bytes(one->bytes), bytes.size() / 2, runs)) continue;
    model = one.get();
    break;
  }
  if (model == nullptr && models.size() < AlikePool::kMostModels) {
    models.emplace_back(new AlikePool::Model{pool, std::string(as_text(bytes))});
    model = models.back().get();
    runs.clear();
  } else if (model == nullptr) {
    model = models.front().get();
    find_runs(bytes, as_bytes(model->bytes), SIZE_MAX, runs);
  }
  ++model->users;
  const size_t room = std::max(sizeof(Kept), Kept::kHeader + runs.size());
  kept_ = new (::operator new(room)) Kept{model, static_cast<uint32_t>(runs.size())};
  std::memcpy(kept_->runs(), runs.data(), runs.size());
}

void AlikeBytes::clear() {
  if (kept_ == nullptr) return;
  if (--kept_->model->users == 0) {
    auto& by_size = kept_->model->pool.by_size_;
    const auto found = by_size.find(kept_->model->bytes.size());
    std::erase_if(found->second, [&](const auto& one) { return one.get() == kept_->model; });
    if (found->second.empty()) by_size.erase(found);
  }
  ::operator delete(kept_);
  kept_ = nullptr;
}

size_t AlikeBytes::size() const { return kept_ == nullptr ? 0 : kept_->model->bytes.size(); }

size_t AlikeBytes::own_bytes() const { return kept_ == nullptr ? 0 : Kept::kHeader + kept_->size; }

void AlikeBytes::copy_to(MutableBytes into) const {
  if (kept_ == nullptr) return;
  std::memcpy(into.data(), kept_->model->bytes.data(), size());
  Bytes runs(kept_->runs(), kept_->size);
  for (size_t at = 0; !runs.empty();) {
    at += take_number(runs);
    const size_t count = take_number(runs);
    std::memcpy(into.data() + at, runs.data(), count);
    runs = runs.subspan(count);
    at += count;
  }
}

std::string AlikeBytes::text() const {
  std::string text(size(), '\0');
  copy_to(as_mutable_bytes(text));
  return text;
}

}  // namespace tutti
